//! Decoding of slices against the core's conversion: every code of every format.

use numeric::fast::{DecodeTable, decode_bf16, decode_bf16_slice, decode_fp16, decode_fp16_slice};
use numeric::{Flags, FloatFormat, Format, Mode, NumericError, convert};

fn by_the_core(format: FloatFormat, code: u32) -> u32 {
    convert(format.into(), FloatFormat::FP32.into(), code, Mode::IEEE, &mut Flags::default())
}

#[test]
fn every_16_bit_code_is_decoded_as_the_core_converts() {
    struct Functions {
        format: FloatFormat,
        slice: fn(&[u16], &mut [f32]) -> Result<(), NumericError>,
        one: fn(u16) -> f32,
    }
    let functions = [
        Functions { format: FloatFormat::BF16, slice: decode_bf16_slice, one: decode_bf16 },
        Functions { format: FloatFormat::FP16, slice: decode_fp16_slice, one: decode_fp16 },
    ];
    // In order, and so that finite codes lie beside infinities and NaNs.
    for step in [1u16, 257] {
        let codes: Vec<u16> = (0..=u16::MAX).map(|i| i.wrapping_mul(step)).collect();
        for Functions { format, slice, one } in &functions {
            let mut values = vec![0.0f32; codes.len()];
            slice(&codes, &mut values).unwrap();
            for (code, value) in codes.iter().zip(values) {
                let want = by_the_core(*format, u32::from(*code));
                assert_eq!((value.to_bits(), one(*code).to_bits()), (want, want), "{format} {code:#06x}");
            }
        }
    }
}

#[test]
fn every_8_bit_code_is_decoded_as_the_core_converts() {
    use FloatFormat as F;
    let flexible = |signed| move |(exponent, bias)| F::ffp8(signed, exponent, bias).ok();
    let grid = (0..=8).flat_map(|exponent| [0, 1, 4, 20].map(|bias| (exponent, bias)));
    let formats = [F::E2M1, F::E2M3, F::E3M2, F::E4M3, F::E5M2, F::E8M0];
    let formats =
        formats.into_iter().chain(grid.clone().filter_map(flexible(true))).chain(grid.filter_map(flexible(false)));
    let mut seen = 0;
    for format in formats {
        let mask = (1 << format.width()) - 1;
        let table = DecodeTable::new(format);
        let codes: Vec<u8> = (0..=255).collect();
        let mut values = [0.0; 256];
        table.decode_slice(&codes, &mut values).unwrap();
        for (code, value) in codes.into_iter().zip(values) {
            let want = by_the_core(format, u32::from(code) & mask);
            assert_eq!((value.to_bits(), table.value(code).to_bits()), (want, want), "{format} {code:#04x}");
        }
        seen += 1;
    }
    assert!(seen > 40, "{seen} formats");
}

#[test]
fn slices_of_different_lengths_are_refused() {
    let table = DecodeTable::new(Format::from(FloatFormat::E4M3));
    let errors = [
        table.decode_slice(&[0; 3], &mut [0.0; 2]),
        decode_bf16_slice(&[0; 3], &mut [0.0; 2]),
        decode_fp16_slice(&[0; 3], &mut [0.0; 2]),
    ];
    for error in errors {
        assert!(error.unwrap_err().to_string().contains('3'));
    }
}
