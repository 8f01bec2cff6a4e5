//! The fast forms against loops that say the same thing plainly.

use super::*;
use numeric::fast::canonical;
use numeric::{Format, Mode};
use proptest::prelude::*;

/// Y, one value after the other, tile after tile, with the flag of the specified order.
fn plain_integer(config: Config, job: Job, x: &[i8], w: &[i8]) -> (Vec<i32>, bool) {
    let mut overflow = false;
    let mut y = Vec::new();
    for m in 0..job.m {
        for n in 0..job.n {
            let tile = |t| {
                config.k_range(job.k, t).map(|k| i32::from(x[m * job.k + k]) * i32::from(w[k * job.n + n])).sum::<i32>()
            };
            y.push((1..config.k_tiles(job.k)).map(tile).fold(tile(0), |sum, s| {
                overflow |= sum.checked_add(s).is_none();
                sum.wrapping_add(s)
            }));
        }
    }
    (y, overflow)
}

/// Y by the core's own operators.
fn plain_float(
    config: Config,
    job: Job,
    (x, act): (&[u32], FloatFormat),
    (w, weight): (&[u32], FloatFormat),
) -> Vec<u32> {
    let fp32 = FloatFormat::FP32;
    let flags = &mut Flags::default();
    let mut y = Vec::new();
    for m in 0..job.m {
        for n in 0..job.n {
            let mut acc = None;
            for tile in 0..config.k_tiles(job.k) {
                let mut s = 0;
                for k in config.k_range(job.k, tile) {
                    s = numeric::fma(act, x[m * job.k + k], weight, w[k * job.n + n], s, flags);
                }
                acc = Some(acc.map_or(s, |acc| numeric::add(fp32, acc, s, Mode::IEEE, flags)));
            }
            y.push(acc.unwrap_or_default());
        }
    }
    y
}

fn shape() -> impl Strategy<Value = (Config, Job)> {
    let side = || prop_oneof![1..9usize, 30..35usize];
    (side(), side(), prop_oneof![1..14usize, 1..3usize], prop_oneof![1..40usize, 60..140usize], 1..70usize)
        .prop_map(|(rows, cols, m, n, k)| (Config { rows, cols, ..Config::default() }, Job { m, n, k }))
}

/// Codes from one seed, with the ends of the range often.
fn codes(n: usize, seed: u64) -> Vec<u32> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..n)
        .map(|_| match next() % 8 {
            0 => [0, 0x80, 0x8000, 0x7f, 0xff, 0x7f80, 0x7c00, 0x0001][next() as usize % 8],
            1..3 => next() & 0x80ff, // subnormals and tiny numbers
            _ => next() & 0xffff,
        })
        .collect()
}

proptest! {
    #[test]
    fn integers((config, job) in shape(), seed in any::<u64>(), int4 in any::<bool>()) {
        let x: Vec<i8> = codes(job.m * job.k, seed).iter().map(|&c| c as i8).collect();
        let w: Vec<i8> = codes(job.k * job.n, !seed).iter().map(|&c| c as i8 >> if int4 { 4 } else { 0 }).collect();
        let config = Config { datapath: if int4 { Datapath::Int4 } else { Datapath::Int8 }, ..config };
        let computed = sums(config, job, Codes::Int(&x), Codes::Int(&w)).unwrap();
        let (y, overflow) = plain_integer(config, job, &x, &w);
        prop_assert_eq!(computed.sums, Sums::Int32(y));
        prop_assert_eq!(computed.overflow, overflow);
    }

    #[test]
    fn floats((config, job) in shape(), seed in any::<u64>(), act in 0..5usize, weight in 0..5usize) {
        let ffp8 = FloatFormat::ffp8(true, 3, 9).unwrap();
        let formats = [FloatFormat::BF16, FloatFormat::FP16, FloatFormat::E4M3, FloatFormat::E5M2, ffp8];
        let [act, weight] = [formats[act], formats[weight]];
        let config = Config { datapath: Datapath::Float { act, weight }, ..config };
        let (x, w) = (codes(job.m * job.k, seed), codes(job.k * job.n, !seed));
        let narrow = |codes: &[u32]| -> (Vec<u8>, Vec<u16>) {
            (codes.iter().map(|&c| c as u8).collect(), codes.iter().map(|&c| c as u16).collect())
        };
        let ((x8, x16), (w8, w16)) = (narrow(&x), narrow(&w));
        let pick = |format: FloatFormat, wide, slim| if format.width() == 16 { wide } else { slim };
        let computed = sums(
            config,
            job,
            pick(act, Codes::Bits16(&x16), Codes::Bits8(&x8)),
            pick(weight, Codes::Bits16(&w16), Codes::Bits8(&w8)),
        )
        .unwrap();
        let mask = |codes: &[u32], format: FloatFormat| -> Vec<u32> {
            codes.iter().map(|c| c & Format::Float(format).code_mask()).collect()
        };
        let expected = plain_float(config, job, (&mask(&x, act), act), (&mask(&w, weight), weight));
        let got: Vec<u32> = (0..job.m * job.n).map(|i| computed.sums.bits(i)).collect();
        prop_assert_eq!(got, expected);
    }
}

