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
        const BLOCK: usize = 32;
        let parts = self.sin.chunks_mut(BLOCK).zip(self.cos.chunks_mut(BLOCK)).zip(self.frequencies.chunks(BLOCK));
        for ((sin, cos), f) in parts {
            // In arrays of their own, as in `reduce::map`.
            let (mut a, mut b) = ([0f32; BLOCK], [0f32; BLOCK]);
            a[..f.len()].copy_from_slice(f);
            for (a, b) in a.iter_mut().zip(&mut b) {
                let mut l = Lane { s: self.position, b: *a, ..Lane::default() };
                product_angle::<FMA>(&mut l);
                sine_cosine::<FMA>(&mut l);
                (*a, *b) = (canonical(l.a), canonical(l.b));
            }
            sin.copy_from_slice(&a[..f.len()]);
            cos.copy_from_slice(&b[..f.len()]);
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

/// The angles of the row before, made anew where the position changes.
struct Angles<'a> {
    frequencies: &'a [f32],
    at: Option<usize>,
    /// The sines, then the cosines.
    known: Vec<f32>,
}

impl<'a> Angles<'a> {
    fn new(frequencies: &'a [f32]) -> Result<Self, VectorError> {
        check_head(2 * frequencies.len())?;
        Ok(Angles { frequencies, at: None, known: vec![0.0; 2 * frequencies.len()] })
    }

    /// Those of a position, one a pair each.
    fn at(&mut self, position: usize) -> (&[f32], &[f32]) {
        let pairs = self.frequencies.len();
        if self.at.replace(position) != Some(position) {
            let (sin, cos) = self.known.split_at_mut(pairs);
            dispatch(Turns { position: position as f32, frequencies: self.frequencies, sin, cos });
        }
        self.known.split_at(pairs)
    }

    fn turn(&mut self, pairing: Pairing, positions: Ramp, x: &[f32], out: &mut [f32]) -> Result<(), VectorError> {
        let len = self.known.len();
        check_positions(positions, rows(x.len(), len)?)?;
        same("out", out.len(), x.len())?;
        for (row, (x, out)) in x.chunks_exact(len).zip(out.chunks_exact_mut(len)).enumerate() {
            let (sin, cos) = self.at(positions.at(row));
            dispatch(Turn { pairing, sin, cos, x, out });
        }
        Ok(())
    }

    fn turn_bf16(
        &mut self,
        pairing: Pairing,
        positions: Ramp,
        codes: &[u16],
        out: &mut [u16],
    ) -> Result<(), VectorError> {
        let len = self.known.len();
        check_positions(positions, rows(codes.len(), len)?)?;
        same("out", out.len(), codes.len())?;
        let (mut values, mut turned) = (vec![0f32; len], vec![0f32; len]);
        let encoder = Encoder::new(FloatFormat::BF16, Mode::IEEE);
        for (row, (codes, out)) in codes.chunks_exact(len).zip(out.chunks_exact_mut(len)).enumerate() {
            let (sin, cos) = self.at(positions.at(row));
            let decoded = decode_bf16_slice(codes, &mut values);
            dispatch(Turn { pairing, sin, cos, x: &values, out: &mut turned });
            let encoded = encoder.encode_slice(&turned, out, &mut Flags::default());
            debug_assert!(decoded.is_ok() && encoded.is_ok(), "all are a row");
        }
        Ok(())
    }
}

/// Turns pair i of row r, which has `2 · frequencies.len()` values, by `positions.at(r) · frequencies[i]` radians, the exact product,
/// whose sine and cosine are the unit's own ([`sin_cos`]). Frequencies are FP32 radians a position, so any scaling of them is the host's.
///
/// # Errors
/// If the frequency memory has no room for so many, the operands are not rows of one length, or a position is beyond 2^24.
pub fn rope(
    pairing: Pairing,
    positions: Ramp,
    frequencies: &[f32],
    x: &[f32],
    out: &mut [f32],
) -> Result<(), VectorError> {
    Angles::new(frequencies)?.turn(pairing, positions, x, out)
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
    Angles::new(frequencies)?.turn_bf16(pairing, positions, codes, out)
}
