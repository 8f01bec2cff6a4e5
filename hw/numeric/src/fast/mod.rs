//! The host forms: the same bits as the core, at the speed of the machine. The bench holds them equal to the core,
//! exhaustively up to 16 bits.
//!
//! All of it is plain Rust that the compiler vectorises; [`dispatch`] compiles a kernel once more for AVX2 and FMA and
//! chooses at run time. Results never depend on the choice.

mod decode;
mod dispatch;
mod encode;
mod encode_slice;
mod fma;

pub use decode::{DecodeTable, Narrow, decode_bf16, decode_bf16_slice, decode_fp16, decode_fp16_slice};
pub use dispatch::{Kernel, dispatch};
pub use encode::{CodeWord, Encoder};
pub use fma::{canonical, fma, fma_portable, fma_slice};
