//! Hostile GGUF files: an error or a model, no panic, no allocation past what the file holds.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run gguf`
#![no_main]

use golden::{Gguf, Llm};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(gguf) = Gguf::parse("fuzz.gguf", data.to_vec()) {
        let _ = Llm::from_gguf(&gguf, "fuzz".into());
    }
});
