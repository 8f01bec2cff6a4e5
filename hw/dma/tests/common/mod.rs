//! A memory of fixed latency, and both engines in front of it.

use dma::{
    AxiAddress, Bytes, Completion, Config, Counters, Dma, DmaIn, MAX_BUS, PortIn, ReadBeat, Region, Response,
    Transaction, WriteBeat,
};
use rtl::{Image, Module, Stream};
use std::collections::VecDeque;

/// Bytes of the memory; what lies past them answers DECERR.
pub(crate) const SIZE: usize = 1 << 16;
/// Region 0 may be read only, region 1 read and written.
pub(crate) const READ_ONLY: u64 = 1 << 15;

/// The memory's bytes.
#[derive(Clone, PartialEq)]
pub(crate) struct Ram(pub(crate) Vec<u8>);

impl Bytes for Ram {
    fn read(&mut self, address: u64, lanes: &mut [u8]) -> Response {
        for (lane, at) in lanes.iter_mut().zip(address as usize..) {
            *lane = self.0.get(at).copied().unwrap_or(0xee);
        }
        if (address as usize) < SIZE { Response::Okay } else { Response::DecodeError }
    }

    fn write(&mut self, address: u64, lanes: &[u8], strobe: u64) -> Response {
        let mut response = Response::Okay;
        for (i, lane) in lanes.iter().enumerate().filter(|(i, _)| strobe >> i & 1 == 1) {
            match self.0.get_mut(address as usize + i) {
                Some(byte) => *byte = *lane,
                None => response = Response::DecodeError,
            }
        }
        response
    }
}

/// Something to do: descriptors lie in the memory.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) config: Config,
    pub(crate) latency: u64,
    pub(crate) memory: Vec<u8>,
    pub(crate) doorbells: Vec<u64>,
}

/// What became of it.
pub(crate) struct Ran {
    pub(crate) memory: Ram,
    pub(crate) completions: Vec<(u64, Completion)>,
    pub(crate) counters: Counters,
    pub(crate) cycles: u64,
}

impl Scenario {
    fn regions(&self) -> [(usize, Region); 2] {
        let end = SIZE as u64;
        [(0, Region::read_only(0, READ_ONLY)), (1, Region::read_write(READ_ONLY, end - READ_ONLY + 4096))]
    }

    /// By the transaction engine.
    pub(crate) fn transaction(&self) -> Ran {
        let mut engine = Transaction::new(&self.config, self.latency).unwrap();
        for (number, region) in self.regions() {
            engine.set_region(number, region);
        }
        let mut memory = Ram(self.memory.clone());
        let report = engine.run(&mut memory, &self.doorbells);
        Ran { memory, completions: report.completions, counters: report.counters, cycles: 0 }
    }

    /// By the cycle engine, whose registers are reset and put back in cycle `back_at`.
    pub(crate) fn cycles(&self, back_at: Option<u64>) -> Ran {
        let (mut dma, mut slave) = (Dma::new(&self.config).unwrap(), Slave::new(self));
        for (number, region) in self.regions() {
            dma.set_region(number, region);
        }
        let (mut rung, mut cycle, mut completions) = (0, 0, Vec::new());
        while rung < self.doorbells.len() || !dma.out().idle || !slave.quiet() {
            assert!(cycle < 1_000_000, "hangs");
            if back_at == Some(cycle) {
                let image = Image::of(&mut dma);
                dma.reset();
                image.restore(&mut dma);
                assert_eq!(Image::of(&mut dma), image);
            }
            let out = dma.out();
            if out.completion.fires(true) {
                completions.push((cycle, *out.completion.data));
            }
            let doorbell = self.doorbells.get(rung).map_or(Stream::idle(0), |&at| Stream::offer(at));
            rung += usize::from(doorbell.fires(out.doorbell_ready));
            let driven = (out.port.ar, out.port.r_ready, out.port.aw, out.port.w.valid, *out.port.w.data);
            let (r, b) = (slave.r, slave.b);
            let r = Stream { valid: r.valid, data: &r.data };
            let port = PortIn { ar_ready: true, r, aw_ready: true, w_ready: true, b };
            dma.clock(&DmaIn { doorbell, port, completion_ready: true });
            slave.clock(driven);
            cycle += 1;
        }
        assert_eq!(dma.fault(), None);
        let counters = *dma.counters();
        dma.reset();
        assert!(Image::of(&mut dma).bits() > 10_000 && dma.out().idle);
        assert_eq!(*dma.counters(), Counters::default());
        Ran { memory: slave.ram, completions, counters, cycles: cycle }
    }

