use crate::completion::{Completion, Outcome, Ticket};
use crate::hazard::{History, fetch, wire_span};
use crate::index::{BadIndex, check_beat};
use crate::net::Net;
use crate::{
    Bytes, Checked, Checker, Config, ConfigError, Counters, DOORBELLS, Descriptor, Field, Kind, Latency, Limits,
    ListPlan, REGIONS, Refusal, Region, Span, Stalls, WIRE_BYTES,
};
use std::collections::VecDeque;

/// What a run of the transaction engine gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Completions, with the cycle in which a host that is always ready takes each. Cycle 0 is the first after reset, in
    /// which the first doorbell is rung.
    pub completions: Vec<(u64, Completion)>,
    /// What crossed the port, and the cycles lost by cause.
    pub counters: Counters,
}

/// The engine as transactions: the bytes and the cycles of [`crate::Dma`] in front of a memory of fixed latency that is
/// always ready, without clocking a register.
///
/// The front end is a straight line of waits; what lies behind it is a network of processes with timed FIFOs between them.
#[derive(Clone, Debug)]
pub struct Transaction {
    config: Config,
    limits: Limits,
    latency: u64,
}

impl Transaction {
    /// All regions closed. `latency`: cycles from the AR handshake to the first beat of R and from the last W to B, at least 1.
    ///
    /// # Errors
    /// [`ConfigError`] if a size is out of range.
    pub fn new(config: &Config, latency: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let limits = Limits { regions: [Region::default(); REGIONS], job_bytes: config.job_bytes };
        Ok(Self { config: *config, limits, latency: latency.max(1) })
    }

    /// Writes region register `number`, 0..16.
    ///
    /// # Panics
    /// If there is no such register.
    pub fn set_region(&mut self, number: usize, region: Region) {
        self.limits.regions[number] = region;
    }

    /// Rings the doorbells one after the other, as fast as they are taken, and runs until everything is done.
    pub fn run(&self, memory: &mut impl Bytes, doorbells: &[u64]) -> Report {
        self.run_at(memory, self.latency, doorbells)
    }

    /// The same with a memory whose latency depends on the address.
    pub fn run_at(&self, memory: &mut impl Bytes, latency: impl Latency, doorbells: &[u64]) -> Report {
        let net = Net::new(&self.config, latency);
        let (history, job, stalls) = (History::default(), Job::default(), Stalls::default());
        let mut front = Front { engine: self, memory, net, t: 0, history, job, stalls };
        // A doorbell is taken when one of the queue's slots is free.
        let mut slots: VecDeque<u64> = std::iter::repeat_n(0, DOORBELLS).collect();
        let mut rung = 0;
        let mut pushed = VecDeque::new();
        let mut waiting = doorbells.iter();
        for _ in doorbells {
            while let (Some(&slot), Some(&address)) = (slots.front(), waiting.as_slice().first()) {
                waiting.next();
                slots.pop_front();
                let t = slot.max(rung);
                rung = t + 1;
                pushed.push_back((t + 1, address));
            }
            if let Some((seen, address)) = pushed.pop_front() {
                front.t = front.t.max(seen);
                slots.push_back(front.t + 1);
                front.chain(address);
            }
        }
        front.net.pump(front.memory);
        let Stalls { descriptor, index, order, .. } = front.stalls;
        let stalls = Stalls { descriptor, index, order, ..front.net.stalls() };
        Report { completions: front.net.finished, counters: Counters { traffic: front.net.traffic, stalls } }
    }
}

/// The present job of the front end.
#[derive(Clone, Copy, Debug, Default)]
struct Job {
    descriptor: Descriptor,
    checked: Checked,
    ticket: Ticket,
    next: Option<u64>,
}

/// The front end in time: `t` is the cycle in which the present state is looked at.
struct Front<'a, M: Bytes, L> {
    engine: &'a Transaction,
    memory: &'a mut M,
    net: Net<L>,
    t: u64,
    history: History,
    job: Job,
    /// Of the front end's own states.
    stalls: Stalls,
}

