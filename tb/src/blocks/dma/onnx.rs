//! ONNX's own node cases of data movement, each lowered to a chain of descriptors.

use super::bench::{self, Scenario};
use super::judge::done;
use super::memory::Timing;
use super::reference::Image;
use crate::verify::Case;
use anyhow::{Context, bail};
use dma::{Config, Descriptor, Element, IndexList, Region, Remap, Side, WIRE_BYTES, Window, chain};
use rand::RngExt;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Cases of tb/data/dma/onnx_cases.json; those left out are listed there with the reason.
pub(super) const CASES: usize = 44;

#[derive(Deserialize)]
struct Suite {
    cases: Vec<Node>,
    left_out: Vec<LeftOut>,
}

#[derive(Deserialize)]
struct LeftOut {
    reason: String,
}

#[derive(Deserialize)]
struct Node {
    name: String,
    op: String,
    text: BTreeMap<String, String>,
    number: BTreeMap<String, Vec<i64>>,
    inputs: Vec<Tensor>,
    output: Tensor,
}

/// `ints` for the operands that say where, `words` (4 bytes each) for the data that move.
#[derive(Deserialize, Clone, Default)]
struct Tensor {
    shape: Vec<usize>,
    #[serde(default)]
    ints: Vec<i64>,
    #[serde(default)]
    words: String,
}

impl Tensor {
    fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        let word = |i: usize| u32::from_str_radix(&self.words[i..i + 8], 16).map(u32::to_le_bytes);
        Ok((0..self.words.len()).step_by(8).map(word).collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn strides(&self) -> Vec<i64> {
        dense(&self.shape)
    }
}

/// Strides of a dense tensor, in elements.
fn dense(shape: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d] as i64;
    }
    strides
}

/// A tensor in memory: byte offset of its first element.
type At = i64;

/// A chain being built. Strides are in elements of 4 bytes.
struct Lowering {
    jobs: Vec<Descriptor>,
    /// Bytes from 0 on: operands, lists, scratch.
    bytes: Vec<u8>,
}

/// An index list on dimension `.0` of a move, for the source or the destination.
#[derive(Clone)]
struct Listed {
    dimension: usize,
    scatter: bool,
    list: Vec<i64>,
    bound: usize,
}

impl Lowering {
    fn place(&mut self, bytes: &[u8]) -> At {
        let at = self.bytes.len().next_multiple_of(64);
        self.bytes.resize(at, 0);
        self.bytes.extend_from_slice(bytes);
        at as i64
    }

    /// Moves a box of any rank: dimensions before the last three become a chain.
    fn moves(&mut self, shape: &[usize], source: (At, &[i64]), destination: (At, &[i64]), listed: Option<Listed>) {
        let spare = shape.len().saturating_sub(3);
        if spare > 0 && listed.as_ref().is_none_or(|l| l.dimension > 0) {
            for i in 0..shape[0] as i64 {
                let inner = listed.clone().map(|l| Listed { dimension: l.dimension - 1, ..l });
                let at = |(at, strides): (At, &[i64])| at + 4 * i * strides[0];
                self.moves(&shape[1..], (at(source), &source.1[1..]), (at(destination), &destination.1[1..]), inner);
            }
            return;
        }
        let missing = 3 - shape.len();
        let three = |v: &[i64]| std::array::from_fn(|d| if d < missing { 0 } else { 4 * v[d - missing] });
        let counts = std::array::from_fn(|d| if d < missing { 1 } else { shape[d - missing] as u32 });
        let mut d = Descriptor {
            element: Element::B4,
            counts,
            source: Side { region: 0, offset: source.0, strides: three(source.1), index: None },
            destination: Side { region: 0, offset: destination.0, strides: three(destination.1), index: None },
            wide_index: true,
            tag: self.jobs.len() as u32,
            ..Descriptor::default()
        };
        if let Some(l) = listed {
            let wire: Vec<u8> = l.list.iter().flat_map(|&i| (i as i32).to_le_bytes()).collect();
            let offset = self.place(&wire) as u64;
            let dimension = (l.dimension + missing) as u8;
            let index = Some(IndexList { region: 0, offset, dimension, bound: l.bound as u32 });
            if l.scatter {
                d.destination.index = index;
            } else {
                d.source.index = index;
            }
        }
        self.jobs.push(d);
    }

    fn copy(&mut self, shape: &[usize], from: At, to: At) {
        let strides = dense(shape);
        self.moves(shape, (from, &strides), (to, &strides), None);
    }

