//! The commands of `magpie`, one file each.

pub mod verify;
