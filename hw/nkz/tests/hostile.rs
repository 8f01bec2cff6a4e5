//! Hostile bytes by the million: every decode ends in a tile or a typed error, leaves no half-written rows, and allocates no more than
//! its own tables, whatever the bytes claim. HOSTILE_BYTES=100000000 in `make prop`; 4 million here.

use nkz::clocked::{DecodeCommand, Decoder, DecoderIn, TableRam};
use nkz::{Address, Channel, Encoder, Error, Format, Header, Kind, Mode, Slot, TileIn};
use rtl::{Module, Stream};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Most that a decode may allocate: a quantiser and a table for each of 64 channels.
const ROOM: usize = 64 * 128;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.chunks_mut(8).for_each(|c| c.copy_from_slice(&self.word().to_le_bytes()[..c.len()]));
    }
}

fn lines(random: &mut Random, width: usize) -> Vec<Channel> {
    let line = |random: &mut Random| {
        let line = Channel::unpack(random.word());
        // A mean is finite in any table that is loaded.
        Channel { mean: line.mean & 0xbfff, ..line }
    };
    (0..width).map(|_| line(random)).collect()
}

/// Writes a header that holds before what else the bytes are.
fn seal(random: &mut Random, address: &Address, bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().max(8).next_multiple_of(8).min(8 * 1024), 0);
    let header = Header {
        version: Header::VERSION,
        format: Format::ALL[random.below(7)],
        kind: address.kind,
        last_token: random.below(32) as u8,
        qp: random.below(64) as u8,
        offset: random.below(4) as u8,
        words: (bytes.len() / 8 - 1) as u16,
        flags: if random.below(4) == 0 { random.below(8) as u8 } else { 0 },
        sequence: address.sequence,
        crc: 0,
    };
    reseal(header, address, bytes);
}

fn reseal(header: Header, address: &Address, bytes: &mut [u8]) {
    let header = Header { crc: header.checksum(address, &bytes[8..]), ..header };
    bytes[..8].copy_from_slice(&header.pack().to_le_bytes());
}

/// Hostile bytes of one of several makes.
fn make(random: &mut Random, slot: &Slot, encoder: &mut Encoder) -> Vec<u8> {
    let most = if random.below(8) == 0 { 5000 } else { 1200 };
    let mut bytes = vec![0; random.below(most)];
    random.fill(&mut bytes);
    match random.below(4) {
        // Noise.
        0 => {}
        // Noise under a header that holds.
        1 => seal(random, &slot.address, &mut bytes),
        // A good tile, spoiled; half of them under a CRC that fits.
        make => {
            let values: Vec<u16> = (0..random.below(32) * slot.width + slot.width)
                .map(|i| slot.channels.map_or(0, |lines| lines[i % slot.width].mean) ^ (random.word() & 0x1f) as u16)
                .collect();
            let mode = [Mode::Lossless, Mode::Entropy { qp: 8 }, Mode::Fixed { qp: 0 }, Mode::Slot { bytes: 200 }]
                [random.below(4)];
            let tile = TileIn { address: slot.address, values: &values, width: slot.width, channels: slot.channels };
            encoder.encode(&tile, mode, &mut bytes).expect("the tile is well-formed");
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            if make == 3
                && let Ok(header) = Header::unpack(u64::from_le_bytes(bytes[..8].try_into().expect("eight")))
            {
                reseal(Header { words: (bytes.len() / 8 - 1) as u16, ..header }, &slot.address, &mut bytes);
            }
            bytes.truncate(bytes.len() - if random.below(6) == 0 { random.below(bytes.len()) } else { 0 });
        }
    }
    bytes
}

/// The clocked decoder on the same bytes: it ends, with the same verdict.
fn clocked(slot: &Slot, bytes: &[u8], expected: Option<nkz::Cause>) {
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|&b| u64::from_le_bytes(b)).collect();
    let mut tables = TableRam::new(1);
    tables.write(0, slot.channels.unwrap_or_default());
    let mut engine = Decoder::new(tables, 1);
    let command =
        DecodeCommand { address: slot.address, width: slot.width as u8, words: words.len() as u16, table: Some(0) };
    let (mut sent, mut at) = (false, 0);
    for _ in 0..4000 {
        let word = Stream { valid: sent && at < words.len(), data: words.get(at).copied().unwrap_or(0) };
        let i =
            DecoderIn { command: Stream { valid: !sent, data: &command }, word, row_ready: true, status_ready: true };
        let out = engine.out();
        sent |= out.command_ready;
        at += usize::from(i.word.fires(out.word_ready));
        if out.status.valid {
            assert_eq!(out.status.data.cause, expected, "{bytes:x?}");
            return;
        }
        engine.clock(&i);
    }
    panic!("the clocked decoder hangs on {bytes:x?}");
}

#[test]
fn hostile_bytes() {
    let total: u64 = std::env::var("HOSTILE_BYTES").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000_000);
    let (mut random, mut encoder) = (Random(1), Encoder::default());
    let (mut fed, mut tiles, mut good, mut causes) = (0u64, 0u64, 0u64, [0u64; 10]);
    while fed < total {
        let width = 8 * (1 + random.below(8));
        let lines = lines(&mut random, width);
        let kind = [Kind::Key, Kind::Value][random.below(2)];
        let address =
            Address { sequence: random.below(4) as u16, kind, tile: random.below(9) as u32, ..Address::default() };
        let slot = Slot { address, width, channels: Some(&lines) };
        let mut out = vec![0x5555; 32 * width];
        for _ in 0..50 {
            let bytes = make(&mut random, &slot, &mut encoder);
            out.fill(0x5555);
            let region = Region::new(ALLOCATOR);
            let result = slot.decode(&bytes, &mut out);
            assert!(region.change().bytes_allocated <= ROOM, "{:?}", region.change());
            let cause = match result {
                Ok(done) => {
                    assert!(done.bytes <= bytes.len());
                    good += 1;
                    None
                }
                Err(Error::Corrupt(c)) => {
                    assert!(out.iter().all(|&x| x == 0), "rows of a corrupt tile are left over");
                    causes[c.cause as usize] += 1;
                    Some(c.cause)
                }
                Err(other) => panic!("{other}"),
            };
            // Whole words alone reach the clocked decoder; it cannot see a header cut short.
            if tiles.is_multiple_of(16) && !bytes.is_empty() && bytes.len().is_multiple_of(8) && bytes.len() < 4000 {
                clocked(&slot, &bytes, cause);
            }
            fed += bytes.len() as u64;
            tiles += 1;
        }
    }
    println!("{fed} hostile bytes in {tiles} tiles: {good} decode, the others by cause {causes:?}");
    for (cause, count) in nkz::Cause::ALL.iter().zip(causes) {
        // Only a cache has an overflow region that a tile could miss.
        assert!(count > 0 || *cause == nkz::Cause::Overflow, "{cause:?} never came up");
    }
    assert!(good > 0);
}