/// Y with group scales, by the core's own operators.
fn plain_grouped(
    config: Config,
    job: Job,
    (x, w): (&[u32], &[u32]),
    partial: impl Fn(&[(u32, u32)]) -> (u32, Option<f32>),
    scales: GroupScales<'_>,
) -> Vec<u32> {
    let fp32 = FloatFormat::FP32;
    let flags = &mut Flags::default();
    let group = config.group.unwrap();
    let groups = job.k.div_ceil(group);
    let mut y = Vec::new();
    for m in 0..job.m {
        for n in 0..job.n {
            let mut acc = 0;
            for tile in 0..config.k_tiles(job.k) {
                let range = config.k_range(job.k, tile);
                let g = range.start / group;
                let pairs: Vec<_> = range.map(|k| (x[m * job.k + k], w[k * job.n + n])).collect();
                let (p, sum) = partial(&pairs);
                let s_x = scales.x[m * groups + g].to_bits();
                let s = numeric::mul(fp32, s_x, scales.w[g * job.n + n].to_bits(), Mode::IEEE, flags);
                acc = numeric::fma(fp32, s, fp32, p, acc, flags);
                if let Some(sum) = sum {
                    let minimum = scales.minima.get(g * job.n + n).map_or(0, |m| m.to_bits());
                    let s = numeric::mul(fp32, s_x, minimum, Mode::IEEE, flags);
                    acc = numeric::fma(fp32, s, fp32, sum.to_bits(), acc, flags);
                }
            }
            y.push(acc);
        }
    }
    y
}

/// Scales of both signs, with zeros, infinities and NaNs now and then.
fn scales(n: usize, seed: u64) -> Vec<f32> {
    let scale = |code: u32| match code % 64 {
        0 => 0.0,
        1 => -0.0,
        2 => f32::INFINITY,
        3 => f32::NAN,
        _ => f32::from_bits(code << 16 & 0x8fff_ffff | 0x3800_0000),
    };
    codes(n, seed).into_iter().map(scale).collect()
}

proptest! {
    #[test]
    fn grouped(
        (config, job) in shape(),
        seed in any::<u64>(),
        kind in 0..4usize,
        group in prop_oneof![1..9usize, Just(32), Just(70)],
        minima in any::<bool>(),
    ) {
        let (act, weight) = [(FloatFormat::BF16, FloatFormat::E4M3), (FloatFormat::E5M2, FloatFormat::FP16)][kind % 2];
        let datapath = [Datapath::Int8, Datapath::Int4, Datapath::Float { act, weight }, Datapath::Float { act, weight }];
        let config = Config { datapath: datapath[kind], group: Some(group), ..config };
        let (x, w) = (codes(job.m * job.k, seed), codes(job.k * job.n, !seed));
        let groups = job.k.div_ceil(group);
        let (s_x, s_w) = (scales(job.m * groups, seed ^ 1), scales(groups * job.n, seed ^ 2));
        let min = if minima && kind < 2 { scales(groups * job.n, seed ^ 3) } else { Vec::new() };
        let given = GroupScales { x: &s_x, w: &s_w, minima: &min };
        let narrow = |codes: &[u32]| -> Vec<u8> { codes.iter().map(|&c| c as u8).collect() };
        let wide = |codes: &[u32]| -> Vec<u16> { codes.iter().map(|&c| c as u16).collect() };
        let (computed, expected) = if kind < 2 {
            let int = |codes: &[u32], shift: u32| -> Vec<i8> { codes.iter().map(|&c| c as i8 >> shift).collect() };
            let (x, w) = (int(&x, 0), int(&w, 4 * kind as u32));
            let words = |codes: &[i8]| -> Vec<u32> { codes.iter().map(|&c| i32::from(c) as u32).collect() };
            let partial = |pairs: &[(u32, u32)]| {
                let p: i32 = pairs.iter().map(|&(x, w)| x as i32 * w as i32).sum();
                let sum: i32 = pairs.iter().map(|&(x, _)| x as i32).sum();
                ((p as f32).to_bits(), Some(sum as f32))
            };
            let expected = plain_grouped(config, job, (&words(&x), &words(&w)), partial, given);
            (grouped_sums(config, job, Codes::Int(&x), Codes::Int(&w), given), expected)
        } else {
            let partial = |pairs: &[(u32, u32)]| {
                let fma = |s, &(x, w): &(u32, u32)| numeric::fma(act, x, weight, w, s, &mut Flags::default());
                (pairs.iter().fold(0, fma), None)
            };
            let mask = |codes: &[u32], format: FloatFormat| -> Vec<u32> {
                codes.iter().map(|c| c & Format::Float(format).code_mask()).collect()
            };
            let expected = plain_grouped(config, job, (&mask(&x, act), &mask(&w, weight)), partial, given);
            let ((x8, x16), (w8, w16)) = ((narrow(&x), wide(&x)), (narrow(&w), wide(&w)));
            let pick = |format: FloatFormat, wide, slim| if format.width() == 16 { wide } else { slim };
            let x = pick(act, Codes::Bits16(&x16), Codes::Bits8(&x8));
            (grouped_sums(config, job, x, pick(weight, Codes::Bits16(&w16), Codes::Bits8(&w8)), given), expected)
        };
        let computed = computed.unwrap();
        let got: Vec<u32> = (0..job.m * job.n).map(|i| computed.sums.bits(i)).collect();
        prop_assert_eq!(got, expected);
        prop_assert_eq!(computed.cycles, gemm_cycles(config, job));
    }
}

