// The deskew of the southern edge: column c's partial sums are held C - 1 - c edges. Twin of mvp::Deskew.
module mvp_deskew #(
    parameter COLS = 4
) (
    input  wire               clk,
    input  wire               rst,
    input  wire               enable,
    input  wire [32*COLS-1:0] psum_in,
    output wire [32*COLS-1:0] psum_out
);
    genvar c, i;
    generate
        for (c = 0; c < COLS; c = c + 1) begin : col
            localparam STAGES = COLS - 1 - c;
            wire [32*(STAGES+1)-1:0] link;
            assign link[31:0] = psum_in[32*c +: 32];
            for (i = 0; i < STAGES; i = i + 1) begin : stage
                reg [31:0] psum_q;
                always_ff @(posedge clk)
                    if (rst) psum_q <= 32'd0;
                    else if (enable) psum_q <= link[32*i +: 32];
                assign link[32*(i+1) +: 32] = psum_q;
            end
            assign psum_out[32*c +: 32] = link[32*STAGES +: 32];
        end
    endgenerate
endmodule
