// The skew of the western edge: row r's wires arrive r L edges after row 0's, which pass straight through. Twin of mvp::Feeder.
module mvp_feeder #(
    parameter ROWS    = 4,
    parameter LATENCY = 1,  // L: edges from an element's inputs to its partial sum
    parameter WIDTH   = 8   // of an operand
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              enable,
    input  wire [WIDTH*ROWS-1:0] act_in,
    input  wire [ROWS-1:0]   valid_in,
    input  wire [ROWS-1:0]   swap_in,
    input  wire [WIDTH*ROWS-1:0] weight_in,
    input  wire [ROWS-1:0]   load_in,
    input  wire [ROWS-1:0]   keep_in,
    output wire [WIDTH*ROWS-1:0] act_out,
    output wire [ROWS-1:0]   valid_out,
    output wire [ROWS-1:0]   swap_out,
    output wire [WIDTH*ROWS-1:0] weight_out,
    output wire [ROWS-1:0]   load_out,
    output wire [ROWS-1:0]   keep_out
);
    genvar r, i;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : row
            localparam STAGES = r * LATENCY;
            localparam LINK   = 2 * WIDTH + 4;
            // Link i enters stage i: {keep, load, weight, swap, valid, act}.
            wire [LINK*(STAGES+1)-1:0] link;
            assign link[LINK-1:0] = {keep_in[r], load_in[r], weight_in[WIDTH*r +: WIDTH], swap_in[r], valid_in[r], act_in[WIDTH*r +: WIDTH]};
            for (i = 0; i < STAGES; i = i + 1) begin : stage
                reg [WIDTH-1:0] act_q;
                reg       valid_q;
                reg       swap_q;
                reg [WIDTH-1:0] weight_q;
                reg       load_q;
                reg       keep_q;
                always_ff @(posedge clk)
                    if (rst) {keep_q, load_q, weight_q, swap_q, valid_q, act_q} <= {LINK{1'b0}};
                    else if (enable) {keep_q, load_q, weight_q, swap_q, valid_q, act_q} <= link[LINK*i +: LINK];
                assign link[LINK*(i+1) +: LINK] = {keep_q, load_q, weight_q, swap_q, valid_q, act_q};
            end
            assign {keep_out[r], load_out[r], weight_out[WIDTH*r +: WIDTH], swap_out[r], valid_out[r], act_out[WIDTH*r +: WIDTH]} =
                link[LINK*STAGES +: LINK];
        end
    endgenerate
endmodule
