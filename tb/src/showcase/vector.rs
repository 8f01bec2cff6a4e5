//! The vector unit makes an online softmax of two short rows.

use super::Showcase;
use crate::blocks::vector::driver::{Bench, Operands};
use crate::wave::{Colour, Radix, Trace, View, WaveError};
use vector::{Algorithm, Command, Config, Masking, Op};

pub(super) const VECTOR: Showcase = Showcase {
    name: "vector",
    about: "an online softmax: scores in, running maxima, exponentials, the tree, the reciprocal, weights out",
    scopes: &[
        "vector.a",
        "vector.y",
        "vector.sequencer",
        "vector.counters",
        "vector.lanes.stage_9",
        "vector.lanes.stage_57",
        "vector.reducer.tree_20",
        "vector.reducer.tree_44",
        "vector.scalars.word_0",
    ],
    run: softmax,
};

fn softmax(trace: &mut Trace) -> Result<View, WaveError> {
    let config = Config { lanes: 8 };
    let op = Op::Softmax { algorithm: Algorithm::Online, scale: 1.0, mask: Masking::None };
    let command = Command::new(op, 40, 2);
    // A ramp that rises, and one that falls: the running maximum moves with every beat, and never.
    let rising = (0..40).map(|i| i as f32 / 8.0);
    let falling = (0..40).map(|i| 5.0 - i as f32 / 8.0);
    let operands = Operands { a: rising.chain(falling).map(f32::to_bits).collect(), b: Vec::new() };
    let mut bench = Bench::new(config).expect("eight lanes can be built");
    let ran = bench.traced(&command, &operands, None, trace)?;
    let mut view = View::new("vector");
    view.group("command", |v| {
        v.signal("pass", "vector.sequencer.pass_q", 2, Radix::Unsigned, Colour::Yellow);
        v.signal("row", "vector.sequencer.row_q", 6, Radix::Unsigned, Colour::Yellow);
        v.signal("beat", "vector.sequencer.beat_q", 13, Radix::Unsigned, Colour::Yellow);
        v.signal("passes whose scalars stand", "vector.sequencer.ready_q", 2, Radix::Unsigned, Colour::Yellow);
    });
    view.group("scores in", |v| {
        v.signal("valid", "vector.a.head_valid_q", 1, Radix::Bit, Colour::Green);
        v.signal("lane 0, code in FP32", "vector.a.head_q_0", 32, Radix::Hex, Colour::Green);
    });
    view.group("lane 0 after the running maximum", |v| {
        v.signal("valid", "vector.lanes.stage_9.valid_q", 1, Radix::Bit, Colour::Orange);
        v.signal("score", "vector.lanes.stage_9.lane_0.a_q_value", 1, Radix::Plain, Colour::Orange);
        v.signal("maximum", "vector.lanes.stage_9.lane_0.y_q_value", 1, Radix::Plain, Colour::Orange);
        v.signal("it rose", "vector.lanes.stage_9.lane_0.on_q", 1, Radix::Bit, Colour::Orange);
    });
    view.group("lane 0 after the exponential", |v| {
        v.signal("valid", "vector.lanes.stage_57.valid_q", 1, Radix::Bit, Colour::Blue);
        v.signal("exp of the distance", "vector.lanes.stage_57.lane_0.a_q_value", 1, Radix::Plain, Colour::Blue);
    });
    view.group("reduction", |v| {
        v.signal("tree's root", "vector.reducer.tree_20.valid_q", 1, Radix::Bit, Colour::Violet);
        v.signal("maximum or sum", "vector.reducer.tree_20.scalar_0.x_q_value", 1, Radix::Plain, Colour::Violet);
        v.signal("reciprocal", "vector.reducer.tree_44.scalar_0.a_q_value", 1, Radix::Plain, Colour::Violet);
        v.signal("row 0: maximum", "vector.scalars.word_0.kept_q_value", 1, Radix::Plain, Colour::Violet);
        v.signal("row 0: factor", "vector.scalars.word_0.factor_q_value", 1, Radix::Plain, Colour::Violet);
    });
    view.group("weights out", |v| {
        v.signal("valid", "vector.y.head_valid_q", 1, Radix::Bit, Colour::Red);
        v.signal("lane 0, code in FP32", "vector.y.head_q.code_q_0", 32, Radix::Hex, Colour::Red);
        v.signal("end", "vector.y.head_q.end_q", 1, Radix::Bit, Colour::Red);
        v.signal("busy edges", "vector.counters.busy_edges_q", 64, Radix::Unsigned, Colour::Red);
    });
    view.marker("command", 0);
    view.marker("last_weights", ran.edges);
    Ok(view)
}
