// FP32 apart: a significand with its leading one in bit 23, the weight of that bit, and what the number is. Wires.
module mvp_unpack_fp32 (
    input  wire [31:0]        code,
    output wire               sign,       // 0 of a NaN
    output wire signed [10:0] exponent,   // -1024 where the significand is 0
    output wire [23:0]        significand,
    output wire               nan,
    output wire               signaling,
    output wire               infinite
);
    wire [22:0] fraction = code[22:0];
    wire        special  = code[30:23] == 8'hff;
    assign nan       = special & (fraction != 23'd0);
    assign signaling = nan & ~fraction[22];
    assign infinite  = special & (fraction == 23'd0);
    assign sign      = code[31] & ~nan;

    // Places by which a subnormal is moved up.
    function [4:0] up(input [22:0] f);
        integer i;
        begin
            up = 5'd0;
            for (i = 0; i < 23; i = i + 1)
                if (f[i]) up = 5'd23 - i[4:0];
        end
    endfunction

    wire       subnormal = code[30:23] == 8'd0;
    wire       nothing   = special | (subnormal & (fraction == 23'd0));
    wire [4:0] places    = up(fraction);
    assign significand = nothing ? 24'd0 : subnormal ? {1'b0, fraction} << places : {1'b1, fraction};
    assign exponent    = nothing ? -11'sd1024 : subnormal ? -11'sd126 - $signed({6'd0, places})
                       : $signed({3'd0, code[30:23]}) - 11'sd127;
endmodule
