// c + a x b with one rounding, BF16 factors, FP32 addend, four stages: unpack, align, add, round. Twin of numeric::Mac.
module mvp_mac_bf16 (
    input  wire        clk,
    input  wire        rst,
    input  wire        enable,
    input  wire        valid_in,   // without it the addend passes through
    input  wire [15:0] a,
    input  wire [15:0] b,
    input  wire [31:0] c,
    output wire [31:0] result
);
    // BF16 is the top half of an FP32, whose low significand bits are then 0.
    wire               a_sign, a_nan, a_signaling, a_infinite;
    wire               b_sign, b_nan, b_signaling, b_infinite;
    wire               c_sign, c_nan, c_signaling, c_infinite;
    wire signed [10:0] a_exp, b_exp, c_exp;
    wire [23:0]        c_sig;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [23:0]        a_sig, b_sig;
    /* verilator lint_on UNUSEDSIGNAL */
    mvp_unpack_fp32 unpack_a (.code({a, 16'd0}), .sign(a_sign), .exponent(a_exp), .significand(a_sig), .nan(a_nan),
                              .signaling(a_signaling), .infinite(a_infinite));
    mvp_unpack_fp32 unpack_b (.code({b, 16'd0}), .sign(b_sign), .exponent(b_exp), .significand(b_sig), .nan(b_nan),
                              .signaling(b_signaling), .infinite(b_infinite));
    mvp_unpack_fp32 unpack_c (.code(c), .sign(c_sign), .exponent(c_exp), .significand(c_sig), .nan(c_nan),
                              .signaling(c_signaling), .infinite(c_infinite));

    wire        a_zero    = (a_sig == 24'd0) & ~a_nan & ~a_infinite;
    wire        b_zero    = (b_sig == 24'd0) & ~b_nan & ~b_infinite;
    wire        p_sign    = a_sign != b_sign;
    wire [15:0] p_sig     = a_sig[23:16] * b_sig[23:16];
    wire        p_inf     = a_infinite | b_infinite;
    wire        zero_inf  = p_inf & (a_zero | b_zero);
    wire        opposite  = p_inf & c_infinite & (p_sign != c_sign);
    wire        any_nan   = a_nan | b_nan | c_nan;
    wire        invalid   = a_signaling | b_signaling | c_signaling | (zero_inf & ~a_nan & ~b_nan) | (opposite & ~any_nan);
    wire [1:0]  bypass    = (any_nan | zero_inf | opposite) ? 2'd1 : p_inf ? {1'b1, p_sign} : c_infinite ? {1'b1, c_sign} : 2'd0;
    wire [1:0]  bypass_c  = c_nan ? 2'd1 : c_infinite ? {1'b1, c_sign} : 2'd0;

    // Stage 0: the exact product and the addend.
    reg               stage_0_valid_q;
    reg               stage_0_p_sign_q;
    reg signed [10:0] stage_0_p_exp_q;
    reg [15:0]        stage_0_p_sig_q;
    reg               stage_0_c_sign_q;
    reg signed [10:0] stage_0_c_exp_q;
    reg [23:0]        stage_0_c_sig_q;
    reg [1:0]         stage_0_bypass_q;
    reg               stage_0_invalid_q;

    always_ff @(posedge clk)
        if (rst) begin
            {stage_0_valid_q, stage_0_p_sign_q, stage_0_c_sign_q, stage_0_bypass_q, stage_0_invalid_q} <= 6'd0;
            stage_0_p_exp_q <= 11'sd0;
            stage_0_p_sig_q <= 16'd0;
            stage_0_c_exp_q <= 11'sd0;
            stage_0_c_sig_q <= 24'd0;
        end else if (enable) begin
            stage_0_valid_q   <= valid_in;
            stage_0_p_sign_q  <= valid_in ? p_sign : c_sign;
            stage_0_p_exp_q   <= (valid_in && p_sig != 16'd0) ? a_exp + b_exp + 11'sd1 : -11'sd1024;
            stage_0_p_sig_q   <= valid_in ? p_sig : 16'd0;
            stage_0_c_sign_q  <= c_sign;
            stage_0_c_exp_q   <= c_exp;
            stage_0_c_sig_q   <= c_sig;
            stage_0_bypass_q  <= valid_in ? bypass : bypass_c;
            stage_0_invalid_q <= valid_in & invalid;
        end

    // Stage 1: both in one window.
    wire               hi_sign, subtract, sticky;
    wire signed [10:0] aligned_exp;
    wire [42:0]        hi, lo;
    mvp_align #(.P(16)) align (
        .p_sign(stage_0_p_sign_q), .p_exp(stage_0_p_exp_q), .p_sig(stage_0_p_sig_q),
        .c_sign(stage_0_c_sign_q), .c_exp(stage_0_c_exp_q), .c_sig(stage_0_c_sig_q),
        .hi_sign(hi_sign), .subtract(subtract), .exponent(aligned_exp), .hi(hi), .lo(lo), .sticky(sticky)
    );
    reg               stage_1_valid_q;
    reg               stage_1_hi_sign_q;
    reg               stage_1_subtract_q;
    reg signed [10:0] stage_1_exp_q;
    reg [42:0]        stage_1_hi_low_q;
    reg [42:0]        stage_1_lo_low_q;
    reg               stage_1_sticky_q;
    reg [1:0]         stage_1_bypass_q;
    reg               stage_1_invalid_q;

    always_ff @(posedge clk)
        if (rst) begin
            {stage_1_valid_q, stage_1_hi_sign_q, stage_1_subtract_q, stage_1_sticky_q} <= 4'd0;
            {stage_1_bypass_q, stage_1_invalid_q} <= 3'd0;
            stage_1_exp_q    <= 11'sd0;
            stage_1_hi_low_q <= 43'd0;
            stage_1_lo_low_q <= 43'd0;
        end else if (enable) begin
            stage_1_valid_q    <= stage_0_valid_q;
            stage_1_hi_sign_q  <= hi_sign;
            stage_1_subtract_q <= subtract;
            stage_1_exp_q      <= aligned_exp;
            stage_1_hi_low_q   <= hi;
            stage_1_lo_low_q   <= lo;
            stage_1_sticky_q   <= sticky;
            stage_1_bypass_q   <= stage_0_bypass_q;
            stage_1_invalid_q  <= stage_0_invalid_q;
        end

    // Stage 2: the sum.
    wire        sign;
    wire [44:0] sum;
    mvp_add #(.W(43)) add (
        .hi_sign(stage_1_hi_sign_q), .subtract(stage_1_subtract_q), .hi(stage_1_hi_low_q), .lo(stage_1_lo_low_q),
        .sticky(stage_1_sticky_q), .sign(sign), .sum(sum)
    );
    reg               stage_2_valid_q;
    reg               stage_2_sign_q;
    reg signed [10:0] stage_2_exp_q;
    reg [44:0]        stage_2_sum_low_q;
    reg [1:0]         stage_2_bypass_q;
    reg               stage_2_invalid_q;

    always_ff @(posedge clk)
        if (rst) begin
            {stage_2_valid_q, stage_2_sign_q, stage_2_bypass_q, stage_2_invalid_q} <= 5'd0;
            stage_2_exp_q     <= 11'sd0;
            stage_2_sum_low_q <= 45'd0;
        end else if (enable) begin
            stage_2_valid_q   <= stage_1_valid_q;
            stage_2_sign_q    <= sign;
            stage_2_exp_q     <= stage_1_exp_q;
            stage_2_sum_low_q <= sum;
            stage_2_bypass_q  <= stage_1_bypass_q;
            stage_2_invalid_q <= stage_1_invalid_q;
        end

    // Stage 3: normalised and rounded.
    wire [31:0] rounded;
    wire [4:0]  flags;
    mvp_round #(.W(43)) round (
        .sign(stage_2_sign_q), .exponent(stage_2_exp_q), .sum(stage_2_sum_low_q), .bypass(stage_2_bypass_q),
        .invalid(stage_2_invalid_q), .result(rounded), .flags(flags)
    );
    // An element has no use for what leaves beside the sum.
    /* verilator lint_off UNUSEDSIGNAL */
    reg        stage_3_valid_q;
    reg [4:0]  stage_3_flags_q;
    /* verilator lint_on UNUSEDSIGNAL */
    reg [31:0] stage_3_result_q;

    always_ff @(posedge clk)
        if (rst) begin
            stage_3_valid_q  <= 1'b0;
            stage_3_result_q <= 32'd0;
            stage_3_flags_q  <= 5'd0;
        end else if (enable) begin
            stage_3_valid_q  <= stage_2_valid_q;
            stage_3_result_q <= rounded;
            stage_3_flags_q  <= flags;
        end

    assign result = stage_3_result_q;
endmodule
