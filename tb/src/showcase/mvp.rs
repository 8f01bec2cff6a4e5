//! The processing element, the array and the GEMM datapath.
//!
//! Operands are chosen to be read: activation row m is 10·(m + 1) + k, weights are n + 1. So `23` is row 1, k = 3, and
//! column 0's partial sums are the running sums of a row: 10, 21, 33, 46.

use super::Showcase;
use crate::wave::{Colour, Radix, Trace, View, WaveError};
use mvp::{Array, Beat, Code, Config, Job, Pe, PeIn, Processor, ProcessorIn};
use rtl::{Format, Module, Stream, Visitor};

pub(super) const PE: Showcase = Showcase {
    name: "pe",
    about: "one element takes a weight, swaps it in, and sums; the next weight comes meanwhile",
    scopes: &[],
    run: pe,
};
pub(super) const ARRAY: Showcase = Showcase {
    name: "array",
    about: "the wavefront of a 4×4 GEMM: activations go east, partial sums south",
    scopes: &["array.mvp.array", "array.mvp.sequencer"],
    run: array,
};
pub(super) const GEMM: Showcase = Showcase {
    name: "gemm",
    about: "a 6×8×8 GEMM on 4×4: four tiles without a bubble, from operands to results",
    scopes: &[],
    run: gemm,
};

/// An element with its input wires.
struct Wired<'a>(&'a mut Pe, PeIn);

impl Module for Wired<'_> {
    type In<'a> = ();
    type Out<'a>
        = ()
    where
        Self: 'a;
    fn out(&self) {}
    fn clock(&mut self, (): &()) {
        self.0.clock(&self.1);
    }
    fn reset(&mut self) {
        self.0.reset();
    }
    fn visit(&mut self, v: &mut impl Visitor) {
        let i = self.1;
        v.wire("act_in", 8, Format::Signed, i.act);
        v.wire("valid_in", 1, Format::Unsigned, i.valid);
        v.wire("swap_in", 1, Format::Unsigned, i.swap);
        v.wire("weight_in", 8, Format::Signed, i.weight);
        v.wire("load_in", 1, Format::Unsigned, i.load);
        v.wire("psum_in", 32, Format::Signed, i.psum);
        v.scope("dut", |v| self.0.visit(v));
    }
}

fn pe(trace: &mut Trace) -> Result<View, WaveError> {
    let mut pe = Pe::new(Config::default());
    let mut results = Vec::new();
    for cycle in 0..22u64 {
        let mut i = PeIn { enable: true, keep: true, ..PeIn::default() };
        // Two tiles of six rows: weight 3, then −2, which is loaded under the first.
        if let 1 | 6 = cycle {
            (i.load, i.weight) = (true, if cycle == 1 { 3 } else { -2 });
        }
        if let 3..=8 | 10..=15 = cycle {
            (i.valid, i.swap) = (true, matches!(cycle, 3 | 10));
            (i.act, i.psum) = (cycle as i16, 1000 * (1 + i32::from(cycle >= 10)));
            results.push(cycle + 1);
        }
        let mut wired = Wired(&mut pe, i);
        trace.sample(cycle, &mut wired)?;
        wired.clock(&());
    }
    let mut view = View::new("pe");
    view.group("from the west", |v| {
        v.signal("activation", "pe.act_in", 8, Radix::Signed, Colour::Orange);
        v.signal("valid", "pe.valid_in", 1, Radix::Bit, Colour::Orange);
        v.signal("swap", "pe.swap_in", 1, Radix::Bit, Colour::Red);
        v.signal("weight", "pe.weight_in", 8, Radix::Signed, Colour::Violet);
        v.signal("load", "pe.load_in", 1, Radix::Bit, Colour::Violet);
    });
    view.group("from the north", |v| v.signal("partial sum", "pe.psum_in", 32, Radix::Signed, Colour::Green));
    view.group("registers", |v| {
        v.signal("shadow weight", "pe.dut.shadow_q", 8, Radix::Signed, Colour::Violet);
        v.signal("active weight", "pe.dut.weight_q", 8, Radix::Signed, Colour::Red);
        v.signal("activation, to the east", "pe.dut.act_q", 8, Radix::Signed, Colour::Orange);
        v.signal("valid, to the east", "pe.dut.valid_q", 1, Radix::Bit, Colour::Orange);
        v.signal("partial sum, to the south", "pe.dut.psum_q", 32, Radix::Signed, Colour::Green);
    });
    mark_results(&mut view, &results);
    Ok(view)
}

/// Markers at the first and the last of ascending cycles.
fn mark_results(view: &mut View, cycles: &[u64]) {
    if let (Some(&first), Some(&last)) = (cycles.first(), cycles.last()) {
        view.marker("first result", first);
        view.marker("last result", last);
    }
}

