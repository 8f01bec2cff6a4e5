//! The reference's operations against ONNX's own node cases (golden/dev/onnx_cases.py), which we did not write.

use golden::{HeadShape, Pairing, attention, ops, turn};
use serde_json::Value;

/// An operand: shape and values.
struct Tensor {
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Tensor {
    fn read(v: &Value) -> Option<Self> {
        let list = |v: &Value| Some(v.as_array()?.iter().map(|v| v.as_i64().unwrap()).collect::<Vec<_>>());
        let shape = list(v.get("shape")?)?.into_iter().map(|v| v as usize).collect();
        let values = if let Some(words) = v.get("words") {
            let word = |c: &[u8]| f32::from_bits(u32::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap());
            words.as_str()?.as_bytes().chunks_exact(8).map(word).collect()
        } else if let Some(bools) = v.get("bools") {
            // What a mask adds: nothing, or −∞.
            list(bools)?.into_iter().map(|b| if b == 1 { 0.0 } else { f32::NEG_INFINITY }).collect()
        } else {
            list(v.get("ints")?)?.into_iter().map(|v| v as f32).collect()
        };
        Some(Self { shape, values })
    }

    /// The row of `len` values at index `at` of its outer dimensions.
    fn row(&self, at: usize, len: usize) -> &[f32] {
        &self.values[at * len..][..len]
    }
}

fn axis(case: &Value, default: i64, dimensions: usize) -> usize {
    let axis = case["attributes"].get("axis").map_or(default, |v| v.as_i64().unwrap());
    axis.rem_euclid(dimensions as i64) as usize
}

fn number(case: &Value, name: &str) -> Option<f64> {
    case["attributes"].get(name).map(|v| v.as_f64().unwrap())
}

fn rms_norm(case: &Value, inputs: &[Option<Tensor>]) -> Vec<f32> {
    let [Some(x), Some(weight)] = inputs else { panic!() };
    let axis = axis(case, -1, x.shape.len());
    let len = x.shape[axis..].iter().product();
    let mut y = vec![0.0; x.values.len()];
    for (x, y) in x.values.chunks_exact(len).zip(y.chunks_exact_mut(len)) {
        ops::rms_norm(x, &weight.values, number(case, "epsilon").unwrap_or(1e-5) as f32, y);
    }
    y
}

fn softmax(case: &Value, inputs: &[Option<Tensor>]) -> Vec<f32> {
    let Some(x) = &inputs[0] else { panic!() };
    let axis = axis(case, -1, x.shape.len());
    let (len, inner): (usize, usize) = (x.shape[axis], x.shape[axis + 1..].iter().product());
    let mut y = x.values.clone();
    for outer in 0..y.len() / (len * inner) {
        for i in 0..inner {
            let at = |j: usize| (outer * len + j) * inner + i;
            let mut row: Vec<f32> = (0..len).map(|j| y[at(j)]).collect();
            ops::softmax(&mut row);
            row.iter().enumerate().for_each(|(j, v)| y[at(j)] = *v);
        }
    }
    y
}

fn rope(case: &Value, inputs: &[Option<Tensor>]) -> Vec<f32> {
    let (Some(x), Some(cos), Some(sin)) = (&inputs[0], &inputs[1], &inputs[2]) else { panic!() };
    let pairing = if number(case, "interleaved") == Some(1.0) { Pairing::Interleaved } else { Pairing::Halves };
    let mut y = x.values.clone();
    // [batch, heads, tokens, d], or [batch, tokens, heads · d].
    let (heads, tokens, d) = match x.shape[..] {
        [_, heads, tokens, d] => (heads, tokens, d),
        [_, tokens, width] => {
            let heads = number(case, "num_heads").unwrap() as usize;
            (heads, tokens, width / heads)
        }
        _ => panic!(),
    };
    for (i, row) in y.chunks_exact_mut(d).enumerate() {
        let (batch, token) = match x.shape.len() {
            4 => (i / (heads * tokens), i % tokens),
            _ => (i / (heads * tokens), i / heads % tokens),
        };
        let at = batch * tokens + token;
        let position = inputs.get(3).and_then(Option::as_ref).map_or(at, |ids| ids.values[at] as usize);
        let angles = sin.row(position, d / 2).iter().zip(cos.row(position, d / 2));
        turn(pairing, row, angles.map(|(s, c)| (*s, *c)));
    }
    y
}

/// [batch, heads, tokens, d]; past keys and values come before the new ones.
fn attend(case: &Value, inputs: &[Option<Tensor>]) -> Vec<f32> {
    let given = |i: usize| inputs.get(i).and_then(Option::as_ref);
    let (Some(q), Some(k), Some(v)) = (given(0), given(1), given(2)) else { panic!() };
    // Three dimensions are [batch, tokens, heads · d].
    let heads_of = |t: &Tensor, attribute: &str| -> Tensor {
        if t.shape.len() == 4 {
            return Tensor { shape: t.shape.clone(), values: t.values.clone() };
        }
        let (batch, tokens, width) = (t.shape[0], t.shape[1], t.shape[2]);
        let heads = number(case, attribute).unwrap() as usize;
        let d = width / heads;
        let row = |b: usize, h: usize, n: usize| &t.values[((b * tokens + n) * heads + h) * d..][..d];
        let rows = (0..batch * heads * tokens).map(|i| row(i / (heads * tokens), i / tokens % heads, i % tokens));
        Tensor { shape: vec![batch, heads, tokens, d], values: rows.flatten().copied().collect() }
    };
    let flat = q.shape.len() == 3;
    let (q, k, v) = (heads_of(q, "q_num_heads"), heads_of(k, "kv_num_heads"), heads_of(v, "kv_num_heads"));
    let ([batch, heads, rows, d], [kv_heads, new, d_v]) =
        ([q.shape[0], q.shape[1], q.shape[2], q.shape[3]], [k.shape[1], k.shape[2], v.shape[3]]);
    let past = given(4).map_or(0, |p| p.shape[2]);
    let tokens = past + new;
    let scale = number(case, "scale").map_or(1.0 / (d as f32).sqrt(), |s| s as f32);
    let causal = number(case, "is_causal") == Some(1.0);
    let mut y = Vec::new();
    for b in 0..batch {
        for h in 0..heads {
            let kv = b * kv_heads + h * kv_heads / heads;
            let whole = |old: Option<&Tensor>, t: &Tensor, d: usize| -> Vec<f32> {
                let old = old.map_or(&[][..], |old| old.row(kv, past * d));
                [old, t.row(kv, new * d)].concat()
            };
            let (keys, values) = (whole(given(4), &k, d), whole(given(5), &v, d_v));
            let held = given(6).map_or(tokens, |lengths| lengths.values[b] as usize);
            // Rows are the last of the tokens held; without a cache, ONNX counts them from the first key on.
            let first = if given(6).is_some() { held as i64 - rows as i64 } else { past as i64 };
            let mask = |row: usize, scores: &mut [f32]| {
                if let Some(mask) = given(3) {
                    let (length, s) = (mask.shape[mask.shape.len() - 1], &mask.shape);
                    let dimension = |back: usize| s.len().checked_sub(back).map_or(1, |i| s[i]);
                    let pick = |i: usize, size: usize| if size == 1 { 0 } else { i };
                    let at = (pick(b, dimension(4)) * dimension(3) + pick(h, dimension(3))) * dimension(2);
                    let bias = mask.row(at + pick(row, dimension(2)), length);
                    scores.iter_mut().zip(bias).for_each(|(s, m)| *s += m);
                    scores[length..].fill(f32::NEG_INFINITY);
                }
                for (token, score) in scores.iter_mut().enumerate() {
                    if token >= held || causal && token as i64 > first + row as i64 {
                        *score = f32::NEG_INFINITY;
                    }
                }
            };
            let shape = HeadShape { rows, tokens, d, d_v };
            let mut out = vec![0.0; rows * d_v];
            attention(shape, scale, [q.row(b * heads + h, rows * d), &keys, &values], mask, &mut out);
            y.extend(out);
        }
    }
    if !flat {
        return y;
    }
    let at = |i: usize| {
        let (c, h, n, b) = (i % d_v, i / d_v % heads, i / (d_v * heads) % rows, i / (d_v * heads * rows));
        ((b * heads + h) * rows + n) * d_v + c
    };
    (0..y.len()).map(|i| y[at(i)]).collect()
}

#[test]
fn onnx_node_cases() {
    let file: Value = serde_json::from_str(include_str!("data/onnx_cases.json")).unwrap();
    let cases = file["cases"].as_array().unwrap();
    let mut seen = std::collections::BTreeMap::<&str, usize>::new();
    for case in cases {
        let (name, op) = (case["name"].as_str().unwrap(), case["op"].as_str().unwrap());
        let inputs: Vec<_> = case["inputs"].as_array().unwrap().iter().map(Tensor::read).collect();
        let expected = Tensor::read(&case["output"]).unwrap().values;
        let y = match op {
            "RMSNormalization" => rms_norm(case, &inputs),
            "Softmax" => softmax(case, &inputs),
            "RotaryEmbedding" => rope(case, &inputs),
            "Attention" => attend(case, &inputs),
            "Swish" => inputs[0].as_ref().unwrap().values.iter().map(|x| ops::silu(*x)).collect(),
            other => panic!("{other}"),
        };
        assert_eq!(y.len(), expected.len(), "{name}");
        for (i, (y, e)) in y.iter().zip(&expected).enumerate() {
            assert!((y - e).abs() <= 2e-6 + 1e-5 * e.abs(), "{name}: value {i} is {y}, ONNX has {e}");
        }
        *seen.entry(op).or_default() += 1;
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
    println!("{seen:?}, left out {}", file["left_out"].as_array().unwrap().len());
}
