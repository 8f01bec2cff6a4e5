use crate::{AddressUnit, AddressUnitIn, Beat, Config, Plan, Run, Transposer, TransposerIn, address::index_depth};
use rtl::{Fifo, FifoIn, Module, Sram, SramIn, SramWrite, Stream, Visitor, WriteMode};

/// Jobs whose writes wait behind the one being walked.
pub const WRITE_JOBS: usize = 2;
/// Bytes of the stream buffer: one chunk of an ordered job.
pub const CHUNK_BYTES: usize = 4096;
/// The same in nibbles.
pub const CHUNK_NIBBLES: u64 = 2 * CHUNK_BYTES as u64;

/// The mid end: turns jobs into runs of addresses, and transposes the stream between the port's two sides.
#[derive(Clone, Debug)]
pub struct MidEnd {
    read: AddressUnit,
    write: AddressUnit,
    /// Jobs that the write side has yet to begin.
    write_jobs: Fifo<Plan>,
    /// Index lists as they lay in memory, a bus beat a word: source, destination.
    indices: [Sram<u64>; 2],
    transposer: Transposer,
    /// The stream buffer.
    stream: Fifo<Beat>,
}

/// A word of an index list for its SRAM.
#[derive(Clone, Copy, Debug)]
pub struct IndexWrite<'a> {
    /// 0 source, 1 destination.
    pub side: u8,
    /// Word.
    pub address: usize,
    /// The checked entries.
    pub data: &'a [u64],
}

/// Inputs of the [`MidEnd`].
pub struct MidIn<'a> {
    /// A job; taken when [`MidOut::job_ready`].
    pub job: Option<&'a Plan>,
    /// An index word.
    pub index: Option<IndexWrite<'a>>,
    /// The packed stream from the read side.
    pub beat: Stream<&'a Beat>,
    /// The back end takes a read run.
    pub read_pop: bool,
    /// The back end takes a write run.
    pub write_pop: bool,
    /// The back end takes a beat.
    pub stream_pop: bool,
    /// An ordered job's block has been read.
    pub block_read: bool,
    /// An ordered job's block has been written, and there are more.
    pub block_written: bool,
}

/// Outputs of the [`MidEnd`].
pub struct MidOut<'a> {
    /// A job would be taken.
    pub job_ready: bool,
    /// The read side is idle: the source index SRAM is free.
    pub read_idle: bool,
    /// The write side is idle: the destination index SRAM is free.
    pub write_idle: bool,
    /// Runs to read.
    pub read_run: Stream<&'a Run>,
    /// Runs to write.
    pub write_run: Stream<&'a Run>,
    /// What to write.
    pub stream: Stream<&'a Beat>,
    /// A beat of a tiled job would be taken.
    pub ready_tiled: bool,
    /// A beat of a direct job would be taken.
    pub ready_direct: bool,
}

impl MidEnd {
    /// Idle.
    pub fn new(config: &Config) -> Self {
        let bus = config.bus_bytes;
        let sram = || Sram::new(index_depth(bus), bus as usize / 8, WriteMode::ReadFirst);
        Self {
            read: AddressUnit::new(false, bus),
            write: AddressUnit::new(true, bus),
            write_jobs: Fifo::new(WRITE_JOBS, Plan::default()),
            indices: [sram(), sram()],
            transposer: Transposer::new(bus),
            stream: Fifo::new(CHUNK_BYTES / bus as usize, Beat::default()),
        }
    }

    /// The first misuse of an index SRAM since reset.
    pub fn fault(&self) -> Option<rtl::SramFault> {
        self.indices.iter().find_map(|m| m.out().fault)
    }
}

impl Module for MidEnd {
    type In<'a> = MidIn<'a>;
    type Out<'a> = MidOut<'a>;

    fn out(&self) -> MidOut<'_> {
        let (read, write, jobs, tr) = (self.read.out(), self.write.out(), self.write_jobs.out(), self.transposer.out());
        let free = !tr.head.valid || self.stream.out().ready;
        MidOut {
            job_ready: read.idle && jobs.ready,
            read_idle: read.idle,
            write_idle: write.idle && jobs.level == 0,
            read_run: read.head,
            write_run: write.head,
            stream: self.stream.out().head,
            ready_tiled: tr.ready_tiled,
            ready_direct: tr.ready_direct && free,
        }
    }

    fn clock(&mut self, i: &MidIn<'_>) {
        let job = i.job.filter(|_| self.out().job_ready);
        let write_idle = self.write.out().idle;
        let jobs = self.write_jobs.out();
        let write_job = jobs.head.valid.then_some(*jobs.head.data).filter(|_| write_idle);
        let reads = [self.read.out().index_read, self.write.out().index_read];

        let head = self.transposer.out().head;
        let room = self.stream.out().ready;
        self.stream.clock(&FifoIn { push: head, pop: i.stream_pop });
        self.transposer.clock(&TransposerIn { beat: i.beat, ready: room });

        let [source, destination] = &self.indices;
        self.read.clock(&AddressUnitIn { job, index_word: source.out().data, token: i.block_written, pop: i.read_pop });
        self.write.clock(&AddressUnitIn {
            job: write_job.as_ref(),
            index_word: destination.out().data,
            token: i.block_read,
            pop: i.write_pop,
        });
        for (s, sram) in self.indices.iter_mut().enumerate() {
            let write = i.index.filter(|w| usize::from(w.side) == s);
            let write = write.map(|w| SramWrite { address: w.address, data: w.data });
            sram.clock(&SramIn { read: reads[s], write });
        }
        let blank = Plan::default();
        let push = job.map_or(Stream::idle(&blank), Stream::offer);
        self.write_jobs.clock(&FifoIn { push, pop: write_job.is_some() });
    }

    fn reset(&mut self) {
        self.read.reset();
        self.write.reset();
        self.write_jobs.reset();
        self.indices.iter_mut().for_each(Sram::reset);
        self.transposer.reset();
        self.stream.reset();
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        v.scope("read", |v| self.read.visit(v));
        v.scope("write", |v| self.write.visit(v));
        v.scope("write_jobs", |v| self.write_jobs.visit(v));
        for (s, sram) in self.indices.iter_mut().enumerate() {
            v.scope(("index", s), |v| sram.visit(v));
        }
        v.scope("transposer", |v| self.transposer.visit(v));
        v.scope("stream", |v| self.stream.visit(v));
    }
}