/// Side of the array that is shown.
const SIDE: usize = 4;

/// A processor with the wires of its streams.
struct Bench {
    mvp: Processor<Array>,
    x: Stream<Beat>,
    w: Stream<Beat>,
}

impl Module for Bench {
    type In<'a> = Option<Job>;
    type Out<'a> = ();
    fn out(&self) {}
    fn clock(&mut self, start: &Option<Job>) {
        let x = Stream { valid: self.x.valid, data: &self.x.data };
        let w = Stream { valid: self.w.valid, data: &self.w.data };
        self.mvp.clock(&ProcessorIn { start: *start, x, w, ready: true });
    }
    fn reset(&mut self) {
        self.mvp.reset();
    }
    fn visit(&mut self, v: &mut impl Visitor) {
        let out = self.mvp.out();
        let (x_ready, w_ready, y_valid, y) = (out.x_ready, out.w_ready, out.y.valid, out.y.data.values.clone());
        for (name, stream, ready) in [("x", &self.x, x_ready), ("w", &self.w, w_ready)] {
            v.scope(name, |v| {
                v.wire("valid", 1, Format::Unsigned, stream.valid);
                v.wire("ready", 1, Format::Unsigned, ready);
                for (k, &value) in stream.data.codes.iter().enumerate() {
                    v.wire(("data", k), 8, Format::Signed, value);
                }
            });
        }
        v.scope("y", |v| {
            v.wire("valid", 1, Format::Unsigned, y_valid);
            for (n, value) in y.into_iter().enumerate() {
                v.wire(("data", n), 32, Format::Signed, value);
            }
        });
        v.scope("mvp", |v| self.mvp.visit(v));
    }
}

/// Runs a job on the small array, one more cycle than it needs. Returns the cycles in which a row of results stood there.
fn run(trace: &mut Trace, job: Job) -> Result<Vec<u64>, WaveError> {
    let config = Config { rows: SIDE, cols: SIDE, depth: 16, ..Config::default() };
    let (panels, chunks) = (job.n.div_ceil(SIDE), job.k.div_ceil(SIDE));
    let beat = |codes: Vec<Code>, mut blank: Beat| {
        blank.codes = codes;
        blank
    };
    let row = |m: usize, chunk: usize| {
        beat((0..SIDE).map(|r| (10 * (m + 1) + chunk * SIDE + r) as Code).collect(), Beat::row(config))
    };
    let column = |panel: usize, c: usize| beat(vec![(panel * SIDE + c + 1) as Code; SIDE], Beat::column(config));
    let tiles = (0..panels).flat_map(|panel| (0..chunks).map(move |chunk| (panel, chunk)));
    let mut x = tiles.clone().flat_map(|(_, chunk)| (0..job.m).map(move |m| row(m, chunk)));
    // The last column of a tile enters first.
    let mut w = tiles.flat_map(|(panel, _)| (0..SIDE).rev().map(move |c| column(panel, c)));

    let [no_row, no_column] = [Beat::row(config), Beat::column(config)];
    let mut bench =
        Bench { mvp: Processor::new(config), x: Stream::idle(no_row.clone()), w: Stream::idle(no_column.clone()) };
    let mut results = Vec::new();
    for cycle in 0.. {
        let out = bench.mvp.out();
        if out.y.valid {
            results.push(cycle);
        }
        let (x_ready, w_ready, finished) = (out.x_ready, out.w_ready, out.idle && cycle > 2 && !out.y.valid);
        trace.sample(cycle, &mut bench)?;
        if finished {
            break;
        }
        bench.clock(&(cycle == 1).then_some(job));
        // A taken beat makes room for the next.
        for (stream, ready, next, blank) in [
            (&mut bench.x, x_ready, &mut x as &mut dyn Iterator<Item = _>, &no_row),
            (&mut bench.w, w_ready, &mut w, &no_column),
        ] {
            if stream.fires(ready) || !stream.valid {
                *stream = next.next().map_or_else(|| Stream::idle(blank.clone()), Stream::offer);
            }
        }
    }
    Ok(results)
}

fn element(top: &str, r: usize, c: usize, register: &str) -> String {
    format!("{top}.mvp.array.row_{r}.pe_{c}.{register}")
}

