// Brings two terms to the larger exponent. Wires; twin of a step of numeric::Mac.
//
// P: bits of the first term's significand, whose leading one is in bit P - 1 or P - 2. The window has W = P + 27 bits.
module mvp_align #(
    parameter P = 16
) (
    input  wire               p_sign,
    input  wire signed [10:0] p_exp,
    input  wire [P-1:0]       p_sig,
    input  wire               c_sign,
    input  wire signed [10:0] c_exp,
    input  wire [23:0]        c_sig,
    output wire               hi_sign,
    output wire               subtract,
    output wire signed [10:0] exponent,
    output wire [P+26:0]      hi,
    output wire [P+26:0]      lo,
    output wire               sticky      // ones were shifted out of lo
);
    localparam W = P + 27;
    wire         leads = p_exp >= c_exp;
    wire [W-1:0] p     = {p_sig, 27'd0};
    wire [W-1:0] c     = {c_sig, {P + 3{1'b0}}};
    wire [W-1:0] other = leads ? c : p;

    wire signed [11:0] apart    = leads ? p_exp - c_exp : c_exp - p_exp;
    wire [6:0]         distance = (apart > W + 1) ? W[6:0] + 7'd1 : apart[6:0];

    assign hi       = leads ? p : c;
    assign lo       = other >> distance;
    assign sticky   = (lo << distance) != other;
    assign hi_sign  = leads ? p_sign : c_sign;
    assign subtract = p_sign != c_sign;
    assign exponent = leads ? p_exp : c_exp;
endmodule
