//! Drives the clocked unit through a command, with a monitor on its output port.

use crate::wave::{Tracer, WaveError};
use numeric::Flags;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rtl::{Module, Stream};
use vector::transaction::{self as engine, Mask};
use vector::{Command, Config, Counters, Masking, Op, OperandBeat, ResultBeat, UnitIn, VectorUnit};

/// Edges without a command's end, beyond its closed form, after which it hangs.
const PATIENCE: u64 = 1_000_000;

/// Operand codes, row by row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operands {
    pub(crate) a: Vec<u32>,
    /// Empty where the operation has no second operand. RMSNorm's weight once, whatever the rows.
    pub(crate) b: Vec<u32>,
}

/// What a command gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Results {
    /// Codes of the results' format, row by row.
    pub(crate) codes: Vec<u32>,
    /// FP32 bits, a group or a row each.
    pub(crate) scalars: Vec<u32>,
}

/// How a command ran.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) results: Results,
    /// Edges from the one that took the command to the last result's.
    pub(crate) edges: u64,
    /// Of this command.
    pub(crate) counters: Counters,
    /// Protocol rules that were broken.
    pub(crate) broken: Vec<String>,
}

/// Cuts rows into beats. Lanes past a row's end carry garbage, which must not matter.
fn beats(config: &Config, len: usize, codes: &[u32]) -> Vec<OperandBeat> {
    let beat = |values: &[u32]| {
        let mut lanes = values.to_vec();
        lanes.resize(config.lanes, 0xffba_dbad);
        OperandBeat(lanes)
    };
    codes.chunks_exact(len).flat_map(|row| row.chunks(config.lanes)).map(beat).collect()
}

/// What the B port must bring: the weight for every row, or RoPE's partners.
fn second(command: &Command, operands: &Operands) -> Vec<u32> {
    match command.op {
        Op::RmsNorm { .. } => operands.b.repeat(command.rows),
        Op::Rope { .. } if command.reads_b() => {
            let half = command.len / 2;
            operands.a.chunks_exact(command.len).flat_map(|row| [&row[half..], &row[..half]].concat()).collect()
        }
        _ if command.reads_b() => operands.b.clone(),
        _ => Vec::new(),
    }
}

/// A clocked unit on the bench.
pub(crate) struct Bench {
    pub(crate) config: Config,
    pub(crate) unit: VectorUnit,
    cycle: u64,
}

impl Bench {
    /// A fresh unit.
    pub(crate) fn new(config: Config) -> anyhow::Result<Self> {
        Ok(Self { config, unit: VectorUnit::new(config)?, cycle: 0 })
    }

    /// Fills the frequency memory, each cycle shown to `tracer`.
    pub(crate) fn load(&mut self, frequencies: &[f32], tracer: &mut impl Tracer) -> anyhow::Result<Ran> {
        let operands = Operands { a: frequencies.iter().map(|f| f.to_bits()).collect(), b: Vec::new() };
        let command = Command::new(Op::LoadFrequencies, frequencies.len(), 1);
        Ok(self.traced(&command, &operands, None, tracer)?)
    }

    /// Starts a command and resets the unit after so many edges, each shown to `tracer`.
    pub(crate) fn interrupt(
        &mut self,
        command: &Command,
        edges: u64,
        tracer: &mut impl Tracer,
    ) -> Result<(), WaveError> {
        let beat = OperandBeat(vec![0x3f80_0000; self.config.lanes]);
        for _ in 0..edges {
            tracer.sample(self.cycle, &mut self.unit)?;
            let data = Stream::offer(&beat);
            self.unit.clock(&UnitIn { command: Stream::offer(command), a: data, b: data, ready: true });
            self.cycle += 1;
        }
        self.unit.reset();
        Ok(())
    }

    /// Runs one command; with a seed, all three ports pause at random.
    pub(crate) fn run(&mut self, command: &Command, operands: &Operands, stalls: Option<u64>) -> anyhow::Result<Ran> {
        Ok(self.traced(command, operands, stalls, &mut ())?)
    }