fn array(trace: &mut Trace) -> Result<View, WaveError> {
    const TOP: &str = "array";
    run(trace, Job { m: SIDE, n: SIDE, k: SIDE })?;
    let mut view = View::new(TOP);
    view.signal("sequencer", "array.mvp.sequencer.state_q_state", 1, Radix::Plain, Colour::Normal);
    view.group("weights enter, then swap in", |v| {
        for c in 0..SIDE {
            v.signal(&format!("shadow(0,{c})"), &element(TOP, 0, c, "shadow_q"), 8, Radix::Signed, Colour::Violet);
        }
        for c in 0..SIDE {
            v.signal(&format!("weight(0,{c})"), &element(TOP, 0, c, "weight_q"), 8, Radix::Signed, Colour::Red);
        }
    });
    view.group("the wavefront: r + c edges late", |v| {
        for d in 0..2 * SIDE - 1 {
            let (r, c) = (d.min(SIDE - 1), d - d.min(SIDE - 1));
            v.signal(&format!("valid({r},{c})"), &element(TOP, r, c, "valid_q"), 1, Radix::Bit, Colour::of(d));
        }
    });
    view.group("activations go east", |v| {
        for c in 0..SIDE {
            v.signal(&format!("act(0,{c})"), &element(TOP, 0, c, "act_q"), 8, Radix::Signed, Colour::of(c));
        }
    });
    view.group("partial sums go south", |v| {
        for r in 0..SIDE {
            v.signal(&format!("psum({r},0)"), &element(TOP, r, 0, "psum_q"), 32, Radix::Signed, Colour::of(r));
        }
    });
    view.group("results, skewed", |v| {
        for c in 0..SIDE {
            v.signal(
                &format!("psum(3,{c})"),
                &element(TOP, SIDE - 1, c, "psum_q"),
                32,
                Radix::Signed,
                Colour::of(SIDE - 1 + c),
            );
        }
    });
    let enters = 1 + 1 + SIDE as u64; // started at edge 1, then C columns of weights
    let first = enters + SIDE as u64; // R elements further south
    view.marker("row 0 enters", enters);
    view.marker("first result", first);
    view.marker("last result", first + 2 * (SIDE as u64 - 1));
    Ok(view)
}

fn gemm(trace: &mut Trace) -> Result<View, WaveError> {
    let results = run(trace, Job { m: 6, n: 8, k: 8 })?;
    let mut view = View::new("gemm");
    view.group("sequencer", |v| {
        v.signal("state", "gemm.mvp.sequencer.state_q_state", 1, Radix::Plain, Colour::Normal);
        v.signal("n-tile", "gemm.mvp.sequencer.panel_q", 32, Radix::Unsigned, Colour::Normal);
        v.signal("k-tile", "gemm.mvp.sequencer.chunk_q", 32, Radix::Unsigned, Colour::Normal);
        v.signal("row of the tile", "gemm.mvp.sequencer.slot_q", 32, Radix::Unsigned, Colour::Normal);
    });
    view.group("operands", |v| {
        for (side, colour) in [("w", Colour::Violet), ("x", Colour::Orange)] {
            v.signal(&format!("{side} valid"), &format!("gemm.{side}.valid"), 1, Radix::Bit, colour);
            v.signal(&format!("{side} ready"), &format!("gemm.{side}.ready"), 1, Radix::Bit, colour);
            v.signal(&format!("{side}, lane 0"), &format!("gemm.{side}.data_0"), 8, Radix::Signed, colour);
        }
    });
    view.group("element (0,0)", |v| {
        v.signal("shadow weight", &element("gemm", 0, 0, "shadow_q"), 8, Radix::Signed, Colour::Violet);
        v.signal("swap", &element("gemm", 0, 0, "swap_q"), 1, Radix::Bit, Colour::Red);
        v.signal("active weight", &element("gemm", 0, 0, "weight_q"), 8, Radix::Signed, Colour::Red);
        v.signal("activation", &element("gemm", 0, 0, "act_q"), 8, Radix::Signed, Colour::Orange);
    });
    view.group("column 0, north to south", |v| {
        for r in 0..SIDE {
            v.signal(&format!("psum({r},0)"), &element("gemm", r, 0, "psum_q"), 32, Radix::Signed, Colour::of(r));
        }
    });
    view.group("accumulator", |v| {
        v.signal("valid", "gemm.mvp.accumulator.tag.valid_q_0", 1, Radix::Bit, Colour::Yellow);
        v.signal("last k-tile", "gemm.mvp.accumulator.tag.last_q_0", 1, Radix::Bit, Colour::Yellow);
        v.signal("row", "gemm.mvp.accumulator.tag.address_q_0", 16, Radix::Unsigned, Colour::Yellow);
        v.signal("sum, column 0", "gemm.mvp.accumulator.row_q_0", 32, Radix::Signed, Colour::Yellow);
    });
    view.group("results", |v| {
        v.signal("valid", "gemm.y.valid", 1, Radix::Bit, Colour::Green);
        for n in [0, SIDE - 1] {
            v.signal(&format!("y[{n}]"), &format!("gemm.y.data_{n}"), 32, Radix::Signed, Colour::Green);
        }
    });
    mark_results(&mut view, &results);
    Ok(view)
}
