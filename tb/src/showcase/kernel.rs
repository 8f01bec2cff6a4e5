//! FIFO, skid buffer, memory and address generator.

use super::Showcase;
use crate::wave::{Colour, Radix, Trace, View, WaveError};
use rtl::{
    AddressGenerator, AddressIn, Fifo, FifoIn, Format, Loops, Module, SkidBuffer, SkidIn, Sram, SramIn, SramWrite,
    Stream, Visitor, WriteMode,
};

pub(super) const FIFO: Showcase =
    Showcase { name: "fifo", about: "a FIFO of four fills, holds its producer, and drains", scopes: &[], run: fifo };
pub(super) const SKID: Showcase = Showcase {
    name: "skid",
    about: "a skid buffer keeps full rate and catches the beat under way",
    scopes: &[],
    run: skid,
};
pub(super) const SRAM: Showcase = Showcase {
    name: "sram",
    about: "reads come one edge late; both ports meet at one address",
    scopes: &[],
    run: sram,
};
pub(super) const ADDRESS: Showcase = Showcase {
    name: "address",
    about: "three nested loops walk a 2×3×4 block, with a stall",
    scopes: &[],
    run: address,
};

/// A block with the wires of its handshake, as they are in the cycle before its edge.
struct Handshake<'a, M> {
    block: &'a mut M,
    input: Stream<u8>,
    ready: bool,
    output: Stream<u8>,
    output_ready: bool,
}

impl<M: Module> Module for Handshake<'_, M> {
    type In<'a> = M::In<'a>;
    type Out<'a>
        = M::Out<'a>
    where
        Self: 'a;
    fn out(&self) -> M::Out<'_> {
        self.block.out()
    }
    fn clock(&mut self, i: &M::In<'_>) {
        self.block.clock(i);
    }
    fn reset(&mut self) {
        self.block.reset();
    }
    fn visit(&mut self, v: &mut impl Visitor) {
        v.wire("in_valid", 1, Format::Unsigned, self.input.valid);
        v.wire("in_ready", 1, Format::Unsigned, self.ready);
        v.wire("in_data", 8, Format::Unsigned, self.input.data);
        v.wire("out_valid", 1, Format::Unsigned, self.output.valid);
        v.wire("out_ready", 1, Format::Unsigned, self.output_ready);
        v.wire("out_data", 8, Format::Unsigned, self.output.data);
        v.scope("dut", |v| self.block.visit(v));
    }
}

fn handshake_view(name: &str, registers: &[(&str, u32)]) -> View {
    let mut view = View::new(name);
    for (title, side, colour) in [("producer", "in", Colour::Orange), ("consumer", "out", Colour::Green)] {
        view.group(title, |v| {
            v.signal("valid", &format!("{name}.{side}_valid"), 1, Radix::Bit, colour);
            v.signal("ready", &format!("{name}.{side}_ready"), 1, Radix::Bit, colour);
            v.signal("data", &format!("{name}.{side}_data"), 8, Radix::Unsigned, colour);
        });
    }
    view.group("registers", |v| {
        for &(register, width) in registers {
            let radix = if width == 1 { Radix::Bit } else { Radix::Unsigned };
            v.signal(register, &format!("{name}.dut.{register}"), width, radix, Colour::Normal);
        }
    });
    view
}

/// A consumer that takes its time, then everything.
fn consumer_ready(cycle: u64) -> bool {
    cycle >= 16 || cycle % 5 == 4
}

fn fifo(trace: &mut Trace) -> Result<View, WaveError> {
    let registers = [
        ("level_q", 3),
        ("read_q", 2),
        ("write_q", 2),
        ("slot_q_0", 8),
        ("slot_q_1", 8),
        ("slot_q_2", 8),
        ("slot_q_3", 8),
    ];
    let mut view = handshake_view("fifo", &registers);
    let mut fifo = Fifo::new(4, 0u8);
    let (mut next, mut held) = (1u8, false);
    for cycle in 0..28 {
        let out = fifo.out();
        let (ready, output) = (out.ready, Stream { valid: out.head.valid, data: *out.head.data });
        let input = Stream { valid: (1..22).contains(&cycle), data: next };
        let output_ready = consumer_ready(cycle);
        if input.valid && !ready && !held {
            held = true;
            view.marker("full", cycle);
        }
        trace.sample(cycle, &mut Handshake { block: &mut fifo, input, ready, output, output_ready })?;
        fifo.clock(&FifoIn { push: Stream { valid: input.valid, data: &input.data }, pop: output_ready });
        next += u8::from(input.fires(ready));
    }
    Ok(view)
}

fn skid(trace: &mut Trace) -> Result<View, WaveError> {
    let mut view = handshake_view("skid", &[("head_valid_q", 1), ("head_q", 8), ("skid_valid_q", 1), ("skid_q", 8)]);
    let mut skid = SkidBuffer::new(0u8);
    let (mut next, mut caught) = (1u8, false);
    for cycle in 0..24 {
        let out = skid.out();
        let (ready, output) = (out.ready, Stream { valid: out.head.valid, data: *out.head.data });
        let input = Stream { valid: (1..18).contains(&cycle), data: next };
        let output_ready = !matches!(cycle, 6..9 | 12);
        if !ready && !caught {
            caught = true;
            view.marker("skid holds a beat", cycle);
        }
        trace.sample(cycle, &mut Handshake { block: &mut skid, input, ready, output, output_ready })?;
        skid.clock(&SkidIn { push: Stream { valid: input.valid, data: &input.data }, ready: output_ready });
        next += u8::from(input.fires(ready));
    }
    Ok(view)
}

