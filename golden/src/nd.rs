//! Moving elements of n-dimensional tensors: what gather, scatter, slice, pad, transpose and their like mean.
//!
//! Everything here is one of two definitions over index maps. A *read* map names, for each index of the result, the
//! element that it takes, or none for the fill; a *write* map names, for each index of the updates, the element that it
//! replaces. Elements are opaque groups of bytes, so that every data type moves alike; nothing is computed with them.
//! Semantics are those of the ONNX operators of the same names (opset 24).
//!
//! ```
//! use golden::nd::Nd;
//! let x = Nd::new(&[2, 3], 1, vec![1, 2, 3, 4, 5, 6])?;
//! assert_eq!(x.transpose(&[1, 0])?.bytes(), [1, 4, 2, 5, 3, 6]);
//! assert_eq!(x.gather(1, &[2, 0])?.bytes(), [3, 1, 6, 4]);
//! # Ok::<(), golden::nd::NdError>(())
//! ```

/// A move that has no meaning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NdError {
    /// Shape and bytes do not fit.
    #[error("shape {shape:?} of {size}-byte elements does not hold {bytes} bytes")]
    Bytes {
        /// The shape.
        shape: Vec<usize>,
        /// Bytes of an element.
        size: usize,
        /// Bytes given.
        bytes: usize,
    },
    /// An index outside the tensor.
    #[error("index {index:?} lies outside shape {shape:?}")]
    Index {
        /// The index.
        index: Vec<usize>,
        /// The shape.
        shape: Vec<usize>,
    },
    /// Two operands, or an operand and a parameter, that do not belong together.
    #[error("{what} does not fit shape {shape:?}")]
    Fit {
        /// What.
        what: String,
        /// The shape.
        shape: Vec<usize>,
    },
}

/// Result of a move.
pub type Result<T> = std::result::Result<T, NdError>;

/// Which of the two factors of a channel is the outer one in [`Nd::depth_to_space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Channel = (block row, block column, channel of the result).
    Dcr,
    /// Channel = (channel of the result, block row, block column).
    Crd,
}

/// A tensor of any rank, last dimension fastest, no gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nd {
    shape: Vec<usize>,
    size: usize,
    bytes: Vec<u8>,
}

/// Every index of a shape, last dimension fastest; none if a count is zero, one empty index for rank 0.
pub fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    let mut next = (!shape.contains(&0)).then(|| vec![0; shape.len()]);
    std::iter::from_fn(move || {
        let now = next.clone()?;
        next = (0..shape.len()).rev().find(|&d| now[d] + 1 < shape[d]).map(|d| {
            let mut after = now.clone();
            after[d] += 1;
            after[d + 1..].fill(0);
            after
        });
        Some(now)
    })
}

impl Nd {
    /// A tensor of `size`-byte elements.
    ///
    /// # Errors
    /// [`NdError::Bytes`] if `bytes` is not the product of the shape times `size`.
    pub fn new(shape: &[usize], size: usize, bytes: Vec<u8>) -> Result<Self> {
        let wanted = shape.iter().try_fold(size, |n, &d| n.checked_mul(d));
        if size == 0 || wanted != Some(bytes.len()) {
            return Err(NdError::Bytes { shape: shape.to_vec(), size, bytes: bytes.len() });
        }
        Ok(Self { shape: shape.to_vec(), size, bytes })
    }

    /// The same element everywhere.
    ///
    /// # Errors
    /// [`NdError::Bytes`] if the element has no bytes.
    pub fn full(shape: &[usize], element: &[u8]) -> Result<Self> {
        Self::new(shape, element.len(), element.repeat(shape.iter().product()))
    }

