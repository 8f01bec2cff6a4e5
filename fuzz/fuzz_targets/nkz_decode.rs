//! Hostile bytes against the decoder: the first bytes choose the tile, the rest is the stored tile, once as it comes and once under a
//! header and CRC that hold, so that lanes and directories are reached.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nkz::{Address, Channel, Format, Header, Slot};

fuzz_target!(|data: &[u8]| {
    let Some((&[eighth, format, tokens, qp], rest)) = data.split_first_chunk() else { return };
    let width = 8 * (1 + usize::from(eighth % 8));
    let lines: Vec<Channel> = (0..width as u64)
        .map(|i| Channel { mean: 0x3f80, ..Channel::unpack(i.wrapping_mul(0x9E37_79B9_7F4A_7C15)) })
        .collect();
    let address = Address::default();
    let slot = Slot { address, width, channels: Some(&lines) };
    let mut out = vec![0; 32 * width];
    let _ = slot.decode(rest, &mut out);
    let mut bytes = rest.to_vec();
    bytes.resize(bytes.len().max(8), 0);
    let words = ((bytes.len() - 8) / 8).min(1023);
    let mut header = Header {
        version: Header::VERSION,
        format: Format::ALL[usize::from(format % 7)],
        last_token: tokens % 32,
        qp: qp % 64,
        offset: tokens >> 5 & 3,
        words: words as u16,
        ..Header::default()
    };
    header.crc = header.checksum(&address, &bytes[8..8 + 8 * words]);
    bytes[..8].copy_from_slice(&header.pack().to_le_bytes());
    let _ = slot.decode(&bytes, &mut out);
});
