use crate::completion::{Completion, Outcome, Ticket};
use crate::hazard::{History, fetch, wire_span};
use crate::index::{BadIndex, check_beat};
use crate::state::{STATE_NAMES, STATES, State};
use crate::{
    BusFault, Checked, Checker, Config, Control, Descriptor, Field, IndexWrite, Kind, Limits, ListPlan, Plan, REGIONS,
    Refusal, Region, Run, Span, WIRE_BYTES,
};
use rtl::{Fifo, FifoIn, Format, Module, Payload, Stream, Visitor};

/// Doorbells that wait.
pub const DOORBELLS: usize = 4;

/// The front end: fetches descriptors and index lists, checks them, dispatches jobs.
///
/// The next descriptor is asked for before the present job's data, so that it is at hand when the read side has walked
/// the job. Whatever is fetched waits for earlier jobs that may still write it.
#[derive(Clone, Debug)]
pub struct FrontEnd {
    bus_bytes: u32,
    limits: Limits,
    /// Descriptors a doorbell may start, 16 bits.
    chain_limit: u32,
    doorbells: Fifo<u64>,
    state: State,
    /// The descriptor's address.
    address: u64,
    /// Descriptors of the chain so far, 16 bits.
    chain: u32,
    /// The descriptor that is coming in, its bytes so far (8 bits), and a bus error on the way.
    wire: [u8; WIRE_BYTES],
    received: u8,
    wire_fault: BusFault,
    /// The present job.
    descriptor: Descriptor,
    checker: Checker,
    checked: Checked,
    ticket: Ticket,
    /// The next descriptor, and whether it has been asked for.
    next: Option<u64>,
    prefetched: bool,
    /// The list being fetched, words of it received (12 bits), the first bad index, a bus error.
    side: u8,
    words: u32,
    bad: BadIndex,
    list_fault: BusFault,
    /// The word on its way to the index SRAM.
    index_valid: bool,
    index_side: u8,
    index_address: u32,
    index_word: [u64; 8],
    history: History,
    /// Jobs dispatched, 8 bits, wraps.
    issued: u8,
}

/// Inputs of the [`FrontEnd`].
pub struct FrontIn<'a> {
    /// Address of a chain's first descriptor.
    pub doorbell: Stream<u64>,
    /// The back end takes the run on offer.
    pub run_ready: bool,
    /// Descriptor and index bytes.
    pub control: &'a Control,
    /// The read side of the mid end is idle.
    pub read_idle: bool,
    /// The write side is idle.
    pub write_idle: bool,
    /// All takers of the job on offer are ready.
    pub dispatch_ready: bool,
    /// Jobs completed.
    pub retired: u8,
}

/// Outputs of the [`FrontEnd`].
pub struct FrontOut<'a> {
    /// A doorbell would be taken.
    pub doorbell_ready: bool,
    /// A descriptor or list to read.
    pub run: Stream<Run>,
    /// A word for an index SRAM.
    pub index: Option<IndexWrite<'a>>,
    /// The job on offer.
    pub ticket: Stream<&'a Ticket>,
    /// Its loops, if it moves data.
    pub plan: Option<&'a Plan>,
    /// Nothing to do.
    pub idle: bool,
    /// State, for counters.
    pub state: State,
}

impl FrontEnd {
    /// Idle, all regions closed.
    pub fn new(config: &Config) -> Self {
        Self {
            bus_bytes: config.bus_bytes,
            limits: Limits { regions: [Region::default(); REGIONS], job_bytes: config.job_bytes },
            chain_limit: config.chain_limit,
            doorbells: Fifo::new(DOORBELLS, 0),
            state: State::Idle,
            address: 0,
            chain: 0,
            wire: [0; WIRE_BYTES],
            received: 0,
            wire_fault: BusFault::default(),
            descriptor: Descriptor::default(),
            checker: Checker::default(),
            checked: Checked::default(),
            ticket: Ticket::default(),
            next: None,
            prefetched: false,
            side: 0,
            words: 0,
            bad: BadIndex::default(),
            list_fault: BusFault::default(),
            index_valid: false,
            index_side: 0,
            index_address: 0,
            index_word: [0; 8],
            history: History::default(),
            issued: 0,
        }
    }

