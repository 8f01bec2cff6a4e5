//! The transaction engine against the `gemm` crate's f32 on SmolLM2's shapes, one thread each.

use mvp::{Codes, Config, Datapath, GroupScales, Job, grouped_sums, sums};
use numeric::FloatFormat;
use std::hint::black_box;
use tb::ratio::{PAIRS, Ratio, Target, compare};

/// K and N of SmolLM2-135M's MLP.
const K: usize = 576;
const N: usize = 1536;

/// The peer: Y = X · W in f32, row-major.
fn peer(job: Job, x: &[f32], w: &[f32], y: &mut [f32]) {
    let Job { m, n, k } = job;
    assert!(x.len() == m * k && w.len() == k * n && y.len() == m * n, "operands have the job's shape");
    // SAFETY: the three slices have just been found to hold m × k, k × n and m × n values, row by row, and do not overlap.
    #[allow(unsafe_code)]
    unsafe {
        let (row, col) = (n as isize, 1);
        gemm::gemm(
            m,
            n,
            k,
            y.as_mut_ptr(),
            col,
            row,
            false,
            x.as_ptr(),
            1,
            k as isize,
            w.as_ptr(),
            col,
            row,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

fn main() {
    println!("{}", Ratio::header());
    let mut state = 1u64;
    let mut code = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as i8
    };
    let rows = 128;
    let (x, w): (Vec<i8>, Vec<i8>) = ((0..rows * K).map(|_| code()).collect(), (0..K * N).map(|_| code()).collect());
    let wide = |codes: &[i8]| -> Vec<f32> { codes.iter().map(|&c| c.into()).collect() };
    let bf16 = |values: &[f32]| -> Vec<u16> { values.iter().map(|v| (v.to_bits() >> 16) as u16).collect() };
    let (xf, wf) = (wide(&x), wide(&w));
    let (xb, wb) = (bf16(&xf), bf16(&wf));
    let e4m3 = |codes: &[i8]| -> Vec<u8> { codes.iter().map(|&c| c as u8 & 0xf7).collect() };
    let (x8, w8) = (e4m3(&x), e4m3(&w));

    let int8 = Config::default();
    let float = |format| Config { datapath: Datapath::float(format), ..int8 };
    for (m, targets) in
        [(rows, [Target::AtLeast(1.1), Target::AtLeast(0.7)]), (1, [Target::AtLeast(0.7), Target::None])]
    {
        let job = Job { m, n: N, k: K };
        let (work, repeats) = ((m * N * K) as f64, if m == 1 { 20 } else { 1 });
        let mut y = vec![0f32; m * N];
        let mut theirs = || {
            for _ in 0..repeats {
                peer(job, &xf[..m * K], &wf, black_box(&mut y));
            }
            work * f64::from(repeats)
        };
        let engines = [
            ("INT8", int8, Codes::Int(&x[..m * K]), Codes::Int(&w), targets[0]),
            ("BF16", float(FloatFormat::BF16), Codes::Bits16(&xb[..m * K]), Codes::Bits16(&wb), targets[1]),
            ("E4M3", float(FloatFormat::E4M3), Codes::Bits8(&x8[..m * K]), Codes::Bits8(&w8), Target::None),
        ];
        for (name, config, x, w, target) in engines {
            let mut ours = || {
                for _ in 0..repeats {
                    black_box(sums(config, job, black_box(x), w).expect("the operands fit"));
                }
                work * f64::from(repeats)
            };
            let name = format!("{name} {m}×{K}×{N}");
            let sides = (("transaction engine", &mut ours as &mut dyn FnMut() -> f64), ("gemm f32", &mut theirs as _));
            println!("{}", compare(&name, "MAC", sides.0, sides.1, 4 * PAIRS + 1, target));
        }
        // Scales per 32 values along k.
        let groups = K.div_ceil(32);
        let (s_x, s_w) = (vec![0.5; m * groups], vec![0.25; groups * N]);
        let w4: Vec<i8> = w.iter().map(|w| w >> 4).collect();
        let engines = [
            ("INT8/32", Datapath::Int8, Codes::Int(&x[..m * K]), Codes::Int(&w), &[][..]),
            ("INT4/32 with minima", Datapath::Int4, Codes::Int(&x[..m * K]), Codes::Int(&w4), &s_w),
            ("E4M3/32", Datapath::float(FloatFormat::E4M3), Codes::Bits8(&x8[..m * K]), Codes::Bits8(&w8), &[]),
        ];
        for (name, datapath, x, w, minima) in engines {
            let config = Config { datapath, group: Some(32), ..int8 };
            let scales = GroupScales { x: &s_x, w: &s_w, minima };
            let mut ours = || {
                for _ in 0..repeats {
                    black_box(grouped_sums(config, job, black_box(x), w, scales).expect("the operands fit"));
                }
                work * f64::from(repeats)
            };
            let name = format!("{name} {m}×{K}×{N}");
            let sides = (("transaction engine", &mut ours as &mut dyn FnMut() -> f64), ("gemm f32", &mut theirs as _));
            println!("{}", compare(&name, "MAC", sides.0, sides.1, 4 * PAIRS + 1, Target::None));
        }
    }
}
