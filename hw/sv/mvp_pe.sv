// The processing element, weight-stationary: INT8 x INT8 -> INT32, or BF16 x BF16 -> FP32. Twin of mvp::Pe, register for register.
//
// Latency: one edge in every direction, but four from operands to a BF16 element's partial sum. On the edge of a swap the product already uses the new weight, and the value
// swapped in is the shadow as it was before that edge.
module mvp_pe #(
    parameter FLOAT = 0,              // 1: BF16
    parameter WIDTH = 8               // of an operand: 8, or 16 for BF16
) (
    input  wire               clk,
    input  wire               rst,        // synchronous, active high
    input  wire               enable,     // low freezes every register
    input  wire [WIDTH-1:0]   act_in,     // from the west
    input  wire               valid_in,   // the activation counts
    input  wire               swap_in,    // take the shadow weight with this activation
    input  wire [WIDTH-1:0]   weight_in,  // from the west
    input  wire               load_in,    // the western neighbour shifted on the last edge
    input  wire               keep_in,    // row-wide: the load goes on; tied high on column 0
    input  wire [31:0]        psum_in,    // from the north
    output wire [WIDTH-1:0]   act_out,
    output wire               valid_out,
    output wire               swap_out,
    output wire [WIDTH-1:0]   weight_out,
    output wire               load_out,
    output wire [31:0]        psum_out
);
    reg [WIDTH-1:0] act_q;
    reg             valid_q;
    reg             swap_q;
    reg [WIDTH-1:0] weight_q;
    reg [WIDTH-1:0] shadow_q;
    reg             load_q;

    wire [WIDTH-1:0] weight = swap_in ? shadow_q : weight_q;
    wire             shift  = load_in & keep_in;

    always_ff @(posedge clk)
        if (rst) begin
            act_q    <= {WIDTH{1'b0}};
            valid_q  <= 1'b0;
            swap_q   <= 1'b0;
            weight_q <= {WIDTH{1'b0}};
            shadow_q <= {WIDTH{1'b0}};
            load_q   <= 1'b0;
        end else if (enable) begin
            act_q    <= act_in;
            valid_q  <= valid_in;
            swap_q   <= swap_in;
            weight_q <= weight;
            load_q   <= shift;
            if (shift) shadow_q <= weight_in;
        end

    // A masked element passes the partial sum through untouched.
    generate
        if (FLOAT != 0) begin : sum
            mvp_mac_bf16 mac (
                .clk(clk), .rst(rst), .enable(enable), .valid_in(valid_in), .a(act_in), .b(weight), .c(psum_in), .result(psum_out)
            );
        end else begin : sum
            reg [31:0]         psum_q;
            wire signed [15:0] product = $signed(act_in) * $signed(weight);
            always_ff @(posedge clk)
                if (rst) psum_q <= 32'd0;
                else if (enable) psum_q <= valid_in ? psum_in + {{16{product[15]}}, product} : psum_in;
            assign psum_out = psum_q;
        end
    endgenerate

    assign act_out    = act_q;
    assign valid_out  = valid_q;
    assign swap_out   = swap_q;
    assign weight_out = shadow_q;
    assign load_out   = load_q;
endmodule