    /// Counts, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements in order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn at(&self, index: &[usize]) -> Result<std::ops::Range<usize>> {
        if index.len() != self.shape.len() || index.iter().zip(&self.shape).any(|(i, n)| i >= n) {
            return Err(NdError::Index { index: index.to_vec(), shape: self.shape.clone() });
        }
        let place = index.iter().zip(&self.shape).fold(0, |place, (i, n)| place * n + i);
        Ok(place * self.size..(place + 1) * self.size)
    }

    /// The read map: element `i` of the result is element `map(i)` of `self`, or `fill` where that is `None`.
    ///
    /// # Errors
    /// [`NdError::Index`] if the map leaves the tensor, [`NdError::Bytes`] if the fill is no element.
    pub fn read(&self, shape: &[usize], fill: &[u8], map: impl Fn(&[usize]) -> Option<Vec<usize>>) -> Result<Self> {
        let mut bytes = Vec::new();
        for index in indices(shape) {
            match map(&index) {
                Some(from) => bytes.extend_from_slice(&self.bytes[self.at(&from)?]),
                None => bytes.extend_from_slice(fill),
            }
        }
        Self::new(shape, self.size, bytes)
    }

    /// The write map: `self` with element `map(i)` replaced by element `i` of `updates`, in the order of `i`: where several fall
    /// on one element, the last stays.
    ///
    /// # Errors
    /// [`NdError::Index`] if the map leaves the tensor, [`NdError::Fit`] if the element sizes differ.
    pub fn write(mut self, updates: &Self, map: impl Fn(&[usize]) -> Vec<usize>) -> Result<Self> {
        if updates.size != self.size {
            return Err(self.misfit(format_args!("an update of {}-byte elements", updates.size)));
        }
        for index in indices(&updates.shape) {
            let to = self.at(&map(&index))?;
            self.bytes[to].copy_from_slice(&updates.bytes[updates.at(&index)?]);
        }
        Ok(self)
    }

    fn misfit(&self, what: impl std::fmt::Display) -> NdError {
        NdError::Fit { what: what.to_string(), shape: self.shape.clone() }
    }

    fn axis(&self, axis: usize) -> Result<usize> {
        self.shape.get(axis).copied().ok_or_else(|| self.misfit(format_args!("axis {axis}")))
    }

    /// The same elements in the same order under another shape.
    ///
    /// # Errors
    /// [`NdError::Bytes`] if the shapes hold different numbers of elements.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        Self::new(shape, self.size, self.bytes.clone())
    }

    /// Slice `list[i]` of `axis` becomes slice i.
    ///
    /// # Errors
    /// [`NdError::Fit`] without that axis, [`NdError::Index`] if an entry lies outside it.
    pub fn gather(&self, axis: usize, list: &[usize]) -> Result<Self> {
        self.axis(axis)?;
        let mut shape = self.shape.clone();
        shape[axis] = list.len();
        self.read(&shape, &[], |i| {
            let mut from = i.to_vec();
            from[axis] = list[i[axis]];
            Some(from)
        })
    }

    /// Slice i of `updates` goes to slice `list[i]` of `axis`; the last of several stays.
    ///
    /// # Errors
    /// [`NdError::Fit`] if the updates do not fit, [`NdError::Index`] if an entry lies outside the axis.
    pub fn scatter(self, axis: usize, list: &[usize], updates: &Self) -> Result<Self> {
        self.axis(axis)?;
        if updates.shape.get(axis) != Some(&list.len()) {
            return Err(self.misfit(format_args!("a list of {} for updates {:?}", list.len(), updates.shape)));
        }
        self.write(updates, |i| {
            let mut to = i.to_vec();
            to[axis] = list[i[axis]];
            to
        })
    }

    /// Elements start, start + step, ... of each dimension; steps may be negative.
    ///
    /// # Errors
    /// [`NdError::Fit`] if a parameter does not have an entry a dimension, [`NdError::Index`] if one of the elements does not exist.
    pub fn slice(&self, start: &[usize], step: &[isize], shape: &[usize]) -> Result<Self> {
        let rank = self.shape.len();
        if [start.len(), step.len(), shape.len()] != [rank; 3] {
            return Err(self.misfit(format_args!("a slice from {start:?} by {step:?} of {shape:?}")));
        }
        // An index below zero wraps to one that no tensor has.
        self.read(shape, &[], |i| {
            Some((0..rank).map(|d| start[d].wrapping_add_signed(step[d].wrapping_mul(i[d] as isize))).collect())
        })
    }

    /// `before` and `after` elements more at the ends of each dimension, all of them `fill`.
    ///
    /// # Errors
    /// [`NdError::Fit`] if a parameter does not have an entry a dimension, [`NdError::Bytes`] if the fill is no element.
    pub fn pad(&self, before: &[usize], after: &[usize], fill: &[u8]) -> Result<Self> {
        let rank = self.shape.len();
        if [before.len(), after.len()] != [rank; 2] {
            return Err(self.misfit(format_args!("padding {before:?}, {after:?}")));
        }
        let shape: Vec<usize> = (0..rank).map(|d| before[d] + self.shape[d] + after[d]).collect();
        self.read(&shape, fill, |i| {
            let from = (0..rank).map(|d| i[d].checked_sub(before[d]).filter(|&at| at < self.shape[d]));
            from.collect()
        })
    }

    /// Dimension d of the result is dimension `order[d]`.
    ///
    /// # Errors
    /// [`NdError::Fit`] if `order` is no permutation.
    pub fn transpose(&self, order: &[usize]) -> Result<Self> {
        let rank = self.shape.len();
        if order.len() != rank || (0..rank).any(|d| !order.contains(&d)) {
            return Err(self.misfit(format_args!("order {order:?}")));
        }
        let shape: Vec<usize> = order.iter().map(|&d| self.shape[d]).collect();
        self.read(&shape, &[], |i| {
            let mut from = vec![0; rank];
            order.iter().zip(i).for_each(|(&d, &at)| from[d] = at);
            Some(from)
        })
    }

    /// `copies` of the tensor under a new outermost dimension.
    ///
    /// # Errors
    /// None that a tensor which exists can meet, short of memory.
    pub fn broadcast(&self, copies: usize) -> Result<Self> {
        let shape: Vec<usize> = std::iter::once(copies).chain(self.shape.iter().copied()).collect();
        self.read(&shape, &[], |i| Some(i[1..].to_vec()))
    }

    /// (N, C, H, W) to (N, C / b², H·b, W·b): blocks of channels become blocks of pixels.
    ///
    /// # Errors
    /// [`NdError::Fit`] if the rank is not 4 or b² does not divide the channels.
    pub fn depth_to_space(&self, block: usize, depth: Depth) -> Result<Self> {
        match self.shape[..] {
            [n, c, h, w] if block > 0 && c.is_multiple_of(block * block) => {
                let channels = c / (block * block);
                self.read(&[n, channels, h * block, w * block], &[], |i| {
                    let (y, x) = (i[2] % block, i[3] % block);
                    let channel = match depth {
                        Depth::Dcr => (y * block + x) * channels + i[1],
                        Depth::Crd => (i[1] * block + y) * block + x,
                    };
                    Some(vec![i[0], channel, i[2] / block, i[3] / block])
                })
            }
            _ => Err(self.misfit(format_args!("a block of {block}"))),
        }
    }

    /// (N, C, H, W) to (N, C·b², H / b, W / b): the inverse of [`Nd::depth_to_space`] with [`Depth::Dcr`].
    ///
    /// # Errors
    /// [`NdError::Fit`] if the rank is not 4 or b does not divide height and width.
    pub fn space_to_depth(&self, block: usize) -> Result<Self> {
        match self.shape[..] {
            [n, c, h, w] if block > 0 && h.is_multiple_of(block) && w.is_multiple_of(block) => {
                self.read(&[n, c * block * block, h / block, w / block], &[], |i| {
                    let (tap, channel) = (i[1] / c, i[1] % c);
                    Some(vec![i[0], channel, i[2] * block + tap / block, i[3] * block + tap % block])
                })
            }
            _ => Err(self.misfit(format_args!("a block of {block}"))),
        }
    }

    /// The windows of a convolution over (C, H, W): (C, kernel row, kernel column, output row, output column). Pairs are (vertical,
    /// horizontal); `padding` is on both sides and reads as `fill`. No output where the kernel does not fit.
    ///
    /// # Errors
    /// [`NdError::Fit`] if the rank is not 3 or a kernel or stride is zero.
    pub fn windows(
        &self,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        fill: &[u8],
    ) -> Result<Self> {
        if self.shape.len() != 3 || kernel.contains(&0) || stride.contains(&0) {
            return Err(self.misfit(format_args!("a kernel of {kernel:?} by {stride:?}")));
        }
        let [top, left] = padding;
        let padded = self.pad(&[0, top, left], &[0, top, left], fill)?;
        let outputs = [0, 1].map(|a| {
            let room = padded.shape[a + 1].checked_sub(dilation[a] * (kernel[a] - 1) + 1);
            room.map_or(0, |room| room / stride[a] + 1)
        });
        padded.read(&[self.shape[0], kernel[0], kernel[1], outputs[0], outputs[1]], &[], |i| {
            Some(vec![i[0], i[3] * stride[0] + i[1] * dilation[0], i[4] * stride[1] + i[2] * dilation[1]])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements 0, 1, 2, ... of one byte.
    fn ramp(shape: &[usize]) -> Nd {
        let n: usize = shape.iter().product();
        Nd::new(shape, 1, (0..n).map(|i| i as u8).collect()).unwrap()
    }

    #[test]
    fn indices_run_last_dimension_first() {
        assert_eq!(indices(&[2, 2]).collect::<Vec<_>>(), [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(indices(&[]).count(), 1);
        assert_eq!(indices(&[3, 0]).count(), 0);
    }

    #[test]
    fn gather_and_scatter_undo_each_other_and_the_last_wins() {
        let x = Nd::new(&[3, 2], 2, (0..12).collect()).unwrap();
        let g = x.gather(0, &[2, 0]).unwrap();
        assert_eq!(g.bytes(), [8, 9, 10, 11, 0, 1, 2, 3]);
        assert_eq!(x.clone().scatter(0, &[2, 0], &g).unwrap(), x);
        let collided = x.scatter(0, &[1, 1], &g).unwrap();
        assert_eq!(collided.bytes(), [0, 1, 2, 3, 0, 1, 2, 3, 8, 9, 10, 11]);
    }

    #[test]
    fn slices_go_both_ways() {
        let x = ramp(&[3, 4]);
        assert_eq!(x.slice(&[2, 0], &[-2, 3], &[2, 2]).unwrap().bytes(), [8, 11, 0, 3]);
        assert!(matches!(x.slice(&[0, 0], &[-1, 1], &[2, 1]), Err(NdError::Index { .. })));
    }

    #[test]
    fn padding_fills_both_ends() {
        assert_eq!(ramp(&[1, 2]).pad(&[1, 0], &[0, 1], &[9]).unwrap().bytes(), [9, 9, 9, 0, 1, 9]);
    }

    #[test]
    fn windows_of_a_padded_image() {
        let w = ramp(&[1, 2, 2]).windows([2, 2], [1, 1], [1, 1], [1, 1], &[7]).unwrap();
        assert_eq!(w.shape(), [1, 2, 2, 3, 3]);
        assert_eq!(w.bytes()[..9], [7, 7, 7, 7, 0, 1, 7, 2, 3]);
    }

    /// The first channel of the example that the ONNX operator page gives, in both modes.
    #[test]
    fn depth_to_space_is_that_of_onnx() {
        let x: Vec<u8> = (0..8).flat_map(|c| (0..6).map(move |i| 9 * c + i)).collect();
        let x = Nd::new(&[1, 8, 2, 3], 1, x).unwrap();
        let dcr = x.depth_to_space(2, Depth::Dcr).unwrap();
        assert_eq!(dcr.shape(), [1, 2, 4, 6]);
        assert_eq!(dcr.bytes()[..12], [0, 18, 1, 19, 2, 20, 36, 54, 37, 55, 38, 56]);
        let crd = x.depth_to_space(2, Depth::Crd).unwrap();
        assert_eq!(crd.bytes()[..12], [0, 9, 1, 10, 2, 11, 18, 27, 19, 28, 20, 29]);
        assert_eq!(dcr.space_to_depth(2).unwrap(), x);
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        let x = ramp(&[2, 3]);
        assert!(matches!(Nd::new(&[2, 3], 1, vec![0; 5]), Err(NdError::Bytes { .. })));
        assert!(matches!(x.gather(0, &[2]), Err(NdError::Index { .. })));
        assert!(matches!(x.gather(2, &[0]), Err(NdError::Fit { .. })));
        assert!(matches!(x.transpose(&[0, 0]), Err(NdError::Fit { .. })));
        assert!(matches!(x.depth_to_space(2, Depth::Dcr), Err(NdError::Fit { .. })));
        assert!(matches!(x.clone().scatter(0, &[0], &x), Err(NdError::Fit { .. })));
    }
}
