//! Hostile machine files: refused by the field's name, or a configuration that holds its own rules.
//!
//! `make fuzz FUZZ=machine`
#![no_main]

use libfuzzer_sys::fuzz_target;
use npu::Config;

fuzz_target!(|text: &str| {
    if let Ok(config) = Config::from_toml(text) {
        config.check().expect("what was read was checked");
        let _ = (config.bank_bytes(), format!("{config:?}"));
    }
});
