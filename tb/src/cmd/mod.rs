//! The commands of `magpie`, one file each.

pub mod cosim;
pub mod dma;
pub mod kv;
pub mod num;
pub mod verify;
pub mod waves;
