// The skew of the western edge: row r's wires arrive r L edges after row 0's, which pass straight through. Twin of mvp::Feeder.
module mvp_feeder #(
    parameter ROWS    = 4,
    parameter LATENCY = 1   // L: edges from an element's inputs to its partial sum
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              enable,
    input  wire [8*ROWS-1:0] act_in,
    input  wire [ROWS-1:0]   valid_in,
    input  wire [ROWS-1:0]   swap_in,
    input  wire [8*ROWS-1:0] weight_in,
    input  wire [ROWS-1:0]   load_in,
    input  wire [ROWS-1:0]   keep_in,
    output wire [8*ROWS-1:0] act_out,
    output wire [ROWS-1:0]   valid_out,
    output wire [ROWS-1:0]   swap_out,
    output wire [8*ROWS-1:0] weight_out,
    output wire [ROWS-1:0]   load_out,
    output wire [ROWS-1:0]   keep_out
);
    genvar r, i;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : row
            localparam STAGES = r * LATENCY;
            // Link i enters stage i: {keep, load, weight, swap, valid, act}.
            wire [20*(STAGES+1)-1:0] link;
            assign link[19:0] = {keep_in[r], load_in[r], weight_in[8*r +: 8], swap_in[r], valid_in[r], act_in[8*r +: 8]};
            for (i = 0; i < STAGES; i = i + 1) begin : stage
                reg [7:0] act_q;
                reg       valid_q;
                reg       swap_q;
                reg [7:0] weight_q;
                reg       load_q;
                reg       keep_q;
                always_ff @(posedge clk)
                    if (rst) {keep_q, load_q, weight_q, swap_q, valid_q, act_q} <= 20'd0;
                    else if (enable) {keep_q, load_q, weight_q, swap_q, valid_q, act_q} <= link[20*i +: 20];
                assign link[20*(i+1) +: 20] = {keep_q, load_q, weight_q, swap_q, valid_q, act_q};
            end
            assign {keep_out[r], load_out[r], weight_out[8*r +: 8], swap_out[r], valid_out[r], act_out[8*r +: 8]} =
                link[20*STAGES +: 20];
        end
    endgenerate
endmodule
