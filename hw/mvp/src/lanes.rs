//! The element's arithmetic as a loop over one row of the array, a datapath each.

use crate::Code;
use numeric::fast::{DecodeTable, canonical, decode_fp16, fma};
use numeric::{Flags, FloatFormat, Mode, convert};
use std::marker::PhantomData;

/// One datapath's operands, decoded as they enter, and its multiply-accumulate over vectors of them.
pub(crate) trait Lanes: Clone + std::fmt::Debug + 'static {
    /// A decoded operand.
    type Lane: Copy + Default + std::fmt::Debug + 'static;
    /// Decodes an activation.
    fn act(&self, code: Code) -> Self::Lane;
    /// Decodes a weight.
    fn weight(&self, code: Code) -> Self::Lane;
    /// Lanes are the codes themselves, so that none need be kept beside them.
    const CODED: bool;
    /// The lanes of `codes`: themselves, or what was decoded of them.
    fn lanes<'a>(codes: &'a [Code], decoded: &'a [Self::Lane]) -> &'a [Self::Lane];
    /// sum + act · weight, one lane.
    fn fused<const FMA: bool>(sum: i32, act: Self::Lane, weight: Self::Lane) -> i32;
}

/// South, north, activations and weights of one row.
pub(crate) type RowLanes<'a, T> = (&'a mut [i32], &'a [i32], &'a [T], &'a [T]);

/// South = north + act · weight, lane by lane; where lane c's bit of `valid` is clear, 64 lanes a word, south = north. Every lane counts
/// unless `MASKED`.
///
/// Runs of 32, 16 and 8 lanes, lengths that the compiler knows: arrays are narrow, and a loop of open length would leave eight columns to its
/// scalar tail.
#[inline(always)]
pub(crate) fn row<K: Lanes, const FMA: bool, const MASKED: bool>(valid: &[u64], lanes: RowLanes<'_, K::Lane>) {
    let mut at = 0;
    let rest = runs::<K, FMA, MASKED, 32>(valid, &mut at, lanes);
    let rest = runs::<K, FMA, MASKED, 16>(valid, &mut at, rest);
    let (south, north, acts, weights) = runs::<K, FMA, MASKED, 8>(valid, &mut at, rest);
    for i in 0..south.len().min(north.len()).min(acts.len()).min(weights.len()) {
        let here = !MASKED || valid[(at + i) / 64] >> ((at + i) % 64) & 1 == 1;
        south[i] = if here { K::fused::<FMA>(north[i], acts[i], weights[i]) } else { north[i] };
    }
}

/// Whole runs of N lanes, of which `at` is the first; gives back what is left. Plain loops: the library's closures are not always inlined,
/// and a function left standing is compiled without the wide instructions.
#[inline(always)]
fn runs<'a, K: Lanes, const FMA: bool, const MASKED: bool, const N: usize>(
    valid: &[u64],
    at: &mut usize,
    (south, north, acts, weights): RowLanes<'a, K::Lane>,
) -> RowLanes<'a, K::Lane> {
    let ((south, s), (north, n)) = (south.as_chunks_mut::<N>(), north.as_chunks::<N>());
    let ((acts, a), (weights, w)) = (acts.as_chunks::<N>(), weights.as_chunks::<N>());
    for (((south, north), acts), weights) in south.iter_mut().zip(north).zip(acts).zip(weights) {
        let valid = if MASKED { valid[*at / 64] >> (*at % 64) } else { 0 };
        run::<K, FMA, MASKED, N>(valid, south, north, acts, weights);
        *at += N;
    }
    (s, n, a, w)
}

/// The same over N lanes, lane c's bit of `valid` being bit c.
#[inline(always)]
pub(crate) fn run<K: Lanes, const FMA: bool, const MASKED: bool, const N: usize>(
    valid: u64,
    south: &mut [i32; N],
    north: &[i32; N],
    acts: &[K::Lane; N],
    weights: &[K::Lane; N],
) {
    // Into a value of its own first: nothing tells the compiler here that `south` is apart from what is read.
    let (mut sums, valid) = ([0; N], valid as u32);
    for i in 0..N {
        let sum = K::fused::<FMA>(north[i], acts[i], weights[i]);
        sums[i] = if !MASKED || valid >> i & 1 == 1 { sum } else { north[i] };
    }
    *south = sums;
}

