//! The stream end to end: what every mode promises of any tile.

use nkz::{Address, Cause, Channel, Encoder, Error, Format, Header, Kind, Mode, Slot, TileIn};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

const ADDRESS: Address = Address { sequence: 3, layer: 5, head: 1, kind: Kind::Value, block: 0, tile: 77 };

fn bf16(x: f64) -> u16 {
    ((x as f32).to_bits() >> 16) as u16
}

fn value(x: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(x) << 16))
}

/// A tile such as a model makes: normal around a mean, and the tables that fit it.
#[derive(Clone, Debug)]
struct Sample {
    width: usize,
    values: Vec<u16>,
    channels: Vec<Channel>,
}

fn sample() -> impl Strategy<Value = Sample> {
    (1usize..=8, 1usize..=32, -3f64..3.0, -2f64..6.0, any::<u64>()).prop_map(|(eighth, tokens, mean, spread, seed)| {
        let width = 8 * eighth;
        let mut state = seed;
        let mut normal = || {
            (0..12).fold(-6.0, |sum, _| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                sum + (state >> 11) as f64 / (1u64 << 53) as f64
            })
        };
        // Steps of 2^-4, a spread of 2^`spread` steps.
        let sigma = 2f64.powf(spread - 4.0);
        let channels: Vec<Channel> = (0..width)
            .map(|c| Channel {
                mean: bf16(mean + c as f64 / 64.0),
                step: -16 + (c % 3) as i8,
                spread: (4.0 * (spread + 2.5)).round().clamp(0.0, 127.0) as i8,
                fixed_step: (4.0 * (spread - 4.0 - 1.2)).round() as i8,
                exponent: (127.0 + mean.abs().max(sigma).log2()).floor().clamp(1.0, 254.0) as u8,
                exponent_table: (c % 16) as u8,
            })
            .collect();
        let values = (0..tokens * width).map(|i| bf16(value(channels[i % width].mean) + sigma * normal())).collect();
        Sample { width, values, channels }
    })
}

fn round_trip(s: &Sample, channels: Option<&[Channel]>, mode: Mode) -> (Format, Vec<u16>, Vec<u8>) {
    let tile = TileIn { address: ADDRESS, values: &s.values, width: s.width, channels };
    let mut bytes = Vec::new();
    let done = Encoder::default().encode(&tile, mode, &mut bytes).unwrap();
    assert_eq!(bytes.len(), done.bytes);
    assert!(bytes.len() <= Header::BYTES + 2 * s.values.len() || matches!(mode, Mode::Slot { .. }));
    let mut out = vec![0xdead; 32 * s.width];
    let decoded = Slot { address: ADDRESS, width: s.width, channels }.decode(&bytes, &mut out).unwrap();
    assert_eq!((decoded.header, decoded.bytes), (done.header, bytes.len()));
    assert!(out[s.values.len()..].iter().all(|&x| x == 0xdead), "rows past the tile's tokens were written");
    out.truncate(s.values.len());
    (done.header.format, out, bytes)
}

/// The bound of docs/nkz.md for a value, `residual` away from its channel's mean, that was not clamped.
fn bound(e: i32, residual: f64, rebuilt: u16) -> f64 {
    let step = nkz::STEP[e.rem_euclid(8) as usize] as f64 * 2f64.powi(e.div_euclid(8) - 16);
    let ulp = 2f64.powi(i32::from(rebuilt >> 7 & 0xff).max(1) - 134);
    step / 2.0 * (1.0 + 2f64.powi(-15)) + residual.abs() * 2f64.powi(-18) + 2f64.powi(e.div_euclid(8) - 9) + ulp / 2.0
}

