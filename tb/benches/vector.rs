//! The vector unit's transaction engine against plain loops over the standard library's f32 functions, one thread each.

use std::hint::black_box;
use tb::ratio::{PAIRS, Ratio, Target, compare};
use vector::transaction::{self as engine, Mask};
use vector::{Algorithm, Config, Function, Pairing, Ramp};

/// Rows of SmolLM2's sizes.
const ROWS: usize = 32;

fn main() {
    println!("{}", Ratio::header());
    let config = Config::default();
    let line = |name: &str, n: usize, target, ours: &mut dyn FnMut(), peer: &mut dyn FnMut()| {
        let work = n as f64;
        let mut ours = || {
            (0..8).for_each(|_| ours());
            8.0 * work
        };
        let mut peer = || {
            (0..8).for_each(|_| peer());
            8.0 * work
        };
        let sides = (("transaction engine", &mut ours as &mut dyn FnMut() -> f64), ("f32 loops", &mut peer as _));
        println!("{}", compare(name, "values", sides.0, sides.1, 4 * PAIRS + 1, target));
    };
    let values = |n: usize| -> Vec<f32> { (0..n).map(|i| (i * 7919 % 1000) as f32 / 100.0 - 5.0).collect() };

    let (x, u) = (values(1536 * ROWS), values(1536 * ROWS));
    let (mut y, mut z) = (x.clone(), x.clone());
    line(
        "exp",
        x.len(),
        Target::AtLeast(1.0),
        &mut || engine::function(Function::Exp, black_box(&x), &mut y).expect("same length"),
        &mut || {
            black_box(&x).iter().zip(&mut z).for_each(|(x, z)| *z = x.exp());
        },
    );
    line(
        "SwiGLU",
        x.len(),
        Target::AtLeast(1.0),
        &mut || engine::swiglu(black_box(&x), &u, &mut y).expect("same length"),
        &mut || {
            black_box(&x).iter().zip(&u).zip(&mut z).for_each(|((x, u), z)| *z = x / (1.0 + (-x).exp()) * u);
        },
    );
    let weight = values(576);
    let n = 576 * ROWS;
    line(
        "RMSNorm 576",
        n,
        Target::AtLeast(1.0),
        &mut || engine::rms_norm(&config, black_box(&x[..n]), &weight, 1e-5, &mut y[..n]).expect("rows"),
        &mut || {
            for (x, z) in black_box(&x[..n]).chunks(576).zip(z.chunks_mut(576)) {
                let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f32>() / 576.0 + 1e-5).sqrt();
                z.iter_mut().zip(x).zip(&weight).for_each(|((z, x), w)| *z = x * scale * w);
            }
        },
    );
    for (name, algorithm) in
        [("softmax 4096, three passes", Algorithm::ThreePass), ("softmax 4096, online", Algorithm::Online)]
    {
        let n = 4096 * 9;
        line(
            name,
            n,
            Target::AtLeast(1.0),
            &mut || {
                engine::softmax(&config, algorithm, 4096, 0.125, Mask::None, black_box(&x[..n]), &mut y[..n])
                    .expect("rows")
            },
            &mut || {
                for (x, z) in black_box(&x[..n]).chunks(4096).zip(z.chunks_mut(4096)) {
                    let most = x.iter().fold(f32::NEG_INFINITY, |m, x| m.max(x * 0.125));
                    z.iter_mut().zip(x).for_each(|(z, x)| *z = (x * 0.125 - most).exp());
                    let scale = 1.0 / z.iter().sum::<f32>();
                    z.iter_mut().for_each(|z| *z *= scale);
                }
            },
        );
    }
    let frequencies: Vec<f32> = (0..32).map(|i| 1e5f32.powf(-(i as f32) / 32.0)).collect();
    line(
        "RoPE 64",
        x.len(),
        Target::AtLeast(1.0),
        &mut || engine::rope(Pairing::Halves, Ramp::from(100), &frequencies, black_box(&x), &mut y).expect("rows"),
        &mut || {
            for (row, (x, z)) in black_box(&x).chunks(64).zip(z.chunks_mut(64)).enumerate() {
                for (i, f) in frequencies.iter().enumerate() {
                    let (sin, cos) = ((100 + row) as f32 * f).sin_cos();
                    (z[i], z[i + 32]) = (x[i] * cos - x[i + 32] * sin, x[i + 32] * cos + x[i] * sin);
                }
            }
        },
    );
    let (mut codes, mut scales) = (vec![0i8; x.len()], vec![0f32; x.len() / 32]);
    let (mut theirs, mut their_scales) = (codes.clone(), scales.clone());
    let int8 = numeric::Format::Int(numeric::IntFormat::INT8);
    line(
        "INT8 a 32 values",
        x.len(),
        Target::AtLeast(1.0),
        &mut || {
            let mut flags = numeric::Flags::default();
            engine::quantise(int8, 1536, Some(32), black_box(&x), &mut codes, &mut scales, &mut flags).expect("groups");
        },
        &mut || {
            for ((x, codes), scale) in black_box(&x).chunks(32).zip(theirs.chunks_mut(32)).zip(&mut their_scales) {
                *scale = x.iter().fold(0f32, |m, x| m.max(x.abs())) / 127.0;
                codes.iter_mut().zip(x).for_each(|(c, x)| *c = (x / *scale).round_ties_even() as i8);
            }
        },
    );
}