    /// Writes a region register. Jobs that are under way keep what they were checked against.
    pub fn set_region(&mut self, number: usize, region: Region) {
        self.limits.regions[number] = region;
    }

    fn list(&self) -> &ListPlan {
        &self.checked.lists[usize::from(self.side)]
    }

    fn list_words(&self) -> u32 {
        let span = self.list().span;
        (span.hi - span.lo).div_ceil(u64::from(self.bus_bytes)) as u32
    }

    /// Ends the present job with `completion`; nothing moves.
    fn fail(&mut self, completion: Completion) {
        self.ticket = Ticket { completion, moves: false };
    }

    /// What `span` depends on has happened: no job still writes it.
    fn safe(&self, span: Span, retired: u8) -> bool {
        !self.history.meets(span) || retired == self.issued
    }

    /// Takes bytes from the back end.
    fn take_control(&mut self, control: &Control) {
        self.index_valid = false;
        if !control.valid {
            return;
        }
        let count = usize::from(control.beat.count);
        if control.index {
            let width = if self.descriptor.wide_index { 4 } else { 2 };
            let first = self.words * self.bus_bytes / width;
            let (wide, clamp) = (self.descriptor.wide_index, self.descriptor.clamp);
            let (word, bad) = check_beat(&control.beat, self.list(), wide, clamp, first);
            if !self.bad.valid {
                self.bad = bad;
            }
            if !self.list_fault.raised() {
                self.list_fault = control.fault;
            }
            (self.index_valid, self.index_side, self.index_address) = (true, self.side, self.words);
            self.index_word = word;
            self.words += 1;
        } else {
            let at = usize::from(self.received);
            self.wire[at..at + count].copy_from_slice(&control.beat.data[..count]);
            self.received += count as u8;
            if !self.wire_fault.raised() {
                self.wire_fault = control.fault;
            }
        }
    }

    /// The bytes of a descriptor are all there: decodes them.
    fn decode(&mut self) -> State {
        let fault = std::mem::take(&mut self.wire_fault);
        self.received = 0;
        (self.next, self.checked) = (None, Checked::default());
        let tag = Descriptor::wire_tag(&self.wire);
        if fault.raised() {
            self.fail(Completion::fault(tag, Outcome::DescriptorError, &fault));
            return State::Settle;
        }
        match Descriptor::decode(&self.wire) {
            Ok(descriptor) => {
                self.descriptor = descriptor;
                self.checker = Checker::new(&descriptor);
                State::Check
            }
            Err(refusal) => {
                self.fail(Completion::refused(tag, refusal));
                if refusal.field != Field::VERSION {
                    self.follow(Descriptor::wire_link(&self.wire));
                }
                State::Settle
            }
        }
    }

    /// Follows a link if it may be; a bad one refuses the job, unless that is refused already.
    fn follow(&mut self, link: Option<u64>) {
        let Some(address) = link else { return };
        if self.limits.link_ok(address) && self.chain + 1 < self.chain_limit {
            self.next = Some(address);
        } else if self.ticket.completion.outcome == Outcome::Done {
            let refusal = Refusal { field: Field::LINK, value: address };
            self.fail(Completion::refused(self.ticket.completion.tag, refusal));
        }
    }

    fn verdict(&mut self) {
        let tag = self.descriptor.tag;
        match self.checker.verdict(&self.descriptor, &self.limits) {
            Ok(checked) => {
                self.checked = checked;
                let completion = Completion { tag, ..Completion::default() };
                self.ticket = Ticket { completion, moves: checked.plan.is_some() };
            }
            Err(refusal) => self.fail(Completion::refused(tag, refusal)),
        }
        self.follow(self.descriptor.link);
    }

    /// The lists that are still to be fetched, from `side` on.
    fn next_list(&self, side: u8) -> Option<u8> {
        (side..2).find(|&s| self.ticket.moves && self.checked.lists[usize::from(s)].valid)
    }

