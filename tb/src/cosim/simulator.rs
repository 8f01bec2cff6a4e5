use super::{CosimError, Stimulus};
use mvp::Config;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A simulator that we did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulator {
    /// Verilator: the twin compiled to C++.
    Verilator,
    /// Icarus Verilog: the twin interpreted, four-state.
    Icarus,
}

/// The twin of one shape, ready to run.
pub struct Build {
    simulator: Simulator,
    program: PathBuf,
}

/// The twin's modules, leaves first.
pub const MODULES: [&str; 12] = [
    "mvp_unpack_fp32.sv",
    "mvp_align.sv",
    "mvp_add.sv",
    "mvp_round.sv",
    "mvp_add_fp32.sv",
    "mvp_mac_bf16.sv",
    "mvp_pe.sv",
    "mvp_array.sv",
    "mvp_feeder.sv",
    "mvp_deskew.sv",
    "mvp_accumulator.sv",
    "mvp_datapath.sv",
];

/// Lines of a failed program's output that are shown.
const TAIL: usize = 12;

fn run(tool: &'static str, command: &mut Command) -> Result<(), CosimError> {
    let output = command.output().map_err(|reason| match reason.kind() {
        ErrorKind::NotFound => CosimError::Missing { tool },
        _ => CosimError::File { path: tool.into(), reason },
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
    Err(CosimError::Failed { tool: tool.into(), status: output.status, output: tail })
}

impl Simulator {
    /// Compiles the twin and its bench from `sources` (hw/sv) into `folder`.
    ///
    /// # Errors
    /// The simulator is missing, or refuses.
    pub fn build(self, sources: &Path, folder: &Path, shape: &Stimulus) -> Result<Build, CosimError> {
        let Config { rows, cols, depth, datapath, .. } = shape.config;
        let float = u8::from(datapath.is_float());
        std::fs::create_dir_all(folder).map_err(|reason| CosimError::File { path: folder.into(), reason })?;
        let files = MODULES.iter().chain(&["cosim_tb.sv"]).map(|f| sources.join(f));
        let program = match self {
            Self::Verilator => {
                let folder = folder.join("verilator");
                let mut command = Command::new("verilator");
                command.args(["--binary", "--trace", "--timescale", "1ns/1ns", "-O3", "--top-module", "cosim_tb"]);
                command.args([format!("-GROWS={rows}"), format!("-GCOLS={cols}"), format!("-GDEPTH={depth}")]);
                command.arg(format!("-GFLOAT={float}"));
                run("verilator", command.arg("-Mdir").arg(&folder).args(files))?;
                folder.join("Vcosim_tb")
            }
            Self::Icarus => {
                let program = folder.join("cosim.vvp");
                let mut command = Command::new("iverilog");
                command.args(["-g2012", "-Wall", "-s", "cosim_tb"]);
                for (name, value) in [("ROWS", rows), ("COLS", cols), ("DEPTH", depth), ("FLOAT", float.into())] {
                    command.arg(format!("-Pcosim_tb.{name}={value}"));
                }
                run("iverilog", command.arg("-o").arg(&program).args(files))?;
                program
            }
        };
        Ok(Build { simulator: self, program })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verilator => "Verilator",
            Self::Icarus => "Icarus",
        }
    }
}

impl Build {
    /// Runs the twin on a stimulus file and leaves its dump.
    ///
    /// # Errors
    /// The run fails.
    pub fn run(&self, stimulus: &Path, cycles: usize, dump: &Path) -> Result<(), CosimError> {
        let mut command = match self.simulator {
            // A path of its own name is no path: the shell's rule holds for programs, too.
            Simulator::Verilator => Command::new(
                std::path::absolute(&self.program)
                    .map_err(|reason| CosimError::File { path: self.program.clone(), reason })?,
            ),
            Simulator::Icarus => {
                let mut command = Command::new("vvp");
                command.arg(&self.program);
                command
            }
        };
        command.arg(format!("+stimulus={}", stimulus.display()));
        command.arg(format!("+cycles={cycles}")).arg(format!("+vcd={}", dump.display()));
        run(if self.simulator == Simulator::Icarus { "vvp" } else { "the compiled twin" }, &mut command)
    }
}