    /// By both, which must agree in all; and by a cycle engine that is reset and put back half-way.
    pub(crate) fn run(&self) -> Ran {
        let whole = self.cycles(None);
        let put_back = self.cycles(Some(whole.cycles / 2));
        for (name, other) in
            [("the transaction engine", self.transaction()), ("the engine that was put back", put_back)]
        {
            assert_eq!(other.completions, whole.completions, "{name}");
            assert_eq!(other.counters, whole.counters, "{name}");
            let differs = other.memory.0.iter().zip(&whole.memory.0).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{name}");
        }
        whole
    }
}

/// The memory as an AXI4 slave that is always ready.
struct Slave {
    ram: Ram,
    bus: u64,
    latency: u64,
    cycle: u64,
    reads: VecDeque<(u64, AxiAddress)>,
    writes: VecDeque<(AxiAddress, Response)>,
    responses: VecDeque<(u64, Response)>,
    r: Stream<ReadBeat>,
    b: Stream<Response>,
}

impl Slave {
    fn new(s: &Scenario) -> Self {
        Self {
            ram: Ram(s.memory.clone()),
            bus: u64::from(s.config.bus_bytes),
            latency: s.latency,
            cycle: 0,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            responses: VecDeque::new(),
            r: Stream::default(),
            b: Stream::default(),
        }
    }

    fn quiet(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.responses.is_empty() && !self.r.valid && !self.b.valid
    }

    /// The edge; the engine's wires are AR, RREADY, AW, W valid and W.
    fn clock(
        &mut self,
        (ar, r_ready, aw, w_valid, w): (Stream<AxiAddress>, bool, Stream<AxiAddress>, bool, WriteBeat),
    ) {
        self.r.valid &= !r_ready;
        // B is always taken.
        self.b.valid = false;
        if w_valid {
            let (burst, response) = self.writes.front_mut().expect("data before its address");
            let start = burst.address / self.bus * self.bus;
            match self.ram.write(start, &w.data[..self.bus as usize], w.strobe) {
                Response::Okay => {}
                failed => *response = failed,
            }
            (burst.address, burst.beats) = (start + self.bus, burst.beats - 1);
            assert_eq!(w.last, burst.beats == 0, "WLAST");
            if w.last {
                self.responses.push_back((self.cycle + self.latency, *response));
                self.writes.pop_front();
            }
        }
        if aw.valid {
            self.writes.push_back((aw.data, Response::Okay));
        }
        if ar.valid {
            self.reads.push_back((self.cycle + self.latency, ar.data));
        }
        self.cycle += 1;
        if self.responses.front().is_some_and(|r| r.0 <= self.cycle) {
            self.b = Stream::offer(self.responses.pop_front().expect("it is there").1);
        }
        if let Some((due, burst)) = self.reads.front_mut()
            && *due <= self.cycle
            && !self.r.valid
        {
            let start = burst.address / self.bus * self.bus;
            let mut data = [0; MAX_BUS];
            let from = (burst.address - start) as usize;
            let response = self.ram.read(burst.address, &mut data[from..self.bus as usize]);
            (burst.address, burst.beats) = (start + self.bus, burst.beats - 1);
            let last = burst.beats == 0;
            self.r = Stream::offer(ReadBeat { data, response, last });
            if last {
                self.reads.pop_front();
            }
        }
    }
}
