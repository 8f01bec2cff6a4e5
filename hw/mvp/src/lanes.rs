//! The element's arithmetic as a loop over one row of the array, a datapath each.

use crate::Code;
use numeric::fast::{DecodeTable, canonical, decode_fp16, fma};
use numeric::{Flags, FloatFormat, Mode, convert};

/// One datapath's operands, decoded as they enter, and its multiply-accumulate over vectors of them.
pub(crate) trait Lanes: Clone + std::fmt::Debug + 'static {
    /// A decoded operand.
    type Lane: Copy + Default + std::fmt::Debug + 'static;
    /// Decodes an activation.
    fn act(&self, code: Code) -> Self::Lane;
    /// Decodes a weight.
    fn weight(&self, code: Code) -> Self::Lane;
    /// South = north + act · weight, lane by lane. A function over plain slices, so that the compiler vectorises it.
    fn multiply_accumulate<const FMA: bool>(
        south: &mut [i32],
        north: &[i32],
        acts: &[Self::Lane],
        weights: &[Self::Lane],
    );
}

/// south\[i\] = f(north\[i\], acts\[i\], weights\[i\]), in runs of 16 and 8 whose length the compiler knows: arrays are narrow, and a loop of open
/// length would leave eight columns to its scalar tail.
#[inline(always)]
fn zip_lanes<T: Copy>(
    south: &mut [i32],
    north: &[i32],
    acts: &[T],
    weights: &[T],
    f: impl Fn(i32, T, T) -> i32 + Copy,
) {
    #[inline(always)]
    fn runs<'a, T: Copy, const N: usize>(
        (south, north, acts, weights): (&'a mut [i32], &'a [i32], &'a [T], &'a [T]),
        f: impl Fn(i32, T, T) -> i32 + Copy,
    ) -> (&'a mut [i32], &'a [i32], &'a [T], &'a [T]) {
        let ((south, s), (north, n)) = (south.as_chunks_mut::<N>(), north.as_chunks::<N>());
        let ((acts, a), (weights, w)) = (acts.as_chunks::<N>(), weights.as_chunks::<N>());
        for (((south, north), acts), weights) in south.iter_mut().zip(north).zip(acts).zip(weights) {
            *south = std::array::from_fn(|i| f(north[i], acts[i], weights[i]));
        }
        (s, n, a, w)
    }
    let rest = runs::<T, 16>((south, north, acts, weights), f);
    let (south, north, acts, weights) = runs::<T, 8>(rest, f);
    for (((s, &n), &a), &w) in south.iter_mut().zip(north).zip(acts).zip(weights) {
        *s = f(n, a, w);
    }
}

/// INT8 × INT8, 16-bit lanes.
#[derive(Clone, Debug)]
pub(crate) struct Int8;

impl Lanes for Int8 {
    type Lane = i16;

    fn act(&self, code: Code) -> i16 {
        code
    }

    fn weight(&self, code: Code) -> i16 {
        code
    }

    #[inline(always)]
    fn multiply_accumulate<const FMA: bool>(south: &mut [i32], north: &[i32], acts: &[i16], weights: &[i16]) {
        zip_lanes(south, north, acts, weights, |n, a, w| n.wrapping_add(i32::from(a) * i32::from(w)));
    }
}

/// Pairs of INT8 × INT4.
#[derive(Clone, Debug)]
pub(crate) struct Pairs;

fn pair(code: Code) -> [i16; 2] {
    code.to_le_bytes().map(|byte| i16::from(byte as i8))
}

impl Lanes for Pairs {
    type Lane = [i16; 2];

    fn act(&self, code: Code) -> [i16; 2] {
        pair(code)
    }

    fn weight(&self, code: Code) -> [i16; 2] {
        pair(code)
    }

    #[inline(always)]
    fn multiply_accumulate<const FMA: bool>(south: &mut [i32], north: &[i32], acts: &[[i16; 2]], weights: &[[i16; 2]]) {
        zip_lanes(south, north, acts, weights, |n, a, w| {
            n.wrapping_add(i32::from(a[0]) * i32::from(w[0]) + i32::from(a[1]) * i32::from(w[1]))
        });
    }
}

/// Floats of up to 16 bits, as FP32 values.
#[derive(Clone, Debug)]
pub(crate) struct Floats {
    act: Decoder,
    weight: Decoder,
}

#[derive(Clone, Debug)]
enum Decoder {
    Bf16,
    Fp16,
    Table(DecodeTable),
    Core(FloatFormat),
}

impl Decoder {
    fn new(format: FloatFormat) -> Self {
        match format {
            FloatFormat::BF16 => Self::Bf16,
            FloatFormat::FP16 => Self::Fp16,
            f if f.width() <= 8 => Self::Table(DecodeTable::new(f)),
            f => Self::Core(f),
        }
    }

    fn decode(&self, code: Code) -> f32 {
        match self {
            Self::Bf16 => f32::from_bits((code as u32) << 16),
            Self::Fp16 => decode_fp16(code as u16),
            Self::Table(table) => table.value(code as u8),
            Self::Core(format) => {
                let fp32 = FloatFormat::FP32.into();
                f32::from_bits(convert((*format).into(), fp32, code as u32, Mode::IEEE, &mut Flags::default()))
            }
        }
    }
}

impl Floats {
    pub(crate) fn new(act: FloatFormat, weight: FloatFormat) -> Self {
        Self { act: Decoder::new(act), weight: Decoder::new(weight) }
    }
}

impl Lanes for Floats {
    type Lane = f32;

    fn act(&self, code: Code) -> f32 {
        self.act.decode(code)
    }

    fn weight(&self, code: Code) -> f32 {
        self.weight.decode(code)
    }

    #[inline(always)]
    fn multiply_accumulate<const FMA: bool>(south: &mut [i32], north: &[i32], acts: &[f32], weights: &[f32]) {
        zip_lanes(south, north, acts, weights, |n, a, w| {
            canonical(fma::<FMA>(a, w, f32::from_bits(n as u32))).to_bits() as i32
        });
    }
}
