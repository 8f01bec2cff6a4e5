//! A model on an NPU: weights in its DRAM, sequences in its cache.

use crate::format::Code;
use crate::lower::{Layout, Logits, Place, most_descriptors, pass};
use crate::pack::{Packed, pack};
use crate::plan::{Map, Pass, Plan, TILE, WEIGHT_BUFFERS, weight_buffer};
use crate::program::Move;
use crate::shape::{Shape, frequencies, interleaved};
use crate::{Error, Format, Result, Source};
use golden::Tensor;
use npu::dma::WIRE_BYTES;
use npu::isa::{Command, listing};
use npu::nkz::{Channel, Mode, PAGE};
use npu::{Caught, Config, Counters, KvSetup, Npu, Report, Span, WEIGHTS, clocked};
use std::ops::Range;

/// How tiles of the cache are stored.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Tiles of K.
    pub keys: Mode,
    /// Tiles of V.
    pub values: Mode,
    /// The codec's static tables, [layer][head][K, V][channel]; the lossy modes need them.
    pub tables: Vec<Channel>,
}

impl Cache {
    /// The same mode for K and V.
    pub fn new(mode: Mode, tables: Vec<Channel>) -> Self {
        Self { keys: mode, values: mode, tables }
    }
}

/// What a session is made of, beside the model.
#[derive(Clone, Debug)]
pub struct Options {
    /// The NPU.
    pub config: Config,
    /// Formats of the projections.
    pub format: Format,
    /// The cache.
    pub cache: Cache,
    /// Sequences at once.
    pub sequences: usize,
    /// Tokens of a prefill chunk at most; made a multiple of 32, and smaller where the scratchpad asks for it.
    pub chunk: usize,
    /// Context window, at most the model's.
    pub context: usize,
    /// Let the window pass the model's: a study of time, for what a model says out there means nothing.
    pub stretch: bool,
}

impl Options {
    /// Defaults: BF16, a lossless cache, one sequence, chunks of 128, the model's window.
    pub fn new(config: Config) -> Self {
        let cache = Cache::new(Mode::Lossless, Vec::new());
        Self { config, format: Format::Bf16, cache, sequences: 1, chunk: 128, context: usize::MAX, stretch: false }
    }
}

/// What the NPU made of some tokens.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Logits: [rows, vocabulary].
    pub logits: Tensor,
    /// Cycles that it took.
    pub cycles: u64,
}

/// What a session keeps of a pass when asked to. Cycles count since the session began.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Whether it ran tokens of one sequence; else one token each of several.
    pub prefill: bool,
    /// Sequence and position of each token.
    pub tokens: Vec<(usize, usize)>,
    /// From the doorbell to the end of the last command.
    pub cycles: Range<u64>,
    /// The program.
    pub program: Vec<Command>,
    /// Its commands' stays on the engines, in the order of their starts.
    pub spans: Vec<Span>,
}

/// A model on an NPU.
pub struct Session {
    npu: Npu,
    format: Format,
    shape: Shape,
    kv: KvSetup,
    packed: Packed,
    map: Map,
    prefill: Plan,
    decode: Plan,
    /// Tokens held, by sequence.
    held: Vec<usize>,
    recording: Option<Vec<Recorded>>,
    /// The cycle engine beside the transaction engine, if asked for.
    clocked: Option<Box<clocked::Npu>>,
}

