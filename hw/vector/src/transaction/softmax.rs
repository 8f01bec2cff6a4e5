use super::reduce::{fold, larger, tree, update, with_partials};
use crate::error::{rows, same};
use crate::function::{Lane, exp, reciprocal};
use crate::{Algorithm, Config, Ramp, VectorError, steps};
use numeric::fast::{Kernel, canonical, dispatch, fma};

/// Which entries of the rows count; the others get weight 0 exactly, as do scores of −∞.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a> {
    /// All.
    None,
    /// The first so many of each row; more than the row has are all.
    Count(Ramp),
    /// Those that are true, one an entry.
    Keep(&'a [bool]),
}

/// softmax(scale · x) over rows of `len` scores.
///
/// z = x·scale; M = max z; e = exp(z − M); r = 1/Σe; weights are e·r. A row without entries that count gives zeros. NaN entries do
/// not count for M, and make the weights of all entries that are not zero NaN, as does +∞.
///
/// The two algorithms differ in the order and the rounding of Σe: see docs/vector.md.
///
/// # Errors
/// If the operands are not rows of one length, or the mask does not have their shape.
pub fn softmax(
    config: &Config,
    algorithm: Algorithm,
    len: usize,
    scale: f32,
    mask: Mask<'_>,
    x: &[f32],
    out: &mut [f32],
) -> Result<(), VectorError> {
    let config = config.checked()?;
    rows(x.len(), len)?;
    same("out", out.len(), x.len())?;
    match mask {
        Mask::Keep(keep) => same("mask", keep.len(), x.len())?,
        Mask::Count(ramp) => ramp.check()?,
        Mask::None => {}
    }
    let each = x.chunks_exact(len).zip(out.chunks_exact_mut(len)).enumerate();
    for (row, (x, out)) in each {
        let count = match mask {
            Mask::Count(ramp) => ramp.at(row).min(len),
            _ => len,
        };
        let keep = match mask {
            Mask::Keep(keep) => Some(&keep[row * len..][..len]),
            _ => None,
        };
        // Entries past the count are −∞, as if they were masked one by one: they change neither maximum nor sum.
        let (out, past) = out.split_at_mut(count);
        past.fill(0.0);
        with_partials!(config, run(algorithm, scale, keep, &x[..count], out));
    }
    Ok(())
}

fn run<const P: usize>(algorithm: Algorithm, scale: f32, keep: Option<&[bool]>, x: &[f32], out: &mut [f32]) {
    dispatch(Softmax::<P> { algorithm, scale, keep, x, out });
}

struct Softmax<'a, const P: usize> {
    algorithm: Algorithm,
    scale: f32,
    keep: Option<&'a [bool]>,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl<const P: usize> Kernel for Softmax<'_, P> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { algorithm, scale, keep, x, out: z } = self;
        for (z, x) in z.iter_mut().zip(x) {
            *z = x * scale;
        }
        if let Some(keep) = keep {
            for (z, keep) in z.iter_mut().zip(keep) {
                *z = if *keep { *z } else { f32::NEG_INFINITY };
            }
        }
        let (maximum, sum) = match algorithm {
            Algorithm::ThreePass => {
                let maximum = tree(fold(z, [f32::NEG_INFINITY; P], larger), larger);
                update(z, |z| exponential::<FMA>(z, maximum));
                let sum = tree(fold(z, [0f32; P], |sum, e| sum + e), |a, b| a + b);
                (maximum, sum)
            }
            Algorithm::Online => online::<P, FMA>(z),
        };
        let mut l = Lane { a: sum, ..Lane::default() };
        reciprocal::<FMA>(&mut l);
        let s = l.a;
        let weigh = |a| {
            let mut l = Lane { a, s, ..Lane::default() };
            steps::weigh::<FMA>(&mut l);
            canonical(l.a)
        };
        match algorithm {
            Algorithm::ThreePass => update(z, weigh),
            Algorithm::Online => update(z, |z| weigh(exponential::<FMA>(z, maximum))),
        }
    }
}

/// exp(z − maximum), 0 of −∞.
#[inline(always)]
fn exponential<const FMA: bool>(z: f32, maximum: f32) -> f32 {
    let mut l = Lane { a: z, s: maximum, ..Lane::default() };
    steps::below_maximum::<FMA>(&mut l);
    exp::<FMA>(&mut l);
    l.a
}

/// One more score for a partial (maximum, sum): one exponential either way, of the distance.
#[inline(always)]
fn online_term<const FMA: bool>(z: f32, maximum: &mut f32, sum: &mut f32) {
    let mut l = Lane { a: z, b: *maximum, ..Lane::default() };
    let rises = z > *maximum;
    steps::distance::<FMA>(&mut l);
    exp::<FMA>(&mut l);
    // Both are one fused multiply-add of the accumulator.
    let (factor, term) = if rises { (l.a, 1.0) } else { (1.0, l.a) };
    *sum = fma::<FMA>(*sum, factor, term);
    *maximum = if rises { z } else { *maximum };
}

#[inline(always)]
fn online<const P: usize, const FMA: bool>(row: &[f32]) -> (f32, f32) {
    let (mut maxima, mut sums) = ([f32::NEG_INFINITY; P], [0f32; P]);
    for chunk in row.chunks(P) {
        for ((z, m), s) in chunk.iter().zip(&mut maxima).zip(&mut sums) {
            online_term::<FMA>(*z, m, s);
        }
    }
    let maximum = tree(maxima, larger);
    for (s, m) in sums.iter_mut().zip(&maxima) {
        *s *= exponential::<FMA>(*m, maximum);
    }
    (maximum, tree(sums, |a, b| a + b))
}
