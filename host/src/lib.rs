//! Software on the host CPU: what prepares a model for the NPU.

mod quantize;

pub use quantize::{QuantizedRows, quantize_rows};
