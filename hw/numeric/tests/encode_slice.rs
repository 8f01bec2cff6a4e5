//! Encoding of slices against the core's conversion, at every code's value, half-way between neighbours, and an ulp around both.

use numeric::fast::Encoder;
use numeric::{Flags, FloatFormat, Format, Mode, Overflow, Rounding, convert};

/// FP32 values about the magnitudes of `format`'s codes, past the largest, and those without a magnitude.
fn edges(format: FloatFormat) -> Vec<f32> {
    let value = |code| {
        f32::from_bits(convert(format.into(), FloatFormat::FP32.into(), code, Mode::IEEE, &mut Flags::default()))
    };
    let finite: Vec<f32> =
        (0..=format.max_finite()).step_by(1 + format.max_finite() as usize / 997).map(value).collect();
    let most = value(format.max_finite());
    let middles = finite.windows(2).map(|w| (w[0] + w[1]) / 2.0);
    let past = [1.0, 1.01, 1.03, 1.0625, 1.125, 1.25, 1.5, 2.0, 4.0].map(|by| most * by);
    let special = [0.0, f32::MIN_POSITIVE, f32::from_bits(1), f32::MAX, f32::INFINITY, f32::NAN];
    let near: Vec<f32> = finite.iter().copied().chain(middles).chain(past).collect();
    let near = near.iter().flat_map(|v| [-1i32, 0, 1].map(|d| f32::from_bits(v.to_bits().saturating_add_signed(d))));
    near.chain(special).flat_map(|v| [v, -v]).collect()
}

#[test]
fn a_slice_is_encoded_as_the_core_converts() {
    let formats = [
        FloatFormat::E2M1,
        FloatFormat::E2M3,
        FloatFormat::E3M2,
        FloatFormat::E4M3,
        FloatFormat::E5M2,
        FloatFormat::BF16,
        FloatFormat::FP16,
    ];
    let flexible = [(true, 2, 1), (false, 4, 9), (true, 0, 3)].map(|(s, e, b)| FloatFormat::ffp8(s, e, b).unwrap());
    for format in formats.into_iter().chain(flexible) {
        for rounding in [Rounding::NearestEven, Rounding::TowardZero] {
            for overflow in [Overflow::Own, Overflow::Saturate] {
                let mode = Mode { rounding, overflow };
                let encoder = Encoder::new(format, mode);
                for x in edges(format) {
                    let (mut codes, mut flags, mut want) = ([0u16], Flags::default(), Flags::default());
                    encoder.encode_slice(&[x], &mut codes, &mut flags).unwrap();
                    let from = Format::Float(FloatFormat::FP32);
                    let code = convert(from, format.into(), x.to_bits(), mode, &mut want);
                    assert_eq!((u32::from(codes[0]), flags), (code, want), "{x:e} to {format}, {mode:?}");
                }
            }
        }
    }
}
