//! ONNX's own node test cases of matrix products and convolutions, as a caller of the processor would lower them.
//!
//! `tb/data/onnx/make.py` made the data. Integer results must be equal. Float operands are rounded to BF16, and the result must lie
//! within the bound that this and the sums' own rounding imply.

use crate::verify::Case;
use anyhow::{Context, bail, ensure};
use mvp::{
    Codes, Column, Config, Conv, Datapath, Job, Layout, Output, RowInfo, Sums, column_sums, finish, row_sums, sums,
};
use numeric::fast::{Encoder, decode_bf16};
use numeric::{Flags, FloatFormat, Format, IntFormat, Mode};
use serde::Deserialize;
use std::{collections::BTreeMap, sync::OnceLock};

/// The cases of the file.
pub(super) const CASES: usize = 29;

#[derive(Deserialize)]
struct File {
    cases: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    name: String,
    op: String,
    attributes: BTreeMap<String, serde_json::Value>,
    inputs: Vec<Option<Array>>,
    output: Array,
}

/// A tensor of the file.
#[derive(Clone, Deserialize)]
struct Array {
    #[serde(rename = "type")]
    kind: String,
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl Node {
    fn input(&self, i: usize) -> anyhow::Result<&Array> {
        self.inputs.get(i).and_then(Option::as_ref).with_context(|| format!("{}: no input {i}", self.name))
    }

    /// An optional scalar or list: `default` where it is missing, repeated to `n`.
    fn spread(&self, i: usize, n: usize, default: f64) -> anyhow::Result<Vec<f64>> {
        match self.inputs.get(i).and_then(Option::as_ref).map(|t| t.data.as_slice()) {
            None => Ok(vec![default; n]),
            Some([one]) => Ok(vec![*one; n]),
            Some(all) if all.len() == n => Ok(all.to_vec()),
            Some(all) => bail!("{}: input {i} has {} values, not 1 or {n}", self.name, all.len()),
        }
    }

    fn number(&self, name: &str, default: f64) -> f64 {
        self.attributes.get(name).and_then(serde_json::Value::as_f64).unwrap_or(default)
    }

    fn list<const L: usize>(&self, name: &str, default: [usize; L]) -> anyhow::Result<[usize; L]> {
        let Some(value) = self.attributes.get(name) else { return Ok(default) };
        let list: Vec<usize> = serde_json::from_value(value.clone())?;
        list.try_into().map_err(|_| anyhow::anyhow!("{}: {name} has not {L} values", self.name))
    }
}

impl Array {
    /// Rows and columns of the last two dimensions.
    fn matrix(&self) -> anyhow::Result<[usize; 2]> {
        match self.shape.as_slice() {
            [.., rows, cols] => Ok([*rows, *cols]),
            _ => bail!("a matrix has two dimensions, not {:?}", self.shape),
        }
    }

    /// The codes that enter the array, and what its zero points are moved by: UINT8 enters as x ⊕ 0x80.
    fn codes(&self) -> anyhow::Result<(Vec<i8>, i32)> {
        let shift = match self.kind.as_str() {
            "int8" => 0,
            "uint8" => 128,
            other => bail!("{other} is no operand of the integer array"),
        };
        Ok((self.data.iter().map(|&v| (v as i32 - shift) as i8).collect(), shift))
    }

    fn transposed(&self) -> anyhow::Result<Self> {
        let [rows, cols] = self.matrix()?;
        let data = (0..rows * cols).map(|i| self.data[i % rows * cols + i / rows]).collect();
        Ok(Self { kind: self.kind.clone(), shape: vec![cols, rows], data })
    }
}

fn nodes() -> anyhow::Result<&'static [Node]> {
    static NODES: OnceLock<Result<Vec<Node>, String>> = OnceLock::new();
    let text = include_str!("../../../data/onnx/cases.json");
    let parse = || serde_json::from_str::<File>(text).map(|f| f.cases).map_err(|e| e.to_string());
    NODES.get_or_init(parse).as_deref().map_err(|e| anyhow::anyhow!("tb/data/onnx/cases.json: {e}"))
}

