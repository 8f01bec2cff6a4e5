//! The benches and the `magpie` command.

pub mod blocks;
pub mod cmd;
pub mod cosim;
pub mod kv;
pub mod npy;
pub mod ratio;
pub mod run;
pub mod showcase;
pub mod sweep;
pub mod verify;
pub mod wave;
