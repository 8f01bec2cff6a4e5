// The INT8 x INT8 -> INT32 processing element, weight-stationary. Twin of mvp::Pe, register for register.
//
// Latency: one edge in every direction. On the edge of a swap the product already uses the new weight, and the value
// swapped in is the shadow as it was before that edge.
module mvp_pe (
    input  wire               clk,
    input  wire               rst,        // synchronous, active high
    input  wire               enable,     // low freezes every register
    input  wire signed [7:0]  act_in,     // from the west
    input  wire               valid_in,   // the activation counts
    input  wire               swap_in,    // take the shadow weight with this activation
    input  wire signed [7:0]  weight_in,  // from the west
    input  wire               load_in,    // the western neighbour shifted on the last edge
    input  wire               keep_in,    // row-wide: the load goes on; tied high on column 0
    input  wire signed [31:0] psum_in,    // from the north
    output wire signed [7:0]  act_out,
    output wire               valid_out,
    output wire               swap_out,
    output wire signed [7:0]  weight_out,
    output wire               load_out,
    output wire signed [31:0] psum_out
);
    reg signed [7:0]  act_q;
    reg               valid_q;
    reg               swap_q;
    reg signed [7:0]  weight_q;
    reg signed [7:0]  shadow_q;
    reg               load_q;
    reg signed [31:0] psum_q;

    wire signed [7:0]  weight  = swap_in ? shadow_q : weight_q;
    wire signed [15:0] product = act_in * weight;
    wire               shift   = load_in & keep_in;

    always_ff @(posedge clk)
        if (rst) begin
            act_q    <= 8'sd0;
            valid_q  <= 1'b0;
            swap_q   <= 1'b0;
            weight_q <= 8'sd0;
            shadow_q <= 8'sd0;
            load_q   <= 1'b0;
            psum_q   <= 32'sd0;
        end else if (enable) begin
            act_q    <= act_in;
            valid_q  <= valid_in;
            swap_q   <= swap_in;
            weight_q <= weight;
            load_q   <= shift;
            if (shift) shadow_q <= weight_in;
            // A masked element passes the partial sum through untouched.
            psum_q   <= valid_in ? psum_in + {{16{product[15]}}, product} : psum_in;
        end

    assign act_out    = act_q;
    assign valid_out  = valid_q;
    assign swap_out   = swap_q;
    assign weight_out = shadow_q;
    assign load_out   = load_q;
    assign psum_out   = psum_q;
endmodule
