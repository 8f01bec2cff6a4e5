// Normalises and rounds to nearest even. Wires; twin of the last two steps of numeric::Mac.
// Bypass: 0 none, 1 NaN, 2 +infinity, 3 -infinity. Flags: NV OF DZ UF NX.
module mvp_round #(
    parameter W = 43
) (
    input  wire               sign,
    input  wire signed [10:0] exponent,   // weight of bit W of the sum
    input  wire [W+1:0]       sum,
    input  wire [1:0]         bypass,
    input  wire               invalid,
    output wire [31:0]        result,
    output wire [4:0]         flags
);
    localparam N = W + 2;
    function [6:0] zeros(input [N-1:0] v);
        integer i;
        begin
            zeros = N[6:0];
            for (i = 0; i < N; i = i + 1)
                if (v[i]) zeros = N[6:0] - 7'd1 - i[6:0];
        end
    endfunction

    wire [6:0]         places = zeros(sum);
    wire               empty  = sum == {N{1'b0}};
    wire [N-1:0]       full   = sum << places;
    wire signed [12:0] top    = empty ? -13'sd126 : $signed({{2{exponent[10]}}, exponent}) + 13'sd1 - $signed({6'd0, places});

    // Below the smallest normal number the significand moves down; what is lost stays in the last bit.
    wire               below   = top < -13'sd126;
    wire signed [12:0] deep    = -13'sd126 - top;
    wire [6:0]         down    = ~below ? 7'd0 : (deep > N) ? N[6:0] : deep[6:0];
    wire [N-1:0]       kept    = full >> down;
    wire               lost    = (kept << down) != full;
    wire [N-1:0]       shifted = {kept[N-1:1], kept[0] | lost};
    wire [23:0]        sig     = shifted[N-1 -: 24];
    wire               guard   = shifted[N-25];
    wire               sticky  = shifted[N-26:0] != {N - 25{1'b0}};
    wire               nearly  = (top == -13'sd127) & (full[N-1 -: 25] == {25{1'b1}});
    wire               tiny    = below & ~nearly;

    wire signed [12:0] kept_exp = below ? -13'sd126 : top;
    wire               up       = guard & (sticky | sig[0]);
    // Exponent field and fraction are one number: the hidden one adds 1 to the field, and so does a carry.
    /* verilator lint_off UNUSEDSIGNAL */
    wire signed [12:0] field    = kept_exp + 13'sd126;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [31:0]        code     = {field[8:0], 23'd0} + {8'd0, sig} + {31'd0, up};
    wire               over     = (kept_exp > 13'sd127) | (code >= 32'h7f80_0000);
    wire               inexact  = guard | sticky;

    assign result = (bypass == 2'd1) ? 32'h7fc0_0000
                  : (bypass != 2'd0) ? {bypass[0], 31'h7f80_0000}
                  : {sign, over ? 31'h7f80_0000 : code[30:0]};
    assign flags  = (bypass != 2'd0) ? {invalid, 4'd0} : over ? 5'b00101 : {3'd0, inexact & tiny, inexact};
endmodule
