//! The weight port: stored weights of every kind through the clocked port and processor, against a plain reading of GGUF's blocks, the
//! exact core, the transaction engine and the closed form.

use super::{
    CONTEXT, computed,
    driver::{Held, Operands, Rates},
    formats::{self, Draw},
    gemv, reference,
};
use crate::{verify::Case, wave::Tracer};
use anyhow::ensure;
use mvp::{
    Beats, Block, Code, Config, Counters, Datapath, GemvJob, GemvShape, Job, OutRow, PortShape, PortedGemv,
    PortedGemvIn, Stored, Word, gemv_cycles, gemv_port_cycles, unpack,
};
use numeric::FloatFormat;
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus;
use rtl::{Module, Stream};

const BF16: Datapath = Datapath::float(FloatFormat::BF16);
const FP16: Datapath = Datapath::float(FloatFormat::FP16);
const E4M3: Datapath = Datapath::float(FloatFormat::E4M3);

/// What is stored, and the datapath that uses it: names of the plan's `stored` bins.
const KINDS: [(&str, Datapath, Stored); 13] = [
    ("int8", Datapath::Int8, Stored::Codes),
    ("int4", Datapath::Int4, Stored::Codes),
    ("bf16", BF16, Stored::Codes),
    ("e4m3", E4M3, Stored::Codes),
    ("int8-scaled", Datapath::Int8, Stored::Scaled),
    ("int4-scaled", Datapath::Int4, Stored::Scaled),
    ("e4m3-scaled", E4M3, Stored::Scaled),
    ("q8_0", Datapath::Int8, Stored::Block(Block::Q8_0)),
    ("q4_0", Datapath::Int4, Stored::Block(Block::Q4_0)),
    ("q4_1", Datapath::Int4, Stored::Block(Block::Q4_1)),
    ("q8_0-bf16", BF16, Stored::Block(Block::Q8_0)),
    ("q4_0-fp16", FP16, Stored::Block(Block::Q4_0)),
    ("q4_1-bf16", BF16, Stored::Block(Block::Q4_1)),
];
/// P against the bytes of a beat: names of the plan's `port` bins.
const PORTS: [&str; 5] = ["one", "half", "odd", "beat", "wide"];
/// Each kind with each port, at any shape, and never stalled in panels of at least A beats, where the short form of the cycles holds.
pub(super) const DIRECTED: usize = 2 * KINDS.len() * PORTS.len();