    /// After the prefetch: lists, then the source.
    fn lists_from(&mut self, side: u8) -> State {
        match self.next_list(side) {
            Some(side) => {
                (self.side, self.words) = (side, 0);
                (self.bad, self.list_fault) = (BadIndex::default(), BusFault::default());
                State::List
            }
            None => State::Hazard,
        }
    }

    /// A list is complete.
    fn list_verdict(&mut self) -> State {
        let tag = self.descriptor.tag;
        if self.list_fault.raised() {
            let fault = self.list_fault;
            self.fail(Completion::fault(tag, Outcome::IndexError, &fault));
        } else if self.bad.valid {
            let BadIndex { position, value, .. } = self.bad;
            let field = Field::index_bound(self.side.into());
            let outcome = Outcome::BadIndex;
            self.fail(Completion { tag, outcome, field, value: value as u64, position, ..Completion::default() });
        }
        self.lists_from(self.side + 1)
    }

    fn dispatched(&mut self) {
        self.issued = self.issued.wrapping_add(1);
        self.history.push(if self.ticket.moves { self.checked.destination } else { Span::default() });
    }

    /// The next state.
    fn step(&mut self, i: &FrontIn<'_>) -> State {
        match self.state {
            State::Idle => {
                let head = self.doorbells.out().head;
                if !head.valid {
                    return State::Idle;
                }
                (self.address, self.chain) = (*head.data, 0);
                (self.next, self.prefetched, self.checked) = (None, false, Checked::default());
                if self.limits.link_ok(self.address) {
                    State::Fetch
                } else {
                    self.fail(Completion::refused(0, Refusal { field: Field::LINK, value: self.address }));
                    State::Settle
                }
            }
            State::Fetch if i.read_idle && self.safe(wire_span(self.address), i.retired) => State::FetchPush,
            State::FetchPush if i.run_ready => State::Receive,
            State::Receive if usize::from(self.received) == WIRE_BYTES => self.decode(),
            State::Check => {
                self.checker.advance(&self.descriptor);
                if self.checker.step == 3 { State::Verdict } else { State::Check }
            }
            State::Verdict => {
                self.verdict();
                State::Settle
            }
            State::Settle if i.read_idle => match self.next {
                Some(next) if !self.history.meets(wire_span(next)) && !self.writes(wire_span(next)) => {
                    State::PrefetchPush
                }
                _ => {
                    self.prefetched = false;
                    self.lists_from(0)
                }
            },
            State::PrefetchPush if i.run_ready => {
                self.prefetched = true;
                self.lists_from(0)
            }
            State::List if self.safe(self.list().span, i.retired) && (self.side == 0 || i.write_idle) => {
                State::ListPush
            }
            State::ListPush if i.run_ready => State::ListReceive,
            State::ListReceive if self.words == self.list_words() => self.list_verdict(),
            State::Hazard if !self.ticket.moves || self.safe(self.checked.source, i.retired) => State::Dispatch,
            State::Dispatch if i.dispatch_ready => {
                self.dispatched();
                State::Next
            }
            State::Next => match self.next {
                None => State::Idle,
                Some(next) => {
                    self.address = next;
                    self.chain += 1;
                    if self.prefetched { State::Receive } else { State::Fetch }
                }
            },
            waiting => waiting,
        }
    }

    /// The present job may write `span`.
    fn writes(&self, span: Span) -> bool {
        self.ticket.moves && self.checked.destination.meets(span)
    }
}

impl Module for FrontEnd {
    type In<'a> = FrontIn<'a>;
    type Out<'a> = FrontOut<'a>;