    /// The result's dimension d is dimension `order[d]` of a dense source.
    fn transpose(&mut self, shape: &[usize], order: &[usize], from: At, to: At) {
        let strides = dense(shape);
        let result: Vec<usize> = order.iter().map(|&o| shape[o]).collect();
        let source: Vec<i64> = order.iter().map(|&o| strides[o]).collect();
        self.moves(&result, (from, &source), (to, &dense(&result)), None);
        // A source that is contiguous along the result's middle dimension goes through the transposer.
        for d in self.jobs.iter_mut().filter(|d| d.source.strides[1] == 4 && d.counts[1] > 1) {
            d.counts.swap(1, 2);
            d.source.strides.swap(1, 2);
            d.destination.strides.swap(1, 2);
            d.remap = Remap::Transpose;
        }
    }
}

/// A possibly negative axis or index.
fn wrap(i: i64, n: usize) -> i64 {
    if i < 0 { i + n as i64 } else { i }
}

impl Node {
    fn axis(&self, rank: usize, default: i64) -> usize {
        wrap(self.number.get("axis").map_or(default, |a| a[0]), rank) as usize
    }

    fn ints(&self, input: usize) -> &[i64] {
        self.inputs.get(input).map_or(&[], |t| &t.ints)
    }

    /// Adds the jobs that take operands at `at` to the result at `to`.
    fn lower(&self, l: &mut Lowering, at: &[At], to: At) -> anyhow::Result<()> {
        let x = &self.inputs[0];
        let (rank, y) = (x.shape.len(), dense(&self.output.shape));
        match self.op.as_str() {
            "Transpose" => {
                let given = self.number.get("perm").map(|p| p.iter().map(|&o| o as usize).collect());
                let order: Vec<usize> = given.unwrap_or_else(|| (0..rank).rev().collect());
                l.transpose(&x.shape, &order, at[0], to);
            }
            "DepthToSpace" | "SpaceToDepth" => {
                let block = self.number["blocksize"][0] as usize;
                let [n, c, h, w] = [0, 1, 2, 3].map(|d| x.shape[d]);
                let crd = self.text.get("mode").is_some_and(|m| m == "CRD");
                let (shape, order): (_, &[usize]) = match (self.op.as_str(), crd) {
                    ("DepthToSpace", false) => ([n, block, block, c / (block * block), h, w], &[0, 3, 4, 1, 5, 2]),
                    ("DepthToSpace", true) => ([n, c / (block * block), block, block, h, w], &[0, 1, 4, 2, 5, 3]),
                    (_, crd) => {
                        let order: &[usize] = if crd { &[0, 1, 3, 5, 2, 4] } else { &[0, 3, 5, 1, 2, 4] };
                        ([n, c, h / block, block, w / block, block], order)
                    }
                };
                l.transpose(&shape, order, at[0], to);
            }
            "Slice" => {
                let (starts, ends) = (self.ints(1), self.ints(2));
                let axes: Vec<i64> = match self.ints(3) {
                    [] => (0..starts.len() as i64).collect(),
                    axes => axes.to_vec(),
                };
                let (mut from, mut strides) = (at[0], x.strides());
                for (i, &axis) in axes.iter().enumerate() {
                    let axis = wrap(axis, rank) as usize;
                    let (n, step) = (x.shape[axis] as i64, self.ints(4).get(i).copied().unwrap_or(1));
                    let start = wrap(starts[i], x.shape[axis]);
                    let start = if step > 0 { start.clamp(0, n) } else { start.clamp(0, n - 1) };
                    // The output's own shape says where a slice ends; the start and step are ours.
                    if ends.len() != starts.len() {
                        bail!("starts and ends differ in number");
                    }
                    from += 4 * start * strides[axis];
                    strides[axis] *= step;
                }
                l.moves(&self.output.shape, (from, &strides), (to, &y), None);
            }
            "Pad" => self.pad(l, at, to)?,
            "Gather" => {
                let axis = self.axis(rank, 0);
                let n = x.shape[axis];
                let list: Vec<i64> = self.ints(1).iter().map(|&i| wrap(i, n)).collect();
                let mut shape = x.shape.clone();
                shape[axis] = list.len();
                let listed = Listed { dimension: axis, scatter: false, list, bound: n };
                self.by_axis(l, &shape, (at[0], &x.strides()), (to, &dense(&shape)), listed);
            }
            "GatherElements" => self.elements(l, at[0], to, false),
            "ScatterElements" => {
                l.copy(&x.shape, at[0], to);
                self.elements(l, at[2], to, true);
            }
            "GatherND" | "ScatterND" => {
                let scatter = self.op == "ScatterND";
                let batch = self.number.get("batch_dims").map_or(0, |b| b[0] as usize);
                let depth = self.inputs[1].shape.last().copied().context("indices of rank 0")?;
                let strides = x.strides();
                let row: usize = x.shape[batch + depth..].iter().product();
                let batches: usize = x.shape[..batch].iter().product();
                let rows = self.ints(1).len() / depth / batches;
                let whole: usize = x.shape[batch..].iter().product();
                if scatter {
                    l.copy(&x.shape, at[0], to);
                }
                for b in 0..batches {
                    let tuple = |t: &[i64]| -> i64 {
                        (0..depth).map(|k| wrap(t[k], x.shape[batch + k]) * strides[batch + k]).sum::<i64>()
                            / row as i64
                    };
                    let all = self.ints(1);
                    let list = all[b * rows * depth..(b + 1) * rows * depth].chunks(depth).map(tuple).collect();
                    let listed = Listed { dimension: 0, scatter, list, bound: whole / row };
                    let (from, into) = if scatter {
                        (at[2], to)
                    } else {
                        (at[0] + (4 * b * whole) as i64, to + (4 * b * rows * row) as i64)
                    };
                    l.moves(&[rows, row], (from, &[row as i64, 1]), (into, &[row as i64, 1]), Some(listed));
                }
            }
            "TensorScatter" => {
                let axis = self.axis(rank, -2);
                let (n, update) = (x.shape[axis], &self.inputs[1]);
                l.copy(&x.shape, at[0], to);
                for b in 0..x.shape[0] {
                    let start = self.ints(2).get(b).copied().unwrap_or(0);
                    let list = (0..update.shape[axis] as i64).map(|i| (start + i) % n as i64).collect();
                    let listed = Listed { dimension: axis - 1, scatter: true, list, bound: n };
                    let (u, c) = (update.strides(), x.strides());
                    let from = (at[1] + 4 * b as i64 * u[0], &u[1..]);
                    self.by_axis(l, &update.shape[1..], from, (to + 4 * b as i64 * c[0], &c[1..]), listed);
                }
            }
            other => bail!("no lowering of {other}"),
        }
        Ok(())
    }