/// The value of FP16 bits, from its definition.
fn fp16(bits: u16) -> f64 {
    let (sign, exponent, fraction) = (bits >> 15, bits >> 10 & 31, f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1.0 + fraction / 1024.0) * 2f64.powi(i32::from(e) - 15),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// `value` in BF16 or FP16, rounded once to nearest even.
fn round(value: f64, format: FloatFormat) -> Code {
    let (fraction, bias, emax) = if format == FloatFormat::BF16 { (7, 127, 127) } else { (10, 15, 15) };
    let sign = i32::from(value.is_sign_negative() && value != 0.0) << 15;
    let magnitude = value.abs();
    let exponents = emax + bias + 1;
    let code = if value.is_nan() {
        return ((exponents << fraction) | 1 << (fraction - 1)) as Code;
    } else if magnitude == 0.0 {
        0
    } else {
        // The exponent of the last place: that of the value, no less than the subnormals'.
        let exponent = (magnitude.to_bits() >> 52) as i32 - 1023;
        let place = exponent.max(1 - bias) - fraction;
        let places = (magnitude * 2f64.powi(-place)).round_ties_even() as i32;
        // Adding the exponent lets a carry run into it; a subnormal has exponent 0 and no hidden one.
        let code = ((place + fraction + bias - 1) << fraction) + places;
        code.min(exponents << fraction)
    };
    (code | sign) as Code
}

/// A segment as the format's definition reads it: value i as a code, the scale and the minimum.
fn read(kind: (Datapath, Stored), segment: &[u8], i: usize) -> (Code, f32, f32) {
    let half = |at: usize| fp16(u16::from_le_bytes([segment[at], segment[at + 1]]));
    let nibble =
        |bytes: &[u8], i: usize| i32::from(if i.is_multiple_of(2) { bytes[i / 2] & 15 } else { bytes[i / 2] >> 4 });
    let code = |bytes: &[u8]| -> Code {
        match kind.0 {
            Datapath::Int8 => Code::from(bytes[i] as i8),
            Datapath::Int4 => (if nibble(bytes, i) > 7 { nibble(bytes, i) - 16 } else { nibble(bytes, i) }) as Code,
            Datapath::Float { weight, .. } if weight.width() == 16 => {
                (u16::from(bytes[2 * i]) | u16::from(bytes[2 * i + 1]) << 8) as Code
            }
            Datapath::Float { .. } => Code::from(bytes[i] as i8),
        }
    };
    let block = match kind.1 {
        Stored::Codes => return (code(segment), 1.0, 0.0),
        Stored::Scaled => return (code(&segment[2..]), half(0) as f32, 0.0),
        Stored::Block(block) => block,
    };
    // ggml: values 0..16 of a block are the low nibbles, 16..32 the high ones.
    let size = match block {
        Block::Q4_0 => 2 + 16,
        Block::Q4_1 => 4 + 16,
        Block::Q8_0 => 2 + 32,
    };
    let segment = &segment[i / 32 * size..][..size];
    let half = |at: usize| fp16(u16::from_le_bytes([segment[at], segment[at + 1]]));
    let j = i % 32;
    let stored = |bytes: &[u8]| i32::from(if j < 16 { bytes[j] & 15 } else { bytes[j - 16] >> 4 });
    let (d, m, q) = match block {
        Block::Q4_0 => (half(0), 0.0, stored(&segment[2..]) - 8),
        Block::Q4_1 => (half(0), half(2), stored(&segment[4..])),
        Block::Q8_0 => (half(0), 0.0, i32::from(segment[2 + j] as i8)),
    };
    match kind.0 {
        Datapath::Float { weight, .. } => (round(d * f64::from(q) + m, weight), 1.0, 0.0),
        _ if block == Block::Q4_1 => ((q - 8) as Code, d as f32, (m + 8.0 * d) as f32),
        _ => (q as Code, d as f32, 0.0),
    }
}

/// Random stored weights; scales are mostly of moderate size.
fn stored(shape: PortShape, job: GemvJob, rng: &mut impl Rng) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..shape.stored_bytes(job)).map(|_| rng.random()).collect();
    let (block, halves) = match shape.stored {
        Stored::Codes => return bytes,
        Stored::Scaled => (shape.segment_bytes(), 1),
        Stored::Block(block) => (block.bytes(), if block == Block::Q4_1 { 2 } else { 1 }),
    };
    for block in bytes.chunks_mut(block) {
        for half in block[..2 * halves].chunks_mut(2) {
            if rng.random_bool(0.95) {
                half[1] = half[1] & 0x83 | rng.random_range(4..20) << 2;
            }
        }
    }
    bytes
}

/// The weights of a job, read plainly, on top of its X.
fn operands(shape: PortShape, job: GemvJob, bytes: &[u8], draw: Draw, rng: &mut impl Rng) -> Operands {
    let (config, q, v) = (shape.gemv.config, shape.gemv.outputs, shape.gemv.vectors);
    let product = Job { m: v, n: job.n, k: job.k };
    let mut operands = formats::operands(config, product, draw, rng);
    operands.w_minima.fill(0.0);
    let (beats, depth) = (job.n.div_ceil(q), config.depth);
    let mut segments = bytes.chunks_exact(shape.segment_bytes());
    for panel in 0..beats.div_ceil(depth) {
        for chunk in 0..config.k_tiles(job.k) {
            for n in panel * depth * q..((panel + 1) * depth).min(beats) * q {
                let segment = segments.next().unwrap_or_default();
                for (i, k) in config.k_range(job.k, chunk).enumerate().filter(|_| n < job.n) {
                    let (code, scale, minimum) = read((config.datapath, shape.stored), segment, i);
                    operands.w[k * job.n + n] = code;
                    if config.group.is_some() {
                        (operands.w_scales[chunk * job.n + n], operands.w_minima[chunk * job.n + n]) = (scale, minimum);
                    }
                }
            }
        }
    }
    operands
}

