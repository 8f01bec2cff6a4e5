//! A pass through the model as commands.

use crate::Result;
use crate::format::Format;
use crate::pack::{NormAt, Packed, Product, Slab};
use crate::plan::{Map, Pass, Plan, SINKS, TILE, WEIGHT_BUFFERS};
use crate::program::{Move, Program};
use crate::shape::Shape;
use crate::tag::{Step, tag};
use golden::Projection;
use npu::dma::{Descriptor, Element, IndexList, Side};
use npu::isa::{Codes, Matmul, Mode, Op, Operands, RowOp, Rows, Vector};
use npu::{ACTIVATIONS, Config, DRAM_REGION, KvSetup, SCRATCHPAD_REGION};

/// What does not change from pass to pass.
pub(crate) struct Layout<'a> {
    pub config: &'a Config,
    pub shape: &'a Shape,
    pub format: Format,
    pub packed: &'a Packed,
    pub map: &'a Map,
    pub kv: &'a KvSetup,
}

/// A token of a sequence in a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub sequence: u32,
    pub position: u32,
}

/// Which rows' logits leave the NPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// Every row's.
    All,
    /// The last row's.
    Last,
    /// None.
    Skip,
}

/// A pass under construction.
pub(crate) struct Lower<'a> {
    pub layout: Layout<'a>,
    pub plan: &'a Plan,
    pub program: Program,
    /// The pass's rows.
    pub places: &'a [Place],
    /// Loads that were sent.
    sent: usize,
    /// The last load that this pass needs, plus one.
    loads: usize,
    /// Rounds of the buffers that go round.
    pub turns: crate::attention::Turns,
    pub layer: u32,
}

/// X of a product.
#[derive(Clone, Copy)]
struct Input {
    rows: Rows,
    scales: u32,
    m: u32,
}

/// Descriptors that a pass may make.
pub(crate) fn most_descriptors(shape: &Shape, loads: usize, batch: u32) -> usize {
    let per_layer = 4 + 3 * batch as usize;
    shape.layers as usize * per_layer + loads + 8
}

/// A pass over `places`: their embeddings in, their K and V into the cache, logits out.
///
/// # Errors
/// Scores that do not fit the scratchpad.
pub(crate) fn pass(layout: Layout<'_>, plan: &Plan, places: &[Place], logits: Logits) -> Result<Program> {
    let program = Program::new(layout.config, layout.map.descriptors.clone(), layout.shape.head_dim as usize);
    let head = layout.shape.layers;
    let loads = match logits {
        Logits::Skip => layout.packed.loads.iter().position(|l| l.section == head),
        _ => None,
    };
    let loads = loads.unwrap_or(layout.packed.loads.len());
    let turns = crate::attention::Turns::default();
    let mut lower = Lower { layout, plan, program, places, sent: 0, loads, turns, layer: 0 };
    lower.embed();
    for layer in 0..head {
        lower.layer = layer;
        lower.layer()?;
    }
    lower.layer = head;
    lower.head(logits);
    Ok(lower.program)
}