/// One case of the file, on a small array so that it has edges in every dimension.
pub(super) fn node(case: &mut Case) -> anyhow::Result<()> {
    let nodes = nodes()?;
    ensure!(nodes.len() == CASES, "{} cases in the file, not {CASES}", nodes.len());
    let node = &nodes[case.index];
    case.label(node.name.clone());
    match node.op.as_str() {
        "MatMulInteger" => matrices(case, node, [0, 1], [Some(2), Some(3)], None),
        "QLinearMatMul" => matrices(case, node, [0, 3], [Some(2), Some(5)], Some([1, 4, 6, 7])),
        "ConvInteger" => integer_convolution(case, node, [0, 1], [Some(2), Some(3)], None),
        "QLinearConv" => integer_convolution(case, node, [0, 3], [Some(2), Some(5)], Some([1, 4, 6, 7])),
        "Conv" => float_convolution(case, node),
        "Gemm" => gemm(case, node),
        other => bail!("{other}: no such operator"),
    }
}

/// Zero points, bias and scales of an integer product.
struct Quantised {
    output: Output,
    /// z_w, scale of each column.
    columns: Vec<(i32, f32)>,
}

/// What `node` says of them: inputs that hold the zero points of X and W; those of the scales of X, W and Y and of Y's zero point.
fn quantised(
    node: &Node,
    n: usize,
    shifts: [i32; 2],
    zeros: [Option<usize>; 2],
    scales: Option<[usize; 4]>,
) -> anyhow::Result<Quantised> {
    let zero = |i: usize, n, shift: i32| -> anyhow::Result<Vec<i32>> {
        // A missing zero point is zero in the data's own range.
        Ok(node.spread(zeros[i].unwrap_or(usize::MAX), n, 0.0)?.iter().map(|&z| z as i32 - shift).collect())
    };
    let mut output = Output { x_zero: zero(0, 1, shifts[0])?[0], ..Output::raw(false) };
    let w_zero = zero(1, n, shifts[1])?;
    let Some([x, w, y, y_zero]) = scales else {
        return Ok(Quantised { output, columns: w_zero.into_iter().map(|z| (z, 1.0)).collect() });
    };
    output.rescale = true;
    output.format = match node.output.kind.as_str() {
        "int8" => Format::Int(IntFormat::INT8),
        "uint8" => Format::Int(IntFormat::UINT8),
        other => bail!("{}: a result in {other}", node.name),
    };
    output.y_zero = node.spread(y_zero, 1, 0.0)?[0] as i32;
    let (x, y) = (node.spread(x, 1, 1.0)?[0] as f32, node.spread(y, 1, 1.0)?[0] as f32);
    let scale = node.spread(w, n, 1.0)?.into_iter().map(|w| x * w as f32 / y);
    Ok(Quantised { output, columns: w_zero.into_iter().zip(scale).collect() })
}

/// The sums, then the output stage.
fn integer_product(
    case: &mut Case,
    job: Job,
    (x, w): (&[i8], &[i8]),
    quantised: &Quantised,
    columns: std::ops::Range<usize>,
) -> anyhow::Result<Vec<i64>> {
    let config = Config { rows: 3, cols: 2, ..Config::default() }.checked()?;
    let computed = sums(config, job, Codes::Int(x), Codes::Int(w))?;
    case.cycles(computed.cycles);
    let rows: Vec<RowInfo> = row_sums(job, x).into_iter().map(|sum| RowInfo { sum, ..RowInfo::default() }).collect();
    let columns: Vec<Column> = column_sums(job, w)
        .into_iter()
        .zip(&quantised.columns[columns])
        .map(|(weight_sum, &(w_zero, scale))| Column { weight_sum, w_zero, scale, ..Column::default() })
        .collect();
    let (codes, _) = finish(config, job, &computed.sums, &quantised.output, &rows, &columns);
    let signed = quantised.output.format == Format::Int(IntFormat::INT8);
    let value = |code: u32| match quantised.output.format {
        _ if signed => i64::from(code as i8),
        Format::Int(IntFormat::INT32) => i64::from(code as i32),
        _ => i64::from(code),
    };
    Ok(codes.into_iter().map(value).collect())
}

fn expect_integers(case: &mut Case, node: &Node, got: &[i64]) {
    let expected: Vec<i64> = node.output.data.iter().map(|&v| v as i64).collect();
    case.equal_slices(&node.name, &expected, got);
}

/// A product, or several where there are leading dimensions.
fn matrices(
    case: &mut Case,
    node: &Node,
    [a, b]: [usize; 2],
    zeros: [Option<usize>; 2],
    scales: Option<[usize; 4]>,
) -> anyhow::Result<()> {
    let (a, b) = (node.input(a)?, node.input(b)?);
    let ([m, k], [_, n]) = (a.matrix()?, b.matrix()?);
    let ((x, x_shift), (w, w_shift)) = (a.codes()?, b.codes()?);
    let quantised = quantised(node, n, [x_shift, w_shift], zeros, scales)?;
    let mut y = Vec::new();
    for (x, w) in x.chunks_exact(m * k).zip(w.chunks_exact(k * n)) {
        y.extend(integer_product(case, Job { m, n, k }, (x, w), &quantised, 0..n)?);
    }
    expect_integers(case, node, &y);
    Ok(())
}