/// What a job did.
struct Finished {
    y: Vec<i32>,
    counters: Counters,
    overflow: bool,
}

/// Runs jobs one behind the other from the first start to the last result; words of the next job follow at once.
fn run(
    processor: &mut PortedGemv,
    jobs: &[(GemvJob, &[u8], &Operands)],
    rates: Rates,
    rng: &mut Xoshiro256PlusPlus,
    mut tracer: impl Tracer,
) -> anyhow::Result<Vec<Finished>> {
    let shape = processor.shape();
    let (q, v) = (shape.gemv.outputs, shape.gemv.vectors);
    let words: Vec<Word> = jobs
        .iter()
        .flat_map(|(_, bytes, _)| bytes.chunks(shape.bytes))
        .map(|bytes| {
            let mut word = bytes.to_vec();
            word.resize_with(shape.bytes, || rng.random());
            Word(word)
        })
        .collect();
    let (mut word, mut cycle, mut done) = (0, 0, Vec::new());
    let (nothing, blank) = (Beats::default(), Word(vec![0; shape.bytes]));
    let (mut offer_x, mut offer_word, mut held) = (false, false, Held::<OutRow>::default());
    for (i, (job, _, operands)) in jobs.iter().enumerate() {
        let job = *job;
        let xs = gemv::chunks_of_x(shape.gemv, job, operands, rng);
        let (mut x, mut received, mut started) = (0, 0, false);
        let mut y = vec![0; v * job.n];
        let patience = cycle + 1_000 + gemv_port_cycles(shape, job) * 30;
        loop {
            ensure!(cycle < patience, "hang: job {i} is not done after {cycle} cycles");
            tracer.sample(cycle, processor)?;
            offer_x = x < xs.len() && (offer_x || rng.random_bool(rates.x));
            offer_word = word < words.len() && (offer_word || rng.random_bool(rates.w));
            let ready = rng.random_bool(rates.y);
            let out = processor.out();
            if let Some(fault) = out.gemv.fault {
                tracer.breach(&format_args!("accumulator memory: {fault} in cycle {cycle}"))?;
            }
            held.look("row", out.gemv.y, ready, cycle, &mut tracer)?;
            if started && received * q >= job.n && out.idle {
                if x != xs.len() {
                    tracer.breach(&"operands left: the job is done without them")?;
                }
                tracer.output(cycle, &(out.gemv.counters, out.gemv.overflow));
                done.push(Finished { y, counters: out.gemv.counters, overflow: out.gemv.overflow });
                break;
            }
            if out.gemv.y.fires(ready) {
                let first = received * q;
                if first >= job.n {
                    tracer.breach(&format_args!("row count: one after the last in cycle {cycle}"))?;
                }
                let outputs = q.min(job.n.saturating_sub(first));
                let row = out.gemv.y.data;
                tracer.output(cycle, &(row.lanes, row.end, &row.values[..outputs * v]));
                if usize::from(row.lanes) != outputs * v {
                    tracer.breach(&format_args!("row lanes: {} in cycle {cycle}", row.lanes))?;
                }
                if row.end != (first + q >= job.n) {
                    tracer.breach(&format_args!("row end: the flag stands on the wrong row in cycle {cycle}"))?;
                }
                for (j, u) in (0..outputs).flat_map(|j| (0..v).map(move |u| (j, u))) {
                    y[u * job.n + first + j] = out.gemv.y.data.values[j * v + u];
                }
                received += 1;
            }
            let (x_fires, word_fires) = (offer_x && out.gemv.x_ready, offer_word && out.word_ready);
            processor.clock(&PortedGemvIn {
                start: (!started).then_some(job),
                x: Stream { valid: offer_x, data: xs.get(x).unwrap_or(&nothing) },
                word: Stream { valid: offer_word, data: words.get(word).unwrap_or(&blank) },
                ready,
            });
            started = true;
            (x, word) = (x + usize::from(x_fires), word + usize::from(word_fires));
            (offer_x, offer_word) = (offer_x && !x_fires, offer_word && !word_fires);
            cycle += 1;
        }
    }
    if word != words.len() {
        tracer.breach(&format_args!("words left: {} of the port's", words.len() - word))?;
    }
    tracer.rest(processor);
    Ok(done)
}

