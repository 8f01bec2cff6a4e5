//! The `magpie` command.

#![deny(clippy::print_stdout)]

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tb::cmd;

/// A bit-accurate, cycle-accurate model of an LLM-inference NPU, and the bench that proves it right.
#[derive(Parser)]
#[command(name = "magpie", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(cmd::run::Args),
    Gemm(cmd::gemm::Args),
    Gemv(cmd::gemv::Args),
    Conv(cmd::conv::Args),
    Vector(cmd::vector::Args),
    Kv(cmd::kv::Args),
    Formats(cmd::formats::Args),
    Verify(cmd::verify::Args),
    Merge(cmd::merge::Args),
    Faults(cmd::faults::Args),
    Num(cmd::num::Args),
    Dma(cmd::dma::Args),
    Registers(cmd::registers::Args),
    Resources(cmd::resources::Args),
    Sweep(cmd::sweep::Args),
    Waves(cmd::waves::Args),
    Cosim(cmd::cosim::Args),
}

fn main() -> ExitCode {
    // A reader that has seen enough (`| head`) ends the command quietly.
    sigpipe::reset();
    let words: Vec<_> = std::env::args_os().collect();
    let cli = match words.get(1) {
        Some(command) if command == "num" => Cli::parse_from(cmd::num::shield_negative_numbers(words.into_iter())),
        _ => Cli::parse_from(words),
    };
    let result = match cli.command {
        Command::Run(args) => cmd::run::run(&args),
        Command::Gemm(args) => cmd::gemm::run(&args),
        Command::Gemv(args) => cmd::gemv::run(&args),
        Command::Conv(args) => cmd::conv::run(&args),
        Command::Vector(args) => cmd::vector::run(&args),
        Command::Kv(args) => cmd::kv::run(&args),
        Command::Formats(args) => cmd::formats::run(&args),
        Command::Verify(args) => cmd::verify::run(&args),
        Command::Merge(args) => cmd::merge::run(&args),
        Command::Faults(args) => cmd::faults::run(&args),
        Command::Num(args) => cmd::num::run(&args),
        Command::Dma(args) => cmd::dma::run(&args),
        Command::Registers(args) => cmd::registers::run(&args),
        Command::Resources(args) => cmd::resources::run(&args),
        Command::Sweep(args) => cmd::sweep::run(&args),
        Command::Waves(args) => cmd::waves::run(&args),
        Command::Cosim(args) => cmd::cosim::run(&args),
    };
    tb::out::flush();
    result.unwrap_or_else(|error| {
        eprintln!("magpie: {error:#}");
        ExitCode::from(2)
    })
}