#[test]
fn scales_that_do_not_fit_are_refused_by_name() {
    let (config, job) = (Config { group: Some(2), ..Config::default() }, Job { m: 1, n: 1, k: 3 });
    let run = |config, x: &[f32], w: &[f32], minima: &[f32]| {
        let ints = Codes::Int(&[1, 2, 3]);
        grouped_sums(config, job, ints, ints, GroupScales { x, w, minima }).map_err(|e| e.to_string())
    };
    let y = run(config, &[1.0, 0.5], &[1.0, 2.0], &[]).unwrap().sums;
    assert_eq!(y, Sums::Fp32(vec![1.0 + 4.0 + 9.0]));
    assert!(run(config, &[1.0], &[1.0; 2], &[]).unwrap_err().contains("1 scales of X"));
    assert!(run(config, &[1.0; 2], &[1.0; 3], &[]).unwrap_err().contains("3 scales of W"));
    assert!(run(config, &[1.0; 2], &[1.0; 2], &[1.0]).unwrap_err().contains("1 minima"));
    assert!(run(Config::default(), &[1.0; 2], &[1.0; 2], &[]).unwrap_err().contains("no group"));
    let bf16 = Config { datapath: Datapath::float(FloatFormat::BF16), ..config };
    assert!(run(bf16, &[1.0; 2], &[1.0; 2], &[1.0; 2]).unwrap_err().contains("minima"));
}

#[test]
fn the_first_tile_s_negative_zero_stays() {
    // −2^−133 · 2^−133 rounds to −0; +0 + −0 would be +0.
    let job = Job { m: 1, n: 1, k: 1 };
    let config = Config { datapath: Datapath::float(FloatFormat::BF16), ..Config::default() };
    for job in [job, Job { m: 9, ..job }] {
        let y = sums(config, job, Codes::Bits16(&vec![0x8001; job.m]), Codes::Bits16(&[0x0001])).unwrap().sums;
        assert!((0..job.m).all(|i| y.bits(i) == 0x8000_0000), "{y:?}");
    }
    assert_eq!(canonical(f32::NAN).to_bits(), 0x7fc0_0000);
}

#[test]
fn a_long_sum_raises_the_flag_in_the_specified_order() {
    // 2¹⁷ products of 2¹⁴ leave 32 bits; as many of each sign, half and half, end at zero but pass 2³¹ on their way.
    let half = 1 << 17;
    let config = Config::new(32, 4).unwrap();
    let run = |x: &[i8]| {
        let job = Job { m: 1, n: 2, k: x.len() };
        let w = vec![-128; 2 * x.len()];
        sums(config, job, Codes::Int(x), Codes::Int(&w)).unwrap()
    };
    let mut x = vec![-128; half - 1];
    assert!(!run(&x).overflow);
    x.push(-128);
    let wrapped = run(&x);
    assert_eq!((wrapped.overflow, wrapped.sums), (true, Sums::Int32(vec![i32::MIN; 2])));
    x.extend(vec![127; half + half / 127 + 1]);
    assert!(run(&x).overflow);
    // In turns the same products never leave 32 bits, and the flag stays down although K is long.
    let turns: Vec<i8> = (0..2 * half).map(|i| if i % 2 == 0 { -128 } else { 127 }).collect();
    assert!(!run(&turns).overflow);
}

#[test]
fn codes_of_another_datapath_are_refused_by_name() {
    let (config, job) = (Config::default(), Job { m: 1, n: 1, k: 1 });
    let error = |config, x: Codes<'_>, w: Codes<'_>| sums(config, job, x, w).unwrap_err().to_string();
    assert!(error(config, Codes::Bits8(&[0]), Codes::Int(&[0])).starts_with("X"));
    assert!(error(config, Codes::Int(&[0]), Codes::Bits16(&[0])).starts_with("W"));
    let int4 = Config { datapath: Datapath::Int4, ..config };
    assert!(error(int4, Codes::Int(&[0]), Codes::Int(&[8])).contains("-8..=7"));
    let bf16 = Config { datapath: Datapath::float(FloatFormat::BF16), ..config };
    assert!(error(bf16, Codes::Bits16(&[0]), Codes::Bits8(&[0])).contains("16-bit codes"));
    let group = Config { group: Some(32), ..config };
    assert!(error(group, Codes::Int(&[0]), Codes::Int(&[0])).contains("group"));
}
