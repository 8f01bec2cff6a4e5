//! The two 16-bit storage formats of model files and caches, written from IEEE 754 and the BF16 layout (1-8-7, 1-5-10).

/// BF16 to f32, exact: the upper half of an f32.
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// f32 to BF16: nearest, ties to even; overflow gives infinity; a NaN stays one (0x7FC0).
pub fn f32_to_bf16(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7FC0;
    }
    let bits = value.to_bits();
    // Half an ulp, less one when the kept part is even: the carry ripples into the exponent by itself.
    ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
}

/// The value rounded to BF16.
pub fn round_bf16(value: f32) -> f32 {
    bf16_to_f32(f32_to_bf16(value))
}

/// FP16 to f32, exact, subnormals included.
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    match exponent {
        0 => sign * fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

/// f32 to FP16: nearest, ties to even, through subnormals; from 65,520 up infinity; a NaN stays one (0x7E00).
pub fn f32_to_f16(value: f32) -> u16 {
    let sign = ((value.to_bits() >> 31) as u16) << 15;
    let magnitude = f64::from(value.abs());
    if value.is_nan() {
        return 0x7E00;
    }
    // The exponent of the result's lowest bit; codes are counted in units of it, f64 holds both exactly.
    let exponent = ((value.to_bits() >> 23 & 255) as i32 - 127).max(-14);
    let code = (magnitude * 2f64.powi(10 - exponent)).round_ties_even() + f64::from(exponent + 14) * 1024.0;
    sign | if code >= 31.0 * 1024.0 { 0x7C00 } else { code as u16 }
}

/// The value rounded to FP16.
pub fn round_f16(value: f32) -> f32 {
    f16_to_f32(f32_to_f16(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives() {
        for bits in 0..=u16::MAX {
            let (b, h) = (bf16_to_f32(bits), f16_to_f32(bits));
            assert!(b.is_nan() || f32_to_bf16(b) == bits, "bf16 {bits:#x}");
            assert!(h.is_nan() || f32_to_f16(h) == bits, "f16 {bits:#x}");
            assert_eq!(h.is_nan(), bits & 0x7C00 == 0x7C00 && bits & 0x3FF != 0);
        }
    }

    #[test]
    fn rounds_to_the_nearest_code_ties_to_even() {
        // Between each pair of neighbouring finite codes: the midpoint goes to the even one, either side to its own.
        for (next, narrow, top) in [
            (bf16_to_f32 as fn(u16) -> f32, f32_to_bf16 as fn(f32) -> u16, 0x7F7F),
            (f16_to_f32 as fn(u16) -> f32, f32_to_f16 as fn(f32) -> u16, 0x7BFF),
        ] {
            for low in 0..top {
                let middle = ((f64::from(next(low)) + f64::from(next(low + 1))) / 2.0) as f32;
                assert_eq!(narrow(middle), low + (low & 1), "middle above {low:#x}");
                assert_eq!(narrow(middle.next_down()), low);
                assert_eq!(narrow(-middle.next_up()), (low + 1) | 0x8000);
            }
        }
        assert_eq!(f32_to_f16(65519.996), 0x7BFF);
        assert_eq!(f32_to_f16(65520.0), 0x7C00);
        assert_eq!(f32_to_bf16(f32::MAX), 0x7F80);
        assert!(bf16_to_f32(f32_to_bf16(f32::from_bits(0x7F80_0001))).is_nan());
    }
}
