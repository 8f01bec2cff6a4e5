//! The rotate unit and the writes behind it: the way of every decoded or raw token into the scratchpad.

use crate::exec::{ROTATE, pairing};
use crate::isa::Tokens;
use crate::memory::Scratch;
use crate::{Config, Fault, Kv};
use ::vector::Ramp;
use rtl::{Format, Visitor};

/// Values that move side by side: consecutive ones of the command's tokens.
#[derive(Clone, Debug, Default)]
struct Run {
    /// The first one's place, token · width + channel, 57 bits.
    first: u64,
    /// Values that count, 16 bits.
    count: u16,
    /// BF16.
    values: Vec<u16>,
}

/// A stage: a run from each decoder.
type Stage = Vec<Run>;

/// How the tokens of a command are rotated and where they go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub tokens: Tokens,
    /// Values of a token, 32 bits.
    pub width: u32,
    /// Position of the first token, 32 bits.
    pub position: u32,
}

/// ROTATE stages of registers. What enters the first is turned by its token's position, if the command asks for that, and rounded once
/// to BF16: the multipliers' stages are one set of steps here, which synthesis spreads over the registers. What leaves the last is
/// written, a row of the scratchpad a token or, transposed, a column.
#[derive(Clone, Debug)]
pub(super) struct Rotate {
    place: Place,
    /// A ring; `at` is the oldest stage.
    stages: Vec<Stage>,
    at: usize,
}

impl Rotate {
    pub(super) fn new(config: &Config, kv: &Kv) -> Self {
        let (heads, codec) = (kv.setup().head_dim, config.codec);
        // Raw rows come through the first run: those that are complete with what comes in a cycle.
        let capacity = |e| heads + if e == 0 { codec.decoders * codec.values } else { 0 };
        let run = |e| Run { values: vec![0; capacity(e)], ..Run::default() };
        let stage: Stage = (0..codec.decoders).map(run).collect();
        Self { place: Place::default(), stages: vec![stage; ROTATE as usize], at: 0 }
    }

    /// A command's tokens come.
    pub(super) fn begin(&mut self, place: Place) {
        self.place = place;
    }

    /// No values are on their way.
    pub(super) fn empty(&self) -> bool {
        self.stages.iter().flatten().all(|run| run.count == 0)
    }

    /// The edge: writes what leaves, and takes what each decoder gives: the first value's place, and values of whole rows.
    pub(super) fn clock<'a>(
        &mut self,
        kv: &Kv,
        scratch: &mut Scratch,
        mut entering: impl FnMut(usize) -> Option<(u64, &'a [u16])>,
    ) -> Result<(), Fault> {
        let Self { place, stages, at } = self;
        for (e, run) in stages[*at].iter_mut().enumerate() {
            if run.count > 0 {
                write(place, scratch, run)?;
            }
            run.count = 0;
            if let Some((first, values)) = entering(e) {
                (run.first, run.count) = (first, values.len() as u16);
                turn(place, kv, first, values, &mut run.values[..values.len()])?;
            }
        }
        self.at = (self.at + 1) % self.stages.len();
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        self.stages.iter_mut().flatten().for_each(|run| {
            (run.first, run.count) = (0, 0);
            run.values.fill(0);
        });
        (self.place, self.at) = (Place::default(), 0);
    }

    pub(super) fn visit(&mut self, v: &mut impl Visitor) {
        let Place { tokens, width, position } = &mut self.place;
        v.reg("to_q", 32, Format::Hex, &mut tokens.to.base);
        v.reg("to_pitch_q", 32, Format::Hex, &mut tokens.to.pitch);
        v.reg("transposed_q", 1, Format::Unsigned, &mut tokens.transposed);
        v.reg("rotated_q", 1, Format::Unsigned, &mut tokens.rotated);
        v.reg("width_q", 32, Format::Unsigned, width);
        v.reg("position_q", 32, Format::Unsigned, position);
        let stages = self.stages.len();
        for i in 0..stages {
            let stage = &mut self.stages[(self.at + stages - 1 - i) % stages];
            for (e, run) in stage.iter_mut().enumerate() {
                v.scope(("stage", i, e), |v| {
                    v.reg("first_q", 57, Format::Unsigned, &mut run.first);
                    v.reg("count_q", 16, Format::Unsigned, &mut run.count);
                    run.values.iter_mut().enumerate().for_each(|(l, x)| v.reg(("value_q", l), 16, Format::Hex, x));
                });
            }
        }
    }
}

/// The rotation.
fn turn(place: &Place, kv: &Kv, first: u64, values: &[u16], out: &mut [u16]) -> Result<(), Fault> {
    let setup = kv.setup();
    if !place.tokens.rotated {
        out.copy_from_slice(values);
        return Ok(());
    }
    let row = (first / setup.head_dim as u64) as usize;
    let positions = Ramp::from(place.position as usize + row);
    let turned =
        ::vector::transaction::rope_bf16(pairing(setup.interleaved), positions, &setup.frequencies, values, out);
    Ok(turned?)
}

/// The writes of a run.
fn write(place: &Place, scratch: &mut Scratch, run: &Run) -> Result<(), Fault> {
    let Place { tokens, width, .. } = place;
    let (width, pitch) = (u64::from(*width), u64::from(tokens.to.pitch));
    let base = u64::from(tokens.to.base);
    let (mut at, mut values) = (run.first, &run.values[..usize::from(run.count)]);
    while !values.is_empty() {
        let (token, channel) = (at / width, at % width);
        let count = values.len().min((width - channel) as usize);
        let (row, rest) = values.split_at(count);
        if tokens.transposed {
            for (channel, value) in (channel..).zip(row) {
                let address = base + channel * pitch + 2 * token;
                scratch.write(address as usize, 2)?.copy_from_slice(&value.to_le_bytes());
            }
        } else {
            let address = base + token * pitch + 2 * channel;
            let bytes = scratch.write(address as usize, 2 * count)?;
            bytes.as_chunks_mut::<2>().0.iter_mut().zip(row).for_each(|(b, value)| *b = value.to_le_bytes());
        }
        (at, values) = (at + count as u64, rest);
    }
    Ok(())
}
