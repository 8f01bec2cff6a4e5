//! Hostile programs in the NPU's memory: every command is refused, or runs inside its memories; no panic, no hang.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run commands`
#![no_main]

use libfuzzer_sys::fuzz_target;
use npu::isa::{COMMAND_BYTES, Command};
use npu::nkz::Mode;
use npu::{Config, KvSetup, Npu, Scratchpad};

fuzz_target!(|data: &[u8]| {
    let mut program = Vec::new();
    for bytes in data.chunks_exact(COMMAND_BYTES).take(8) {
        let bytes: &[u8; COMMAND_BYTES] = bytes.try_into().expect("a chunk's length");
        if let Ok(command) = Command::decode(bytes) {
            assert_eq!(Command::decode(&command.encode()), Ok(command));
            program.push(command);
        }
    }
    let setup = KvSetup {
        sequences: 1,
        layers: 1,
        heads: 1,
        head_dim: 16,
        keys: Mode::Lossless,
        values: Mode::Raw,
        tables: Vec::new(),
        context: 64,
        pages: 1 << 16,
        frequencies: vec![0.5; 8],
        interleaved: false,
    };
    let mut config = Config { scratchpad: Scratchpad { bytes: 1 << 16, banks: 16 }, ..Config::default() };
    config.dram.bytes = 1 << 18;
    let mut npu = Npu::new(config, setup).expect("the sizes are legal");
    npu.memory_mut().dram.write(0, &[0; 1 << 12]).expect("inside");
    npu.memory_mut().scratch.write(0, 1 << 16).expect("inside").fill(0);
    let _ = npu.run(&program);
});
