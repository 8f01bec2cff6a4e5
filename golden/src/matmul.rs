//! Matrix products: the fast f32 one of the transformer, and plain references that the bench holds hardware against.

use crate::tensor::elements;
use crate::{Error, Result, Tensor};
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder};

/// From this many rows up, blocking and packing pay; below, a dot product per output is faster.
const GEMM_ROWS: usize = 4;

/// x·Wᵀ in f32: `x` [M, K], `w` [N, K] (one row an output channel, as model files store it) → [M, N].
pub fn matmul_nt(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let (m, k, n) = (x.rows(), x.columns(), w.rows());
    if k != w.columns() {
        return Err(Error::Shape {
            operation: "matmul",
            what: format!("x {:?} and w {:?}: the last dimensions differ", x.shape(), w.shape()),
        });
    }
    let mut y = Tensor::zeros(m, n);
    gemm_nt(x.data(), w.data(), y.data_mut(), (m, k, n));
    Ok(y)
}

/// a·b in f32: `a` [M, K], `b` [K, N] → [M, N].
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (m, k, n) = (a.rows(), a.columns(), b.columns());
    if k != b.rows() {
        return Err(Error::Shape {
            operation: "matmul",
            what: format!("a {:?} and b {:?}: a's columns are not b's rows", a.shape(), b.shape()),
        });
    }
    let mut y = Tensor::zeros(m, n);
    sgemm(a.data(), b.data(), (n, 1), y.data_mut(), (m, k, n));
    Ok(y)
}

/// y = x·wᵀ on slices, sizes (M, K, N), all row-major and dense.
pub(crate) fn gemm_nt(x: &[f32], w: &[f32], y: &mut [f32], (m, k, n): (usize, usize, usize)) {
    if m < GEMM_ROWS {
        for (x, y) in x.chunks_exact(k.max(1)).zip(y.chunks_exact_mut(n.max(1))) {
            y.iter_mut().zip(w.chunks_exact(k.max(1))).for_each(|(y, w)| *y = dot(x, w));
        }
    } else {
        sgemm(x, w, (1, k), y, (m, k, n));
    }
}

/// y = a·b on slices, sizes (M, K, N), dense; a and y row-major, `bs` the row and column stride of b.
///
/// The blocked product (crate `matrixmultiply` behind `ndarray`'s safe interface, one thread).
/// A row of the result does not depend on the number of rows.
pub(crate) fn sgemm(a: &[f32], b: &[f32], bs: (usize, usize), y: &mut [f32], (m, k, n): (usize, usize, usize)) {
    let a = ArrayView2::from_shape((m, k), a);
    let b = ArrayView2::from_shape((k, n).strides(bs), b);
    let y = ArrayViewMut2::from_shape((m, n), y);
    match (a, b, y) {
        (Ok(a), Ok(b), Ok(mut y)) => general_mat_mul(1.0, &a, &b, 0.0, &mut y),
        _ => unreachable!("callers pass slices of these sizes"),
    }
}

/// Dot product in 16 interleaved partial sums, which the compiler keeps in vector registers.
fn dot(x: &[f32], w: &[f32]) -> f32 {
    let mut s = [0f32; 16];
    let (xc, wc) = (x.chunks_exact(16), w.chunks_exact(16));
    let tail: f32 = xc.remainder().iter().zip(wc.remainder()).map(|(a, b)| a * b).sum();
    for (x, w) in xc.zip(wc) {
        for i in 0..16 {
            s[i] += x[i] * w[i];
        }
    }
    s.iter().sum::<f32>() + tail
}

/// Plain integer reference: x·Wᵀ of `x` [M, K] and `w` [N, K], exact in i64 for any K below 2⁴⁹.
pub fn matmul_nt_i8(x: &[i8], w: &[i8], m: usize, k: usize, n: usize) -> Result<Vec<i64>> {
    sizes("integer matmul", x.len(), w.len(), (m, k, n))?;
    let mut y = vec![0i64; m * n];
    for row in 0..m {
        for column in 0..n {
            let (x, w) = (&x[row * k..][..k], &w[column * k..][..k]);
            y[row * n + column] = x.iter().zip(w).map(|(&x, &w)| i64::from(x) * i64::from(w)).sum();
        }
    }
    Ok(y)
}

/// [`matmul_nt_i8`] in two's complement at 32 bits, which wraps as a 32-bit accumulator does.
pub fn matmul_nt_i8_wrapping(x: &[i8], w: &[i8], m: usize, k: usize, n: usize) -> Result<Vec<i32>> {
    // Truncation to the low 32 bits commutes with addition, so wrapping at the end is wrapping at each step.
    Ok(matmul_nt_i8(x, w, m, k, n)?.into_iter().map(|y| y as i32).collect())
}

