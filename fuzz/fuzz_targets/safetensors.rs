//! Hostile safetensors files: an error or tensors, no panic, no allocation past what the file holds.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run safetensors`
#![no_main]

use golden::SafeTensors;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = SafeTensors::parse("fuzz.safetensors", data.to_vec());
});