impl Lower<'_> {
    pub(crate) fn step(&mut self, step: Step) {
        self.program.tag(tag(self.layer, step));
    }

    fn rows(&self) -> u32 {
        self.places.len() as u32
    }

    /// The embeddings of the pass's tokens, gathered by their ids.
    fn embed(&mut self) {
        let (shape, map) = (self.layout.shape, self.layout.map);
        let row = i64::from(4 * shape.hidden);
        self.program.tag(tag(0, Step::Embed));
        let ids = IndexList { region: DRAM_REGION, offset: map.ids, dimension: 1, bound: shape.vocabulary };
        let job = Descriptor {
            element: Element::B8,
            counts: [1, self.rows(), shape.hidden / 2],
            source: Side { region: DRAM_REGION, offset: map.embedding as i64, strides: [0, row, 8], index: Some(ids) },
            destination: Side {
                region: SCRATCHPAD_REGION,
                offset: self.plan.x.base.into(),
                strides: [0, self.plan.x.pitch.into(), 8],
                index: None,
            },
            wide_index: true,
            tag: ACTIVATIONS as u32,
            ..Descriptor::default()
        };
        let base = self.plan.x.base;
        let span = base..base + (self.rows() - 1) * self.plan.x.pitch + 4 * shape.hidden;
        self.program.job(job, span);
    }

    /// Sends the weights' loads up to `load`, and those that free buffers have room for.
    fn weights(&mut self, load: usize) {
        let until = (load + WEIGHT_BUFFERS).min(self.loads).max(load + 1);
        while self.sent < until {
            let l = self.layout.packed.loads[self.sent];
            let to = self.plan.weights.at(self.sent as u32);
            let piece = Move::linear(true, l.address, to, l.bytes);
            let chain = self.layout.map.load_chain(self.sent);
            self.program.tag(tag(l.section, Step::Weights));
            self.program.chain(chain, &[piece]);
            self.sent += 1;
        }
    }

    fn weight_at(&mut self, load: usize, offset: u32) -> u32 {
        self.weights(load);
        self.plan.weights.at(load as u32) + offset
    }

    /// RMSNorm of rows of the residual stream, as operands of the products that follow.
    fn norm(&mut self, at: NormAt, x: Rows, m: u32, step: Step) -> Input {
        let weight = self.weight_at(at.0, at.1);
        self.step(step);
        let (len, epsilon) = (self.layout.shape.hidden, self.layout.shape.epsilon);
        let narrow = self.layout.format == Format::Bf16;
        let y = if narrow { self.code_rows(len) } else { f32_rows(self.plan.rows, len) };
        let op = Vector::RmsNorm { weight, epsilon, bf16: narrow };
        self.program.push(Op::Vector(RowOp { op, rows: m, len, x, y }));
        if narrow { Input { rows: y, scales: 0, m } } else { self.operand(y, m, len) }
    }

    fn code_rows(&self, len: u32) -> Rows {
        let bytes = if self.layout.format == Format::Bf16 { 2 } else { 1 };
        Rows { base: self.plan.codes, pitch: (len * bytes).next_multiple_of(4) }
    }

    /// FP32 rows as operands of products.
    fn operand(&mut self, x: Rows, m: u32, len: u32) -> Input {
        let rows = self.code_rows(len);
        let scales = self.plan.scales;
        // A stored format's other tensors take the same codes: INT8 per 32.
        let operands = match self.layout.format {
            Format::Stored(_) => Operands::PerGroup { format: None, group: crate::format::GROUP },
            format => format.operands(None),
        };
        let quantize = |format: Option<_>, group: u16| {
            let codes = format.map_or(Codes::Int8, Codes::Float);
            let pitch = if group == 0 { 4 } else { 4 * len.div_ceil(group.into()) };
            Vector::Quantize { codes, group, scales: Rows { base: scales, pitch } }
        };
        let op = match operands {
            Operands::Float(_) | Operands::Stored(_) => Vector::ToBf16,
            Operands::PerChannel(format) => quantize(format, 0),
            Operands::PerGroup { format, group } => quantize(format, group),
        };
        self.program.push(Op::Vector(RowOp { op, rows: m, len, x, y: rows }));
        Input { rows, scales, m }
    }

    fn product(&self, p: Projection) -> &Product {
        &self.layout.packed.products[&(self.layer, p)]
    }

    /// A projection, slab by slab. Y: FP32 rows, or BF16 ones.
    fn project(&mut self, p: Projection, input: Input, y: Rows, bf16: bool) {
        let Product { operands, k, ref slabs, .. } = *self.product(p);
        for slab in slabs.clone() {
            let base = y.base + slab.first * if bf16 { 2 } else { 4 };
            self.slab(p, operands, k, slab, input, Rows { base, ..y }, bf16);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one command")]
    fn slab(&mut self, p: Projection, operands: Operands, k: u32, slab: Slab, input: Input, y: Rows, y_bf16: bool) {
        let base = self.weight_at(slab.load, slab.offset);
        let width = match operands {
            Operands::Float(f) => slab.n * f.width() / 8,
            Operands::PerChannel(_) | Operands::PerGroup { .. } => slab.n,
            Operands::Stored(block) => slab.n * block.bytes() as u32,
        };
        let w_scales = match operands {
            Operands::PerChannel(_) | Operands::PerGroup { .. } => self.plan.weights.at(slab.load as u32) + slab.scales,
            _ => 0,
        };
        let x_scales = if matches!(operands, Operands::Float(_)) { 0 } else { input.scales };
        self.step(Step::Project(p));
        let (m, n) = (input.m, slab.n);
        let (x, w) = (input.rows, Rows::packed(base, width));
        let mode = self.mode(m);
        self.program.push(Op::Matmul(Matmul { mode, operands, m, n, k, x, x_scales, w, w_scales, y, y_bf16 }));
    }

    /// Few rows are vectors: the array's columns then share the weights that stream past.
    pub(crate) fn mode(&self, m: u32) -> Mode {
        if (m as usize) < self.layout.config.array.cols { Mode::Gemv } else { Mode::Gemm }
    }

    fn add(&mut self, b: Rows) {
        let (x, rows, len) = (self.plan.x, self.rows(), self.layout.shape.hidden);
        self.step(Step::Residual);
        self.program.push(Op::Vector(RowOp { op: Vector::Add { b }, rows, len, x, y: x }));
    }

    fn layer(&mut self) -> Result<()> {
        let (shape, plan, m) = (self.layout.shape, self.plan, self.rows());
        // The first sequence's raw tokens come before the next layer's weights: in the DMA's queue they would stand behind those.
        self.load_raw(0);
        let [attention, ffn] = self.layout.packed.norms[self.layer as usize];
        let input = self.norm(attention, plan.x, m, Step::AttentionNorm);
        let queries = f32_rows(plan.rows, shape.q_width());
        self.project(Projection::Q, input, queries, false);
        let tokens = self.new_tokens();
        self.project(Projection::K, input, tokens, true);
        let values = Rows { base: tokens.base + 2 * shape.kv_pad(), ..tokens };
        self.project(Projection::V, input, values, true);
        match plan.pass {
            Pass::Prefill(_) => self.attend_chunk(queries)?,
            Pass::Decode(_) => self.attend_batch(queries)?,
        }
        self.step(Step::Operand);
        let input = self.operand(plan.attended, m, shape.q_width());
        let out = f32_rows(plan.rows, shape.hidden);
        self.project(Projection::O, input, out, false);
        self.add(out);

        let input = self.norm(ffn, plan.x, m, Step::FfnNorm);
        self.project(Projection::Gate, input, plan.gate, false);
        self.project(Projection::Up, input, plan.up, false);
        self.step(Step::SwiGlu);
        let op = Vector::SwiGlu { up: plan.up };
        self.program.push(Op::Vector(RowOp { op, rows: m, len: shape.ffn, x: plan.gate, y: plan.gate }));
        let input = self.operand(plan.gate, m, shape.ffn);
        self.project(Projection::Down, input, out, false);
        self.add(out);
        Ok(())
    }

    /// Where the pass's K and V go: the chunk's tiles, or rows that are sorted into their sequences' tiles later.
    fn new_tokens(&self) -> Rows {
        let pitch = self.layout.shape.token_bytes();
        let base = match self.plan.pass {
            Pass::Prefill(_) => self.plan.raw.at(0) + (SINKS + self.places[0].position % TILE) * pitch,
            Pass::Decode(_) => self.plan.fresh,
        };
        Rows { base, pitch }
    }

    /// The head over the rows whose logits are wanted, and their way to DRAM.
    fn head(&mut self, logits: Logits) {
        let m = match logits {
            Logits::Skip => return,
            Logits::Last => 1,
            Logits::All => self.rows(),
        };
        let (plan, map) = (self.plan, self.layout.map);
        let first = self.rows() - m;
        let x = Rows { base: plan.x.base + first * plan.x.pitch, ..plan.x };
        let input = self.norm(self.layout.packed.norms[self.layer as usize][0], x, m, Step::HeadNorm);
        let Product { operands, k, n, ref slabs } = *self.product(Projection::Head);
        let slabs = slabs.clone();
        // All columns if they fit, else as many slabs as fit each half, in turn.
        let width = slabs.first().map_or(0, |s| s.n);
        let whole = u64::from(4 * m) * u64::from(n) <= plan.logits.1.into();
        let (room, halves) =
            if whole { (n.div_ceil(width) * width, 1) } else { (plan.logits.1 / 2 / (4 * m) / width * width, 2) };
        let pitch = 4 * room;
        for (i, group) in slabs.chunks((room / width).max(1) as usize).enumerate() {
            let base = plan.logits.0 + (i as u32 % halves) * (plan.logits.1 / 2).next_multiple_of(64);
            let start = group[0].first;
            for slab in group {
                let y = Rows { base: base + 4 * (slab.first - start), pitch };
                self.slab(Projection::Head, operands, k, *slab, input, y, false);
            }
            let columns = group.iter().map(|s| s.n).sum::<u32>();
            self.step(Step::Logits);
            let out = Move {
                load: false,
                dram: map.logits + u64::from(4 * start),
                dram_pitch: u64::from(4 * n),
                scratch: base,
                scratch_pitch: pitch,
                rows: m,
                bytes: 4 * columns,
            };
            self.program.moves(&[out], ACTIVATIONS);
        }
    }
}

/// FP32 rows of `len` values, each on its own boundary.
fn f32_rows(base: u32, len: u32) -> Rows {
    Rows { base, pitch: (4 * len).next_multiple_of(64) }
}