/// The geometry; `auto_pad` becomes explicit padding, the odd one below and to the right unless it is SAME_LOWER.
fn geometry(node: &Node, x: &Array, w: &Array) -> anyhow::Result<Conv> {
    let (&[batch, channels, height, width], &[filters, _, rows, cols]) = (x.shape.as_slice(), w.shape.as_slice())
    else {
        bail!("{}: not a two-dimensional convolution", node.name)
    };
    let (stride, dilation, kernel, size) =
        (node.list("strides", [1, 1])?, node.list("dilations", [1, 1])?, [rows, cols], [height, width]);
    let mut padding = node.list("pads", [0; 4])?;
    if let Some(mode) = node.attributes.get("auto_pad").and_then(serde_json::Value::as_str)
        && mode.starts_with("SAME")
    {
        for axis in 0..2 {
            let span = (kernel[axis] - 1) * dilation[axis] + 1;
            let total = ((size[axis].div_ceil(stride[axis]) - 1) * stride[axis] + span).saturating_sub(size[axis]);
            let (less, more) = (total / 2, total - total / 2);
            (padding[axis], padding[axis + 2]) = if mode == "SAME_LOWER" { (more, less) } else { (less, more) };
        }
    }
    let groups = node.number("group", 1.0) as usize;
    let layout = Layout::Nchw;
    let conv = Conv { layout, batch, channels, size, filters, kernel, stride, padding, dilation, groups }.checked()?;
    let [height, width] = conv.out_size();
    ensure!(node.output.shape == [batch, filters, height, width], "{}: the result has another shape", node.name);
    Ok(conv)
}

fn integer_convolution(
    case: &mut Case,
    node: &Node,
    [x, w]: [usize; 2],
    zeros: [Option<usize>; 2],
    scales: Option<[usize; 4]>,
) -> anyhow::Result<()> {
    let (x, w) = (node.input(x)?, node.input(w)?);
    let conv = geometry(node, x, w)?;
    let ((image, x_shift), (weights, w_shift)) = (x.codes()?, w.codes()?);
    let quantised = quantised(node, conv.filters, [x_shift, w_shift], zeros, scales)?;
    let mut result = vec![0; conv.lengths()[2]];
    for job in conv.jobs(Config::default().depth) {
        // The zero point pads: what lies outside counts for nothing after the correction.
        let x = conv.patches(&job, &image, quantised.output.x_zero as i8);
        let w = conv.weights(job.group, &weights);
        let filters = job.group * job.job.n..(job.group + 1) * job.job.n;
        let y = integer_product(case, job.job, (&x, &w), &quantised, filters)?;
        conv.place(&job, &y, &mut result);
    }
    expect_integers(case, node, &result);
    Ok(())
}

fn bf16(values: &[f64]) -> Vec<u16> {
    let encoder = Encoder::new(FloatFormat::BF16, Mode::IEEE);
    values.iter().map(|&v| encoder.encode(v as f32, &mut Flags::default()) as u16).collect()
}

/// A product of real operands in BF16: each result with its bound.
///
/// With u = 2⁻⁸ for BF16 and v = 2⁻²⁴ for FP32 (halves of the last place), each operand is off by a share of u at most, each product by
/// 2u + u², and each of the K + T roundings of the sums (T tiles) by v of what has been added so far: Σ|x·w|·(2u + u² + (K + T)·v·(1 + u)²),
/// to first order in v; the reference's own f32 sum adds (K + 1)·v more.
fn float_product(job: Job, config: Config, x: &[f64], w: &[f64]) -> anyhow::Result<Vec<(f32, f64)>> {
    let (u, v) = (2f64.powi(-8), 2f64.powi(-24));
    let (xs, ws) = (bf16(x), bf16(w));
    let Sums::Fp32(y) = sums(config, job, Codes::Bits16(&xs), Codes::Bits16(&ws))?.sums else {
        bail!("a float datapath makes FP32 sums")
    };
    let steps = (2 * job.k + config.k_tiles(job.k) + 1) as f64;
    let factor = |x: &[f64], codes: &[u16]| {
        // Operands that BF16 holds exactly cost nothing.
        let exact = x.iter().zip(codes).all(|(&x, &c)| f64::from(decode_bf16(c)) == x);
        if exact { 0.0 } else { u }
    };
    let (ux, uw) = (factor(x, &xs), factor(w, &ws));
    let share = ux + uw + ux * uw + steps * v * (1.0 + u) * (1.0 + u);
    Ok((0..job.m * job.n)
        .map(|i| {
            let (m, n) = (i / job.n, i % job.n);
            let absolute: f64 = (0..job.k).map(|k| (x[m * job.k + k] * w[k * job.n + n]).abs()).sum();
            (y[i], absolute * share)
        })
        .collect())
}

