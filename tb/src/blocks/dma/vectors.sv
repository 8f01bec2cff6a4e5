// Reads a folder of vectors of the data-movement engine: a memory for your AXI slave to serve, and checks for what came.
//
// The README beside it has the command lines for these vectors.
// Plusargs: +vectors=FOLDER; +replay plays the recorded write beats into the memory, in place of a design, and checks.
// A bench instantiates the module, calls load, serves reads from `memory`, calls write and complete, then check, which ends the
// simulation by $fatal where something is wrong.
module dma_vectors #(
    parameter BUS = 64,         // bus bytes, as bench.hex says
    parameter DEPTH = 1 << 16,  // words of memory at most
    parameter MANY = 1 << 16    // completions, bursts, beats at most
);
    reg [8*BUS-1:0] memory[0:DEPTH-1];
    reg [8*BUS-1:0] expected[0:DEPTH-1];
    reg [63:0] bench[0:10];
    reg [127:0] completions[0:MANY-1];
    reg [139:0] bad[0:255];
    reg [59:0] aw[0:MANY-1];
    reg [9*BUS+3:0] w[0:MANY-1];
    reg [8*512-1:0] folder;
    integer completed = 0;
    integer wrong = 0;

    wire [63:0] base = bench[0];

    function is_bad(input [63:0] address);
        integer i;
        begin
            is_bad = 0;
            for (i = 0; i < bench[6]; i = i + 1)
                if (bad[i][4] && address >= bad[i][139:76] && address < bad[i][75:12]) is_bad = 1;
        end
    endfunction

    task load;
        integer i;
        begin
            if (!$value$plusargs("vectors=%s", folder)) folder = ".";
            $readmemh({folder, "/bench.hex"}, bench);
            // A file that is not there leaves x.
            if (bench[1] !== BUS
                || (bench[3] <= DEPTH && bench[5] <= MANY && bench[6] <= 256 && bench[7] <= MANY && bench[8] <= MANY) !== 1'b1) begin
                $display("FAILED: these vectors need BUS=%0d, DEPTH>=%0d, MANY>=%0d completions, bursts (%0d) and beats (%0d)",
                         bench[1], bench[3], bench[5], bench[7], bench[8]);
                $fatal(1);
            end
            $readmemh({folder, "/memory.hex"}, memory);
            for (i = 0; i < bench[3]; i = i + 1) expected[i] = memory[i];
            $readmemh({folder, "/expected.hex"}, expected);
            $readmemh({folder, "/completions.hex"}, completions);
            if (bench[6] > 0) $readmemh({folder, "/bad.hex"}, bad);
        end
    endtask

    // One beat of W at a byte address.
    task write(input [63:0] address, input [BUS-1:0] strobe, input [8*BUS-1:0] data);
        integer lane;
        reg [63:0] word;
        begin
            word = (address - base) / BUS;
            for (lane = 0; lane < BUS; lane = lane + 1)
                if (strobe[lane] && !is_bad(base + word * BUS + lane)) memory[word][8*lane+:8] = data[8*lane+:8];
        end
    endtask

    // One completion that the design gave.
    task complete(input [127:0] got);
        begin
            if (completed >= bench[5] || completions[completed] !== got) begin
                $display("completion %0d: expected %h, got %h", completed, completions[completed], got);
                wrong = wrong + 1;
            end
            completed = completed + 1;
        end
    endtask

    // Every word; those that memory.hex does not name are x and must stay so.
    task check(input integer with_completions);
        integer i;
        begin
            for (i = 0; i < bench[3]; i = i + 1)
                if (memory[i] !== expected[i]) begin
                    if (wrong < 8) $display("word at %h: expected %h, got %h", base + i * BUS, expected[i], memory[i]);
                    wrong = wrong + 1;
                end
            if (with_completions && completed != bench[5]) begin
                $display("%0d completions, expected %0d", completed, bench[5]);
                wrong = wrong + 1;
            end
            $display("%0s: %0d words, %0d wrong", wrong == 0 ? "PASSED" : "FAILED", bench[3], wrong);
            if (wrong != 0) $fatal(1);
        end
    endtask

    integer burst, beat, k;
    initial
        if ($test$plusargs("replay")) begin
            load;
            beat = 0;
            if (bench[7] > 0) $readmemh({folder, "/aw.hex"}, aw);
            if (bench[8] > 0) $readmemh({folder, "/w.hex"}, w);
            for (burst = 0; burst < bench[7]; burst = burst + 1)
                for (k = 0; k < aw[burst][11:0]; k = k + 1) begin
                    write(aw[burst][59:12] + k * BUS, w[beat][8*BUS+:BUS], w[beat][8*BUS-1:0]);
                    beat = beat + 1;
                end
            check(0);
        end
endmodule
