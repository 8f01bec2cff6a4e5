//! The commands of `magpie`, one file each.

pub mod conv;
pub mod cosim;
pub mod dma;
pub mod faults;
pub mod gemm;
pub mod gemv;
pub mod kv;
pub mod merge;
mod meter;
pub mod num;
pub mod product;
pub mod registers;
pub mod resources;
pub mod run;
pub mod sweep;
pub mod vector;
pub mod verify;
pub mod waves;