impl<M: Bytes, L: Latency> Front<'_, M, L> {
    /// Waits for an event of the network.
    fn wait(&mut self, event: impl Fn(&Net<L>) -> Option<u64>) {
        self.net.pump(self.memory);
        // Every event waited for follows from what has been dispatched; the engine in cycles would hang where it does not.
        if let Some(at) = event(&self.net) {
            self.t = self.t.max(at);
        }
    }

    /// Waits until no job may still write `span`.
    fn wait_safe(&mut self, span: Span) {
        if self.history.meets(span) {
            self.wait(|net| Some(net.retired));
        }
    }

    /// The wait that began in cycle `since` ends in the present one.
    fn order_ends(&mut self, since: u64) {
        self.t += 1;
        self.stalls.order += self.t - since;
    }

    /// Offers a run in the present state until it is taken; the next state follows.
    fn push(&mut self, kind: Kind, span: Span) {
        self.net.control_run = Some((self.t, fetch(kind, span)));
        self.net.pump(self.memory);
        self.t = self.net.control_taken + 1;
    }

    /// Runs the chain at `address`, which was taken from the doorbell in cycle `t`.
    fn chain(&mut self, address: u64) {
        self.t += 1;
        self.job = Job::default();
        let (mut address, mut length, mut fetched) = (address, 0, false);
        if !self.engine.limits.link_ok(address) {
            self.fail(Completion::refused(0, Refusal { field: Field::LINK, value: address }));
            self.settle();
            return;
        }
        loop {
            if !fetched {
                let since = self.t;
                self.wait(Net::read_idle);
                self.wait_safe(wire_span(address));
                self.order_ends(since);
                self.push(Kind::Descriptor, wire_span(address));
            }
            self.receive(length);
            fetched = self.settle();
            match self.job.next {
                Some(next) => address = next,
                None => return,
            }
            length += 1;
        }
    }

    fn fail(&mut self, completion: Completion) {
        self.job.ticket = Ticket { completion, moves: false };
    }

    /// Descriptor bytes, decoding, checks.
    fn receive(&mut self, length: u32) {
        self.net.pump(self.memory);
        let since = self.t;
        let mut wire = [0; WIRE_BYTES];
        let (mut received, mut fault) = (0, crate::BusFault::default());
        while received < WIRE_BYTES {
            let Some((seen, control)) = self.net.control.pop_front() else { break };
            let count = usize::from(control.beat.count);
            wire[received..received + count].copy_from_slice(&control.beat.data[..count]);
            received += count;
            self.t = self.t.max(seen);
            if !fault.raised() {
                fault = control.fault;
            }
        }
        self.t += 1;
        self.stalls.descriptor += self.t - since;
        (self.job.next, self.job.checked) = (None, Checked::default());
        let tag = Descriptor::wire_tag(&wire);
        if fault.raised() {
            return self.fail(Completion::fault(tag, Outcome::DescriptorError, &fault));
        }
        match Descriptor::decode(&wire) {
            Ok(descriptor) => {
                self.job.descriptor = descriptor;
                let mut checker = Checker::new(&descriptor);
                for _ in 0..3 {
                    checker.advance(&descriptor);
                }
                // Three cycles of checks, one for the verdict.
                self.t += 4;
                match checker.verdict(&descriptor, &self.engine.limits) {
                    Ok(checked) => {
                        self.job.checked = checked;
                        let completion = Completion { tag, ..Completion::default() };
                        self.job.ticket = Ticket { completion, moves: checked.plan.is_some() };
                    }
                    Err(refusal) => self.fail(Completion::refused(tag, refusal)),
                }
                self.follow(descriptor.link, length);
            }
            Err(refusal) => {
                self.fail(Completion::refused(tag, refusal));
                if refusal.field != Field::VERSION {
                    self.follow(Descriptor::wire_link(&wire), length);
                }
            }
        }
    }

    fn follow(&mut self, link: Option<u64>, length: u32) {
        let Some(address) = link else { return };
        if self.engine.limits.link_ok(address) && length + 1 < self.engine.config.chain_limit {
            self.job.next = Some(address);
        } else if self.job.ticket.completion.outcome == Outcome::Done {
            let refusal = Refusal { field: Field::LINK, value: address };
            self.fail(Completion::refused(self.job.ticket.completion.tag, refusal));
        }
    }

    /// Prefetch, lists, hazards, dispatch; true if the next descriptor has been asked for.
    fn settle(&mut self) -> bool {
        let since = self.t;
        self.wait(Net::read_idle);
        let writes = |job: &Job, span| job.ticket.moves && job.checked.destination.meets(span);
        let ahead = self.job.next.filter(|&next| {
            let span = wire_span(next);
            !self.history.meets(span) && !writes(&self.job, span)
        });
        self.order_ends(since);
        if let Some(next) = ahead {
            self.push(Kind::Descriptor, wire_span(next));
        }
        for side in 0..2 {
            if self.job.ticket.moves && self.job.checked.lists[side].valid {
                self.list(side, ahead.is_some());
            }
        }
        let since = self.t;
        if self.job.ticket.moves {
            self.wait_safe(self.job.checked.source);
        }
        self.order_ends(since);
        self.wait(|net| net.tickets.room());
        let moves = self.job.ticket.moves;
        if moves {
            self.wait(|net| net.write_jobs.room());
        }
        let plan = self.job.checked.plan.filter(|_| moves);
        self.net.dispatch(self.t, self.job.ticket, plan.as_ref());
        self.history.push(if moves { self.job.checked.destination } else { Span::default() });
        self.t += 2;
        ahead.is_some()
    }

    /// Fetches and checks one index list.
    fn list(&mut self, side: usize, ahead: bool) {
        let list: ListPlan = self.job.checked.lists[side];
        let since = self.t;
        self.wait_safe(list.span);
        if side == 1 {
            self.wait(Net::write_idle);
        }
        self.order_ends(since);
        self.push(Kind::Index, list.span);
        let since = self.t;
        self.net.pump(self.memory);
        let Descriptor { wide_index: wide, clamp, tag, .. } = self.job.descriptor;
        let width = if wide { 4 } else { 2 };
        let bus = self.engine.config.bus_bytes;
        let (mut entries, mut bad, mut fault) = (Vec::new(), BadIndex::default(), crate::BusFault::default());
        // The beats of a descriptor that was asked for before the list come first and stay where they are.
        let skip = if ahead { WIRE_BYTES / bus as usize } else { 0 };
        while let Some((seen, control)) = self.net.control.remove(skip) {
            let first = entries.len() as u32;
            let (word, found) = check_beat(&control.beat, &list, wide, clamp, first);
            let bytes: Vec<u8> = word.iter().flat_map(|w| w.to_le_bytes()).collect();
            entries.extend(
                bytes[..usize::from(control.beat.count)]
                    .chunks_exact(width)
                    .map(|e| e.iter().rev().fold(0i64, |v, &b| v << 8 | i64::from(b))),
            );
            if !bad.valid {
                bad = found;
            }
            if !fault.raised() {
                fault = control.fault;
            }
            self.t = self.t.max(seen);
        }
        let unit = if side == 0 { &mut self.net.read } else { &mut self.net.write };
        unit.list = entries;
        if fault.raised() {
            self.fail(Completion::fault(tag, Outcome::IndexError, &fault));
        } else if bad.valid {
            let field = Field::index_bound(side);
            let value = bad.value as u64;
            let position = bad.position;
            let outcome = Outcome::BadIndex;
            self.fail(Completion { tag, outcome, field, value, position, ..Completion::default() });
        }
        self.t += 1;
        self.stalls.index += self.t - since;
    }
}
