//! A command of a run once more, alone, on the cycle engine.

use crate::wave::{Trace, TraceOptions};
use anyhow::{Context, bail, ensure};
use host::Session;
use npu::isa::{Command, Engine};
use npu::{Caught, clocked};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Which command: `layer.step.place`, as [`super::Names`] gives it; without a place, the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    tag: u32,
    place: usize,
}

impl FromStr for At {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut parts = text.split('.');
        let (layer, step) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let place = parts.next().unwrap_or("0");
        let form = || format!("`{text}`: LAYER.STEP.PLACE is expected, as in 0.gate.0");
        ensure!(parts.next().is_none(), "{}", form());
        let layer: u8 = layer.parse().with_context(form)?;
        Ok(Self { tag: host::parse_tag(layer.into(), step)?, place: place.parse().with_context(form)? })
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (layer, step) = host::tag_name(self.tag);
        write!(f, "{layer}.{step}.{}", self.place)
    }
}

impl At {
    /// Has the session keep the command.
    pub fn watch(&self, session: &mut Session) {
        session.catch(self.tag, self.place);
    }
}

/// What a command did on the cycle engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rerun {
    /// Its place in its program.
    pub number: usize,
    /// The command.
    pub command: Command,
    /// Cycles on its engine.
    pub cycles: u64,
    /// Bytes of the waveform.
    pub bytes: u64,
}

/// Runs the command that the session kept on the cycle engine, from the scratchpad that it found, with a waveform of its engine;
/// holds bits and cycles to the transaction engine's.
///
/// # Errors
/// No command was kept, the waveform cannot be written, or the engines differ.
pub fn rerun(session: &Session, at: &At, wave: &Path) -> anyhow::Result<Rerun> {
    let Some(Caught { number, command, before, after }) = session.caught() else {
        bail!("--at {at}: the array and the vector unit ran no such command; `--listing -` names those there are");
    };
    let program = [Command { wait: 0, signal: 0, ..*command }];
    let (config, setup) = (session.config(), session.kv_setup());
    let mut direct = npu::Npu::new(config.clone(), setup.clone())?;
    direct.record(true);
    direct.memory_mut().scratch.clone_from(before);
    let expected = direct.run(&program)?;
    ensure!(direct.memory().scratch == *after, "the command gives other bits alone than in its run");

    let mut npu = clocked::Npu::new(config.clone(), setup.clone())?;
    npu.memory_mut().scratch.clone_from(before);
    npu.prepare(&program)?;
    let engine = match command.op.engine() {
        Engine::Vector => "npu.vector",
        _ => "npu.mvp",
    };
    let options = TraceOptions { scopes: vec![engine.into()], ..TraceOptions::default() };
    let mut trace = Trace::create(wave, "npu", &options)?;
    let mut run = clocked::Session::new(&npu, &program);
    loop {
        trace.sample(run.cycle(), &mut npu)?;
        if !run.step(&mut npu)? {
            break;
        }
    }
    let bytes = trace.finish()?.bytes;
    ensure!(npu.memory().scratch == *after, "the cycle engine gives other bits than the run");
    ensure!(
        run.spans == expected.spans,
        "the cycle engine takes other cycles than the transaction engine: {:?} rather than {:?}",
        run.spans,
        expected.spans
    );
    let cycles = run.spans.iter().map(|span| span.end - span.start).sum();
    Ok(Rerun { number: *number, command: *command, cycles, bytes })
}
