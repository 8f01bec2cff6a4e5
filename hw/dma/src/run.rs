use crate::Segment;
use rtl::{Format, Name, Payload, Visitor};

/// What the bytes of a read run are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A job's payload: to the stream.
    #[default]
    Data,
    /// A job's payload that is not read but made: the fill value.
    Fill,
    /// An index list: to the front end.
    Index,
    /// A descriptor: to the front end.
    Descriptor,
}

const KINDS: [Kind; 4] = [Kind::Data, Kind::Fill, Kind::Index, Kind::Descriptor];

impl Kind {
    /// Whether the bytes go to the front end.
    pub fn control(self) -> bool {
        matches!(self, Self::Index | Self::Descriptor)
    }
}

/// A run of neighbouring nibbles, on its way to become bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Nibble address, 49 bits.
    pub address: u64,
    /// Nibbles, 33 bits.
    pub nibbles: u64,
    /// What for.
    pub kind: Kind,
    /// Nothing merges across its end; on the read side the packed stream is flushed there.
    pub stop: bool,
    /// Ends a tile, or a chunk of an ordered job.
    pub block_end: bool,
    /// Ends the job.
    pub job_end: bool,
}

impl Run {
    /// The run of a segment whose index adds `offset` nibbles.
    pub fn read(s: &Segment, offset: i64, tiled: bool) -> Self {
        Self {
            address: s.address.wrapping_add(offset as u64) & rtl::mask(49),
            nibbles: s.nibbles,
            kind: if s.fill { Kind::Fill } else { Kind::Data },
            stop: s.block_end || tiled && s.row_end,
            block_end: s.block_end,
            job_end: s.job_end,
        }
    }

    /// The same on the write side, where only an ordered job's blocks count.
    pub fn write(s: &Segment, offset: i64, ordered: bool) -> Self {
        let block_end = s.block_end && ordered && !s.job_end;
        let stop = block_end || s.job_end;
        Self { stop, block_end, kind: Kind::Data, ..Self::read(s, offset, false) }
    }

    /// First nibble past the run.
    pub fn end(&self) -> u64 {
        self.address + self.nibbles
    }

    /// Whether `next` can be made one with this.
    pub fn joins(&self, next: &Self) -> bool {
        !self.stop && self.kind == next.kind && (self.kind == Kind::Fill || self.end() == next.address)
    }

    /// Most nibbles of one burst from the run's address on: to the end of the 4 KiB page and within 256 beats.
    pub fn burst_limit(&self, bus_bytes: u32) -> u64 {
        if self.kind == Kind::Fill {
            return 2 * PAGE;
        }
        let (byte, bus) = (self.address >> 1, u64::from(bus_bytes));
        let page = PAGE - byte % PAGE;
        let beats = MAX_BEATS * bus - byte % bus;
        2 * page.min(beats) - (self.address & 1)
    }

    /// Beats of a bus of `bus_bytes` that the run touches.
    pub fn beats(&self, bus_bytes: u32) -> u32 {
        let bus = 2 * u64::from(bus_bytes);
        (self.address % bus + self.nibbles).div_ceil(bus) as u32
    }
}

/// A burst must not cross a multiple of this, bytes.
pub const PAGE: u64 = 4096;
/// Most beats of a burst.
pub const MAX_BEATS: u64 = 256;

impl Payload for Run {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("address_q", 49, Format::Hex, &mut self.address);
            v.reg("nibbles_q", 33, Format::Unsigned, &mut self.nibbles);
            let mut kind = self.kind as u8;
            v.reg("kind_q", 2, Format::Enum(&["data", "fill", "index", "descriptor"]), &mut kind);
            self.kind = KINDS[usize::from(kind & 3)];
            v.reg("stop_q", 1, Format::Unsigned, &mut self.stop);
            v.reg("block_end_q", 1, Format::Unsigned, &mut self.block_end);
            v.reg("job_end_q", 1, Format::Unsigned, &mut self.job_end);
        });
    }
}

/// What a [`Builder`] does in one cycle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Build {
    /// Takes the run on offer.
    pub consume: bool,
    /// Emits a burst.
    pub emit: Option<Run>,
    /// Pending run after the edge.
    pub pending: Option<Run>,
}

/// The burst builder: joins runs that touch, cuts them at 4 KiB and 256 beats; at most one run in and one burst out a cycle.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    pending: Run,
    valid: bool,
}