impl Session {
    /// Puts a model into an NPU's DRAM.
    ///
    /// # Errors
    /// A model or format that cannot run, and what does not fit.
    pub fn new(source: &Source, options: &Options) -> Result<Self> {
        let Options { config, cache, sequences, chunk, context, stretch, .. } = options;
        let model = source.config();
        let window = if *stretch { *context } else { (*context).min(model.context) };
        let shape = Shape::new(model, window)?;
        let format = settle(source, options.format)?;
        if !(1..=255).contains(sequences) {
            let what = format!("a batch of {sequences} sequences");
            return Err(Error::Unsupported { what, help: "It must lie in 1..=255".into() });
        }
        let mut kv = KvSetup {
            sequences: *sequences,
            layers: model.layers,
            heads: model.kv_heads,
            head_dim: model.head_dim,
            keys: cache.keys,
            values: cache.values,
            tables: cache.tables.clone(),
            context: shape.context.next_multiple_of(TILE as usize),
            pages: 0,
            frequencies: frequencies(model),
            interleaved: interleaved(model),
        };
        let buffer = weight_buffer(config, source, &shape, format);
        let plan = |pass| Plan::new(config, &shape, &kv, format, buffer, pass);
        let decode = plan(Pass::Decode(*sequences as u32))?;
        let wanted = (*chunk).clamp(1, shape.context).next_multiple_of(TILE as usize) as u32;
        let smaller = std::iter::successors(Some(wanted), |c| (*c > TILE).then(|| (c / 2).next_multiple_of(TILE)));
        let mut prefill = Err(None);
        for chunk in smaller {
            match plan(Pass::Prefill(chunk)) {
                Ok(plan) => {
                    prefill = Ok(plan);
                    break;
                }
                Err(error) => prefill = Err(Some(error)),
            }
        }
        let prefill = prefill.map_err(|error| {
            error.unwrap_or_else(|| Error::Unsupported { what: "a chunk of no tokens".into(), help: String::new() })
        })?;
        for plan in [&prefill, &decode] {
            plan.block(&shape, shape.context as u32, 1)?;
        }

        // The DRAM: weights first of all, for their number is known only when they are packed.
        let weights_at = PAGE as u64;
        let packed = pack(source, &shape, format, buffer, weights_at, None)?;
        let map = map(&shape, &packed, *sequences, prefill.pass.rows().max(*sequences as u32), weights_at);
        kv.pages = map.end;
        let (needs, has) = (map.end + kv.page_bytes(), config.dram.bytes);
        if needs > has {
            let help =
                "Take a narrower format, a shorter --context, fewer sequences, or a configuration with more DRAM"
                    .into();
            return Err(Error::Memory { what: "this model".into(), memory: "DRAM", needs, has, help });
        }
        let mut npu = Npu::new(config.clone(), kv.clone())?;
        let dram = &mut npu.memory_mut().dram;
        dram.reserve(map.end);
        pack(source, &shape, format, buffer, weights_at, Some(&mut |at, bytes| Ok(dram.write(at, bytes)?)))?;
        for (i, load) in packed.loads.iter().enumerate() {
            let to = prefill.weights.at((i % WEIGHT_BUFFERS) as u32);
            let job = Move::linear(true, load.address, to, load.bytes).descriptor(WEIGHTS);
            dram.write(map.load_chain(i), &job.encode())?;
        }
        let embedding = source.llm().model.weights().embedding.weight.data();
        dram.write(map.embedding, bytemuck::cast_slice(embedding))?;
        let held = vec![0; *sequences];
        Ok(Self { npu, format, shape, kv, packed, map, prefill, decode, held, recording: None, clocked: None })
    }

    /// The format, a chosen split settled.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The NPU's configuration.
    pub fn config(&self) -> &Config {
        self.npu.config()
    }

    /// Multiply-accumulates that the array does in a cycle at most, in the fastest of the session's products.
    pub fn peak_macs(&self) -> u64 {
        let peaks = self.packed.products.values().map(|p| npu::peak_macs(self.config(), p.operands));
        peaks.max().unwrap_or(0)
    }

    /// Share of [`Session::peak_macs`] that `counters` used.
    pub fn utilisation(&self, counters: &Counters) -> f64 {
        match self.peak_macs() * counters.cycles {
            0 => 0.0,
            most => counters.macs as f64 / most as f64,
        }
    }

    /// The NPU's counters since the session began.
    pub fn counters(&self) -> &Counters {
        self.npu.counters()
    }

    /// Tokens that a sequence holds.
    pub fn held(&self, sequence: usize) -> usize {
        self.held.get(sequence).copied().unwrap_or(0)
    }

