//! ONNX's own node cases of RMSNormalization, Softmax and Swish (golden/dev/onnx_cases.py fetched them), on the clocked unit.
//!
//! RotaryEmbedding is left out: ONNX gives its sines and cosines as tables of arbitrary numbers, the unit makes its own from positions.
//! Gelu is no operation of the unit.

use super::driver::{Bench, Operands};
use crate::verify::Case;
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use vector::{Algorithm, Command, Config, Function, Masking, Op};

/// Cases of the three operators in the file.
pub(super) const CASES: usize = 27;

#[derive(Deserialize)]
struct File {
    cases: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    name: String,
    op: String,
    attributes: BTreeMap<String, f64>,
    inputs: Vec<Option<Tensor>>,
    output: Tensor,
}

#[derive(Deserialize)]
struct Tensor {
    shape: Vec<usize>,
    /// FP32 bits, eight hexadecimal digits each.
    #[serde(default)]
    words: String,
}

impl Tensor {
    fn bits(&self) -> anyhow::Result<Vec<u32>> {
        let digits = self.words.as_bytes().chunks_exact(8);
        digits.map(|d| Ok(u32::from_str_radix(std::str::from_utf8(d)?, 16)?)).collect()
    }
}

fn value(bits: u32) -> f64 {
    f64::from(f32::from_bits(bits))
}

/// One case. The axis is brought to the end of the rows, as a data-movement engine would.
pub(super) fn node(case: &mut Case) -> anyhow::Result<()> {
    let text = include_str!("../../../../golden/tests/data/onnx_cases.json");
    let file: File = serde_json::from_str(text).context("golden/tests/data/onnx_cases.json")?;
    let ours = ["RMSNormalization", "Softmax", "Swish"];
    let nodes: Vec<&Node> = file.cases.iter().filter(|node| ours.contains(&node.op.as_str())).collect();
    ensure!(nodes.len() == CASES, "{} cases in the file, not {CASES}", nodes.len());
    let node = nodes[case.index];
    case.label(node.name.clone());
    let input = |i: usize| node.inputs.get(i).and_then(Option::as_ref).context("an input is missing");
    let x = input(0)?;
    let axis = node.attributes.get("axis").map_or(-1, |axis| *axis as i64).rem_euclid(x.shape.len() as i64) as usize;
    // Values of a row, and how far apart they lie.
    let (op, len, stride, second) = match node.op.as_str() {
        "RMSNormalization" => {
            let epsilon = node.attributes.get("epsilon").map_or(1e-5, |e| *e as f32);
            (Op::RmsNorm { epsilon }, x.shape[axis..].iter().product(), 1, input(1)?.bits()?)
        }
        "Softmax" => {
            let algorithm = [Algorithm::ThreePass, Algorithm::Online][case.index % 2];
            let op = Op::Softmax { algorithm, scale: 1.0, mask: Masking::None };
            (op, x.shape[axis], x.shape[axis + 1..].iter().product(), Vec::new())
        }
        _ => (Op::Function(Function::Silu), x.shape.iter().product(), 1, Vec::new()),
    };
    let bits = x.bits()?;
    let place = |i: usize| {
        let (row, at) = (i / len, i % len);
        (row / stride * len + at) * stride + row % stride
    };
    let operands = Operands { a: (0..bits.len()).map(|i| bits[place(i)]).collect(), b: second };
    let mut bench = Bench::new(Config::new(8)?)?;
    let ran = bench.run(&Command::new(op, len, bits.len() / len), &operands, None)?;
    case.cycles(ran.edges);
    let want = node.output.bits()?;
    ensure!(ran.results.codes.len() == want.len(), "{} results, not {}", ran.results.codes.len(), want.len());
    for (i, got) in ran.results.codes.iter().enumerate() {
        let exact = value(want[place(i)]);
        // Both sides round some ten times.
        case.within(&node.name, (value(*got) - exact).abs(), exact.abs() * 20.0 * 2f64.powi(-24));
    }
    Ok(())
}
