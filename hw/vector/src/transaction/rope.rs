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

/// Where sines and cosines come from.
trait Angles {
    /// Those of a position, one a pair each.
    fn angles(&mut self, position: usize) -> (&[f32], &[f32]);
    /// Pairs of a row.
    fn pairs(&self) -> usize;

    fn turn(&mut self, pairing: Pairing, positions: Ramp, x: &[f32], out: &mut [f32]) -> Result<(), VectorError> {
        let len = 2 * self.pairs();
        check_positions(positions, rows(x.len(), len)?)?;
        same("out", out.len(), x.len())?;
        for (row, (x, out)) in x.chunks_exact(len).zip(out.chunks_exact_mut(len)).enumerate() {
            let (sin, cos) = self.angles(positions.at(row));
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
        let len = 2 * self.pairs();
        check_positions(positions, rows(codes.len(), len)?)?;
        same("out", out.len(), codes.len())?;
        let (mut values, mut turned) = (vec![0f32; len], vec![0f32; len]);
        let encoder = Encoder::new(FloatFormat::BF16, Mode::IEEE);
        for (row, (codes, out)) in codes.chunks_exact(len).zip(out.chunks_exact_mut(len)).enumerate() {
            let (sin, cos) = self.angles(positions.at(row));
            let decoded = decode_bf16_slice(codes, &mut values);
            dispatch(Turn { pairing, sin, cos, x: &values, out: &mut turned });
            let encoded = encoder.encode_slice(&turned, out, &mut Flags::default());
            debug_assert!(decoded.is_ok() && encoded.is_ok(), "all are a row");
        }
        Ok(())
    }
}

fn make(position: usize, frequencies: &[f32], angles: &mut [f32]) {
    let (sin, cos) = angles.split_at_mut(frequencies.len());
    dispatch(Turns { position: position as f32, frequencies, sin, cos });
}

/// The frequency memory, and the sines and cosines of positions that were used: they do not depend on the row that is turned, so the
/// simulation makes them once.
#[derive(Clone, Debug)]
pub struct Rope {
    pairing: Pairing,
    /// FP32 radians a position, one a pair.
    frequencies: Vec<f32>,
    /// For each position from 0 up, the sines and then the cosines.
    known: Vec<f32>,
    /// Of one position beyond [`Rope::KEPT`].
    other: Vec<f32>,
}

impl Rope {
    /// Positions whose angles are kept.
    const KEPT: usize = 1 << 17;

    /// For rows of `2 · frequencies.len()` values; frequencies are FP32 radians a position, so any scaling of them is the host's.
    ///
    /// # Errors
    /// If the frequency memory has no room for so many.
    pub fn new(pairing: Pairing, frequencies: &[f32]) -> Result<Rope, VectorError> {
        check_head(2 * frequencies.len())?;
        let other = vec![0.0; 2 * frequencies.len()];
        Ok(Rope { pairing, frequencies: frequencies.to_vec(), known: Vec::new(), other })
    }

    /// Turns pair i of row r by `positions.at(r) · frequencies[i]` radians, the exact product, whose sine and cosine are the unit's own
    /// ([`sin_cos`]).
    ///
    /// # Errors
    /// If the operands are not rows of one length, or a position is beyond 2^24.
    pub fn turn(&mut self, positions: Ramp, x: &[f32], out: &mut [f32]) -> Result<(), VectorError> {
        Angles::turn(self, self.pairing, positions, x, out)
    }

    /// [`turn`](Rope::turn) from BF16 to BF16, rounded once: the rotate unit on the cache's read path.
    ///
    /// # Errors
    /// As [`turn`](Rope::turn).
    pub fn turn_bf16(&mut self, positions: Ramp, codes: &[u16], out: &mut [u16]) -> Result<(), VectorError> {
        Angles::turn_bf16(self, self.pairing, positions, codes, out)
    }
}

impl Angles for Rope {
    fn angles(&mut self, position: usize) -> (&[f32], &[f32]) {
        let (pairs, len) = (self.frequencies.len(), 2 * self.frequencies.len());
        if position >= Rope::KEPT {
            make(position, &self.frequencies, &mut self.other);
            return self.other.split_at(pairs);
        }
        let from = self.known.len() / len;
        if position >= from {
            self.known.resize((position + 1) * len, 0.0);
            for (position, angles) in self.known.chunks_exact_mut(len).enumerate().skip(from) {
                make(position, &self.frequencies, angles);
            }
        }
        self.known[position * len..][..len].split_at(pairs)
    }

    fn pairs(&self) -> usize {
        self.frequencies.len()
    }
}

/// The angles of the row before, made anew where the position changes.
struct Once<'a> {
    frequencies: &'a [f32],
    at: Option<usize>,
    angles: Vec<f32>,
}

impl<'a> Once<'a> {
    fn new(frequencies: &'a [f32]) -> Result<Self, VectorError> {
        check_head(2 * frequencies.len())?;
        Ok(Once { frequencies, at: None, angles: vec![0.0; 2 * frequencies.len()] })
    }
}

impl Angles for Once<'_> {
    fn angles(&mut self, position: usize) -> (&[f32], &[f32]) {
        if self.at.replace(position) != Some(position) {
            make(position, self.frequencies, &mut self.angles);
        }
        self.angles.split_at(self.frequencies.len())
    }

    fn pairs(&self) -> usize {
        self.frequencies.len()
    }
}

/// [`Rope::turn`] without keeping angles: makes those of the rows' positions only.
///
/// # Errors
/// As [`Rope::new`] and [`Rope::turn`].
pub fn rope(
    pairing: Pairing,
    positions: Ramp,
    frequencies: &[f32],
    x: &[f32],
    out: &mut [f32],
) -> Result<(), VectorError> {
    Once::new(frequencies)?.turn(pairing, positions, x, out)
}

/// [`Rope::turn_bf16`] without keeping angles.
///
/// # Errors
/// As [`Rope::new`] and [`Rope::turn`].
pub fn rope_bf16(
    pairing: Pairing,
    positions: Ramp,
    frequencies: &[f32],
    codes: &[u16],
    out: &mut [u16],
) -> Result<(), VectorError> {
    Once::new(frequencies)?.turn_bf16(pairing, positions, codes, out)
}
