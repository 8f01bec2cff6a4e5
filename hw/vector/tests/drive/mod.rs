//! Drives the clocked unit through a command, and asks the transaction engine for the same.

use numeric::{Flags, Format};
use rtl::{Module, Stream};
use vector::transaction::{self as engine, Mask};
use vector::{Command, Config, Counters, Masking, Op, OperandBeat, Pairing, UnitIn, VectorUnit};

/// A command and the seed of its operands.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) config: Config,
    pub(crate) command: Command,
    pub(crate) seed: u64,
    /// Operands may be infinities and NaNs.
    pub(crate) special: bool,
}

/// When the ports pause.
pub(crate) struct Stalls {
    state: u64,
    on: bool,
}

impl Stalls {
    pub(crate) fn none() -> Self {
        Self { state: 0, on: false }
    }
    pub(crate) fn random(seed: u64) -> Self {
        Self { state: seed, on: true }
    }
    fn pause(&mut self) -> bool {
        self.on && next(&mut self.state) >> 62 == 0
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Everything that a command gives: codes row by row, scalars group by group, flags.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Results {
    pub(crate) codes: Vec<u32>,
    pub(crate) scalars: Vec<u32>,
    pub(crate) flags: u8,
}

pub(crate) struct Done {
    pub(crate) got: Results,
    pub(crate) want: Results,
    pub(crate) edges: u64,
    pub(crate) counters: Counters,
}

/// Random codes of a format, of moderate size unless special ones are asked for.
fn codes(format: Format, n: usize, special: bool, state: &mut u64) -> Vec<u32> {
    let small =
        |state: &mut u64| ((next(state) >> 40) as f32 / 1e6 - 8.0) * if next(state) & 7 == 0 { 20.0 } else { 1.0 };
    (0..n)
        .map(|_| match special && next(state) & 15 == 0 {
            true => next(state) as u32 & format.code_mask(),
            false => {
                let mut code = [0u32];
                engine::encode(format, &[small(state)], &mut code, &mut Flags::default()).unwrap();
                code[0] & format.code_mask()
            }
        })
        .collect()
}

fn beats(config: Config, len: usize, codes: &[u32]) -> Vec<OperandBeat> {
    let beat = |row: &[u32]| {
        let mut beat = row.to_vec();
        // What lies past the row's end means nothing.
        beat.resize(config.lanes, 0x7fc1_2345);
        OperandBeat(beat)
    };
    codes.chunks_exact(len).flat_map(|row| row.chunks(config.lanes).map(beat)).collect()
}

struct Port(Vec<OperandBeat>, usize);

impl Port {
    fn new(beats: Vec<OperandBeat>) -> Self {
        Self(beats, 0)
    }
    fn offer(&self, pause: bool) -> Option<&OperandBeat> {
        self.0.get(self.1).filter(|_| !pause)
    }
}

/// Runs one command; returns results, scalars and the edge on which it ended, counted from the one that took it.
fn drive(
    unit: &mut VectorUnit,
    command: &Command,
    a: Vec<OperandBeat>,
    b: Vec<OperandBeat>,
    stalls: &mut Stalls,
) -> (Vec<u32>, Vec<u32>, u64) {
    let idle = OperandBeat(a[0].0.clone());
    let (mut a, mut b) = (Port::new(a), Port::new(b));
    let (mut codes, mut scalars) = (Vec::new(), Vec::new());
    let (mut edge, mut held) = (0u64, [false; 2]);
    loop {
        let out = unit.out();
        assert!(!out.fault, "{command:?}");
        // Once offered, a beat stays on offer.
        let pauses = [!held[0] && stalls.pause(), !held[1] && stalls.pause()];
        let offers = [a.offer(pauses[0]), b.offer(pauses[1])]
            .map(|beat| Stream { valid: beat.is_some(), data: beat.unwrap_or(&idle) });
        let ready = !stalls.pause();
        let takes = [offers[0].fires(out.a_ready), offers[1].fires(out.b_ready)];
        if out.y.fires(ready) {
            let beat = out.y.data;
            codes.extend(&beat.codes[..usize::from(beat.count)]);
            scalars.extend(&beat.scalars[..usize::from(beat.scalar_count)]);
        }
        let input = UnitIn { command: Stream { valid: edge == 0, data: command }, a: offers[0], b: offers[1], ready };
        held = [offers[0].valid && !takes[0], offers[1].valid && !takes[1]];
        unit.clock(&input);
        (a.1, b.1) = (a.1 + usize::from(takes[0]), b.1 + usize::from(takes[1]));
        if edge > 0 && unit.out().idle {
            assert!(a.1 == a.0.len() && b.1 == b.0.len(), "{command:?} left operands");
            return (codes, scalars, edge);
        }
        edge += 1;
        assert!(edge < 10_000_000, "{command:?} hangs");
    }
}

/// One command on a fresh unit, and what it should give.
pub(crate) fn run(case: &Case, stalls: Stalls) -> Done {
    run_on(VectorUnit::new(case.config).unwrap(), case, stalls)
}

/// The command is started twice and cut off by a reset after so many edges, before it runs.
pub(crate) fn run_after_resets(case: &Case, edges: u64) -> Done {
    let mut unit = VectorUnit::new(case.config).unwrap();
    for _ in 0..2 {
        let beat = OperandBeat(vec![0x3f80_0000; case.config.lanes]);
        for _ in 0..edges {
            let data = Stream::offer(&beat);
            unit.clock(&UnitIn { command: Stream::offer(&case.command), a: data, b: data, ready: true });
        }
        unit.reset();
    }
    run_on(unit, case, Stalls::none())
}

fn run_on(mut unit: VectorUnit, case: &Case, mut stalls: Stalls) -> Done {
    let Case { config, command, special, .. } = case.clone();
    let mut state = case.seed;
    command.check(&config).unwrap();
    let n = command.len * command.rows;
    let a = codes(command.a, n, special, &mut state);
    let b_len = if matches!(command.op, Op::RmsNorm { .. }) { command.len } else { n };
    let mut b = codes(command.b, b_len, special, &mut state);
    let half = command.len / 2;
    let frequencies: Vec<f32> = (0..half).map(|i| 1e4f32.powf(-(i as f32) / half as f32)).collect();
    if let Op::Rope { .. } = command.op {
        // The row from its middle on, then its first half; in the A port's format.
        b = a.chunks_exact(command.len).flat_map(|row| [&row[half..], &row[..half]].concat()).collect();
    }
    let command = if matches!(command.op, Op::Rope { .. }) { Command { b: command.a, ..command } } else { command };
    if matches!(command.op, Op::Softmax { mask: Masking::Stream, .. }) {
        b.iter_mut().for_each(|code| *code = if next(&mut state) & 3 == 0 { 0 } else { *code });
    }

    if let Op::Rope { .. } = command.op {
        let load = Command::new(Op::LoadFrequencies, half, 1);
        let words: Vec<u32> = frequencies.iter().map(|f| f.to_bits()).collect();
        let (_, _, edges) = drive(&mut unit, &load, beats(config, half, &words), vec![], &mut Stalls::none());
        assert_eq!(edges, vector::cycles(&config, &load));
    }
    let before = unit.out().counters;
    let on_b = match command.op {
        Op::RmsNorm { .. } => beats(config, command.len, &b.repeat(command.rows)),
        _ if command.reads_b() => beats(config, command.len, &b),
        _ => vec![],
    };
    let (codes, scalars, edges) = drive(&mut unit, &command, beats(config, command.len, &a), on_b, &mut stalls);
    let out = unit.out();
    let counters = Counters {
        busy: out.counters.busy - before.busy,
        starved: out.counters.starved - before.starved,
        blocked: out.counters.blocked - before.blocked,
    };
    let got = Results { codes, scalars, flags: out.flags.bits() };
    let want = expected(&config, &command, &a, &b, &frequencies);
    Done { got, want, edges, counters }
}

fn decoded(format: Format, codes: &[u32]) -> Vec<f32> {
    let mut values = vec![0.0; codes.len()];
    engine::decode(format, codes, &mut values).unwrap();
    values
}

fn expected(config: &Config, command: &Command, a: &[u32], b: &[u32], frequencies: &[f32]) -> Results {
    let (len, x, y) = (command.len, decoded(command.a, a), decoded(command.b, b));
    let mut out = vec![0f32; x.len()];
    let mut flags = Flags::default();
    let mut scalars = Vec::new();
    match command.op {
        Op::Convert => out.copy_from_slice(&x),
        Op::Function(f) => engine::function(f, &x, &mut out).unwrap(),
        Op::Add => engine::add(&x, &y, &mut out).unwrap(),
        Op::Multiply => engine::multiply(&x, &y, &mut out).unwrap(),
        Op::Scale { factor } => engine::scale(&x, factor, &mut out).unwrap(),
        Op::SwiGlu => engine::swiglu(&x, &y, &mut out).unwrap(),
        Op::RmsNorm { epsilon } => engine::rms_norm(config, &x, &y, epsilon, &mut out).unwrap(),
        Op::Softmax { algorithm, scale, mask } => {
            let keep: Vec<bool> = y.iter().map(|y| *y != 0.0).collect();
            let mask = match mask {
                Masking::None => Mask::None,
                Masking::Count(ramp) => Mask::Count(ramp),
                Masking::Stream => Mask::Keep(&keep),
            };
            engine::softmax(config, algorithm, len, scale, mask, &x, &mut out).unwrap();
        }
        Op::Rope { pairing, positions } => {
            assert!(matches!(pairing, Pairing::Halves | Pairing::Interleaved));
            engine::rope(pairing, positions, frequencies, &x, &mut out).unwrap();
        }
        Op::LoadFrequencies => return Results::default(),
        Op::ArgMax => {
            let peaks: Vec<_> = x.chunks_exact(len).map(|row| engine::argmax(row).unwrap()).collect();
            let scalars = peaks.iter().map(|p| p.value.to_bits()).collect();
            return Results { codes: peaks.iter().map(|p| p.index).collect(), scalars, flags: 0 };
        }
        Op::AbsMax { group } => {
            let mut out = vec![0.0; x.len() / group.unwrap_or(len)];
            engine::absmax(len, group, &x, &mut out).unwrap();
            return Results { codes: vec![], scalars: out.iter().map(|v| v.to_bits()).collect(), flags: 0 };
        }
        Op::Quantise { group } => {
            let mut codes = vec![0u32; x.len()];
            let mut scales = vec![0f32; x.len() / group.unwrap_or(len)];
            engine::quantise(command.y, len, group, &x, &mut codes, &mut scales, &mut flags).unwrap();
            codes.iter_mut().for_each(|code| *code &= command.y.code_mask());
            scalars.extend(scales.iter().map(|s| s.to_bits()));
            return Results { codes, scalars, flags: flags.bits() };
        }
    }
    let mut codes = vec![0u32; out.len()];
    engine::encode(command.y, &out, &mut codes, &mut flags).unwrap();
    codes.iter_mut().for_each(|code| *code &= command.y.code_mask());
    Results { codes, scalars, flags: flags.bits() }
}
