// R x C elements: activations, weights, swap and load bits go east, partial sums south. Twin of mvp::Mesh and mvp::Array.
module mvp_array #(
    parameter ROWS = 4,
    parameter COLS = 4
) (
    input  wire               clk,
    input  wire               rst,
    input  wire               enable,
    input  wire [8*ROWS-1:0]  act_in,     // western edge, already skewed; row r in bits 8r+7..8r
    input  wire [ROWS-1:0]    valid_in,
    input  wire [ROWS-1:0]    swap_in,
    input  wire [8*ROWS-1:0]  weight_in,
    input  wire [ROWS-1:0]    load_in,
    input  wire [ROWS-1:0]    keep_in,
    output wire [32*COLS-1:0] psum_out    // southern edge; column c in bits 32c+31..32c
);
    // What enters element (r, c) from the west is number r (C + 1) + c; from the north, number r C + c.
    // What leaves the last column goes nowhere.
    /* verilator lint_off UNUSEDSIGNAL */
    wire [8*ROWS*(COLS+1)-1:0]  act;
    wire [ROWS*(COLS+1)-1:0]    valid;
    wire [ROWS*(COLS+1)-1:0]    swap;
    wire [8*ROWS*(COLS+1)-1:0]  weight;
    wire [ROWS*(COLS+1)-1:0]    load;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [32*(ROWS+1)*COLS-1:0] psum;

    assign psum[32*COLS-1:0] = {32 * COLS{1'b0}};
    assign psum_out          = psum[32*ROWS*COLS +: 32*COLS];

    genvar r, c;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : row
            assign act[8*r*(COLS+1) +: 8]    = act_in[8*r +: 8];
            assign valid[r*(COLS+1)]         = valid_in[r];
            assign swap[r*(COLS+1)]          = swap_in[r];
            assign weight[8*r*(COLS+1) +: 8] = weight_in[8*r +: 8];
            assign load[r*(COLS+1)]          = load_in[r];
            for (c = 0; c < COLS; c = c + 1) begin : col
                mvp_pe pe (
                    .clk       (clk),
                    .rst       (rst),
                    .enable    (enable),
                    .act_in    (act[8*(r*(COLS+1)+c) +: 8]),
                    .valid_in  (valid[r*(COLS+1)+c]),
                    .swap_in   (swap[r*(COLS+1)+c]),
                    .weight_in (weight[8*(r*(COLS+1)+c) +: 8]),
                    .load_in   (load[r*(COLS+1)+c]),
                    .keep_in   ((c == 0) ? 1'b1 : keep_in[r]),
                    .psum_in   (psum[32*(r*COLS+c) +: 32]),
                    .act_out   (act[8*(r*(COLS+1)+c+1) +: 8]),
                    .valid_out (valid[r*(COLS+1)+c+1]),
                    .swap_out  (swap[r*(COLS+1)+c+1]),
                    .weight_out(weight[8*(r*(COLS+1)+c+1) +: 8]),
                    .load_out  (load[r*(COLS+1)+c+1]),
                    .psum_out  (psum[32*((r+1)*COLS+c) +: 32])
                );
            end
        end
    endgenerate
endmodule
