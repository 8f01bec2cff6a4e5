//! The operators, one a file: unpack exactly, compute exactly, round once.

mod add;
mod convert;
mod fma;
mod int_mac;
mod mul;
mod requant;

pub use add::add;
pub use convert::convert;
pub use fma::fma;
pub use int_mac::{int_mac, int_mac_pair};
pub use mul::{mul, product};
pub use requant::{FixedScale, requant_fixed, requant_onnx};
