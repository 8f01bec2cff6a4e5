//! The AXI4 checker: watches a port cycle by cycle, one rule a named assertion.

use dma::{AxiAddress, Counters, PortIn, PortOut, ReadBeat, Region, Response, WriteBeat};
use rtl::Stream;
use std::collections::VecDeque;

/// Everything on the port in one cycle.
#[derive(Clone, Copy, Debug)]
pub struct Cycle {
    /// Reset is high.
    pub reset: bool,
    /// AR and ARREADY.
    pub ar: (Stream<AxiAddress>, bool),
    /// R and RREADY.
    pub r: (Stream<ReadBeat>, bool),
    /// AW and AWREADY.
    pub aw: (Stream<AxiAddress>, bool),
    /// W and WREADY.
    pub w: (Stream<WriteBeat>, bool),
    /// B and BREADY.
    pub b: (Stream<Response>, bool),
}

impl Cycle {
    /// The wires of an engine and a memory.
    pub fn of(out: &PortOut<'_>, i: &PortIn<'_>) -> Self {
        Self {
            reset: false,
            ar: (out.ar, i.ar_ready),
            r: (Stream { valid: i.r.valid, data: *i.r.data }, out.r_ready),
            aw: (out.aw, i.aw_ready),
            w: (Stream { valid: out.w.valid, data: *out.w.data }, i.w_ready),
            b: (i.b, out.b_ready),
        }
    }
}

/// The rules. The comment says what the assertion demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// ARVALID does not fall and AR does not change before ARREADY.
    ArStable,
    /// RVALID and R likewise.
    RStable,
    /// AWVALID and AW likewise.
    AwStable,
    /// WVALID and W likewise.
    WStable,
    /// BVALID and B likewise.
    BStable,
    /// A read burst does not cross 4 KiB.
    ArPage,
    /// A write burst does not cross 4 KiB.
    AwPage,
    /// A read burst has 1 to 256 beats.
    ArLength,
    /// A write burst has 1 to 256 beats.
    AwLength,
    /// AxSIZE is the bus width.
    AxSize,
    /// RLAST stands on the last beat of a burst and nowhere else.
    RLast,
    /// WLAST stands on the last beat of a burst and nowhere else.
    WLast,
    /// Strobes lie in one piece, in lanes that the address and the bus width allow.
    WStrobe,
    /// No read data without an address before them.
    RAfterAr,
    /// No write data without an address before them.
    WAfterAw,
    /// No write response before the last beat of its burst.
    BAfterW,
    /// No more reads in flight than configured.
    ReadsInFlight,
    /// No more writes in flight than configured.
    WritesInFlight,
    /// Reads touch only beats of regions that may be read.
    ReadRegion,
    /// Strobed bytes lie in regions that may be written.
    WriteRegion,
    /// No valid in the cycle after reset.
    ResetQuiet,
    /// At the end every burst has its data and its response.
    Drained,
}

/// All rules.
pub const RULES: [Rule; 22] = [
    Rule::ArStable,
    Rule::RStable,
    Rule::AwStable,
    Rule::WStable,
    Rule::BStable,
    Rule::ArPage,
    Rule::AwPage,
    Rule::ArLength,
    Rule::AwLength,
    Rule::AxSize,
    Rule::RLast,
    Rule::WLast,
    Rule::WStrobe,
    Rule::RAfterAr,
    Rule::WAfterAw,
    Rule::BAfterW,
    Rule::ReadsInFlight,
    Rule::WritesInFlight,
    Rule::ReadRegion,
    Rule::WriteRegion,
    Rule::ResetQuiet,
    Rule::Drained,
];

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The cycle.
    pub cycle: u64,
}

