//! `magpie waves`: waveforms to look at.

use crate::showcase::{SHOWCASES, Showcase};
use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs a small showcase of each block and writes its waveform, for GTKWave or any other viewer.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Blocks to show (see --list); none: all
    names: Vec<String>,
    /// Folder for the waveforms
    #[arg(long, default_value = "waves", value_name = "DIR")]
    out: PathBuf,
    /// Write FST, GTKWave's compressed format, in place of VCD
    #[arg(long)]
    fst: bool,
    /// Write the GTKWave views beside them, too
    #[arg(long)]
    views: bool,
    /// Print the showcases and end
    #[arg(long)]
    list: bool,
}

/// Runs the command.
///
/// # Errors
/// An unknown name; a file that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let chosen = select(&args.names)?;
    if args.list {
        for showcase in chosen {
            outln!("{:<10} {}", showcase.name, showcase.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make the folder {}", args.out.display()))?;
    for showcase in chosen {
        let file = args.out.join(showcase.name).with_extension(if args.fst { "fst" } else { "vcd" });
        let shot = showcase.write(&file)?;
        let (s, file) = (shot.summary, file.display());
        outln!("{file}: {} cycles, {} variables, {} bytes: {}", s.cycles, s.variables, s.bytes, showcase.about);
        if args.views {
            let view = args.out.join(showcase.name).with_extension("gtkw");
            std::fs::write(&view, shot.view).with_context(|| format!("cannot write {}", view.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn select(names: &[String]) -> anyhow::Result<Vec<&'static Showcase>> {
    if names.is_empty() {
        return Ok(SHOWCASES.iter().collect());
    }
    let find = |name: &String| match SHOWCASES.iter().find(|s| s.name == name) {
        Some(showcase) => Ok(showcase),
        None => {
            let known: Vec<_> = SHOWCASES.iter().map(|s| s.name).collect();
            bail!("no showcase `{name}`: there are {}", known.join(", "))
        }
    };
    names.iter().map(find).collect()
}
