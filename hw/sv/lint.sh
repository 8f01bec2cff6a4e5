#!/bin/sh
# The twins through Verilator's lint with all warnings, and through Yosys as far as checked netlists. Needs both installed.
set -eu
cd "$(dirname "$0")"
for float in 0 1; do
    verilator --lint-only -Wall -GFLOAT=$float --top-module mvp_datapath mvp_*.sv
    yosys -q -p "read_verilog -sv mvp_*.sv; chparam -set FLOAT $float mvp_datapath; hierarchy -check -top mvp_datapath; proc; check -assert"
done
echo "hw/sv: Verilator and Yosys have no complaint"
