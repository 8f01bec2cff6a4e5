//! The order of reductions: value i of a row goes to partial i mod P, P = 4·lanes, in ascending order; then the partials are halved,
//! i with i + P/2, until one is left.

/// Calls a function for the configuration's number of partials.
macro_rules! with_partials {
    ($config:expr, $f:ident ($($arg:expr),*)) => {
        match $config.lanes {
            8 => $f::<32>($($arg),*),
            16 => $f::<64>($($arg),*),
            32 => $f::<128>($($arg),*),
            _ => $f::<256>($($arg),*),
        }
    };
}
pub(super) use with_partials;

/// Folds a row into P partials: `term(partial, value)`.
#[inline(always)]
pub(super) fn fold<const P: usize>(row: &[f32], mut partials: [f32; P], term: impl Fn(f32, f32) -> f32) -> [f32; P] {
    let (chunks, rest) = row.as_chunks::<P>();
    for chunk in chunks {
        for i in 0..P {
            partials[i] = term(partials[i], chunk[i]);
        }
    }
    for (partial, x) in partials.iter_mut().zip(rest) {
        *partial = term(*partial, *x);
    }
    partials
}

/// Halves the partials until one is left.
#[inline(always)]
pub(super) fn tree<const P: usize>(mut partials: [f32; P], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = P / 2;
    while half > 0 {
        let (low, high) = partials.split_at_mut(half);
        for (a, b) in low.iter_mut().zip(high) {
            *a = join(*a, *b);
        }
        half /= 2;
    }
    partials[0]
}

/// The larger; a NaN never wins.
#[inline(always)]
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// The larger finite magnitude.
#[inline(always)]
pub(crate) fn larger_magnitude(a: f32, b: f32) -> f32 {
    let b = b.abs();
    if b > a && b < f32::INFINITY { b } else { a }
}

/// Values of a block.
const BLOCK: usize = 64;

/// `out[i] = f(x[i], y[i])`. A block lies in an array of its own, which nothing else can touch: so the compiler knows that a
/// store never changes a table, and makes vectors of it all.
#[inline(always)]
pub(super) fn map(x: &[f32], y: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for ((x, y), out) in x.chunks(BLOCK).zip(y.chunks(BLOCK)).zip(out.chunks_mut(BLOCK)) {
        let (mut a, mut b) = ([0f32; BLOCK], [0f32; BLOCK]);
        a[..x.len()].copy_from_slice(x);
        b[..y.len()].copy_from_slice(y);
        for (a, b) in a.iter_mut().zip(&b) {
            *a = f(*a, *b);
        }
        out.copy_from_slice(&a[..out.len()]);
    }
}

/// [`map`] in place.
#[inline(always)]
pub(super) fn update(values: &mut [f32], f: impl Fn(f32) -> f32) {
    for values in values.chunks_mut(BLOCK) {
        let mut a = [0f32; BLOCK];
        a[..values.len()].copy_from_slice(values);
        for a in &mut a {
            *a = f(*a);
        }
        values.copy_from_slice(&a[..values.len()]);
    }
}