/// Plain f64 reference: x·Wᵀ of `x` [M, K] and `w` [N, K], summed in ascending k.
pub fn matmul_nt_f64(x: &[f64], w: &[f64], m: usize, k: usize, n: usize) -> Result<Vec<f64>> {
    sizes("f64 matmul", x.len(), w.len(), (m, k, n))?;
    let mut y = vec![0f64; m * n];
    for row in 0..m {
        for column in 0..n {
            let (x, w) = (&x[row * k..][..k], &w[column * k..][..k]);
            y[row * n + column] = x.iter().zip(w).map(|(x, w)| x * w).sum();
        }
    }
    Ok(y)
}

fn sizes(operation: &'static str, x: usize, w: usize, (m, k, n): (usize, usize, usize)) -> Result<()> {
    if elements(&[m, k]) == Some(x) && elements(&[n, k]) == Some(w) && elements(&[m, n]).is_some() {
        return Ok(());
    }
    Err(Error::Shape { operation, what: format!("{x} and {w} values are not [{m}, {k}] and [{n}, {k}]") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(n: usize) -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-2f32..2.0, n)
    }

    fn operands() -> impl Strategy<Value = (Tensor, Tensor)> {
        (1usize..12, 1usize..70, 1usize..20).prop_flat_map(|(m, k, n)| {
            (values(m * k), values(n * k))
                .prop_map(move |(x, w)| (Tensor::new(vec![m, k], x).unwrap(), Tensor::new(vec![n, k], w).unwrap()))
        })
    }

    proptest! {
        #[test]
        fn f32_products_agree_with_f64((x, w) in operands()) {
            let (m, k, n) = (x.rows(), x.columns(), w.rows());
            let wide = |t: &Tensor| t.data().iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
            let want = matmul_nt_f64(&wide(&x), &wide(&w), m, k, n).unwrap();
            let magnitude = matmul_nt_f64(
                &wide(&x).iter().map(|v| v.abs()).collect::<Vec<_>>(),
                &wide(&w).iter().map(|v| v.abs()).collect::<Vec<_>>(), m, k, n).unwrap();
            let mut transposed = Tensor::zeros(k, n);
            for r in 0..n { for c in 0..k { transposed.row_mut(c)[r] = w.row(r)[c]; } }
            for y in [matmul_nt(&x, &w).unwrap(), matmul(&x, &transposed).unwrap()] {
                for ((y, want), magnitude) in y.data().iter().zip(&want).zip(&magnitude) {
                    // k roundings of at most 2^-24 of the sum of magnitudes (Higham, the classical bound).
                    let bound = magnitude * (k as f64 + 1.0) * 2f64.powi(-24);
                    prop_assert!((f64::from(*y) - want).abs() <= bound, "{y} {want} {bound}");
                }
            }
        }

        #[test]
        fn integer_product_is_the_sum_of_products(x in prop::collection::vec(any::<i8>(), 3 * 9), w in prop::collection::vec(any::<i8>(), 2 * 9)) {
            let y = matmul_nt_i8(&x, &w, 3, 9, 2).unwrap();
            for (i, y) in y.iter().enumerate() {
                let mut sum = 0i64;
                for k in 0..9 { sum += i64::from(i16::from(x[i / 2 * 9 + k]) * i16::from(w[i % 2 * 9 + k])); }
                prop_assert_eq!(*y, sum);
            }
        }
    }

    #[test]
    fn extremes_and_wrap() {
        let k = 4096;
        let y = matmul_nt_i8(&vec![-128; k], &vec![-128; k], 1, k, 1).unwrap();
        assert_eq!(y, [4096 * 16384]);
        let k = 1 << 17;
        let y = matmul_nt_i8_wrapping(&vec![-128; k], &vec![-128; k], 1, k, 1).unwrap();
        assert_eq!(y, [i32::MIN], "2^31 wraps");
    }

    #[test]
    fn sizes_are_checked() {
        assert!(matmul_nt_i8(&[1, 2], &[1], 1, 2, 1).is_err());
        assert!(matmul_nt_f64(&[], &[], usize::MAX, 2, 1).is_err());
        assert!(matmul_nt(&Tensor::zeros(2, 3), &Tensor::zeros(2, 4)).is_err());
        assert!(matmul(&Tensor::zeros(2, 3), &Tensor::zeros(2, 4)).is_err());
        assert_eq!(matmul_nt(&Tensor::zeros(5, 0), &Tensor::zeros(2, 0)).unwrap().data(), [0.0; 10]);
    }
}
