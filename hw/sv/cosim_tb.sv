// Applies a stimulus file, one word a cycle, and dumps every register. Cycle n: inputs at 10 n, rising edge at 10 n + 5.
// Plusargs: +stimulus=FILE ($readmemh), +cycles=N, +vcd=FILE.
module cosim_tb #(
    parameter ROWS  = 4,
    parameter COLS  = 4,
    parameter DEPTH = 16,
    parameter FLOAT = 0
);
    localparam WIDTH = (FLOAT != 0) ? 16 : 8;
    localparam WEST = (2 * WIDTH + 4) * ROWS;
    localparam MAX_CYCLES = 65536;

    reg                clk = 1'b0;
    reg [WEST+30:0]    stimulus [0:MAX_CYCLES-1];
    reg [WEST+30:0]    word = {(WEST + 31){1'b0}};
    string             stimulus_file, vcd_file;
    integer            cycles, n;

    wire               offers, end_out, overflow;
    wire [8:0]         lanes_out;
    wire [32*COLS-1:0] sum_out;

    // {rst, enable, tag, keep, load, weight, swap, valid, act}
    mvp_datapath #(.ROWS(ROWS), .COLS(COLS), .DEPTH(DEPTH), .FLOAT(FLOAT)) dut (
        .clk        (clk),
        .act        (word[0 +: WIDTH*ROWS]),
        .valid      (word[WIDTH*ROWS +: ROWS]),
        .swap       (word[(WIDTH+1)*ROWS +: ROWS]),
        .weight     (word[(WIDTH+2)*ROWS +: WIDTH*ROWS]),
        .load       (word[(2*WIDTH+2)*ROWS +: ROWS]),
        .keep       (word[(2*WIDTH+3)*ROWS +: ROWS]),
        .tag_valid  (word[WEST]),
        .tag_first  (word[WEST+1]),
        .tag_last   (word[WEST+2]),
        .tag_end    (word[WEST+3]),
        .tag_address(word[WEST+4 +: 16]),
        .tag_lanes  (word[WEST+20 +: 9]),
        .enable     (word[WEST+29]),
        .rst        (word[WEST+30]),
        .offers     (offers),
        .end_out    (end_out),
        .lanes_out  (lanes_out),
        .sum_out    (sum_out),
        .overflow   (overflow)
    );

    initial begin
        if (!$value$plusargs("stimulus=%s", stimulus_file) || !$value$plusargs("vcd=%s", vcd_file)
            || !$value$plusargs("cycles=%d", cycles) || cycles > MAX_CYCLES) begin
            $display("usage: +stimulus=FILE +cycles=N (at most %0d) +vcd=FILE", MAX_CYCLES);
            $finish;
        end
        $readmemh(stimulus_file, stimulus, 0, cycles - 1);
        $dumpfile(vcd_file);
        $dumpvars(0, cosim_tb);
        for (n = 0; n < cycles; n = n + 1) begin
            word = stimulus[n];
            #5 clk = 1'b1;
            #5 clk = 1'b0;
        end
        $finish;
    end
endmodule
