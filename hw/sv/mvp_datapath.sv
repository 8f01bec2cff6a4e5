// Feeder, array, deskew and accumulator: what stands between the sequencer and the output FIFO of mvp::Processor.
module mvp_datapath #(
    parameter ROWS  = 4,
    parameter COLS  = 4,
    parameter DEPTH = 16,
    parameter FLOAT = 0,             // 0: INT8 into INT32, L = A = 1. 1: BF16 into FP32, L = A = 4
    parameter WIDTH = (FLOAT != 0) ? 16 : 8 // of an operand
) (
    input  wire               clk,
    input  wire               rst,
    input  wire               enable,
    input  wire [WIDTH*ROWS-1:0]  act,         // western edge before the skew
    input  wire [ROWS-1:0]    valid,
    input  wire [ROWS-1:0]    swap,
    input  wire [WIDTH*ROWS-1:0]  weight,
    input  wire [ROWS-1:0]    load,
    input  wire [ROWS-1:0]    keep,
    input  wire               tag_valid,   // with the row that leaves the deskew in this cycle
    input  wire               tag_first,
    input  wire               tag_last,
    input  wire               tag_end,
    input  wire [15:0]        tag_address,
    input  wire [8:0]         tag_lanes,
    output wire               offers,
    output wire               end_out,
    output wire [8:0]         lanes_out,
    output wire [32*COLS-1:0] sum_out,
    output wire               overflow
);
    wire [WIDTH*ROWS-1:0]  west_act;
    wire [ROWS-1:0]    west_valid;
    wire [ROWS-1:0]    west_swap;
    wire [WIDTH*ROWS-1:0]  west_weight;
    wire [ROWS-1:0]    west_load;
    wire [ROWS-1:0]    west_keep;
    wire [32*COLS-1:0] south;
    wire [32*COLS-1:0] aligned;

    mvp_feeder #(.ROWS(ROWS), .LATENCY((FLOAT != 0) ? 4 : 1), .WIDTH(WIDTH)) feeder (
        .clk(clk), .rst(rst), .enable(enable),
        .act_in(act), .valid_in(valid), .swap_in(swap), .weight_in(weight), .load_in(load), .keep_in(keep),
        .act_out(west_act), .valid_out(west_valid), .swap_out(west_swap),
        .weight_out(west_weight), .load_out(west_load), .keep_out(west_keep)
    );

    mvp_array #(.ROWS(ROWS), .COLS(COLS), .FLOAT(FLOAT), .WIDTH(WIDTH)) array (
        .clk(clk), .rst(rst), .enable(enable),
        .act_in(west_act), .valid_in(west_valid), .swap_in(west_swap),
        .weight_in(west_weight), .load_in(west_load), .keep_in(west_keep),
        .psum_out(south)
    );

    mvp_deskew #(.COLS(COLS)) deskew (
        .clk(clk), .rst(rst), .enable(enable), .psum_in(south), .psum_out(aligned)
    );

    mvp_accumulator #(.COLS(COLS), .DEPTH(DEPTH), .FLOAT(FLOAT), .LATENCY((FLOAT != 0) ? 4 : 1)) accumulator (
        .clk(clk), .rst(rst), .enable(enable),
        .tag_valid(tag_valid), .tag_first(tag_first), .tag_last(tag_last), .tag_end(tag_end),
        .tag_address(tag_address), .tag_lanes(tag_lanes),
        .row_in(aligned), .offers(offers), .end_out(end_out), .lanes_out(lanes_out), .sum_out(sum_out), .overflow(overflow)
    );
endmodule