    /// Tokens of a prefill chunk at most.
    pub fn chunk(&self) -> usize {
        self.prefill.pass.rows() as usize
    }

    /// The context window.
    pub fn context(&self) -> usize {
        self.shape.context
    }

    /// Bytes of weights that a pass reads.
    pub fn weight_bytes(&self) -> u64 {
        self.packed.loads.iter().map(|l| u64::from(l.bytes)).sum()
    }

    /// Keeps every pass from here on.
    pub fn record(&mut self) {
        self.recording = Some(Vec::new());
        self.npu.record(true);
    }

    /// From here on the cycle engine runs every program too, from the same memories; whatever it does differently is an error. For a
    /// session that holds no tokens, and small models: it is a hundred times as slow.
    ///
    /// # Errors
    /// A session that holds tokens.
    pub fn hold_to_clocked(&mut self) -> Result<()> {
        if self.held.iter().any(|&held| held > 0) {
            let what = "the cycle engine beside a session that holds tokens".into();
            return Err(Error::Unsupported { what, help: "Ask for it before the first prefill".into() });
        }
        self.clocked = Some(Box::new(clocked::Npu::new(self.npu.config().clone(), self.kv.clone())?));
        self.npu.record(true);
        Ok(())
    }

    /// Runs a program on the cycle engine, and holds it to what the transaction engine gave from the same memories.
    fn clock(&mut self, program: &[Command], expected: &Report) -> Result<()> {
        let Some(clocked) = &mut self.clocked else { return Ok(()) };
        let found = clocked.run(program)?;
        let differs = |what: String| Err(Error::Engines(what));
        let (f, e) = (&found.spans, &expected.spans);
        if let Some((f, e)) = f.iter().zip(e).find(|(f, e)| f != e) {
            let listing = listing(e.command, &program[e.command]);
            return differs(format!("cycles {}..{} rather than {}..{} of {listing}", f.start, f.end, e.start, e.end));
        }
        if (found.cycles, f.len()) != (expected.cycles, e.len()) {
            return differs(format!("{} cycles rather than {}", found.cycles, expected.cycles));
        }
        match self.npu.memory().difference(clocked.memory()) {
            Some(place) => differs(place),
            None if self.npu.kv() != clocked.kv() => differs("the KV index".into()),
            None => Ok(()),
        }
    }

    /// Keeps a command of the passes that follow: see [`npu::Npu::catch`].
    pub fn catch(&mut self, tag: u32, place: usize) {
        self.npu.catch(tag, place);
    }

    /// The command that was kept.
    pub fn caught(&self) -> Option<&Caught> {
        self.npu.caught()
    }

    /// The passes that were kept; none unless [`Session::record`] asked for it.
    pub fn recording(&self) -> &[Recorded] {
        self.recording.as_deref().unwrap_or_default()
    }

    /// What the KV path was set up for.
    pub fn kv_setup(&self) -> &KvSetup {
        &self.kv
    }

    /// Keeps the values of the tiles that prefill stores, for [`Session::backfill`].
    pub fn keep_tiles(&mut self) {
        self.npu.keep_tiles();
    }

    /// Makes a sequence hold `tokens`, a multiple of 32, by repeating its own tiles in the cache: a context of the right size and
    /// statistics, without the time to prefill it. Tokens of a tile that is not full are dropped.
    ///
    /// # Errors
    /// No such sequence, no tiles to repeat, a length off the border, fewer than the full tiles held or past the window, and those of
    /// the NPU.
    pub fn backfill(&mut self, sequence: usize, tokens: usize) -> Result<()> {
        self.check(sequence, &[])?;
        let (tile, held) = (TILE as usize, self.held(sequence));
        if !tokens.is_multiple_of(tile) || tokens < held / tile * tile || tokens > self.shape.context {
            let what = format!("a backfill from {held} to {tokens} tokens of a window of {}", self.shape.context);
            let help = "The length must be a multiple of 32 between what is held and the window".into();
            return Err(Error::Unsupported { what, help });
        }
        let tiles = (tokens / TILE as usize) as u32;
        match self.npu.backfill(sequence as u8, tiles).map_err(Error::from)? {
            true => self.held[sequence] = tokens,
            false => {
                let what = format!("a backfill of sequence {sequence}");
                let help = "No tiles were kept: call keep_tiles, then prefill 32 tokens at least".into();
                return Err(Error::Unsupported { what, help });
            }
        }
        Ok(())
    }