fn bf16_array() -> anyhow::Result<Config> {
    let datapath = Datapath::float(FloatFormat::BF16);
    Ok(Config { rows: 3, cols: 2, datapath, ..Config::default() }.checked()?)
}

fn expect_within(case: &mut Case, node: &Node, got: &[(f64, f64)]) {
    case.equal("values", node.output.data.len(), got.len());
    let mut worst: f64 = 0.0;
    for (i, (expected, &(y, bound))) in node.output.data.iter().zip(got).enumerate() {
        case.within(format_args!("{}[{i}]", node.name), (y - expected).abs(), bound);
        worst = worst.max(if bound > 0.0 { (y - expected).abs() / bound } else { 0.0 });
    }
    case.measure("error_to_bound", worst);
}

fn float_convolution(case: &mut Case, node: &Node) -> anyhow::Result<()> {
    let (x, w) = (node.input(0)?, node.input(1)?);
    let (conv, config) = (geometry(node, x, w)?, bf16_array()?);
    let mut result = vec![(0.0, 0.0); conv.lengths()[2]];
    for job in conv.jobs(config.depth) {
        let (x, w) = (conv.patches(&job, &x.data, 0.0), conv.weights(job.group, &w.data));
        let y: Vec<_> = float_product(job.job, config, &x, &w)?.into_iter().map(|(y, e)| (f64::from(y), e)).collect();
        conv.place(&job, &y, &mut result);
    }
    expect_within(case, node, &result);
    Ok(())
}

/// alpha·A·B + beta·C: alpha is the row scale and beta·C the columns' offset. A bias that differs from row to row enters as further
/// k-steps, \[A | I\]·\[B; C·beta/alpha\].
fn gemm(case: &mut Case, node: &Node) -> anyhow::Result<()> {
    let oriented = |i: usize, name: &str| -> anyhow::Result<Array> {
        let t = node.input(i)?;
        if node.number(name, 0.0) != 0.0 { t.transposed() } else { Ok(t.clone()) }
    };
    let (a, b) = (oriented(0, "transA")?, oriented(1, "transB")?);
    let ([m, k], [_, n]) = (a.matrix()?, b.matrix()?);
    let (alpha, beta) = (node.number("alpha", 1.0), node.number("beta", 1.0));
    let (mut x, mut w, mut job) = (a.data.clone(), b.data.clone(), Job { m, n, k });
    let mut offsets = vec![0.0; n];
    match node.inputs.get(2).and_then(Option::as_ref) {
        Some(c) if c.data.len() == m * n && m > 1 => {
            job.k = k + m;
            let identity = |r: usize| (0..m).map(move |c| f64::from(u8::from(r == c)));
            x = (0..m).flat_map(|r| a.data[r * k..(r + 1) * k].iter().copied().chain(identity(r))).collect();
            w.extend(c.data.iter().map(|c| c * beta / alpha));
        }
        Some(_) => offsets = node.spread(2, n, 0.0)?.iter().map(|c| c * beta).collect(),
        None => {}
    }
    let config = bf16_array()?;
    let output = Output { rescale: true, add_offset: true, ..Output::raw(true) };
    let columns: Vec<Column> =
        offsets.iter().map(|&c| Column { offset: c as f32, scale: alpha as f32, ..Column::default() }).collect();
    let products = float_product(job, config, &x, &w)?;
    let sums = Sums::Fp32(products.iter().map(|&(y, _)| y).collect());
    let (codes, _) = finish(config, job, &sums, &output, &[], &columns);
    let v = 2f64.powi(-24);
    let results: Vec<_> = codes
        .iter()
        .zip(&products)
        .enumerate()
        .map(|(i, (&code, &(sum, bound)))| {
            let y = f64::from(f32::from_bits(code));
            // Scale, offset and their rounded constants, here and in the reference: four roundings of each size at most.
            let last = 4.0 * v * (2.0 * alpha.abs() * f64::from(sum).abs() + 2.0 * offsets[i % n].abs() + y.abs());
            (y, alpha.abs() * bound + last)
        })
        .collect();
    expect_within(case, node, &results);
    Ok(())
}