/// A memory with the wires of its ports; absent ones show address 0.
struct Ports<'a> {
    memory: &'a mut Sram<i32>,
    read: Option<usize>,
    write: Option<(usize, i32)>,
}

impl Module for Ports<'_> {
    type In<'a> = ();
    type Out<'a>
        = ()
    where
        Self: 'a;
    fn out(&self) {}
    fn clock(&mut self, (): &()) {
        let data = [self.write.map_or(0, |w| w.1)];
        let write = self.write.map(|(address, _)| SramWrite { address, data: &data });
        self.memory.clock(&SramIn { read: self.read, write });
    }
    fn reset(&mut self) {
        self.memory.reset();
    }
    fn visit(&mut self, v: &mut impl Visitor) {
        v.wire("ren", 1, Format::Unsigned, self.read.is_some());
        v.wire("raddr", 4, Format::Unsigned, self.read.unwrap_or(0) as u32);
        v.wire("wen", 1, Format::Unsigned, self.write.is_some());
        v.wire("waddr", 4, Format::Unsigned, self.write.map_or(0, |w| w.0) as u32);
        v.wire("wdata", 32, Format::Signed, self.write.map_or(0, |w| w.1));
        v.scope("dut", |v| self.memory.visit(v));
    }
}

fn sram(trace: &mut Trace) -> Result<View, WaveError> {
    let mut memory = Sram::new(16, 1, WriteMode::ReadFirst);
    for cycle in 0..24 {
        let write = match cycle {
            1..9 => Some((cycle as usize - 1, 100 * cycle as i32)),
            16 => Some((5, -1)),
            _ => None,
        };
        let read = match cycle {
            4..12 => Some(cycle as usize - 4),
            16 | 18 => Some(5),
            _ => None,
        };
        let mut ports = Ports { memory: &mut memory, read, write };
        trace.sample(cycle, &mut ports)?;
        ports.clock(&());
    }
    let mut view = View::new("sram");
    view.group("write port", |v| {
        v.signal("enable", "sram.wen", 1, Radix::Bit, Colour::Orange);
        v.signal("address", "sram.waddr", 4, Radix::Unsigned, Colour::Orange);
        v.signal("data", "sram.wdata", 32, Radix::Signed, Colour::Orange);
    });
    view.group("read port", |v| {
        v.signal("enable", "sram.ren", 1, Radix::Bit, Colour::Green);
        v.signal("address", "sram.raddr", 4, Radix::Unsigned, Colour::Green);
        v.signal("data, one edge later", "sram.dut.rdata_q_0", 32, Radix::Signed, Colour::Green);
    });
    view.marker("first read", 4);
    view.marker("both ports at 5: the old word", 16);
    Ok(view)
}

/// The generator with its outputs.
struct Addresses<'a>(&'a mut AddressGenerator<3>, bool);

impl Module for Addresses<'_> {
    type In<'a> = ();
    type Out<'a>
        = ()
    where
        Self: 'a;
    fn out(&self) {}
    fn clock(&mut self, (): &()) {}
    fn reset(&mut self) {}
    fn visit(&mut self, v: &mut impl Visitor) {
        let out = self.0.out();
        v.wire("step", 1, Format::Unsigned, self.1);
        v.wire("valid", 1, Format::Unsigned, out.valid);
        v.wire("address", 64, Format::Signed, out.address);
        v.wire("done", 1, Format::Unsigned, out.done());
        for (d, last) in out.last.into_iter().enumerate() {
            v.wire(("last", d), 1, Format::Unsigned, last);
        }
        v.scope("dut", |v| self.0.visit(v));
    }
}

fn address(trace: &mut Trace) -> Result<View, WaveError> {
    let loops = Loops { base: 1000, counts: [2, 3, 4], strides: [100, 10, 1] };
    let mut view = View::new("address");
    let mut generator = AddressGenerator::<3>::default();
    for cycle in 0..32 {
        let step = cycle > 1 && !(10..13).contains(&cycle);
        if generator.out().done() {
            view.marker("last", cycle);
        }
        trace.sample(cycle, &mut Addresses(&mut generator, step))?;
        generator.clock(&AddressIn { start: (cycle == 1).then_some(&loops), step });
    }
    view.marker("stall", 10);
    view.group("outputs", |v| {
        v.signal("step", "address.step", 1, Radix::Bit, Colour::Orange);
        v.signal("valid", "address.valid", 1, Radix::Bit, Colour::Green);
        v.signal("address", "address.address", 64, Radix::Signed, Colour::Green);
        v.signal("last address", "address.done", 1, Radix::Bit, Colour::Green);
    });
    for d in 0..3 {
        view.group(&format!("loop {d}"), |v| {
            v.signal("index", &format!("address.dut.index_q_{d}"), 32, Radix::Unsigned, Colour::of(d));
            v.signal("began at", &format!("address.dut.address_q_{d}"), 64, Radix::Signed, Colour::of(d));
            v.signal("last", &format!("address.last_{d}"), 1, Radix::Bit, Colour::of(d));
        });
    }
    Ok(view)
}