    /// Moves with a list on one axis; when that is one of too many leading dimensions, the ones behind it become one.
    fn by_axis(&self, l: &mut Lowering, shape: &[usize], s: (At, &[i64]), d: (At, &[i64]), listed: Listed) {
        let behind = listed.dimension + 1;
        if shape.len() > 3 && listed.dimension == 0 {
            let inner: usize = shape[behind..].iter().product();
            l.moves(&[shape[0], inner], (s.0, &[s.1[0], 1]), (d.0, &[d.1[0], 1]), Some(listed));
        } else {
            l.moves(shape, s, d, Some(listed));
        }
    }

    /// One line along the axis a descriptor: each has its own list.
    fn elements(&self, l: &mut Lowering, from: At, to: At, scatter: bool) {
        let (x, indices) = (&self.inputs[0], &self.inputs[1]);
        let axis = self.axis(x.shape.len(), 0);
        let (wide, narrow) = (x.strides(), dense(&indices.shape));
        let other = 1 - axis;
        for line in 0..indices.shape[other] as i64 {
            let entry = |i: i64| wrap(indices.ints[(i * narrow[axis] + line * narrow[other]) as usize], x.shape[axis]);
            let list = (0..indices.shape[axis] as i64).map(entry).collect();
            let listed = Listed { dimension: 0, scatter, list, bound: x.shape[axis] };
            let (full, part) = ((4 * line * wide[other], wide[axis]), (4 * line * narrow[other], narrow[axis]));
            let (s, d) = if scatter { (part, full) } else { (full, part) };
            l.moves(&[indices.shape[axis]], (from + s.0, &[s.1]), (to + d.0, &[d.1]), Some(listed));
        }
    }

