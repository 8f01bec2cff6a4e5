//! The benches and the `magpie` command.

#![deny(clippy::print_stdout)]

#[macro_use]
pub mod out;

pub mod blocks;
pub mod cmd;
pub mod cosim;
pub mod formats;
pub mod input;
pub mod kv;
pub mod npy;
pub mod parallel;
pub mod ratio;
pub mod run;
pub mod showcase;
pub mod sweep;
pub mod verify;
pub mod wave;
