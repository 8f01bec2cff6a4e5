//! `magpie registers`: the NPU's register map.

use clap::Parser;
use npu::csr;
use std::process::ExitCode;

/// Print the NPU's control and status registers
#[derive(Parser)]
pub struct Args {
    /// As a SystemVerilog header
    #[arg(long)]
    sv: bool,
}

/// Prints the map.
///
/// # Errors
/// None.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.sv {
        out!("{}", csr::header());
    } else {
        outln!(
            "# Registers of the NPU\n\n32 bits each, little endian. `magpie registers` prints this page, `--sv` the header hw/sv/magpie_csr.svh.\n"
        );
        out!("{}", csr::markdown());
    }
    Ok(ExitCode::SUCCESS)
}