/// Lanes that are the codes: 16 bits wide, and nothing is decoded before it is multiplied.
#[derive(Clone, Debug)]
pub(crate) struct Coded<P>(PhantomData<P>);

/// The multiply-accumulate of codes.
pub(crate) trait Product: Clone + std::fmt::Debug + 'static {
    /// sum + act · weight.
    fn fused<const FMA: bool>(sum: i32, act: Code, weight: Code) -> i32;
}

impl<P: Product> Coded<P> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<P: Product> Lanes for Coded<P> {
    type Lane = Code;
    const CODED: bool = true;

    #[inline(always)]
    fn lanes<'a>(codes: &'a [Code], _: &'a [Code]) -> &'a [Code] {
        codes
    }

    #[inline(always)]
    fn act(&self, code: Code) -> Code {
        code
    }

    fn weight(&self, code: Code) -> Code {
        code
    }

    #[inline(always)]
    fn fused<const FMA: bool>(sum: i32, act: Code, weight: Code) -> i32 {
        P::fused::<FMA>(sum, act, weight)
    }
}

/// INT8 × INT8.
#[derive(Clone, Debug)]
pub(crate) struct Int8;

impl Product for Int8 {
    #[inline(always)]
    fn fused<const FMA: bool>(sum: i32, act: Code, weight: Code) -> i32 {
        sum.wrapping_add(i32::from(act) * i32::from(weight))
    }
}

/// BF16 × BF16: the format is FP32's upper half.
#[derive(Clone, Debug)]
pub(crate) struct Bf16;

impl Product for Bf16 {
    #[inline(always)]
    fn fused<const FMA: bool>(sum: i32, act: Code, weight: Code) -> i32 {
        canonical(fma::<FMA>(bf16(act), bf16(weight), f32::from_bits(sum as u32))).to_bits() as i32
    }
}

#[inline(always)]
fn bf16(code: Code) -> f32 {
    f32::from_bits((code as u32) << 16)
}

/// Pairs of INT8 × INT4.
#[derive(Clone, Debug)]
pub(crate) struct Pairs;

fn pair(code: Code) -> [i16; 2] {
    code.to_le_bytes().map(|byte| i16::from(byte as i8))
}

impl Lanes for Pairs {
    type Lane = [i16; 2];
    const CODED: bool = false;

    #[inline(always)]
    fn lanes<'a>(_: &'a [Code], decoded: &'a [[i16; 2]]) -> &'a [[i16; 2]] {
        decoded
    }

    fn act(&self, code: Code) -> [i16; 2] {
        pair(code)
    }

    fn weight(&self, code: Code) -> [i16; 2] {
        pair(code)
    }

    #[inline(always)]
    fn fused<const FMA: bool>(sum: i32, act: [i16; 2], weight: [i16; 2]) -> i32 {
        sum.wrapping_add(i32::from(act[0]) * i32::from(weight[0]) + i32::from(act[1]) * i32::from(weight[1]))
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
            Self::Bf16 => bf16(code),
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
    const CODED: bool = false;

    #[inline(always)]
    fn lanes<'a>(_: &'a [Code], decoded: &'a [f32]) -> &'a [f32] {
        decoded
    }

    fn act(&self, code: Code) -> f32 {
        self.act.decode(code)
    }

    fn weight(&self, code: Code) -> f32 {
        self.weight.decode(code)
    }

    #[inline(always)]
    fn fused<const FMA: bool>(sum: i32, act: f32, weight: f32) -> i32 {
        canonical(fma::<FMA>(act, weight, f32::from_bits(sum as u32))).to_bits() as i32
    }
}
