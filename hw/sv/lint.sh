#!/bin/sh
# The twins through Verilator's lint with all warnings, and through Yosys as far as checked netlists. Needs both installed.
set -eu
cd "$(dirname "$0")"
verilator --lint-only -Wall --top-module mvp_datapath mvp_*.sv
yosys -q -p 'read_verilog -sv mvp_*.sv; hierarchy -check -top mvp_datapath; proc; check -assert'
echo "hw/sv: Verilator and Yosys have no complaint"
