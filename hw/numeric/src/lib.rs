//! Number formats and operators, bit by bit.
//!
//! ```text
//!   code ──► unpack ──► Exact (sign, exponent, significand) ──► product / sum ──► round ──► code, flags
//! ```
//!
//! One generic core over (sign, exponent bits, fraction bits, bias, special values) takes codes apart without loss; a
//! single rounder puts results together. Every operation is made of these two, after the structure of Berkeley
//! HardFloat. Beside the core stand the same operations as the machine does them: [`Mac`], the multiply-accumulate in
//! hardware steps with pipeline registers, and [`fast`], the host forms of the transaction engine. The bench holds
//! all of them equal.
//!
//! Codes are the low bits of a `u32`; bits above a format's width are ignored, as wires that do not exist.

mod choose;
mod error;
mod exact;
pub mod fast;
mod flags;
mod format;
mod mac;
mod mx;
mod ops;
mod pack;
mod round;

pub use choose::{Ffp8Choice, choose_ffp8};
pub use error::NumericError;
pub use exact::{Exact, Unpacked};
pub use flags::Flags;
pub use format::{FloatFormat, Format, IntFormat, Specials};
pub use mac::{Mac, MacConfig, MacIn, MacOut, MacResult};
pub use mx::{MX_BLOCK, MxFormat};
pub use ops::{FixedScale, add, convert, fma, int_mac, int_mac_pair, mul, product, requant_fixed, requant_onnx};
pub use pack::{pack_codes, packed_len, unpack_codes};
pub use round::{Mode, Overflow, Rounding};