    /// Empties a sequence.
    pub fn forget(&mut self, sequence: usize) {
        if let Some(held) = self.held.get_mut(sequence) {
            *held = 0;
            self.npu.forget(sequence);
            if let Some(clocked) = &mut self.clocked {
                clocked.forget(sequence);
            }
        }
    }

    /// Runs tokens of a sequence after those that it holds, chunk by chunk.
    ///
    /// # Errors
    /// No such sequence, more tokens than the window, ids outside the vocabulary, and those of the NPU.
    pub fn prefill(&mut self, sequence: usize, ids: &[u32], logits: Logits) -> Result<Answer> {
        self.check(sequence, ids)?;
        let (mut rows, mut cycles, mut done) = (Vec::new(), 0, 0);
        while done < ids.len() {
            let position = self.held[sequence];
            let room = self.chunk() - position % TILE as usize;
            let chunk = &ids[done..ids.len().min(done + room)];
            let last = done + chunk.len() == ids.len();
            let wanted = if logits == Logits::Last && !last { Logits::Skip } else { logits };
            let places = (position..position + chunk.len())
                .map(|p| Place { sequence: sequence as u32, position: p as u32 })
                .collect::<Vec<_>>();
            let answer = self.run(&places, chunk, wanted, true)?;
            rows.extend(answer.0);
            cycles += answer.1;
            done += chunk.len();
        }
        self.answer(rows, cycles)
    }

    /// Runs one token each of several sequences: logits in the order given.
    ///
    /// # Errors
    /// As [`Session::prefill`]; a sequence given twice.
    pub fn decode(&mut self, tokens: &[(usize, u32)]) -> Result<Answer> {
        for (i, &(sequence, id)) in tokens.iter().enumerate() {
            self.check(sequence, &[id])?;
            if tokens[..i].iter().any(|t| t.0 == sequence) {
                let what = format!("sequence {sequence} twice in one step");
                return Err(Error::Unsupported { what, help: "Each sequence takes one token a step".into() });
            }
        }
        if tokens.is_empty() {
            return self.answer(Vec::new(), 0);
        }
        let place =
            |&(sequence, _): &(usize, u32)| Place { sequence: sequence as u32, position: self.held[sequence] as u32 };
        let places: Vec<_> = tokens.iter().map(place).collect();
        let ids: Vec<_> = tokens.iter().map(|t| t.1).collect();
        let (rows, cycles) = self.run(&places, &ids, Logits::All, false)?;
        self.answer(rows, cycles)
    }

    fn answer(&self, rows: Vec<f32>, cycles: u64) -> Result<Answer> {
        let vocabulary = self.shape.vocabulary as usize;
        Ok(Answer { logits: Tensor::new(vec![rows.len() / vocabulary, vocabulary], rows)?, cycles })
    }

    fn check(&self, sequence: usize, ids: &[u32]) -> Result<()> {
        let sequences = self.held.len();
        let &held = self.held.get(sequence).ok_or(Error::Sequence { sequence, sequences })?;
        if held + ids.len() > self.shape.context {
            return Err(Error::Context { held, added: ids.len(), window: self.shape.context });
        }
        let vocabulary = self.shape.vocabulary as usize;
        match ids.iter().find(|&&id| id as usize >= vocabulary) {
            Some(&id) => Err(Error::Token { id, vocabulary }),
            None => Ok(()),
        }
    }