/// The checker. Everything it knows it has seen on the port.
pub struct Checker {
    bus: u64,
    reads_limit: usize,
    writes_limit: usize,
    regions: Vec<Region>,
    cycle: u64,
    last: Option<Cycle>,
    /// Open read bursts: beats to come.
    reads: VecDeque<u16>,
    /// Write bursts whose data are to come: address, beats sent.
    writes: VecDeque<(AxiAddress, u16)>,
    /// Write bursts whose response is to come.
    responses: usize,
    /// Error responses seen.
    pub errors: u64,
    /// Beats seen on all channels.
    pub beats: u64,
    /// The engine's counters as far as the port shows them: traffic, and waits for ready.
    pub counted: Counters,
    /// The cycle of the first AR.
    first: Option<u64>,
    /// What was broken, the first of each rule.
    pub violations: Vec<Violation>,
}

impl Checker {
    /// A checker for a bus of `bus_bytes`.
    pub fn new(bus_bytes: u32, reads_limit: usize, writes_limit: usize, regions: &[Region]) -> Self {
        Self {
            bus: u64::from(bus_bytes),
            reads_limit,
            writes_limit,
            regions: regions.to_vec(),
            cycle: 0,
            last: None,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            responses: 0,
            errors: 0,
            beats: 0,
            counted: Counters::default(),
            first: None,
            violations: Vec::new(),
        }
    }

    fn demand(&mut self, holds: bool, rule: Rule) {
        if !holds && self.violations.iter().all(|v| v.rule != rule) {
            self.violations.push(Violation { rule, cycle: self.cycle });
        }
    }

    fn stable<T: PartialEq>(&mut self, was: &(Stream<T>, bool), now: &(Stream<T>, bool), rule: Rule) {
        let held = !was.0.valid || was.1 || now.0.valid && now.0.data == was.0.data;
        self.demand(held, rule);
    }

    fn address(&mut self, a: &AxiAddress, page: Rule, length: Rule) {
        self.demand((1..=256).contains(&a.beats), length);
        let first = a.address / self.bus * self.bus;
        let last = first + (u64::from(a.beats.max(1)) * self.bus) - 1;
        self.demand(a.address / 4096 == last / 4096, page);
        self.demand(1 << a.size == self.bus, Rule::AxSize);
    }

    /// Looks at one cycle.
    pub fn observe(&mut self, c: &Cycle) {
        if c.reset {
            (self.reads, self.writes, self.responses) = Default::default();
            (self.counted, self.first) = Default::default();
            self.last = Some(*c);
            self.cycle += 1;
            return;
        }
        if let Some(was) = self.last.take() {
            if was.reset {
                let valid = c.ar.0.valid || c.aw.0.valid || c.w.0.valid;
                self.demand(!valid, Rule::ResetQuiet);
            } else {
                self.stable(&was.ar, &c.ar, Rule::ArStable);
                self.stable(&was.r, &c.r, Rule::RStable);
                self.stable(&was.aw, &c.aw, Rule::AwStable);
                self.stable(&was.w, &c.w, Rule::WStable);
                self.stable(&was.b, &c.b, Rule::BStable);
            }
        }
        self.count(c);
        self.read_channels(c);
        self.write_channels(c);
        self.last = Some(*c);
        self.cycle += 1;
    }

    fn count(&mut self, c: &Cycle) {
        let Counters { traffic, stalls } = &mut self.counted;
        if c.ar.0.fires(c.ar.1) {
            self.first.get_or_insert(self.cycle);
            traffic.read_bursts += 1;
        }
        traffic.read_beats += u64::from(c.r.0.fires(c.r.1));
        traffic.write_bursts += u64::from(c.aw.0.fires(c.aw.1));
        if c.w.0.fires(c.w.1) {
            traffic.write_beats += 1;
            traffic.useful_bytes += u64::from(c.w.0.data.strobe.count_ones());
        }
        if let Some(first) = self.first.filter(|_| c.b.0.fires(c.b.1)) {
            traffic.cycles = self.cycle - first + 1;
        }
        stalls.ar += u64::from(c.ar.0.valid && !c.ar.1);
        stalls.aw += u64::from(c.aw.0.valid && !c.aw.1);
        stalls.w += u64::from(c.w.0.valid && !c.w.1);
    }

