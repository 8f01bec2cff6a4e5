//! Hostile config.json and tokenizer.json: an error or a configuration, no panic.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run config`
#![no_main]

use golden::{Config, Tokenizer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Config::from_json("config.json", data);
    if let Ok(tokenizer) = Tokenizer::from_json("tokenizer.json", data, 256) {
        let _ = tokenizer.encode("In the beginning 12 é 漢");
    }
});