    fn out(&self) -> FrontOut<'_> {
        let run = match self.state {
            State::FetchPush => Some(fetch(Kind::Descriptor, wire_span(self.address))),
            State::PrefetchPush => self.next.map(|n| fetch(Kind::Descriptor, wire_span(n))),
            State::ListPush => Some(fetch(Kind::Index, self.list().span)),
            _ => None,
        };
        let plan = self.checked.plan.as_ref().filter(|_| self.ticket.moves);
        FrontOut {
            doorbell_ready: self.doorbells.out().ready,
            run: run.into(),
            index: self.index_valid.then_some(IndexWrite {
                side: self.index_side,
                address: self.index_address as usize,
                data: &self.index_word[..self.bus_bytes as usize / 8],
            }),
            ticket: Stream { valid: self.state == State::Dispatch, data: &self.ticket },
            plan,
            idle: self.state == State::Idle && !self.doorbells.out().head.valid,
            state: self.state,
        }
    }

    fn clock(&mut self, i: &FrontIn<'_>) {
        let pop = self.state == State::Idle;
        let next = self.step(i);
        self.take_control(i.control);
        self.state = next;
        self.doorbells.clock(&FifoIn { push: Stream { valid: i.doorbell.valid, data: &i.doorbell.data }, pop });
    }

    fn reset(&mut self) {
        self.doorbells.reset();
        self.state = State::Idle;
        (self.chain, self.received, self.prefetched, self.next) = (0, 0, false, None);
        (self.wire_fault, self.list_fault, self.bad) = (BusFault::default(), BusFault::default(), BadIndex::default());
        (self.index_valid, self.history, self.issued) = (false, History::default(), 0);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        let mut state = self.state as u8;
        v.reg("state_q", 4, Format::Enum(STATE_NAMES), &mut state);
        self.state = STATES[usize::from(state).min(STATES.len() - 1)];
        v.reg("address_q", 48, Format::Hex, &mut self.address);
        v.reg("chain_q", 16, Format::Unsigned, &mut self.chain);
        v.reg("chain_limit_q", 16, Format::Unsigned, &mut self.chain_limit);
        v.reg("job_bytes_q", 32, Format::Unsigned, &mut self.limits.job_bytes);
        v.reg("received_q", 8, Format::Unsigned, &mut self.received);
        v.reg("prefetched_q", 1, Format::Unsigned, &mut self.prefetched);
        let (mut linked, mut next) = (self.next.is_some(), self.next.unwrap_or(0));
        v.reg("next_valid_q", 1, Format::Unsigned, &mut linked);
        v.reg("next_q", 48, Format::Hex, &mut next);
        self.next = linked.then_some(next);
        v.reg("issued_q", 8, Format::Unsigned, &mut self.issued);
        v.reg("side_q", 1, Format::Unsigned, &mut self.side);
        v.reg("words_q", 12, Format::Unsigned, &mut self.words);
        self.bad.visit(v);
        self.list_fault.visit("list_fault".into(), v);
        self.wire_fault.visit("wire_fault".into(), v);
        v.reg("index_valid_q", 1, Format::Unsigned, &mut self.index_valid);
        v.reg("index_side_q", 1, Format::Unsigned, &mut self.index_side);
        v.reg("index_address_q", 12, Format::Unsigned, &mut self.index_address);
        for (l, lane) in self.index_word.iter_mut().enumerate() {
            v.reg(("index_word_q", l), 64, Format::Hex, lane);
        }
        self.ticket.visit("ticket".into(), v);
        self.history.visit(v);
        v.scope("checker", |v| self.checker.visit(v));
        self.checked.visit(v);
        // The descriptor's fields are the wire's bytes, decoded.
        for (i, word) in self.wire.chunks_exact_mut(8).enumerate() {
            let mut bits = word.iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b));
            v.reg(("wire_q", i), 64, Format::Hex, &mut bits);
            word.copy_from_slice(&bits.to_le_bytes());
        }
        let mut held = self.descriptor.encode();
        for (i, word) in held.chunks_exact_mut(8).enumerate() {
            let mut bits = word.iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b));
            v.reg(("descriptor_q", i), 64, Format::Hex, &mut bits);
            word.copy_from_slice(&bits.to_le_bytes());
        }
        if let Ok(descriptor) = Descriptor::decode(&held) {
            self.descriptor = descriptor;
        }
        for (i, region) in self.limits.regions.iter_mut().enumerate() {
            region.visit(("region", i).into(), v);
        }
        v.scope("doorbells", |v| self.doorbells.visit(v));
    }
}
