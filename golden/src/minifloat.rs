//! Rounding to small floats by value: nearest, ties to even, saturating, subnormals honoured.

/// A signed format, its infinities left unused: exponent bias, fraction bits and the largest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Minifloat {
    bias: i32,
    fraction: i32,
    max: f32,
}

/// OCP OFP8 E4M3: bias 7, largest value 448.
pub(crate) const E4M3: Minifloat = Minifloat { bias: 7, fraction: 3, max: 448.0 };
/// OCP OFP8 E5M2: bias 15, largest finite value 57,344.
pub(crate) const E5M2: Minifloat = Minifloat { bias: 15, fraction: 2, max: 57344.0 };
/// OCP MX E2M1: bias 1, values 0, 0.5, 1, 1.5, 2, 3, 4, 6.
pub(crate) const E2M1: Minifloat = Minifloat { bias: 1, fraction: 1, max: 6.0 };

impl Minifloat {
    /// A format of `exponent` + `fraction` bits and a sign in which every code is a number, bias 2^(e − 1) − 1 (0 for e ≤ 1).
    /// With e = 0 it is fixed-point, as all codes are subnormals.
    pub(crate) fn flexible(exponent: u32, fraction: u32) -> Self {
        let (bias, fraction) = ((1 << exponent >> 1) - 1, fraction as i32);
        let bias = bias.max(0);
        let top = ((1 << exponent) - 1).max(1) - bias;
        let ulps = if exponent == 0 { 2f32.powi(fraction) - 1.0 } else { 2f32.powi(fraction + 1) - 1.0 };
        Self { bias, fraction, max: ulps * 2f32.powi(top - fraction) }
    }

    /// The largest value.
    pub(crate) fn max(self) -> f32 {
        self.max
    }

    /// The nearest value of the format. A NaN becomes 0, as these caches have no way to keep one.
    pub(crate) fn round(self, x: f32) -> f32 {
        if x.is_nan() {
            return 0.0;
        }
        // The step at |x|: 2^(exponent − fraction), the exponent no lower than that of subnormals. All exact in f64.
        let x = f64::from(x);
        let exponent = floor_log2(x.abs()).max(1 - self.bias);
        let step = 2f64.powi(exponent - self.fraction);
        let rounded = (x / step).round_ties_even() * step;
        rounded.clamp(-f64::from(self.max), f64::from(self.max)) as f32
    }
}

/// ⌊log₂ x⌋ of a positive number from its bits; the lowest exponent for 0.
pub(crate) fn floor_log2(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7FF) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges() {
        for (x, want) in
            [(448.0, 448.0), (464.0, 448.0), (1e9, 448.0), (432.0, 448.0), (431.9, 416.0), (17.0, 16.0), (19.0, 20.0)]
        {
            assert_eq!((E4M3.round(x), E4M3.round(-x)), (want, -want));
        }
        // Subnormals: steps of 2^-9; half a step ties to even, which is 0.
        assert_eq!((E4M3.round(2f32.powi(-10)), E4M3.round(3.0 * 2f32.powi(-10))), (0.0, 2f32.powi(-8)));
        let halves = [
            (0.25, 0.0),
            (0.75, 1.0),
            (1.25, 1.0),
            (1.75, 2.0),
            (2.5, 2.0),
            (3.5, 4.0),
            (5.0, 4.0),
            (5.1, 6.0),
            (9.0, 6.0),
        ];
        for (x, want) in halves {
            assert_eq!(E2M1.round(x), want, "{x}");
        }
        assert_eq!((E2M1.round(f32::NAN), E2M1.round(f32::NEG_INFINITY)), (0.0, -6.0));
    }
}
