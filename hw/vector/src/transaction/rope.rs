use crate::command::{check_head, check_positions};
use crate::error::{rows, same};
use crate::function::{Lane, product_angle, sine_cosine};
use crate::{Pairing, Ramp, VectorError, steps};
use numeric::fast::{Encoder, Kernel, canonical, decode_bf16_slice, dispatch};
use numeric::{Flags, FloatFormat, Mode};

struct Turns<'a> {
    position: f32,
    frequencies: &'a [f32],
    sin: &'a mut [f32],
    cos: &'a mut [f32],
}

impl Kernel for Turns<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((sin, cos), f) in self.sin.iter_mut().zip(self.cos).zip(self.frequencies) {
            let mut l = Lane { s: self.position, b: *f, ..Lane::default() };
            product_angle::<FMA>(&mut l);
            sine_cosine::<FMA>(&mut l);
            (*sin, *cos) = (canonical(l.a), canonical(l.b));
        }
    }
}

/// sin and cos of position · frequency, the product taken exactly. Both are NaN where it is beyond 262,144.
///
/// # Errors
/// If the slices differ in length, or the position is beyond 2^24.
pub fn sin_cos(position: usize, frequencies: &[f32], sin: &mut [f32], cos: &mut [f32]) -> Result<(), VectorError> {
    check_positions(Ramp::constant(position), 1)?;
    same("sin", sin.len(), frequencies.len())?;
    same("cos", cos.len(), frequencies.len())?;
    dispatch(Turns { position: position as f32, frequencies, sin, cos });
    Ok(())
}

struct Turn<'a> {
    pairing: Pairing,
    sin: &'a [f32],
    cos: &'a [f32],
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Turn<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { pairing, sin, cos, x, out } = self;
        let angles = sin.iter().zip(cos);
        match pairing {
            Pairing::Halves => {
                let ((low, high), (x, y)) = (out.split_at_mut(sin.len()), x.split_at(sin.len()));
                let values = x.iter().zip(y).zip(low.iter_mut().zip(high));
                for (((x, y), (low, high)), (sin, cos)) in values.zip(angles) {
                    (*low, *high) = pair::<FMA>(*x, *y, *sin, *cos);
                }
            }
            Pairing::Interleaved => {
                let values = x.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0);
                for (([x, y], out), (sin, cos)) in values.zip(angles) {
                    *out = pair::<FMA>(*x, *y, *sin, *cos).into();
                }
            }
        }
    }
}

/// (x·cos − y·sin, y·cos + x·sin), each a product and a fused multiply-add.
#[inline(always)]
fn pair<const FMA: bool>(x: f32, y: f32, sin: f32, cos: f32) -> (f32, f32) {
    let turned = |x, y, on| {
        let mut l = Lane { x, y, a: sin, b: cos, on, ..Lane::default() };
        steps::turn_partner::<FMA>(&mut l);
        steps::turn::<FMA>(&mut l);
        canonical(l.a)
    };
    (turned(x, y, true), turned(y, x, false))
}

/// Turns rows of `2 · frequencies.len()` values: pair i of row r by `positions.at(r) · frequencies[i]` radians.
///
/// The angle is the exact product; sine and cosine are the unit's own ([`sin_cos`]). Frequencies are FP32 radians a position, so any
/// scaling of them is the host's.
///
/// # Errors
/// If the operands are not rows of that length, or a position is beyond 2^24.
pub fn rope(
    pairing: Pairing,
    positions: Ramp,
    frequencies: &[f32],
    x: &[f32],
    out: &mut [f32],
) -> Result<(), VectorError> {
    let (pairs, len) = (frequencies.len(), 2 * frequencies.len());
    check_head(len)?;
    check_positions(positions, rows(x.len(), len)?)?;
    same("out", out.len(), x.len())?;
    let mut angles = vec![0f32; len];
    let (sin, cos) = angles.split_at_mut(pairs);
    let mut at = None;
    for (row, (x, out)) in x.chunks_exact(len).zip(out.chunks_exact_mut(len)).enumerate() {
        let position = positions.at(row);
        if at.replace(position) != Some(position) {
            dispatch(Turns { position: position as f32, frequencies, sin, cos });
        }
        dispatch(Turn { pairing, sin, cos, x, out });
    }
    Ok(())
}

/// [`rope`] from BF16 to BF16, rounded once: the rotate unit on the cache's read path.
///
/// # Errors
/// As [`rope`].
pub fn rope_bf16(
    pairing: Pairing,
    positions: Ramp,
    frequencies: &[f32],
    codes: &[u16],
    out: &mut [u16],
) -> Result<(), VectorError> {
    same("out", out.len(), codes.len())?;
    let mut values = vec![0f32; codes.len()];
    let mut turned = vec![0f32; codes.len()];
    let decoded = decode_bf16_slice(codes, &mut values);
    debug_assert!(decoded.is_ok(), "both have the codes' length");
    rope(pairing, positions, frequencies, &values, &mut turned)?;
    let encoded = Encoder::new(FloatFormat::BF16, Mode::IEEE).encode_slice(&turned, out, &mut Flags::default());
    debug_assert!(encoded.is_ok(), "both have the codes' length");
    Ok(())
}
