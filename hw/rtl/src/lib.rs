//! The RTL kernel: what every block of the NPU is built of.
//!
//! A block is a [`Module`]: its wires are read through `&self`, its rising clock edge takes `&mut self`, so the borrow
//! checker is the clock discipline. Every register is named once, to a [`Visitor`], and that one walk serves the
//! waveform writer, the comparison of two models, checkpoints, reset checks and fault injection.
//!
//! ```
//! use rtl::{Format, Image, Module, Visitor};
//!
//! /// A counter of 4 bits that wraps. Latency from `enable` to `count`: one edge.
//! #[derive(Default)]
//! struct Counter {
//!     /// 4 bits.
//!     count: u8,
//! }
//!
//! impl Module for Counter {
//!     type In<'a> = bool; // enable
//!     type Out<'a> = u8; // count
//!     fn out(&self) -> u8 {
//!         self.count
//!     }
//!     fn clock(&mut self, enable: &bool) {
//!         self.count = (self.count + u8::from(*enable)) & 0xf;
//!     }
//!     fn reset(&mut self) {
//!         self.count = 0;
//!     }
//!     fn visit(&mut self, v: &mut impl Visitor) {
//!         v.reg("count_q", 4, Format::Unsigned, &mut self.count);
//!     }
//! }
//!
//! let mut counter = Counter::default();
//! let start = Image::of(&mut counter);
//! for _ in 0..17 {
//!     counter.clock(&true);
//! }
//! assert_eq!(counter.out(), 1);
//! assert_eq!(start.differences(&Image::of(&mut counter)).len(), 1); // count_q
//! ```

mod address;
mod bits;
mod fifo;
mod image;
mod module;
mod skid;
mod sram;
mod stream;
mod visitor;

pub use address::{AddressGenerator, AddressIn, AddressOut, Loops};
pub use bits::{Bits, Payload, copy_lanes, mask};
pub use fifo::{Fifo, FifoIn, FifoOut};
pub use image::{Difference, FaultInjector, Image, Layout, SignalPath};
pub use module::Module;
pub use skid::{SkidBuffer, SkidIn, SkidOut};
pub use sram::{BankIn, BankOut, BankedSram, Sram, SramFault, SramIn, SramRead, SramWrite, WriteMode};
pub use stream::Stream;
pub use visitor::{Format, Index, Name, Role, Signal, Visitor};
