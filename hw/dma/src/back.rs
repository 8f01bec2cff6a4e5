use crate::completion::{Completion, Outcome, Ticket};
use crate::{
    AxiAddress, Beat, BusFault, Config, Context, Control, PortIn, PortOut, Reader, ReaderIn, Run, Writer, WriterIn,
};
use rtl::{Fifo, FifoIn, Format, Module, Stream, Visitor};

/// Jobs between dispatch and completion.
pub const TICKETS: usize = 4;
/// Completions that wait for the host.
pub const COMPLETIONS: usize = 4;

/// The back end: the AXI4 port's two halves, and the unit that completes jobs in order.
#[derive(Clone, Debug)]
pub struct BackEnd {
    reader: Reader,
    writer: Writer,
    tickets: Fifo<Ticket>,
    completions: Fifo<Completion>,
    /// Jobs completed since reset, 8 bits, wraps.
    retired: u8,
}

/// Inputs of the [`BackEnd`].
pub struct BackIn<'a> {
    /// A run to read.
    pub read_run: Stream<&'a Run>,
    /// A run to write.
    pub write_run: Stream<&'a Run>,
    /// The stream to write.
    pub stream: Stream<&'a Beat>,
    /// The mid end would take a packed beat of a tiled job.
    pub ready_tiled: bool,
    /// The mid end would take a packed beat of a direct job.
    pub ready_direct: bool,
    /// A job is dispatched: its ticket.
    pub ticket: Option<&'a Ticket>,
    /// A job that moves data is dispatched: its context.
    pub context: Option<&'a Context>,
    /// The memory.
    pub port: PortIn<'a>,
    /// The host takes a completion.
    pub completion_ready: bool,
}

/// Outputs of the [`BackEnd`].
pub struct BackOut<'a> {
    /// A read run would be taken.
    pub read_ready: bool,
    /// A write run would be taken.
    pub write_ready: bool,
    /// A beat of the stream would be taken.
    pub stream_ready: bool,
    /// The packed stream.
    pub packed: Stream<&'a Beat>,
    /// Descriptor and index bytes.
    pub control: &'a Control,
    /// A job may be dispatched.
    pub ticket_ready: bool,
    /// See [`Reader`].
    pub block_read: bool,
    /// See [`Writer`].
    pub block_written: bool,
    /// Jobs completed.
    pub retired: u8,
    /// The memory.
    pub port: PortOut<'a>,
    /// The oldest completion.
    pub completion: Stream<&'a Completion>,
    /// No job, no completion.
    pub idle: bool,
    /// Reads in flight at their limit.
    pub reads_full: bool,
    /// The read side waits for R.
    pub read_starved: bool,
}

impl BackEnd {
    /// Idle.
    pub fn new(config: &Config) -> Self {
        Self {
            reader: Reader::new(config),
            writer: Writer::new(config),
            tickets: Fifo::new(TICKETS, Ticket::default()),
            completions: Fifo::new(COMPLETIONS, Completion::default()),
            retired: 0,
        }
    }

    /// The completion of the oldest job, once all it waits for is there.
    fn complete(&self) -> Option<Completion> {
        let ticket = self.tickets.out().head;
        let (read, write) = (self.reader.out().status, self.writer.out().status);
        if !ticket.valid || !self.completions.out().ready {
            return None;
        }
        let mut done = ticket.data.completion;
        if ticket.data.moves {
            if !(read.valid && write.valid) {
                return None;
            }
            let mut blame = |outcome: Outcome, fault: &BusFault| {
                done = Completion { outcome, response: fault.response, value: fault.address, ..done };
            };
            if read.data.raised() {
                blame(Outcome::ReadError, read.data);
            } else if write.data.raised() {
                blame(Outcome::WriteError, write.data);
            }
        }
        Some(done)
    }
}

impl Module for BackEnd {
    type In<'a> = BackIn<'a>;
    type Out<'a> = BackOut<'a>;

    fn out(&self) -> BackOut<'_> {
        let (reader, writer) = (self.reader.out(), self.writer.out());
        let (tickets, completions) = (self.tickets.out(), self.completions.out());
        BackOut {
            read_ready: reader.run_ready,
            write_ready: writer.run_ready,
            stream_ready: writer.beat_ready,
            packed: reader.beat,
            control: reader.control,
            ticket_ready: tickets.ready && reader.context_ready,
            block_read: reader.block_read,
            block_written: writer.block_written,
            retired: self.retired,
            port: PortOut {
                ar: reader.ar,
                r_ready: reader.r_ready,
                aw: writer.aw,
                w: writer.w,
                b_ready: writer.b_ready,
            },
            completion: completions.head,
            idle: tickets.level == 0 && completions.level == 0,
            reads_full: reader.full,
            read_starved: reader.starved,
        }
    }

    fn clock(&mut self, i: &BackIn<'_>) {
        let done = self.complete();
        let moves = done.is_some() && self.tickets.out().head.data.moves;
        self.retired = self.retired.wrapping_add(u8::from(done.is_some()));
        let blank = Completion::default();
        let push = done.as_ref().map_or(Stream::idle(&blank), Stream::offer);
        self.completions.clock(&FifoIn { push, pop: i.completion_ready });
        let none = Ticket::default();
        let push = i.ticket.map_or(Stream::idle(&none), Stream::offer);
        self.tickets.clock(&FifoIn { push, pop: done.is_some() });
        self.reader.clock(&ReaderIn {
            run: i.read_run,
            context: i.context,
            ar_ready: i.port.ar_ready,
            r: i.port.r,
            ready_tiled: i.ready_tiled,
            ready_direct: i.ready_direct,
            status_pop: moves,
        });
        self.writer.clock(&WriterIn {
            run: i.write_run,
            beat: i.stream,
            aw_ready: i.port.aw_ready,
            w_ready: i.port.w_ready,
            b: i.port.b,
            status_pop: moves,
        });
    }

    fn reset(&mut self) {
        self.reader.reset();
        self.writer.reset();
        self.tickets.reset();
        self.completions.reset();
        self.retired = 0;
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        let (ar, aw) = (self.reader.out().ar, self.writer.out().aw);
        wires(("ar_valid", "ar_address", "ar_beats"), ar, v);
        wires(("aw_valid", "aw_address", "aw_beats"), aw, v);
        let (r_ready, w) = (self.reader.out().r_ready, self.writer.out().w);
        let (w_valid, w_strobe) = (w.valid, w.data.strobe);
        v.wire("r_ready", 1, Format::Unsigned, r_ready);
        v.wire("w_valid", 1, Format::Unsigned, w_valid);
        v.wire("w_strobe", 64, Format::Hex, w_strobe);
        v.reg("retired_q", 8, Format::Unsigned, &mut self.retired);
        v.scope("reader", |v| self.reader.visit(v));
        v.scope("writer", |v| self.writer.visit(v));
        v.scope("tickets", |v| self.tickets.visit(v));
        v.scope("completions", |v| self.completions.visit(v));
    }
}

fn wires(names: (&'static str, &'static str, &'static str), a: Stream<AxiAddress>, v: &mut impl Visitor) {
    v.wire(names.0, 1, Format::Unsigned, a.valid);
    v.wire(names.1, 48, Format::Hex, a.data.address);
    v.wire(names.2, 9, Format::Unsigned, a.data.beats);
}
