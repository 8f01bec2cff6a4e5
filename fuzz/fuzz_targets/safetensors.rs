//! Hostile safetensors files: an error or tensors, no panic, no allocation past what the file holds.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run safetensors`
#![no_main]

use golden::SafeTensors;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = SafeTensors::parse("fuzz.safetensors", data.to_vec());
    // Once more as a header whose length holds, up to the first zero byte, and the tensors' bytes behind it.
    let header = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let mut bytes = (header as u64).to_le_bytes().to_vec();
    bytes.extend(data);
    let _ = SafeTensors::parse("fuzz.safetensors", bytes);
});
