// R x C elements: activations, weights, swap and load bits go east, partial sums south. Twin of mvp::Mesh and mvp::Array.
module mvp_array #(
    parameter ROWS  = 4,
    parameter COLS  = 4,
    parameter FLOAT = 0,
    parameter WIDTH = 8
) (
    input  wire               clk,
    input  wire               rst,
    input  wire               enable,
    input  wire [WIDTH*ROWS-1:0]  act_in,     // western edge, already skewed; row r from bit WIDTH r up
    input  wire [ROWS-1:0]    valid_in,
    input  wire [ROWS-1:0]    swap_in,
    input  wire [WIDTH*ROWS-1:0]  weight_in,
    input  wire [ROWS-1:0]    load_in,
    input  wire [ROWS-1:0]    keep_in,
    output wire [32*COLS-1:0] psum_out    // southern edge; column c in bits 32c+31..32c
);
    // What enters element (r, c) from the west is number r (C + 1) + c; from the north, number r C + c.
    // What leaves the last column goes nowhere.
    /* verilator lint_off UNUSEDSIGNAL */
    wire [WIDTH*ROWS*(COLS+1)-1:0]  act;
    wire [ROWS*(COLS+1)-1:0]    valid;
    wire [ROWS*(COLS+1)-1:0]    swap;
    wire [WIDTH*ROWS*(COLS+1)-1:0]  weight;
    wire [ROWS*(COLS+1)-1:0]    load;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [32*(ROWS+1)*COLS-1:0] psum;

    assign psum[32*COLS-1:0] = {32 * COLS{1'b0}};
    assign psum_out          = psum[32*ROWS*COLS +: 32*COLS];

    genvar r, c;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : row
            assign act[WIDTH*r*(COLS+1) +: WIDTH]    = act_in[WIDTH*r +: WIDTH];
            assign valid[r*(COLS+1)]         = valid_in[r];
            assign swap[r*(COLS+1)]          = swap_in[r];
            assign weight[WIDTH*r*(COLS+1) +: WIDTH] = weight_in[WIDTH*r +: WIDTH];
            assign load[r*(COLS+1)]          = load_in[r];
            for (c = 0; c < COLS; c = c + 1) begin : col
                mvp_pe #(.FLOAT(FLOAT), .WIDTH(WIDTH)) pe (
                    .clk       (clk),
                    .rst       (rst),
                    .enable    (enable),
                    .act_in    (act[WIDTH*(r*(COLS+1)+c) +: WIDTH]),
                    .valid_in  (valid[r*(COLS+1)+c]),
                    .swap_in   (swap[r*(COLS+1)+c]),
                    .weight_in (weight[WIDTH*(r*(COLS+1)+c) +: WIDTH]),
                    .load_in   (load[r*(COLS+1)+c]),
                    .keep_in   ((c == 0) ? 1'b1 : keep_in[r]),
                    .psum_in   (psum[32*(r*COLS+c) +: 32]),
                    .act_out   (act[WIDTH*(r*(COLS+1)+c+1) +: WIDTH]),
                    .valid_out (valid[r*(COLS+1)+c+1]),
                    .swap_out  (swap[r*(COLS+1)+c+1]),
                    .weight_out(weight[WIDTH*(r*(COLS+1)+c+1) +: WIDTH]),
                    .load_out  (load[r*(COLS+1)+c+1]),
                    .psum_out  (psum[32*((r+1)*COLS+c) +: 32])
                );
            end
        end
    endgenerate
endmodule