    /// One pass: logits and cycles.
    fn run(&mut self, places: &[Place], ids: &[u32], logits: Logits, prefill: bool) -> Result<(Vec<f32>, u64)> {
        let plan = if prefill { &self.prefill } else { &self.decode };
        let layout = Layout {
            config: self.npu.config(),
            shape: &self.shape,
            format: self.format,
            packed: &self.packed,
            map: &self.map,
            kv: &self.kv,
        };
        let program = pass(layout, plan, places, logits)?;
        let dram = &mut self.npu.memory_mut().dram;
        dram.write(self.map.descriptors.start, &program.descriptors)?;
        dram.write(self.map.ids, bytemuck::cast_slice(ids))?;
        let started = self.npu.cycle();
        if let Some(clocked) = &mut self.clocked {
            clocked.memory_mut().clone_from(self.npu.memory());
        }
        let report = self.npu.run(&program.commands)?;
        self.clock(&program.commands, &report)?;
        if let Some(recording) = &mut self.recording {
            let later = |span: &Span| Span { start: span.start + started, end: span.end + started, ..*span };
            recording.push(Recorded {
                prefill,
                tokens: places.iter().map(|p| (p.sequence as usize, p.position as usize)).collect(),
                cycles: started..started + report.cycles,
                program: program.commands,
                spans: report.spans.iter().map(later).collect(),
            });
        }
        for place in places {
            self.held[place.sequence as usize] += 1;
        }
        let rows = match logits {
            Logits::All => places.len(),
            Logits::Last => 1,
            Logits::Skip => 0,
        };
        let (pitch, vocabulary) = (self.shape.logits() as usize, self.shape.vocabulary as usize);
        let mut out = Vec::with_capacity(rows * vocabulary);
        let dram = &self.npu.memory().dram;
        for row in 0..rows {
            let bytes = dram.read(self.map.logits + (4 * row * pitch) as u64, 4 * vocabulary)?.unwrap_or_default();
            out.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        }
        Ok((out, report.cycles))
    }
}

/// The format with a chosen split settled; refuses blocks where the model stores others.
fn settle(source: &Source, format: Format) -> Result<Format> {
    let group = format.group().unwrap_or(1);
    if let Some(k) = source.projections().map(|(l, p)| source.linear(l, p).k).find(|k| !k.is_multiple_of(group)) {
        return Err(Error::Unsupported {
            what: format!("format {format} of rows of {k} weights"),
            help: format!("They must be a multiple of {group} long: take scales per channel, or another --format"),
        });
    }
    match format {
        Format::Stored(block) => {
            let stored = source.stored();
            if stored.is_empty() || stored.iter().any(|(b, _)| *b == block) {
                return Ok(format);
            }
            let has: Vec<_> = stored.iter().map(|(b, n)| format!("{n} tensors in {}", Format::Stored(*b))).collect();
            Err(Error::Unsupported {
                what: format!("format {format} of {}: it stores {}", source.llm().name, has.join(", ")),
                help: "Blocks are used as stored, for 4-bit weights lose too much when they are quantised again: take a format that the file has".into(),
            })
        }
        Format::Scaled { code: Code::Chosen, group } => {
            Ok(Format::Scaled { code: crate::split::choose(source, group)?, group })
        }
        format => Ok(format),
    }
}

/// The map of DRAM behind the weights.
fn map(shape: &Shape, packed: &Packed, sequences: usize, rows: u32, weights: u64) -> Map {
    let mut end = weights + packed.bytes;
    let mut take = |bytes: u64| {
        let at = end;
        end = (end + bytes).next_multiple_of(PAGE as u64);
        at
    };
    let loads = take((packed.loads.len() * WIRE_BYTES) as u64);
    let room = (most_descriptors(shape, packed.loads.len(), sequences as u32) * WIRE_BYTES) as u64;
    let first = take(room);
    let ids = take(4 * u64::from(rows));
    let logits = take(4 * u64::from(rows) * u64::from(shape.logits()));
    let raw = take(sequences as u64 * u64::from(shape.layers) * Map::raw_bytes(shape));
    let embedding = take(4 * u64::from(shape.vocabulary) * u64::from(shape.hidden));
    Map { loads, descriptors: first..first + room, ids, logits, raw, embedding, end }
}
