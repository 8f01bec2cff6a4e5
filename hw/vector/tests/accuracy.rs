//! The elementary functions against the standard library's in binary64, on all BF16 inputs and over all binades of FP32.

use vector::{Function, transaction};

fn oracle(f: Function, x: f64) -> f64 {
    match f {
        Function::Exp => x.exp(),
        Function::Reciprocal => 1.0 / x,
        Function::Rsqrt if x == 0.0 => 1.0 / x,
        Function::Rsqrt => 1.0 / x.sqrt(),
        Function::Sin => x.sin(),
        Function::Cos => x.cos(),
        Function::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Function::Silu => x / (1.0 + (-x).exp()),
    }
}

/// |y − exact| in units in the last place of a format with `fraction` bits and FP32's exponents; an infinity counts as the number
/// that would come after the largest.
fn ulps(y: f64, exact: f64, fraction: i32) -> f64 {
    let limit = 2f64.powi(128);
    let (y, exact) = (y.clamp(-limit, limit), exact.clamp(-limit, limit));
    let exponent = (exact.abs().log2().floor() as i32).clamp(-126, 127);
    (y - exact).abs() / 2f64.powi(exponent - fraction)
}

fn bf16(x: f32) -> f64 {
    let bits = x.to_bits();
    f64::from(f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000))
}

fn values(f: Function, x: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    transaction::function(f, x, &mut y).unwrap();
    y
}

fn judged(f: Function, x: f32, y: f32, error: impl Fn(f64) -> f64) -> f64 {
    let exact = oracle(f, x.into());
    let beyond = matches!(f, Function::Sin | Function::Cos) && x.abs() > 262_144.0;
    if exact.is_nan() || beyond {
        assert_eq!(y.to_bits(), 0x7fc0_0000, "{f:?}({x:e})");
        return 0.0;
    }
    assert!(!y.is_nan(), "{f:?}({x:e})");
    error(exact)
}

#[test]
fn every_bf16_input_is_within_an_ulp_of_bf16() {
    let x: Vec<f32> = (0..=u16::MAX).map(|code| f32::from_bits(u32::from(code) << 16)).collect();
    for f in Function::ALL {
        let y = values(f, &x);
        let worst = x.iter().zip(&y).map(|(&x, &y)| (judged(f, x, y, |exact| ulps(bf16(y), exact, 7)), x));
        let (worst, at) = worst.fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        println!("{f:?}: {worst:.4} ulp of BF16 at {at:e}");
        assert!(worst <= 0.51, "{f:?}: {worst} ulp at {at:e}");
    }
}

#[test]
fn all_binades_of_fp32() {
    // Every 2^11 + 1st code: some 4,100 values a binade, subnormals included.
    let x: Vec<f32> = (0..=u32::MAX).step_by(2_049).map(f32::from_bits).collect();
    let limits = [(Function::Exp, 1.5), (Function::Reciprocal, 1.5), (Function::Rsqrt, 1.5)];
    for f in Function::ALL {
        let y = values(f, &x);
        let worst = x.iter().zip(&y).map(|(&x, &y)| (judged(f, x, y, |exact| ulps(y.into(), exact, 23)), x));
        let (worst, at) = worst.fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        let absolute = x.iter().zip(&y).map(|(&x, &y)| judged(f, x, y, |exact| (f64::from(y) - exact).abs()));
        let absolute = absolute.filter(|e| e.is_finite()).fold(0.0, f64::max);
        println!("{f:?}: {worst:.4} ulp of FP32 at {at:e}; at most {absolute:e} off");
        if let Some((_, limit)) = limits.iter().find(|(g, _)| *g == f) {
            assert!(worst <= *limit, "{f:?}: {worst} ulp at {at:e}");
        }
    }
}
