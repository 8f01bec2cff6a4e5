//! The number formats as `make test` and `make prop` try them: the quick part of the bench, FP32 multiply-adds in
//! number (`NUMERIC_CASES`, a million if it is not set), and properties whose failures shrink.

use numeric::fast::{canonical, fma_portable};
use numeric::{
    Flags, FloatFormat, Format, MacConfig, Mode, Overflow, Rounding, add, convert, fma, pack_codes, unpack_codes,
};
use proptest::prelude::*;
use std::path::PathBuf;
use tb::blocks;
use tb::verify::{Options, Selection, Status, run};

/// Runs one point of the plan and demands that it passes.
fn point(name: &str, cases: f64) {
    let selection =
        Selection { block: Some("numeric".into()), point: Some(name.into()), case: None, seed: 2, seeds: 1, cases };
    let options = Options {
        selection,
        shard: (1, 1),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        waves: PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
        vectors: None,
    };
    let result = run(&blocks::plans().expect("the plans parse"), &blocks::tests(), &options, &());
    for point in result.points() {
        assert_eq!(point.status, Status::Passed, "{}: {:?}", point.id, point.failures);
        println!("{}: {} cases, {} compared", point.id, point.total.cases, point.total.compared);
    }
    assert!(result.passed(), "{:?}", result.faults);
}

#[test]
fn fp32_multiply_adds_in_number() {
    let cases = std::env::var("NUMERIC_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000.0);
    point("fma_fp32", cases / 1e6);
}

#[test]
fn the_quick_points_of_the_plan_pass() {
    for name in ["identity", "decode", "convert_libraries", "product", "softfloat", "mac", "requant_onnx"] {
        point(name, 1.0);
    }
    for name in ["requant_fixed", "mx", "packing", "refusals", "add_mul"] {
        point(name, 0.2);
    }
}

fn any_float() -> impl Strategy<Value = FloatFormat> {
    let named = prop::sample::select(vec![
        FloatFormat::E2M1,
        FloatFormat::E2M3,
        FloatFormat::E3M2,
        FloatFormat::E4M3,
        FloatFormat::E5M2,
        FloatFormat::BF16,
        FloatFormat::FP16,
        FloatFormat::FP32,
    ]);
    let flexible = (any::<bool>(), 0..8u32).prop_flat_map(|(signed, exp_bits)| {
        let range = FloatFormat::ffp8_bias_range(signed, exp_bits);
        range.prop_map(move |bias| FloatFormat::ffp8(signed, exp_bits, bias).expect("a bias in range"))
    });
    prop_oneof![named, flexible]
}

fn any_mode() -> impl Strategy<Value = Mode> {
    let rounding = prop::sample::select(vec![Rounding::NearestEven, Rounding::TowardZero]);
    let overflow = prop::sample::select(vec![Overflow::Own, Overflow::Saturate]);
    (rounding, overflow).prop_map(|(rounding, overflow)| Mode { rounding, overflow })
}

fn value(format: FloatFormat, code: u32) -> f32 {
    f32::from_bits(convert(format.into(), FloatFormat::FP32.into(), code, Mode::IEEE, &mut Flags::default()))
}

proptest! {
    /// Conversion keeps order, in every format and mode.
    #[test]
    fn conversion_is_monotonic(format in any_float(), mode in any_mode(), x in any::<f32>(), y in any::<f32>()) {
        prop_assume!(x.is_finite() && y.is_finite());
        let into = |x: f32| {
            let code = convert(FloatFormat::FP32.into(), format.into(), x.to_bits(), mode, &mut Flags::default());
            value(format, code)
        };
        let (low, high) = (into(x.min(y)), into(x.max(y)));
        // E4M3's own overflow is NaN, which has no place in an order.
        prop_assert!(low <= high || low.is_nan() || high.is_nan(), "{format}: {x:e}, {y:e} became {low:e}, {high:e}");
    }

    /// Converting twice changes nothing more, and a result that raised no inexact is the value itself.
    #[test]
    fn conversion_is_idempotent(format in any_float(), mode in any_mode(), x in any::<f32>()) {
        let (from, to): (Format, Format) = (FloatFormat::FP32.into(), format.into());
        let mut flags = Flags::NONE;
        let code = convert(from, to, x.to_bits(), mode, &mut flags);
        let back = value(format, code);
        if !x.is_nan() && !flags.contains(Flags::INVALID) {
            prop_assert_eq!(flags.contains(Flags::INEXACT), back != x);
        }
        let mut again = Flags::NONE;
        prop_assert_eq!(convert(from, to, back.to_bits(), mode, &mut again), code);
    }

    /// Core, hardware steps and host forms agree on any codes of any formats, and factors commute.
    #[test]
    fn multiply_adds_agree(a_format in any_float(), b_format in any_float(), a: u32, b: u32, c: u32) {
        let (a, b) = (a & a_format.code_mask(), b & b_format.code_mask());
        let (x, y, z) = (value(a_format, a), value(b_format, b), f32::from_bits(c));
        let mut flags = Flags::NONE;
        let core = fma(a_format, a, b_format, b, c, &mut flags);
        prop_assert_eq!(core, canonical(x.mul_add(y, z)).to_bits());
        prop_assert_eq!(core, canonical(fma_portable(x, y, z)).to_bits());
        prop_assert_eq!(core, fma(b_format, b, a_format, a, c, &mut Flags::default()));
        let steps = MacConfig::new(a_format, b_format, 4).expect("two operands").compute(a, b, c);
        prop_assert_eq!((steps.value, steps.flags), (core, flags));
    }

    /// Addition is multiplication by one and addition.
    #[test]
    fn addition_is_a_multiply_add_by_one(a: u32, c: u32) {
        let fp32 = FloatFormat::FP32;
        let one = 1f32.to_bits();
        let sum = add(fp32, a, c, Mode::IEEE, &mut Flags::default());
        prop_assert_eq!(sum, fma(fp32, a, fp32, one, c, &mut Flags::default()));
    }

    /// Packed codes come back, whatever their width and number.
    #[test]
    fn packing_comes_back(width in 1..=8u32, codes in prop::collection::vec(any::<u8>(), 0..100)) {
        let codes: Vec<u8> = codes.into_iter().map(|c| c >> (8 - width)).collect();
        prop_assert_eq!(unpack_codes(&pack_codes(&codes, width), width, codes.len()), Ok(codes));
    }
}
