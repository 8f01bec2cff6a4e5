//! The cycle engine: whole small models through every register, against the transaction engine.

use crate::run::cache;
use crate::verify::Case;
use golden::{Llm, Model, Part, Tensor, TensorSource, Weights};
use host::{Format, Logits, Options, Session, Source};
use npu::Config;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::RefCell;

/// Weights out of a generator.
struct Noise<R>(RefCell<R>);

impl<R: Rng> TensorSource for Noise<R> {
    fn tensor(&self, name: &str, shape: &[usize]) -> golden::Result<Tensor> {
        let mut rng = self.0.borrow_mut();
        let count = shape.iter().product();
        // Norms about one, projections about 1/√fan-in.
        let (middle, width) = if shape.len() == 1 { (1.0, 0.2) } else { (0.0, 2.0 / (shape[1] as f32).sqrt()) };
        let values = (0..count).map(|_| middle + width * (rng.random::<f32>() - 0.5)).collect();
        Tensor::new(shape.to_vec(), values).map_err(|error| golden::Error::File {
            file: name.into(),
            what: error.to_string(),
            help: "",
        })
    }

    fn name(&self, part: Part) -> String {
        format!("{part:?}")
    }
}

/// A model of two layers of 64 channels.
fn model(rng: impl Rng, head_dim: usize) -> anyhow::Result<Source> {
    let builtin = golden::builtin()?;
    let config = golden::Config {
        layers: 2,
        hidden: 64,
        heads: 64 / head_dim,
        kv_heads: (32 / head_dim).max(1),
        head_dim,
        ffn: 96,
        ..builtin.model.config().clone()
    };
    let weights = Weights::load(&config, &Noise(RefCell::new(rng)))?;
    Ok(Source::from_llm(Llm { name: "noise".into(), model: Model::new(config, weights), ..builtin }))
}

/// Formats and caches of the directed cases.
const DIRECTED: [(&str, &str); 6] = [
    ("bf16", "raw"),
    ("bf16", "lossless"),
    ("int8/32", "lossless"),
    ("int8/channel", "raw"),
    ("e4m3/32", "lossless"),
    ("e4m3/channel", "raw"),
];

/// Cases that are not random.
pub(super) const MODELS: usize = DIRECTED.len();

/// A prompt and a few decode steps, all blocks clocked together.
pub(super) fn whole(case: &mut Case) -> anyhow::Result<()> {
    let pick = |case: &mut Case, n: usize| case.rng.random_range(0..n);
    let (format, mode) = match case.random {
        None => DIRECTED[case.index],
        Some(_) => DIRECTED[pick(case, DIRECTED.len())],
    };
    let mut config = Config::default();
    let side = [8, 16, 32][pick(case, 3)];
    (config.array.rows, config.array.cols, config.array.port_bytes) = (side, side, [16, 64, 256][pick(case, 3)]);
    (config.vector_lanes, config.queue_depth) = ([8, 16, 32][pick(case, 3)], 1 + pick(case, 8));
    (config.dram.hit_latency, config.dram.bytes_per_cycle) = (1 + pick(case, 80) as u64, [8, 16, 64][pick(case, 3)]);
    (config.codec.decoders, config.codec.values) = (1 + pick(case, 8), [8, 16][pick(case, 2)]);
    config.dram.bytes = 1 << 28;
    (config.scratchpad.bytes, config.scratchpad.banks) = (1 << 20, [8, 16, 32][pick(case, 3)]);
    let (weights, head_dim) = (Xoshiro256PlusPlus::seed_from_u64(case.rng.random()), [16, 32][pick(case, 2)]);
    let source = model(weights, head_dim)?;
    let cache = cache(mode, &source, None)?;
    let options = Options { format: format.parse::<Format>()?, cache, context: 96, chunk: 64, ..Options::new(config) };
    let mut session = Session::new(&source, &options)?;
    session.hold_to_clocked()?;
    case.label(format!("{format}, {mode}, {side}x{side}"));
    let prompt: Vec<u32> = (0..33 + pick(case, 15)).map(|_| case.rng.random_range(0..1024)).collect();
    let mut answers = vec![session.prefill(0, &prompt, Logits::Last)];
    for _ in 0..2 {
        let id = case.rng.random_range(0..1024);
        answers.push(session.decode(&[(0, id)]));
    }
    for answer in answers {
        match answer {
            Ok(answer) => {
                case.cycles(answer.cycles);
                case.check(answer.logits.data().iter().all(|v| v.is_finite()), "logits are numbers");
            }
            Err(error) => {
                case.check(false, format_args!("{error}"));
                break;
            }
        }
    }
    Ok(())
}
