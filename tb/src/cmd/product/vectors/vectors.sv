// Holds a datapath against a folder of vectors, cycle by cycle.
//
// The README beside it has the command lines for these vectors, every bit of a word, and what is compared when. Put a module of your own,
// with the ports of mvp_datapath, in its place. Exit code 0: PASSED. Any other: FAILED.
module mvp_vectors #(
    parameter ROWS  = 4,
    parameter COLS  = 4,
    parameter DEPTH = 1024,
    parameter FLOAT = 0,
    parameter MANY  = 1 << 20   // room for cycles, at least those of shape.hex
);
    localparam WIDTH = (FLOAT != 0) ? 16 : 8;
    localparam WEST  = (2 * WIDTH + 4) * ROWS;

    reg [WEST+30:0]    stimulus [0:MANY-1];
    reg [32*COLS+11:0] expected [0:MANY-1];
    reg [31:0]         shape [0:4];
    reg [WEST+30:0]    word = {(WEST + 31){1'b0}};
    reg [8*512-1:0]    folder;
    reg                clk = 1'b0;
    integer            n, c, rows = 0, wrong = 0;

    wire               offers, end_out, overflow;
    wire [8:0]         lanes_out;
    wire [32*COLS-1:0] sum_out;

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

    task differs;
        begin
            if (wrong < 8) $display("cycle %0d: expected %h, got %h", n, expected[n], {overflow, offers, end_out, lanes_out, sum_out});
            wrong = wrong + 1;
        end
    endtask

    initial begin
        if (!$value$plusargs("vectors=%s", folder)) folder = ".";
        $readmemh({folder, "/shape.hex"}, shape);
        // A file that is not there leaves x.
        if (shape[0] !== ROWS || shape[1] !== COLS || shape[2] !== DEPTH || shape[3] !== FLOAT || (shape[4] <= MANY) !== 1'b1) begin
            $display("FAILED: these vectors need ROWS=%0d COLS=%0d DEPTH=%0d FLOAT=%0d MANY>=%0d",
                     shape[0], shape[1], shape[2], shape[3], shape[4]);
            $fatal(1);
        end
        $readmemh({folder, "/stimulus.hex"}, stimulus, 0, shape[4] - 1);
        $readmemh({folder, "/expected.hex"}, expected, 0, shape[4] - 1);
        for (n = 0; n < shape[4]; n = n + 1) begin
            word = stimulus[n];
            #5;
            // Before the first edge nothing is known.
            if (n > 0) begin
                if ({overflow, offers} !== expected[n][32*COLS+10 +: 2]) differs;
                else if (offers) begin
                    rows = rows + 1;
                    if ({end_out, lanes_out} !== expected[n][32*COLS +: 10]) differs;
                    for (c = 0; c < lanes_out; c = c + 1)
                        if (sum_out[32*c +: 32] !== expected[n][32*c +: 32]) differs;
                end
            end
            clk = 1'b1;
            #5 clk = 1'b0;
        end
        if (rows == 0) wrong = wrong + 1;
        $display("%0s: %0d cycles, %0d rows, %0d wrong", wrong == 0 ? "PASSED" : "FAILED", shape[4], rows, wrong);
        if (wrong != 0) $fatal(1);
        $finish;
    end
endmodule
