//! Wire bytes of two descriptors against the data-movement engine: no panic, no hang, no write outside region 2.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run dma`
#![no_main]

use dma::{Bytes, Config, Region, Response, Transaction};
use libfuzzer_sys::fuzz_target;

/// 12 KiB; descriptors first, only `8192 + 80 .. 8192 + 3980` may be written.
struct Memory(Vec<u8>);

const OPEN: std::ops::Range<u64> = 8272..12172;

impl Bytes for Memory {
    fn read(&mut self, address: u64, lanes: &mut [u8]) -> Response {
        assert!(address < self.0.len() as u64, "a read at {address:#x}, outside every region");
        let at = address as usize;
        let count = lanes.len().min(self.0.len() - at);
        lanes[..count].copy_from_slice(&self.0[at..at + count]);
        Response::Okay
    }

    fn write(&mut self, address: u64, lanes: &[u8], strobe: u64) -> Response {
        for (lane, byte) in lanes.iter().enumerate().filter(|(lane, _)| strobe >> lane & 1 == 1) {
            let at = address + lane as u64;
            assert!(OPEN.contains(&at), "a write at {at:#x}, outside the region");
            self.0[at as usize] = *byte;
        }
        Response::Okay
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = vec![0x5a; 3 * 4096];
    let count = data.len().min(2 * dma::WIRE_BYTES);
    bytes[..count].copy_from_slice(&data[..count]);
    let config = Config { job_bytes: 8192, chain_limit: 4, ..Config::default() };
    let mut engine = Transaction::new(&config, 2).expect("the sizes are legal");
    engine.set_region(0, Region::read_only(0, 4096));
    engine.set_region(1, Region::read_only(4096, 4096));
    engine.set_region(2, Region::read_write(OPEN.start, OPEN.end - OPEN.start));
    let report = engine.run(&mut Memory(bytes), &[0]);
    assert!((1..=4).contains(&report.completions.len()));
});
