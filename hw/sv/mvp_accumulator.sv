// Sums over k-tiles: a memory of DEPTH rows and an adder a column, INT32 or FP32. Twin of mvp::Accumulator.
//
// An edge reads the old sum and registers the row; LATENCY edges later their sum is written back, past the memory if that row is read
// again on that very edge. The sum over the last k-tile is not written but handed on.
module mvp_accumulator #(
    parameter COLS  = 4,
    parameter DEPTH = 16,
    parameter FLOAT = 0,
    parameter LATENCY = 1                // A: from the read to the write, LATENCY - 1 registers behind the adder
) (
    input  wire               clk,
    input  wire               rst,         // memory contents survive it
    input  wire               enable,
    input  wire               tag_valid,   // a row is there
    input  wire               tag_first,   // first k-tile: nothing to add to
    input  wire               tag_last,    // last k-tile: the sum is a result
    input  wire               tag_end,     // last row of the job
    input  wire [15:0]        tag_address,
    input  wire [8:0]         tag_lanes,   // columns that count
    input  wire [32*COLS-1:0] row_in,      // deskewed southern edge
    output wire               offers,      // a finished row stands at the output
    output wire               end_out,
    output wire [8:0]         lanes_out,
    output wire [32*COLS-1:0] sum_out,
    output wire               overflow     // a sum of a column that counts left 32 bits; sticky until reset
);
    localparam ADDRESS = (DEPTH > 1) ? $clog2(DEPTH) : 1;

    reg        tag_valid_q;
    reg        tag_first_q;
    reg        tag_last_q;
    reg        tag_end_q;
    reg [15:0] tag_address_q;
    reg [8:0]  tag_lanes_q;
    reg        overflow_q;

    wire read  = enable & tag_valid & ~tag_first;
    wire write = enable & done_valid & ~done_last;
    wire [COLS-1:0] wraps;

    // Tags on their way beside the adder: link 0 is the entry's, link LATENCY - 1 that of the sum that is done.
    localparam TAG = 29;
    wire [TAG*LATENCY-1:0] link;
    wire        done_valid, done_last, done_end;
    wire [15:0] done_address;
    wire [8:0]  done_lanes;
    /* verilator lint_off UNUSEDSIGNAL */
    wire        done_first;
    /* verilator lint_on UNUSEDSIGNAL */
    assign link[TAG-1:0] = {tag_valid_q, tag_first_q, tag_last_q, tag_end_q, tag_address_q, tag_lanes_q};
    assign {done_valid, done_first, done_last, done_end, done_address, done_lanes} = link[TAG*(LATENCY-1) +: TAG];

    genvar s;
    generate
        for (s = 0; s < LATENCY - 1; s = s + 1) begin : adder
            reg        valid_q;
            reg        first_q;
            reg        last_q;
            reg        end_q;
            reg [15:0] address_q;
            reg [8:0]  lanes_q;
            always_ff @(posedge clk)
                if (rst) {valid_q, first_q, last_q, end_q, address_q, lanes_q} <= {TAG{1'b0}};
                else if (enable)
                    {valid_q, first_q, last_q, end_q, address_q, lanes_q} <= link[TAG*s +: TAG];
            assign link[TAG*(s+1) +: TAG] = {valid_q, first_q, last_q, end_q, address_q, lanes_q};
        end
    endgenerate

    always_ff @(posedge clk)
        if (rst) begin
            {tag_valid_q, tag_first_q, tag_last_q, tag_end_q} <= 4'd0;
            tag_address_q <= 16'd0;
            tag_lanes_q   <= 9'd0;
            overflow_q    <= 1'b0;
        end else if (enable) begin
            {tag_valid_q, tag_first_q, tag_last_q, tag_end_q} <= {tag_valid, tag_first, tag_last, tag_end};
            tag_address_q <= tag_address;
            tag_lanes_q   <= tag_lanes;
            overflow_q    <= overflow_q | (tag_valid_q & ~tag_first_q & (|wraps));
        end

    genvar c;
    generate
        for (c = 0; c < COLS; c = c + 1) begin : lane
            reg [31:0]  memory [0:DEPTH-1];
            reg [31:0]  rdata_q;
            reg [31:0]  row_q;
            wire [31:0] total;
            wire [31:0] sum;
            wire [32*LATENCY-1:0] sums;
            if (FLOAT != 0) begin : plus
                mvp_add_fp32 fp32 (.a(rdata_q), .b(row_q), .sum(total));
                assign wraps[c] = 1'b0;
            end else begin : plus
                assign total = row_q + rdata_q;
                // Two's complement overflow: addends of one sign, a sum of the other.
                assign wraps[c] = (c < tag_lanes_q) & (row_q[31] == rdata_q[31]) & (total[31] != row_q[31]);
            end
            assign sums[31:0] = tag_first_q ? row_q : total;
            for (s = 0; s < LATENCY - 1; s = s + 1) begin : adder
                reg [31:0] sum_q;
                always_ff @(posedge clk)
                    if (rst) sum_q <= 32'd0;
                    else if (enable) sum_q <= sums[32*s +: 32];
                assign sums[32*(s+1) +: 32] = sum_q;
            end
            assign sum = sums[32*(LATENCY-1) +: 32];

            integer i;
            initial for (i = 0; i < DEPTH; i = i + 1) memory[i] = 32'd0;

            always_ff @(posedge clk)
                if (rst) begin
                    rdata_q <= 32'd0;
                    row_q   <= 32'd0;
                end else begin
                    if (enable) row_q <= row_in[32*c +: 32];
                    if (read) rdata_q <= (write && tag_address == done_address) ? sum : memory[tag_address[ADDRESS-1:0]];
                end

            always @(posedge clk)
                if (write && !rst) memory[done_address[ADDRESS-1:0]] <= sum;

            assign sum_out[32*c +: 32] = sum;
        end
    endgenerate

    assign offers    = done_valid & done_last;
    assign end_out   = done_end;
    assign lanes_out = done_lanes;
    assign overflow  = overflow_q;
endmodule