    /// The same, each cycle shown to `tracer`.
    pub(crate) fn traced(
        &mut self,
        command: &Command,
        operands: &Operands,
        stalls: Option<u64>,
        tracer: &mut impl Tracer,
    ) -> Result<Ran, WaveError> {
        let Self { config, unit, cycle } = self;
        let a = beats(config, command.len, &operands.a);
        let b = beats(config, command.len, &second(command, operands));
        let idle = OperandBeat(vec![0; config.lanes]);
        let mut rng = stalls.map(Xoshiro256PlusPlus::seed_from_u64);
        let mut pauses = || rng.as_mut().is_some_and(|rng| rng.random_bool(0.3));
        let (mut at, mut offered) = ([0; 2], [false; 2]);
        let mut ran = Ran::default();
        let before = unit.out().counters;
        let mut waiting: Option<ResultBeat> = None;
        let limit = vector::cycles(config, command) + PATIENCE;
        for edge in 0..=limit {
            tracer.sample(*cycle, unit)?;
            let out = unit.out();
            let offers: [Stream<&OperandBeat>; 2] = std::array::from_fn(|port| {
                let beat = [&a, &b][port].get(at[port]);
                // A beat that was offered stays on offer.
                let valid = beat.is_some() && (offered[port] || !pauses());
                Stream { valid, data: beat.unwrap_or(&idle) }
            });
            let ready = !pauses();
            if let Some(beat) = &waiting
                && (!out.y.valid || out.y.data != beat)
            {
                ran.broken.push(format!("cycle {edge}: a beat of results changed before it was taken"));
            }
            waiting = (out.y.valid && !ready).then(|| out.y.data.clone());
            if out.y.fires(ready) {
                let beat = out.y.data;
                let (codes, scalars) = (usize::from(beat.count), usize::from(beat.scalar_count));
                tracer.output(*cycle, &(&beat.codes[..codes], &beat.scalars[..scalars]));
                ran.results.codes.extend(&beat.codes[..codes]);
                ran.results.scalars.extend(&beat.scalars[..scalars]);
            }
            if out.fault {
                ran.broken.push(format!("cycle {edge}: a memory was read where it was never written"));
            }
            let takes = [offers[0].fires(out.a_ready), offers[1].fires(out.b_ready)];
            let command = Stream { valid: edge == 0, data: command };
            unit.clock(&UnitIn { command, a: offers[0], b: offers[1], ready });
            *cycle += 1;
            for port in 0..2 {
                offered[port] = offers[port].valid && !takes[port];
                at[port] += usize::from(takes[port]);
            }
            if edge > 0 && unit.out().idle {
                ran.edges = edge;
                tracer.output(*cycle, &"idle");
                break;
            }
        }
        if ran.edges == 0 {
            ran.broken.push(format!("no end after {limit} cycles"));
        }
        if at != [a.len(), b.len()] {
            ran.broken.push(format!("beats taken: {at:?}, the command has {:?}", [a.len(), b.len()]));
        }
        tracer.rest(unit);
        let after = unit.out().counters;
        ran.counters = Counters {
            busy: after.busy - before.busy,
            starved: after.starved - before.starved,
            blocked: after.blocked - before.blocked,
        };
        Ok(ran)
    }
}

/// Codes of `n` values: of moderate size, or, one in eight, any pattern of the format.
pub(crate) fn codes(rng: &mut impl Rng, format: numeric::Format, n: usize, special: bool) -> anyhow::Result<Vec<u32>> {
    let mut values = vec![0f32; n];
    for value in &mut values {
        let exponent = if rng.random_bool(0.1) { 5.0 } else { 1.0 };
        *value = rng.random_range(-3.0f32..3.0) * exponent;
    }
    let mut codes = vec![0u32; n];
    engine::encode(format, &values, &mut codes, &mut Flags::default())?;
    for code in &mut codes {
        let any = special && rng.random_bool(0.125);
        *code = if any { rng.random::<u32>() } else { *code } & format.code_mask();
    }
    Ok(codes)
}

/// What the transaction engine gives, and the flags that it raises.
pub(crate) fn transaction(
    config: &Config,
    command: &Command,
    operands: &Operands,
    frequencies: &[f32],
) -> anyhow::Result<(Results, Flags)> {
    let len = command.len;
    let decoded = |format, codes: &[u32]| -> anyhow::Result<Vec<f32>> {
        let mut values = vec![0.0; codes.len()];
        engine::decode(format, codes, &mut values)?;
        Ok(values)
    };
    let (x, y) = (decoded(command.a, &operands.a)?, decoded(command.b, &operands.b)?);
    let (mut out, mut flags) = (vec![0f32; x.len()], Flags::default());
    let mut codes = vec![0u32; x.len()];
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect();
    match command.op {
        Op::Convert | Op::LoadFrequencies => out.copy_from_slice(&x),
        Op::Function(f) => engine::function(f, &x, &mut out)?,
        Op::Add => engine::add(&x, &y, &mut out)?,
        Op::Multiply => engine::multiply(&x, &y, &mut out)?,
        Op::Scale { factor } => engine::scale(&x, factor, &mut out)?,
        Op::SwiGlu => engine::swiglu(&x, &y, &mut out)?,
        Op::RmsNorm { epsilon } => engine::rms_norm(config, &x, &y, epsilon, &mut out)?,
        Op::Softmax { algorithm, scale, mask } => {
            let keep: Vec<bool> = y.iter().map(|y| *y != 0.0).collect();
            let mask = match mask {
                Masking::None => Mask::None,
                Masking::Count(ramp) => Mask::Count(ramp),
                Masking::Stream => Mask::Keep(&keep),
            };
            engine::softmax(config, algorithm, len, scale, mask, &x, &mut out)?;
        }
        Op::Rope { pairing, positions } => engine::rope(pairing, positions, frequencies, &x, &mut out)?,
        Op::ArgMax => {
            let peaks = x.chunks_exact(len).map(engine::argmax).collect::<Result<Vec<_>, _>>()?;
            let values: Vec<f32> = peaks.iter().map(|p| p.value).collect();
            return Ok((Results { codes: peaks.iter().map(|p| p.index).collect(), scalars: bits(&values) }, flags));
        }
        Op::AbsMax { group } => {
            out.truncate(x.len() / group.unwrap_or(len));
            engine::absmax(len, group, &x, &mut out)?;
            return Ok((Results { codes: Vec::new(), scalars: bits(&out) }, flags));
        }
        Op::Quantise { group } => {
            out.truncate(x.len() / group.unwrap_or(len));
            engine::quantise(command.y, len, group, &x, &mut codes, &mut out, &mut flags)?;
            codes.iter_mut().for_each(|code| *code &= command.y.code_mask());
            return Ok((Results { codes, scalars: bits(&out) }, flags));
        }
    }
    engine::encode(command.y, &out, &mut codes, &mut flags)?;
    codes.iter_mut().for_each(|code| *code &= command.y.code_mask());
    Ok((Results { codes, scalars: Vec::new() }, flags))
}