    /// Constant: one window a volume. Edge, reflect and wrap: a gather an axis, by way of scratch.
    fn pad(&self, l: &mut Lowering, at: &[At], to: At) -> anyhow::Result<()> {
        let x = &self.inputs[0];
        let rank = x.shape.len();
        let pads = self.ints(1);
        let axes: Vec<usize> = match self.ints(3) {
            [] => (0..rank).collect(),
            axes => axes.iter().map(|&a| wrap(a, rank) as usize).collect(),
        };
        let mut before = vec![0; rank];
        for (i, &axis) in axes.iter().enumerate() {
            before[axis] = pads[i];
        }
        let mode = self.text.get("mode").map_or("constant", String::as_str);
        if mode == "constant" {
            let fill = self.inputs.get(2).map_or(Ok(0), |v| u64::from_str_radix(&v.words, 16))?;
            let (s, y) = (x.strides(), dense(&self.output.shape));
            let first = l.jobs.len();
            let shift: i64 = (0..rank).map(|d| before[d] * s[d]).sum();
            l.moves(&self.output.shape, (at[0] - 4 * shift, &s), (to, &y), None);
            // Leading dimensions are not padded in these cases, so one window serves every job.
            let spare = rank - 3;
            if before[..spare].iter().any(|&p| p != 0) {
                bail!("a padded leading dimension");
            }
            let lo = std::array::from_fn(|d| before[spare + d] as u32);
            let hi = std::array::from_fn(|d| before[spare + d] as u32 + x.shape[spare + d] as u32);
            for job in &mut l.jobs[first..] {
                job.window = Some(Window { lo, hi, fill });
            }
            return Ok(());
        }
        let (mut from, mut shape) = (at[0], x.shape.clone());
        let padded: Vec<usize> = (0..rank).filter(|&d| self.output.shape[d] != x.shape[d]).collect();
        for (i, &axis) in padded.iter().enumerate() {
            let n = shape[axis] as i64;
            let entry = |o: i64| match mode {
                "edge" => (o - before[axis]).clamp(0, n - 1),
                "wrap" => (o - before[axis]).rem_euclid(n),
                _ => {
                    let folded = (o - before[axis]).rem_euclid(2 * n - 2);
                    folded.min(2 * n - 2 - folded)
                }
            };
            let list = (0..self.output.shape[axis] as i64).map(entry).collect();
            let strides = dense(&shape);
            shape[axis] = self.output.shape[axis];
            let bytes = 4 * shape.iter().product::<usize>();
            let into = if i + 1 == padded.len() { to } else { l.place(&vec![0; bytes]) };
            let listed = Listed { dimension: axis, scatter: false, list, bound: n as usize };
            self.by_axis(l, &shape, (from, &strides), (into, &dense(&shape)), listed);
            from = into;
        }
        Ok(())
    }
}

/// One node case.
pub(super) fn onnx(case: &mut Case<'_>) -> anyhow::Result<()> {
    let suite: Suite = serde_json::from_str(include_str!("../../../data/dma/onnx_cases.json"))?;
    case.equal("cases", CASES, suite.cases.len());
    case.check(suite.left_out.iter().all(|l| !l.reason.is_empty()), "a case is left out without a reason");
    let node = &suite.cases[case.index];
    case.label(node.name.clone());
    case.cover("onnx", &[("op", node.op.as_str())]);
    let mut l = Lowering { jobs: Vec::new(), bytes: Vec::new() };
    let mut at = Vec::new();
    for input in &node.inputs {
        let bytes = input.bytes()?;
        at.push(l.place(&bytes));
    }
    let expected = node.output.bytes()?;
    let canary: Vec<u8> = (0..expected.len() + 128).map(|_| case.rng.random()).collect();
    let to = l.place(&canary) + 64;
    node.lower(&mut l, &at, to)?;
    let base = 0x4_0000;
    let limit = l.bytes.len() as u64;
    let wires = base + limit.next_multiple_of(64);
    let mut bytes = l.bytes;
    let before = bytes.clone();
    bytes.resize((wires - base) as usize, 0);
    bytes.extend(chain(&l.jobs, wires));
    let s = Scenario {
        config: Config::default(),
        regions: vec![Region::read_write(base, limit), Region::read_only(wires, (l.jobs.len() * WIRE_BYTES) as u64)],
        image: Image { base, bytes },
        doorbells: vec![wires],
        bad: Vec::new(),
        timing: Timing::fixed(20),
        host_busy: 0.0,
        seed: 0,
    };
    let ran = bench::run(&s)?;
    case.cycles(ran.cycles);
    case.equal_slices("completion", &l.jobs.iter().map(|d| done(d.tag)).collect::<Vec<_>>(), &ran.outcomes());
    case.equal("violations", Vec::new(), ran.violations);
    let to = to as usize;
    case.equal_slices("output byte", &expected, &ran.bytes[to..to + expected.len()]);
    case.equal_slices("canary before", &before[to - 64..to], &ran.bytes[to - 64..to]);
    let end = to + expected.len();
    case.equal_slices("canary after", &before[end..end + 64], &ran.bytes[end..end + 64]);
    Ok(())
}
