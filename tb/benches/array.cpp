// Clocks the verilated twin through a stimulus in memory, for the bench array.rs.
//
// usage: PROGRAM STIMULUS ROWS WIDTH COLS
// STIMULUS: a record a cycle, least significant byte first: act and weight (ROWS * WIDTH / 8 bytes each), valid, swap, load and keep
// (a bit a row, whole bytes), the tag (valid, first, last, end: a byte each; address, lanes: two), enable, rst.
// Standard input: `run TIMES`, or `trace FILE CYCLES`. A line comes back for each: FNV-1a over all results.
#include "Vmvp_datapath.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

static std::vector<uint8_t> stimulus;
static size_t operands, bits, record, columns;

template <typename Port> static const uint8_t *put(Port &port, const uint8_t *from, size_t bytes) {
    memcpy(&port, from, bytes);
    return from + bytes;
}

static uint64_t run(size_t times, size_t cycles, const char *dump) {
    auto context = std::make_unique<VerilatedContext>();
    auto dut = std::make_unique<Vmvp_datapath>(context.get());
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace;
    if (dump) {
        context->traceEverOn(true);
        trace = std::make_unique<VerilatedVcdC>();
        dut->trace(trace.get(), 99);
        trace->open(dump);
    }
#endif
    uint64_t hash = 0xcbf29ce484222325;
    dut->rst = 1;
    dut->clk = 0;
    dut->eval();
    dut->clk = 1;
    dut->eval();
    for (size_t n = 0; n < times * cycles; n++) {
        const size_t cycle = n % cycles;
        const uint8_t *p = &stimulus[cycle * record];
        p = put(dut->act, p, operands);
        p = put(dut->weight, p, operands);
        p = put(dut->valid, p, bits);
        p = put(dut->swap, p, bits);
        p = put(dut->load, p, bits);
        p = put(dut->keep, p, bits);
        p = put(dut->tag_valid, p, 1);
        p = put(dut->tag_first, p, 1);
        p = put(dut->tag_last, p, 1);
        p = put(dut->tag_end, p, 1);
        p = put(dut->tag_address, p, 2);
        p = put(dut->tag_lanes, p, 2);
        p = put(dut->enable, p, 1);
        p = put(dut->rst, p, 1);
        dut->clk = 0;
        dut->eval();
        if (dut->offers && dut->enable) {
            std::vector<uint32_t> sums(columns);
            memcpy(sums.data(), &dut->sum_out, 4 * columns);
            for (uint32_t sum : sums) hash = (hash ^ sum) * 0x100000001b3;
        }
#if VM_TRACE
        if (trace) trace->dump(10 * cycle);
#endif
        dut->clk = 1;
        dut->eval();
#if VM_TRACE
        if (trace) trace->dump(10 * cycle + 5);
#endif
    }
#if VM_TRACE
    if (trace) trace->close();
#endif
    dut->final();
    return hash;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    const size_t rows = strtoul(argv[2], nullptr, 10), width = strtoul(argv[3], nullptr, 10);
    columns = strtoul(argv[4], nullptr, 10);
    operands = rows * width / 8;
    bits = (rows + 7) / 8;
    record = 2 * operands + 4 * bits + 10;
    FILE *file = fopen(argv[1], "rb");
    if (!file) return 2;
    uint8_t buffer[1 << 16];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) stimulus.insert(stimulus.end(), buffer, buffer + n);
    fclose(file);
    for (std::string line; std::getline(std::cin, line);) {
        size_t times = 1, cycles = stimulus.size() / record;
        std::string dump;
        if (line.rfind("trace ", 0) == 0) {
            const size_t space = line.rfind(' ');
            dump = line.substr(6, space - 6);
            cycles = strtoul(line.c_str() + space, nullptr, 10);
        } else {
            times = strtoul(line.c_str() + 4, nullptr, 10);
        }
        std::cout << std::hex << run(times, cycles, dump.empty() ? nullptr : dump.c_str()) << std::endl;
    }
}
