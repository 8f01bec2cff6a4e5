// Adds or subtracts two aligned terms; a negative difference is turned round. Wires; twin of a step of numeric::Mac.
// The sum: carry, window of W bits, sticky.
module mvp_add #(
    parameter W = 43
) (
    input  wire         hi_sign,
    input  wire         subtract,
    input  wire [W-1:0] hi,
    input  wire [W-1:0] lo,
    input  wire         sticky,
    output wire         sign,
    output wire [W+1:0] sum
);
    wire [W+1:0] a      = {1'b0, hi, 1'b0};
    wire [W+1:0] b      = {1'b0, lo, sticky};
    wire         turned = subtract & (a < b);
    assign sum  = ~subtract ? a + b : turned ? b - a : a - b;
    // A difference of nothing is +0; zeros of one sign keep it.
    assign sign = ~(subtract & (sum == {W + 2{1'b0}})) & (hi_sign != turned);
endmodule