impl Builder {
    /// Whether it can go on only with another run.
    pub fn hungry(&self, bus_bytes: u32) -> bool {
        !(self.valid && ready(&self.pending, bus_bytes))
    }

    /// The step that it takes, given the run on offer; nothing if it is hungry and there is none.
    pub fn step(&self, next: Option<&Run>, bus_bytes: u32) -> Build {
        if !self.hungry(bus_bytes) {
            return cut(&self.pending, false, bus_bytes);
        }
        match (self.valid, next) {
            (_, None) => Build { pending: self.valid.then_some(self.pending), ..Build::default() },
            (true, Some(next)) if self.pending.joins(next) => {
                let joined =
                    Run { nibbles: self.pending.nibbles + next.nibbles, address: self.pending.address, ..*next };
                keep_or_cut(joined, bus_bytes)
            }
            (true, Some(next)) => Build { consume: true, emit: Some(self.pending), pending: Some(*next) },
            (false, Some(next)) => keep_or_cut(*next, bus_bytes),
        }
    }

    /// Takes the step.
    pub fn apply(&mut self, build: &Build) {
        self.valid = build.pending.is_some();
        if let Some(pending) = build.pending {
            self.pending = pending;
        }
    }

    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
        self.pending.visit("pending".into(), v);
    }
}

/// A burst can leave: it is as long as it may be, or nothing will join it.
fn ready(run: &Run, bus_bytes: u32) -> bool {
    run.stop || run.nibbles >= run.burst_limit(bus_bytes)
}

fn keep_or_cut(run: Run, bus_bytes: u32) -> Build {
    if ready(&run, bus_bytes) {
        cut(&run, true, bus_bytes)
    } else {
        Build { consume: true, emit: None, pending: Some(run) }
    }
}

/// The first burst of a run, and what is left of it.
fn cut(run: &Run, consume: bool, bus_bytes: u32) -> Build {
    let limit = run.burst_limit(bus_bytes);
    if run.nibbles <= limit {
        return Build { consume, emit: Some(*run), pending: None };
    }
    let burst = Run { nibbles: limit, stop: false, block_end: false, job_end: false, ..*run };
    let rest = Run { address: run.address + limit, nibbles: run.nibbles - limit, ..*run };
    Build { consume, emit: Some(burst), pending: Some(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Runs go in, bursts come out: the same nibbles in the same order, no burst against the rules.
        #[test]
        fn bursts_carry_the_runs(
            runs in prop::collection::vec((0u64..40_000, 1u64..20_000, any::<bool>(), any::<bool>()), 1..20),
            bus in prop::sample::select(vec![8u32, 16, 32, 64]),
        ) {
            let mut queue = Vec::new();
            let mut at = 0;
            for (i, (address, nibbles, touch, stop)) in runs.iter().enumerate() {
                let address = if *touch { at } else { *address };
                let last = i + 1 == runs.len();
                queue.push(Run { address, nibbles: *nibbles, stop: *stop || last, job_end: last, ..Run::default() });
                at = address + nibbles;
            }
            let (mut builder, mut bursts, mut next) = (Builder::default(), Vec::new(), 0);
            loop {
                let build = builder.step(queue.get(next), bus);
                next += usize::from(build.consume);
                bursts.extend(build.emit);
                builder.apply(&build);
                if next == queue.len() && build.pending.is_none() {
                    break;
                }
            }
            let flat = |runs: &[Run]| runs.iter().flat_map(|r| r.address..r.end()).collect::<Vec<_>>();
            prop_assert_eq!(flat(&queue), flat(&bursts));
            for burst in &bursts {
                prop_assert!(burst.nibbles > 0 && burst.beats(bus) <= 256);
                prop_assert_eq!(burst.address / 8192, (burst.end() - 1) / 8192, "4 KiB");
            }
            for stop in queue.iter().filter(|r| r.stop) {
                prop_assert!(bursts.iter().any(|b| b.stop && b.end() == stop.end()));
            }
            for flagged in bursts.iter().filter(|b| b.stop || b.job_end) {
                prop_assert!(queue.iter().any(|r| r.stop && r.end() == flagged.end()), "flags belong to a run's last burst");
            }
            prop_assert_eq!(bursts.iter().filter(|b| b.job_end).count(), 1);
        }
    }
}
