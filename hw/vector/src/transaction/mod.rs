//! The transaction engine: what the clocked unit computes, as functions over slices. Operands are rows of FP32 values one after the
//! other; every bit is that of the unit, whatever the machine.

mod convert;
mod elementwise;
mod norm;
mod peak;
mod quantise;
mod reduce;
mod rope;
mod softmax;

pub use convert::{Word, decode, encode};
pub use elementwise::{add, function, multiply, scale, silu, swiglu};
pub(crate) use norm::per_value;
pub use norm::rms_norm;
pub use peak::{Peak, argmax};
pub use quantise::{absmax, quantise};
pub(crate) use reduce::{larger, larger_magnitude};
pub use rope::{rope, rope_bf16, sin_cos};
pub use softmax::{Mask, softmax};
