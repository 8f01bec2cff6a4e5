//! What an NPU cannot be built from is named, and the register file holds what it says.

mod common;

use common::{config, setup, small};
use npu::nkz::{Channel, Mode};
use npu::{Config, Dram, KvSetup, Npu, SetupError, csr};

fn refused(config: Config, setup: KvSetup) -> String {
    match Npu::new(config, setup) {
        Ok(_) => panic!("it was built"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_kv_path_that_does_not_fit_is_refused_by_name() {
    let raw = || setup(Mode::Raw);
    let channel = Channel { mean: 0, step: 0, spread: 0, fixed_step: 0, exponent: 124, exponent_table: 0 };
    let cases = [
        (KvSetup { sequences: 0, ..raw() }, "sequences: 0, must lie in 1..=256"),
        (KvSetup { layers: 257, ..raw() }, "layers: 257, must lie in 1..=256"),
        (KvSetup { heads: 0, ..raw() }, "KV heads: 0, must lie in 1..=256"),
        (KvSetup { frequencies: vec![1.0; 7], ..raw() }, "frequencies of the rotate unit: 7, must lie in 8..=8"),
        (KvSetup { tables: vec![channel; 3], ..raw() }, "lines of the static tables: 3, must lie in 128..=128"),
        (KvSetup { pages: 100, ..raw() }, "KV pages at 0x64: must begin on a multiple of 4096"),
    ];
    for (setup, message) in cases {
        assert_eq!(refused(config(), setup), message);
    }
    assert!(matches!(
        Npu::new(config(), KvSetup { keys: Mode::Mean, ..raw() }),
        Err(SetupError::Nkz(npu::nkz::Error::Uncalibrated))
    ));
    let small = Config { dram: Dram { bytes: 1 << 20, ..config().dram }, ..config() };
    assert!(refused(small, raw()).starts_with("KV pages end at 0x1"), "the pages begin where the DRAM ends");
    let clock = Config { clock_mhz: 0.0, ..config() };
    assert!(refused(clock, raw()).contains("clock_mhz"));
}

#[test]
fn the_register_file_takes_and_gives_what_it_says() {
    let mut npu = small();
    for (offset, name, access, reset, _) in csr::registers() {
        let read = if access == csr::Access::WriteOnly { 0 } else { reset };
        assert_eq!(npu.read_register(offset), read, "{name} after reset");
    }
    let offset = |name: &str| csr::registers().iter().find(|r| r.1 == name).unwrap().0;
    let written = [
        ("PROGRAM_LOW", 0x1234_5678, 0x1234_5678),
        ("PROGRAM_HIGH", 0xabcd_9876, 0x9876),
        ("PROGRAM_COUNT", 77, 77),
        ("INTERRUPT_ENABLE", u32::MAX, 7),
        ("ID", 1, npu.read_register(offset("ID"))),
        ("STATUS", 1, 0),
    ];
    for (name, value, _) in written {
        npu.write_register(offset(name), value);
    }
    for (name, _, value) in written {
        assert_eq!(npu.read_register(offset(name)), value, "{name}");
    }
    // Bytes without a register, and words past the last counter.
    for nothing in [0x02, 0x50, 0x101, 0x4000] {
        npu.write_register(nothing, u32::MAX);
        assert_eq!(npu.read_register(nothing), 0, "{nothing:#x}");
    }
    npu.write_register(offset("CONTROL"), 0);
    assert_eq!(npu.read_register(offset("PROGRAM_COUNT")), 77, "bit 0 is reset");
    npu.write_register(offset("CONTROL"), 1);
    assert_eq!(npu.read_register(offset("PROGRAM_COUNT")), 0);
    assert!(npu.csr().error.is_none());
}
