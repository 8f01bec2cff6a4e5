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