proptest! {
    #[test]
    fn raw_and_lossless_are_exact(s in sample()) {
        for mode in [Mode::Raw, Mode::Lossless] {
            for channels in [None, Some(&s.channels[..])] {
                prop_assert_eq!(round_trip(&s, channels, mode).1, s.values.clone());
            }
        }
    }

    #[test]
    fn any_bits_are_exact_in_lossless_mode(mut s in sample(), bits in proptest::collection::vec(any::<u16>(), 2048)) {
        let n = s.values.len();
        s.values.copy_from_slice(&bits[..n]);
        prop_assert_eq!(round_trip(&s, Some(&s.channels), Mode::Lossless).1, s.values.clone());
        prop_assert_eq!(round_trip(&s, Some(&s.channels), Mode::Entropy { qp: 0 }).1, s.values.clone(), "falls back");
    }

    #[test]
    fn entropy_coding_keeps_its_bound(s in sample(), qp in 0u8..20) {
        let (format, out, _) = round_trip(&s, Some(&s.channels), Mode::Entropy { qp });
        for (i, (&x, &y)) in s.values.iter().zip(&out).enumerate() {
            let line = &s.channels[i % s.width];
            let e = 2 * i32::from(line.step) + i32::from(qp);
            let most = bound(e, value(x) - value(line.mean), y);
            let error = (value(x) - value(y)).abs();
            prop_assert!(if format == Format::Raw { error == 0.0 } else { error <= most }, "{x:#x} became {y:#x}");
        }
    }

    /// Finite numbers of any size, about the limit of the residual and far past it: never more than the bound away.
    #[test]
    fn entropy_coding_and_slots_keep_every_finite_value(
        mut s in sample(),
        qp in 0u8..20,
        words in 5usize..=513,
        outliers in proptest::collection::vec((any::<usize>(), any::<u16>(), 134u16..=254), 1..4),
    ) {
        for (at, bits, exponent) in outliers {
            let at = at % s.values.len();
            s.values[at] = bits & 0x807f | exponent << 7;
        }
        for mode in [Mode::Entropy { qp }, Mode::Slot { bytes: 8 * words.min(1 + 8 * s.width) }] {
            let tile = TileIn { address: ADDRESS, values: &s.values, width: s.width, channels: Some(&s.channels) };
            let (mut bytes, mut out) = (Vec::new(), vec![0; 32 * s.width]);
            let header = Encoder::default().encode(&tile, mode, &mut bytes).unwrap().header;
            let slot = Slot { address: ADDRESS, width: s.width, channels: Some(&s.channels) };
            slot.decode(&bytes, &mut out).unwrap();
            let wide = |qp: u8| {
                s.values.iter().enumerate().any(|(i, &x)| {
                    let q = nkz::Quantiser::entropy(&s.channels[i % s.width], qp);
                    q.residual(x).abs() == nkz::RESIDUAL_MAX as i32 || q.code(x).abs() > nkz::CODE_MAX
                })
            };
            match header.format {
                Format::Overflow => prop_assert!(wide(63)),
                Format::Mean => prop_assert!(!wide(63)),
                format => {
                    let exact = matches!(format, Format::Raw | Format::Lossless);
                    prop_assert!(exact || !wide(header.qp), "{format:?}");
                    for (i, (&x, &y)) in s.values.iter().zip(&out).enumerate() {
                        let line = &s.channels[i % s.width];
                        let e = 2 * i32::from(line.step) + i32::from(header.qp);
                        let most = if exact { 0.0 } else { bound(e, value(x) - value(line.mean), y) };
                        prop_assert!((value(x) - value(y)).abs() <= most, "{format:?}: {x:#x} became {y:#x}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_slot_holds_what_is_put_in(s in sample(), share in 0f64..1.0) {
        let words = 5 + (share * (8 * s.width - 4) as f64) as usize;
        let (format, out, bytes) = round_trip(&s, Some(&s.channels), Mode::Slot { bytes: 8 * words });
        prop_assert!(bytes.len() == 8 * words || (format == Format::Mean && bytes.len() == 8));
        if format == Format::Mean {
            prop_assert!(out.iter().enumerate().all(|(i, &x)| x == s.channels[i % s.width].mean));
        }
    }

    #[test]
    fn fixed_length_keeps_its_bound(s in sample()) {
        let (format, out, bytes) = round_trip(&s, Some(&s.channels), Mode::Fixed { qp: 2 });
        prop_assert_eq!(format, Format::Fixed);
        prop_assert_eq!(bytes.len(), 8 + (s.values.len() / 2).next_multiple_of(8));
        for (i, (&x, &y)) in s.values.iter().zip(&out).enumerate() {
            let line = &s.channels[i % s.width];
            let e = 2 * i32::from(line.fixed_step) + 2;
            let q = nkz::Quantiser::fixed(line, 2);
            if q.code(x).abs() <= nkz::FIXED_MAX {
                prop_assert!((value(x) - value(y)).abs() <= bound(e, value(x) - value(line.mean), y));
            }
        }
    }

    /// Whatever the bytes say: an error or a tile, never a panic; and what passes decodes to the same again.
    #[test]
    fn hostile_bytes_are_survived(s in sample(), mut bytes in proptest::collection::vec(any::<u8>(), 0..1200), honest: bool) {
        let slot = Slot { address: ADDRESS, width: s.width, channels: Some(&s.channels) };
        if honest && bytes.len() >= 8 {
            // A header that passes every check but the lanes'.
            let format = Format::ALL[usize::from(bytes[0] % 7)];
            let words = ((bytes.len() - 8) / 8) as u16;
            let mut header = Header { version: Header::VERSION, format, kind: Kind::Value, last_token: bytes[1] % 32, qp: bytes[2] % 64,
                offset: bytes[3] % 4, words, flags: 0, sequence: 3, crc: 0 };
            header.crc = header.checksum(&ADDRESS, &bytes[8..8 + 8 * usize::from(words)]);
            bytes[..8].copy_from_slice(&header.pack().to_le_bytes());
        }
        let mut out = vec![7; 32 * s.width];
        match slot.decode(&bytes, &mut out) {
            Ok(decoded) => prop_assert!(decoded.bytes <= bytes.len()),
            Err(Error::Corrupt(_)) => prop_assert!(out.iter().all(|&x| x == 0)),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn every_bit_flip_is_detected() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for mode in [
        Mode::Raw,
        Mode::Lossless,
        Mode::Fixed { qp: 0 },
        Mode::Entropy { qp: 0 },
        Mode::Slot { bytes: 768 },
        Mode::Mean,
    ] {
        let s = sample().new_tree(&mut runner).unwrap().current();
        let (_, _, mut bytes) = round_trip(&s, Some(&s.channels), mode);
        let slot = Slot { address: ADDRESS, width: s.width, channels: Some(&s.channels) };
        let mut out = vec![0; 32 * s.width];
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(slot.decode(&bytes, &mut out), Err(Error::Corrupt(_))), "{mode:?}, bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let moved = Slot { address: Address { tile: 78, ..ADDRESS }, ..slot };
        assert!(matches!(moved.decode(&bytes, &mut out), Err(Error::Corrupt(c)) if c.cause == Cause::Crc));
        for length in 0..bytes.len() {
            assert!(
                matches!(slot.decode(&bytes[..length], &mut out), Err(Error::Corrupt(c)) if c.cause == Cause::Truncated)
            );
        }
    }
}

#[test]
fn bad_requests_are_refused() {
    let mut out = Vec::new();
    let mut encode = |values: &[u16], width, channels, mode| {
        Encoder::default().encode(&TileIn { address: ADDRESS, values, width, channels }, mode, &mut out)
    };
    let lines = [Channel::default(); 8];
    assert!(matches!(encode(&[0; 7], 7, None, Mode::Raw), Err(Error::TileShape { .. })));
    assert!(matches!(encode(&[0; 12], 8, None, Mode::Raw), Err(Error::TileShape { .. })));
    assert!(matches!(encode(&[0; 8 * 33], 8, None, Mode::Raw), Err(Error::TileShape { .. })));
    assert!(matches!(encode(&[], 0, None, Mode::Raw), Err(Error::TileShape { .. })));
    assert!(matches!(encode(&[0; 16], 16, Some(&lines), Mode::Raw), Err(Error::TileShape { .. })));
    assert!(matches!(encode(&[0; 8], 8, None, Mode::Mean), Err(Error::Uncalibrated)));
    assert!(matches!(encode(&[0; 8], 8, Some(&lines), Mode::Entropy { qp: 64 }), Err(Error::Range { .. })));
    assert!(matches!(encode(&[0; 8], 8, Some(&lines), Mode::Slot { bytes: 44 }), Err(Error::Range { .. })));
    assert!(matches!(encode(&[0; 8], 8, Some(&lines), Mode::Slot { bytes: 32 }), Err(Error::Range { .. })));
}
