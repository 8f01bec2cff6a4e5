//! A row-major f32 tensor whose shape always fits its data.

use crate::{Error, Result};

/// Row-major f32 values with a shape; the last index runs fastest.
///
/// ```
/// let t = golden::Tensor::new(vec![2, 3], vec![1., 2., 3., 4., 5., 6.])?;
/// assert_eq!((t.rows(), t.columns(), t.row(1)), (2, 3, &[4., 5., 6.][..]));
/// # Ok::<(), golden::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Vec<f32>,
}

impl Tensor {
    /// A tensor of `shape` over `data`. Refuses data whose length is not the product of the shape.
    pub fn new(shape: Vec<usize>, data: Vec<f32>) -> Result<Self> {
        match elements(&shape) {
            Some(n) if n == data.len() => Ok(Self { shape, data }),
            _ => Err(Error::Shape {
                operation: "tensor",
                what: format!("shape {shape:?} does not hold {} values", data.len()),
            }),
        }
    }

    /// A matrix of `rows` × `columns` zeros.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self { shape: vec![rows, columns], data: vec![0.0; rows * columns] }
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// All values.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// All values, to write.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// Length of the last dimension (1 for a scalar).
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Product of all dimensions but the last.
    pub fn rows(&self) -> usize {
        self.shape[..self.shape.len().saturating_sub(1)].iter().product()
    }

    /// Row `r`: `columns()` values.
    ///
    /// # Panics
    /// If `r` is not below `rows()`, as a slice would.
    pub fn row(&self, r: usize) -> &[f32] {
        let n = self.columns();
        &self.data[r * n..(r + 1) * n]
    }

    /// Row `r`, to write.
    ///
    /// # Panics
    /// If `r` is not below `rows()`, as a slice would.
    pub fn row_mut(&mut self, r: usize) -> &mut [f32] {
        let n = self.columns();
        &mut self.data[r * n..(r + 1) * n]
    }

    /// Adds `other` value by value; refuses another shape.
    pub fn add(&mut self, other: &Tensor) -> Result<()> {
        if self.shape != other.shape {
            return Err(Error::Shape {
                operation: "add",
                what: format!("{:?} and {:?} differ", self.shape, other.shape),
            });
        }
        self.data.iter_mut().zip(&other.data).for_each(|(a, b)| *a += b);
        Ok(())
    }
}

/// The product of `shape`, or `None` where it overflows.
pub(crate) fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

/// Two names whose extents [start, end) share bytes, if any do: a small file must not hold many large tensors in one place.
pub(crate) fn overlap<'a>(extents: impl Iterator<Item = ([usize; 2], &'a str)>) -> Option<[&'a str; 2]> {
    let mut extents: Vec<_> = extents.filter(|([start, end], _)| start < end).collect();
    extents.sort_unstable();
    extents.windows(2).find(|pair| pair[1].0[0] < pair[0].0[1]).map(|pair| [pair[0].1, pair[1].1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_must_hold_the_data() {
        assert!(Tensor::new(vec![2, 3], vec![0.0; 5]).is_err());
        assert!(Tensor::new(vec![usize::MAX, 2], vec![0.0; 2]).is_err());
        assert_eq!(Tensor::new(vec![0, 3], vec![]).unwrap().rows(), 0);
        assert_eq!(Tensor::new(vec![], vec![7.0]).unwrap().columns(), 1);
        assert_eq!(Tensor::new(vec![2, 2, 3], vec![0.0; 12]).unwrap().rows(), 4);
    }

    #[test]
    fn add_refuses_another_shape() {
        let mut a = Tensor::new(vec![1, 2], vec![1.0, 2.0]).unwrap();
        assert!(a.add(&Tensor::zeros(2, 1)).is_err());
        a.add(&Tensor::new(vec![1, 2], vec![0.5, 0.5]).unwrap()).unwrap();
        assert_eq!(a.data(), [1.5, 2.5]);
    }
}
