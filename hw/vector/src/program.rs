//! What the lanes do in each pass of an operation: the list of their steps, where the values come from and where they go.

use crate::config::{Config, STEP_EDGES};
use crate::function::{EXP, PRODUCT_ANGLE, RECIPROCAL, ROOT, SILU, SINE_COSINE, Step};
use crate::quantum;
use crate::steps;
use crate::{Algorithm, Command, Op};

/// Where a pass takes its values from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The A port, and B if the operation reads it in this pass.
    Ports {
        /// B brings an operand.
        b: bool,
    },
    /// The row buffer, and B.
    Rows {
        /// B brings an operand.
        b: bool,
    },
    /// The partial memory: maxima and sums of the online softmax, one word a partial beat.
    Partials,
}

/// What becomes of the lanes' values over a row or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// Nothing.
    None,
    /// Σ a², each term one fused multiply-add.
    SumOfSquares,
    /// Σ a.
    Sum,
    /// The largest, NaN left out.
    Max,
    /// The largest finite magnitude.
    AbsMax,
    /// The largest and the first place where it stands, NaN left out.
    ArgMax,
    /// The largest, and the online softmax's partial sums beside it.
    Online,
}

/// One pass over the rows of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) source: Source,
    /// Beats of a row.
    pub(crate) beats: usize,
    /// Between the ports' decoders and the end; conversions are steps too.
    pub(crate) steps: Vec<StageStep>,
    pub(crate) reduction: Reduction,
    /// Steps of the scalar pipeline behind the reduction.
    pub(crate) scalar: Vec<Step>,
    /// The step after which values are written into the row buffer, counted from 1.
    pub(crate) write_after: Option<usize>,
}

/// A step of the lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StageStep {
    /// From the ports' formats to FP32.
    Decode,
    /// An FP32 step.
    Lane(Step),
    /// The running maximum of the online softmax: one comparison, kept per partial.
    RunningMax,
    /// From FP32 to the output's format.
    Encode,
}

impl Pass {
    fn new(source: Source, beats: usize, steps: Vec<StageStep>) -> Pass {
        Pass { source, beats, steps, reduction: Reduction::None, scalar: Vec::new(), write_after: None }
    }

    /// The values after the steps so far go into the row buffer.
    fn kept(self) -> Pass {
        Pass { write_after: Some(self.steps.len()), ..self }
    }

    /// The values are reduced, and the result goes through the scalar pipeline.
    fn reduced(self, reduction: Reduction, scalar: &[&[Step]]) -> Pass {
        Pass { reduction, scalar: scalar.concat(), ..self }
    }

    /// Steps from the last lane step to a scalar: accumulator, two levels over its partials, the tree over lanes, the scalar chain.
    pub(crate) fn reduction_steps(&self, config: &Config) -> usize {
        match self.reduction {
            Reduction::None => 0,
            _ => 1 + STEP_EDGES.trailing_zeros() as usize + config.levels() + self.scalar.len(),
        }
    }
}

/// All passes of a command.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) passes: Vec<Pass>,
}

fn lanes(lists: &[&[Step]]) -> Vec<StageStep> {
    let steps = lists.iter().flat_map(|list| list.iter().map(|step| StageStep::Lane(*step)));
    std::iter::once(StageStep::Decode).chain(steps).collect()
}

fn encoded(lists: &[&[Step]]) -> Vec<StageStep> {
    let mut steps = lanes(lists);
    steps.push(StageStep::Encode);
    steps
}

impl Program {
    /// The pass after this one has fewer beats a row.
    pub(crate) fn outruns(&self, pass: usize) -> bool {
        self.passes.get(pass + 1).is_some_and(|next| next.beats < self.passes[pass].beats)
    }