/// Two jobs of one kind of stored weights, the first from an empty port.
pub(super) fn port(case: &mut Case) -> anyhow::Result<()> {
    let index = case.index;
    let regular = case.random.is_none() && index >= DIRECTED / 2;
    let rng = &mut case.rng;
    let (name, datapath, kept) = KINDS[index / PORTS.len() % KINDS.len()];
    let port = PORTS[index % PORTS.len()];
    let is_block = matches!(kept, Stored::Block(_));
    let rows = match (is_block, datapath) {
        (false, _) => rng.random_range(1..9),
        (true, Datapath::Int4) => rng.random_range(16..20),
        (true, Datapath::Int8) => rng.random_range(32..35),
        (true, Datapath::Float { .. }) => 32 * rng.random_range(1..=2),
    };
    let steps = datapath.steps();
    let group = match kept {
        Stored::Codes => None,
        Stored::Scaled => Some(rng.random_range(1..=rows * steps)),
        Stored::Block(_) if datapath.is_float() => None,
        Stored::Block(_) => Some(32),
    };
    let cols = rng.random_range(1..7);
    let vectors = rng.random_range(1..=cols.min(2));
    let outputs = rng.random_range(1..=cols / vectors);
    let depth = if !regular && rng.random_bool(0.4) { rng.random_range(2..12) } else { 1024 };
    let stages = [1, 4, rng.random_range(2..7)];
    let (mac_stages, adder_stages) = (stages[rng.random_range(0..3)], stages[rng.random_range(0..3)]);
    let config = Config { rows, cols, depth, datapath, mac_stages, adder_stages, group };
    let gemv = GemvShape { config, outputs, vectors };
    let mut shape = PortShape { gemv, stored: kept, bytes: 1 }.checked()?;
    let beat = shape.beat_bytes();
    shape.bytes = match port {
        "one" => 1,
        "half" => beat.div_ceil(2),
        "odd" => rng.random_range(1..=2 * beat),
        "beat" => beat,
        _ => 3 * beat + rng.random_range(0..3),
    };
    let job = |rng: &mut Xoshiro256PlusPlus| {
        let far = if port == "one" { 8 } else { 40 };
        let n = if regular {
            rng.random_range(7 * outputs..9 * outputs)
        } else if rng.random_bool(0.3) {
            rng.random_range(1..4)
        } else {
            rng.random_range(1..far)
        };
        let k = if is_block { 32 * rng.random_range(1..6) } else { rng.random_range(1..50) };
        GemvJob { n, k }
    };
    let jobs = [job(rng), job(rng)];
    let stall = if regular { "none" } else { ["none", "x", "w", "y", "all"][rng.random_range(0..5)] };
    let slow = rng.random_range(0.2..0.9);
    let rate = |port: &str| if stall == port || stall == "all" { slow } else { 1.0 };
    let rates = Rates { x: rate("x"), w: rate("w"), y: rate("y") };
    case.label(format!("{name} {rows}x{cols} q={outputs} v={vectors} D={depth} P={} of {beat} {jobs:?}", shape.bytes));

    let draw = if case.rng.random() { Draw::Near } else { Draw::Any };
    let bytes = jobs.map(|job| stored(shape, job, &mut case.rng));
    let [a, b] = [0, 1].map(|i| operands(shape, jobs[i], &bytes[i], draw, &mut case.rng));
    let work = [(jobs[0], bytes[0].as_slice(), &a), (jobs[1], bytes[1].as_slice(), &b)];
    let mut processor = PortedGemv::new(shape)?;
    let mut probe = case.probe("mvp", CONTEXT)?;
    let runs = run(&mut processor, &work, rates, &mut case.rng, &mut probe);
    probe.finish()?;
    let runs = runs?;
    for (i, ((job, bytes, operands), run)) in work.iter().zip(&runs).enumerate() {
        let product = Job { m: vectors, n: job.n, k: job.k };
        case.equal_slices("y", &reference::product(config, product, operands), &run.y);
        let taken = unpack(shape, *job, bytes)?;
        case.equal_slices("codes that the transaction engine reads", &operands.w, &taken.codes);
        let taken = Operands { w: taken.codes, w_scales: taken.scales, w_minima: taken.minima, ..(*operands).clone() };
        let engine = computed::product(config, product, &taken)?;
        let bits: Vec<i32> = (0..run.y.len()).map(|i| engine.sums.bits(i) as i32).collect();
        case.equal_slices("y of the transaction engine", &run.y, &bits);
        // The flag is sticky over both jobs.
        case.check(i > 0 || engine.overflow == run.overflow, "overflow of the transaction engine");
        case.cycles(run.counters.cycles);
        let c = run.counters;
        case.equal("cycles without stalls", gemv_cycles(gemv, *job), c.unstalled());
        if stall == "none" && i == 0 {
            case.equal("cycles", gemv_port_cycles(shape, *job), c.cycles);
            let bound = shape.stored_bytes(*job).div_ceil(shape.bytes);
            let beats = shape.beats(*job);
            let a = config.accumulator_latency();
            let in_panel = job.n.div_ceil(outputs);
            if in_panel <= depth && in_panel >= a {
                let constant = 1 + rows * config.mac_latency() + a;
                case.equal("cycles of the short form", (bound.max(beats) + constant) as u64, c.cycles);
                let binds = if bound > beats { "port" } else { "beats" };
                case.cover("bound", &[("stored", name), ("binds", binds)]);
            }
        }
    }
    case.cover("port", &[("stored", name), ("port", port), ("stall", stall)]);
    Ok(())
}