    fn read_channels(&mut self, c: &Cycle) {
        if c.r.0.fires(c.r.1) {
            self.beats += 1;
            self.errors += u64::from(c.r.0.data.response != Response::Okay);
            match self.reads.front().copied() {
                None => self.demand(false, Rule::RAfterAr),
                Some(left) => {
                    self.demand(c.r.0.data.last == (left == 1), Rule::RLast);
                    if left <= 1 {
                        self.reads.pop_front();
                    } else if let Some(front) = self.reads.front_mut() {
                        *front -= 1;
                    }
                }
            }
        }
        if c.ar.0.fires(c.ar.1) {
            self.beats += 1;
            let a = c.ar.0.data;
            self.address(&a, Rule::ArPage, Rule::ArLength);
            // The last beat may hang over a region's end; its first byte may not.
            let last = (a.address / self.bus + u64::from(a.beats) - 1) * self.bus;
            let inside = self.regions.iter().any(|r| r.read && a.address >= r.base && last.max(a.address) < r.limit);
            self.demand(inside, Rule::ReadRegion);
            self.reads.push_back(a.beats);
            self.demand(self.reads.len() <= self.reads_limit, Rule::ReadsInFlight);
        }
    }

    fn write_channels(&mut self, c: &Cycle) {
        if c.b.0.fires(c.b.1) {
            self.beats += 1;
            self.errors += u64::from(c.b.0.data != Response::Okay);
            self.demand(self.responses > 0, Rule::BAfterW);
            self.responses = self.responses.saturating_sub(1);
        }
        // An address in this cycle is before the data of this cycle.
        if c.aw.0.fires(c.aw.1) {
            self.beats += 1;
            self.address(&c.aw.0.data, Rule::AwPage, Rule::AwLength);
            self.writes.push_back((c.aw.0.data, 0));
            self.demand(self.writes.len() + self.responses <= self.writes_limit, Rule::WritesInFlight);
        }
        if c.w.0.fires(c.w.1) {
            self.beats += 1;
            let beat = c.w.0.data;
            match self.writes.front().copied() {
                None => self.demand(false, Rule::WAfterAw),
                Some((address, sent)) => {
                    let last = sent + 1 == address.beats;
                    self.demand(beat.last == last, Rule::WLast);
                    self.strobes(&address, sent, beat.strobe);
                    if last {
                        self.writes.pop_front();
                        self.responses += 1;
                    } else if let Some(front) = self.writes.front_mut() {
                        front.1 += 1;
                    }
                }
            }
        }
    }

    fn strobes(&mut self, address: &AxiAddress, sent: u16, strobe: u64) {
        let first = if sent == 0 { address.address % self.bus } else { 0 };
        let allowed = rtl::mask(self.bus as u32) & !rtl::mask(first as u32);
        // One piece, from the first lane on, to the last lane unless the burst ends here.
        let piece = strobe >> first;
        let whole = piece & piece.wrapping_add(1) == 0;
        let full = strobe == 0 || sent + 1 == address.beats || strobe == allowed;
        self.demand(strobe & !allowed == 0 && whole && full, Rule::WStrobe);
        if strobe != 0 {
            let start = address.address / self.bus * self.bus + u64::from(sent) * self.bus;
            let low = start + u64::from(strobe.trailing_zeros());
            let high = start + 64 - u64::from(strobe.leading_zeros());
            let inside = self.regions.iter().any(|r| r.write && low >= r.base && high <= r.limit);
            self.demand(inside, Rule::WriteRegion);
        }
    }

    /// The run is over.
    pub fn finish(&mut self) {
        let open = !self.reads.is_empty() || !self.writes.is_empty() || self.responses > 0;
        self.demand(!open, Rule::Drained);
    }
}