    pub(crate) fn new(config: &Config, command: &Command) -> Program {
        let beats = config.beats(command.len);
        let ports = Source::Ports { b: command.reads_b() };
        let single = |lists: &[&[Step]]| vec![Pass::new(ports, beats, encoded(lists))];
        let passes = match command.op {
            Op::Convert => single(&[]),
            Op::Function(f) => single(&[&f.steps()]),
            Op::Add => single(&[&[steps::add::<false>]]),
            Op::Multiply => single(&[&[steps::multiply::<false>]]),
            Op::Scale { .. } => single(&[&[steps::times_shared::<false>]]),
            Op::SwiGlu => single(&[SILU, &[steps::multiply::<false>]]),
            Op::Rope { .. } => {
                single(&[PRODUCT_ANGLE, SINE_COSINE, &[steps::turn_partner::<false>, steps::turn::<false>]])
            }
            Op::LoadFrequencies => vec![Pass::new(ports, beats, lanes(&[]))],
            Op::RmsNorm { .. } => {
                let mean: &[Step] = &[steps::mean::<false>];
                let weigh: &[Step] = &[steps::times_shared::<false>, steps::multiply::<false>];
                vec![
                    Pass::new(Source::Ports { b: false }, beats, lanes(&[]))
                        .kept()
                        .reduced(Reduction::SumOfSquares, &[mean, ROOT]),
                    Pass::new(Source::Rows { b: true }, beats, encoded(&[weigh])),
                ]
            }
            Op::Softmax { algorithm: Algorithm::ThreePass, .. } => three_pass(ports, beats),
            Op::Softmax { algorithm: Algorithm::Online, .. } => online(ports, beats),
            Op::ArgMax => vec![Pass::new(ports, beats, lanes(&[])).reduced(Reduction::ArgMax, &[])],
            Op::AbsMax { .. } => vec![Pass::new(ports, beats, lanes(&[])).reduced(Reduction::AbsMax, &[])],
            Op::Quantise { .. } => {
                let (scale, guard): (&[Step], &[Step]) = (&[quantum::scale::<false>], &[quantum::guard::<false>]);
                vec![
                    Pass::new(ports, beats, lanes(&[])).kept().reduced(Reduction::AbsMax, &[scale, RECIPROCAL, guard]),
                    Pass::new(Source::Rows { b: false }, beats, encoded(&[&[steps::times_shared::<false>]])),
                ]
            }
        };
        Program { passes }
    }
}

const ROWS: Source = Source::Rows { b: false };
const SCORE: &[Step] = &[steps::scaled_score::<false>];
const BELOW: &[Step] = &[steps::below_maximum::<false>];

fn three_pass(ports: Source, beats: usize) -> Vec<Pass> {
    vec![
        Pass::new(ports, beats, lanes(&[SCORE])).kept().reduced(Reduction::Max, &[]),
        Pass::new(ROWS, beats, lanes(&[BELOW, EXP])).kept().reduced(Reduction::Sum, &[RECIPROCAL]),
        Pass::new(ROWS, beats, encoded(&[&[steps::weigh::<false>]])),
    ]
}

fn online(ports: Source, beats: usize) -> Vec<Pass> {
    let mut scores = Pass::new(ports, beats, lanes(&[SCORE])).kept();
    let distance: Step = steps::distance::<false>;
    scores.steps.push(StageStep::RunningMax);
    scores.steps.extend(std::iter::once(&distance).chain(EXP).map(|step| StageStep::Lane(*step)));
    // As long as the pass before it: its beats must not reach the accumulators sooner.
    let multiply: &[Step] = &[steps::multiply::<false>, steps::hold::<false>];
    vec![
        scores.reduced(Reduction::Online, &[]),
        Pass::new(Source::Partials, beats.min(STEP_EDGES), lanes(&[BELOW, EXP, multiply]))
            .reduced(Reduction::Sum, &[RECIPROCAL]),
        Pass::new(ROWS, beats, encoded(&[BELOW, EXP, &[steps::weigh_partner::<false>]])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Function, Masking};

    #[test]
    fn no_beat_overtakes_another() {
        let config = Config::default();
        let softmax = |algorithm| Op::Softmax { algorithm, scale: 1.0, mask: Masking::None };
        let mut ops = vec![softmax(Algorithm::ThreePass), softmax(Algorithm::Online), Op::RmsNorm { epsilon: 0.0 }];
        ops.extend([Op::Quantise { group: None }, Op::SwiGlu, Op::ArgMax]);
        ops.extend(Function::ALL.map(Op::Function));
        for op in ops {
            let passes = Program::new(&config, &Command::new(op, 500, 2)).passes;
            for pair in passes.windows(2) {
                let reduced = pair[1].reduction != Reduction::None;
                assert!(!reduced || pair[1].steps.len() >= pair[0].steps.len(), "{op:?}: accumulators");
                let scalars = pair.iter().map(|pass| pass.steps.len() + pass.reduction_steps(&config));
                assert!(!reduced || scalars.is_sorted(), "{op:?}: scalars");
            }
        }
    }
}