/// Shapes that cannot be built and jobs that do not suit them are refused by name.
pub(super) fn refusals(case: &mut Case) -> anyhow::Result<()> {
    let good = PortShape {
        gemv: GemvShape { config: Config { group: Some(32), ..Config::default() }, outputs: 4, vectors: 1 },
        stored: Stored::Block(Block::Q8_0),
        bytes: 64,
    };
    let with = |change: fn(&mut Config)| {
        let mut shape = good;
        change(&mut shape.gemv.config);
        shape
    };
    let refused = [
        (PortShape { bytes: 0, ..good }, "a port of 0 bytes"),
        (PortShape { stored: Stored::Codes, ..good }, "groups"),
        (with(|c| c.rows = 16), "groups of 32"),
        (with(|c| c.group = None), "groups of 32"),
        (with(|c| c.datapath = Datapath::Int4), "8 bits"),
        (with(|c| c.datapath = BF16), "without groups"),
        (PortShape { stored: Stored::Scaled, ..with(|c| c.group = Some(64)) }, "fits one tile"),
    ];
    case.check(good.checked().is_ok(), "a good port was refused");
    for (shape, part) in refused {
        let text = shape.checked().err().map(|e| e.to_string()).unwrap_or_default();
        case.check(text.contains(part), format_args!("`{text}` does not say `{part}`"));
    }
    let job = GemvJob { n: 4, k: 33 };
    let text = unpack(good, job, &[]).err().map(|e| e.to_string()).unwrap_or_default();
    case.check(text.contains("K = 33"), format_args!("`{text}` does not name K"));
    let text = unpack(good, GemvJob { k: 32, ..job }, &[0; 5]).err().map(|e| e.to_string()).unwrap_or_default();
    case.check(text.contains("5 bytes"), format_args!("`{text}` does not give both sizes"));
    Ok(())
}
