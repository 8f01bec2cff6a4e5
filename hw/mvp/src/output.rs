use numeric::fast::{Encoder, canonical};
use numeric::{Exact, Flags, FloatFormat, Format, IntFormat, Mode, Rounding, Unpacked};

/// The activation function of the output stage. A NaN passes through.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// None.
    #[default]
    None,
    /// max(v, 0).
    Relu,
    /// Into `low..=high`, in real values, before conversion.
    Clamp {
        /// The least value.
        low: f32,
        /// The greatest value.
        high: f32,
    },
}

/// What the output stage does with sums over all of k, the same for the whole job.
///
/// With acc a sum, Σa its row's sum of codes, Σw its column's, z the zero points:
///
/// 1. INT32 sums: t = acc − z_x·Σw − z_w·Σa + K·z_x·z_w + bias, wrapped to 32 bits; v = fl32(t). FP32 sums: v = acc.
/// 2. If `rescale`: v = fl32(v · fl32(row scale · column scale)).
/// 3. If `add_offset`: v = fl32(v + column offset).
/// 4. The activation.
/// 5. Conversion, one rounding: floats by the format's default overflow rule; integers to nearest even, plus `y_zero`, saturated.
///
/// INT32 results of INT32 sums that are neither rescaled, offset nor clamped skip steps 2, 3 and 5: t itself, or max(t, 0).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Output {
    /// z_x, zero point of X: −128..=127 (that of UINT8 data less 128).
    pub x_zero: i32,
    /// Multiply by the scales.
    pub rescale: bool,
    /// Add the columns' FP32 offsets.
    pub add_offset: bool,
    /// Applied to the FP32 value.
    pub activation: Activation,
    /// Format of Y.
    pub format: Format,
    /// Zero point of an integer Y, in Y's own range.
    pub y_zero: i32,
}

impl Output {
    /// Sums as they are: INT32 or FP32.
    pub const fn raw(sums_float: bool) -> Self {
        let format = if sums_float { Format::Float(FloatFormat::FP32) } else { Format::Int(IntFormat::INT32) };
        Self { x_zero: 0, rescale: false, add_offset: false, activation: Activation::None, format, y_zero: 0 }
    }
}

/// What the output stage knows of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Σw: sum of the column's codes over all of k, INT32.
    pub weight_sum: i32,
    /// z_w, zero point of the column: −128..=127.
    pub w_zero: i32,
    /// Added to INT32 sums before the scale (ONNX's int32 bias).
    pub bias: i32,
    /// Scale, FP32.
    pub scale: f32,
    /// Added after the scale, FP32: the bias of a float layer.
    pub offset: f32,
}

impl Default for Column {
    fn default() -> Self {
        Self { weight_sum: 0, w_zero: 0, bias: 0, scale: 1.0, offset: 0.0 }
    }
}

/// What the output stage knows of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowInfo {
    /// Σa: sum of the row's codes over all of k, INT32.
    pub sum: i32,
    /// Scale, FP32.
    pub scale: f32,
}

impl Default for RowInfo {
    fn default() -> Self {
        Self { sum: 0, scale: 1.0 }
    }
}

impl Output {
    /// Step 1 for an INT32 sum, before it is wrapped; `k` is the job's K.
    pub fn exact(&self, acc: i32, k: usize, row: &RowInfo, column: &Column) -> i64 {
        let [acc, sum, weight_sum, bias] = [acc, row.sum, column.weight_sum, column.bias].map(i64::from);
        let [x_zero, w_zero] = [self.x_zero, column.w_zero].map(i64::from);
        acc - x_zero * weight_sum - w_zero * sum + k as i64 * x_zero * w_zero + bias
    }

    /// Step 1 for an INT32 sum; `k` is the job's K.
    pub fn correct(&self, acc: i32, k: usize, row: &RowInfo, column: &Column) -> i32 {
        self.exact(acc, k, row, column) as i32
    }

    /// Steps 2 to 4.
    pub fn scale(&self, v: f32, row: &RowInfo, column: &Column) -> f32 {
        let v = if self.rescale { v * (row.scale * column.scale) } else { v };
        let v = if self.add_offset { v + column.offset } else { v };
        let v = match self.activation {
            Activation::None => v,
            Activation::Relu if v < 0.0 => 0.0,
            Activation::Clamp { low, .. } if v < low => low,
            Activation::Clamp { high, .. } if v > high => high,
            Activation::Relu | Activation::Clamp { .. } => v,
        };
        canonical(v)
    }

    /// Step 5: a code of `format`, in the low bits.
    pub fn convert(&self, v: f32, flags: &mut Flags) -> u32 {
        match self.format {
            Format::Float(FloatFormat::FP32) => v.to_bits(),
            Format::Float(format) => Encoder::new(format, Mode::default_of(self.format)).encode(v, flags),
            Format::Int(format) => {
                let whole = numeric::convert(
                    FloatFormat::FP32.into(),
                    IntFormat::INT32.into(),
                    v.to_bits(),
                    Mode::SATURATE,
                    flags,
                );
                let sum = i64::from(whole as i32) + i64::from(self.y_zero);
                format.pack(Unpacked::Finite(Exact::from_int(sum, format.lsb())), Rounding::NearestEven, flags)
            }
        }
    }

    /// Whether INT32 sums leave as they are, or as max(t, 0).
    pub fn is_raw_int32(&self, sums_float: bool) -> bool {
        let clamps = matches!(self.activation, Activation::Clamp { .. });
        !sums_float && !self.rescale && !self.add_offset && !clamps && self.format == Format::Int(IntFormat::INT32)
    }

    /// Steps 1 to 4: the bits of an FP32, or, where INT32 sums leave as they are, an INT32.
    pub fn before_conversion(&self, acc: u32, sums_float: bool, k: usize, row: &RowInfo, column: &Column) -> u32 {
        if sums_float {
            return self.scale(f32::from_bits(acc), row, column).to_bits();
        }
        let t = self.correct(acc as i32, k, row, column);
        match (self.is_raw_int32(sums_float), self.activation) {
            (true, Activation::None) => t as u32,
            (true, _) => t.max(0) as u32,
            (false, _) => self.scale(t as f32, row, column).to_bits(),
        }
    }

    /// All steps: `acc` is an INT32 or (`sums_float`) the bits of an FP32.
    pub fn apply(
        &self,
        acc: u32,
        sums_float: bool,
        k: usize,
        row: &RowInfo,
        column: &Column,
        flags: &mut Flags,
    ) -> u32 {
        let v = self.before_conversion(acc, sums_float, k, row, column);
        if self.is_raw_int32(sums_float) { v } else { self.convert(f32::from_bits(v), flags) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_multiply_offsets_add_and_the_activation_comes_last() {
        let (row, column) = (RowInfo { sum: 0, scale: 3.0 }, Column { scale: 0.5, offset: -7.0, ..Column::default() });
        let plain = Output::raw(true);
        assert_eq!(plain.scale(4.0, &row, &column), 4.0);
        let rescaled = Output { rescale: true, ..plain };
        assert_eq!(rescaled.scale(4.0, &row, &column), 6.0);
        let offset = Output { add_offset: true, ..rescaled };
        assert_eq!(offset.scale(4.0, &row, &column), -1.0);
        assert_eq!(Output { activation: Activation::Relu, ..offset }.scale(4.0, &row, &column), 0.0);
        let clamp = Output { activation: Activation::Clamp { low: -0.5, high: 2.0 }, ..offset };
        assert_eq!([4.0, 5.0, 9.0].map(|v| clamp.scale(v, &row, &column)), [-0.5, 0.5, 2.0]);
    }
}
