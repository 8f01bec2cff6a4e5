// a + b in FP32, rounded once; every NaN is 0x7FC00000. Wires.
module mvp_add_fp32 (
    input  wire [31:0] a,
    input  wire [31:0] b,
    output wire [31:0] sum
);
    wire               a_sign, a_nan, a_infinite, b_sign, b_nan, b_infinite;
    wire signed [10:0] a_exp, b_exp, exponent;
    wire [23:0]        a_sig, b_sig;
    wire               hi_sign, subtract, sticky, sign;
    wire [50:0]        hi, lo;
    wire [52:0]        total;
    wire               opposite = a_infinite & b_infinite & (a_sign != b_sign);
    wire [1:0]         bypass   = (a_nan | b_nan | opposite) ? 2'd1
                                : a_infinite ? {1'b1, a_sign} : b_infinite ? {1'b1, b_sign} : 2'd0;
    /* verilator lint_off PINCONNECTEMPTY */
    mvp_unpack_fp32 unpack_a (.code(a), .sign(a_sign), .exponent(a_exp), .significand(a_sig), .nan(a_nan), .signaling(), .infinite(a_infinite));
    mvp_unpack_fp32 unpack_b (.code(b), .sign(b_sign), .exponent(b_exp), .significand(b_sig), .nan(b_nan), .signaling(), .infinite(b_infinite));
    mvp_align #(.P(24)) align (
        .p_sign(a_sign), .p_exp(a_exp), .p_sig(a_sig), .c_sign(b_sign), .c_exp(b_exp), .c_sig(b_sig),
        .hi_sign(hi_sign), .subtract(subtract), .exponent(exponent), .hi(hi), .lo(lo), .sticky(sticky)
    );
    mvp_add #(.W(51)) add (.hi_sign(hi_sign), .subtract(subtract), .hi(hi), .lo(lo), .sticky(sticky), .sign(sign), .sum(total));
    mvp_round #(.W(51)) round (
        .sign(sign), .exponent(exponent), .sum(total), .bypass(bypass), .invalid(1'b0), .result(sum), .flags()
    );
    /* verilator lint_on PINCONNECTEMPTY */
endmodule
