//! The cache: append, visibility, random access, pages that move, sequences that end, tiles that break.

use nkz::{Address, Cache, CacheConfig, Cause, Channel, Error, Footprint, Kind, Mode, PAGE, Slot, StreamId};
use proptest::prelude::*;

fn config(head_dim: usize, mode: Mode) -> CacheConfig {
    let line = Channel { mean: 0x3f80, step: -12, spread: 18, fixed_step: -4, exponent: 127, exponent_table: 4 };
    let (layers, heads) = (2, 2);
    let tables = vec![line; layers * heads * 2 * head_dim];
    CacheConfig { sequences: 2, layers, heads, head_dim, keys: mode, values: mode, pages: 64, overflow: 1, tables }
}

fn row(head_dim: usize, seed: usize) -> Vec<u16> {
    (0..head_dim).map(|c| 0x3f00 + ((seed * 2_654_435_761 + c * 40_503) >> 7 & 0xff) as u16).collect()
}

fn address() -> Address {
    Address { sequence: 0, layer: 0, head: 0, kind: Kind::Key, block: 0, tile: 0 }
}

fn id(sequence: usize, layer: usize, head: usize, kind: Kind) -> StreamId {
    StreamId { sequence, layer, head, kind }
}

#[test]
fn rows_are_seen_as_they_should() {
    for head_dim in [32, 64, 80, 96, 128, 256] {
        for mode in [
            Mode::Raw,
            Mode::Lossless,
            Mode::Fixed { qp: 0 },
            Mode::Entropy { qp: 4 },
            Mode::Slot { bytes: if head_dim % 64 == 0 { 768 } else { 512 } },
            Mode::Mean,
        ] {
            let mut cache = Cache::new(config(head_dim, mode)).unwrap();
            let stream = id(1, 1, 0, Kind::Value);
            let mut out = vec![0; 32 * head_dim];
            for token in 0..70 {
                cache.append(stream, &row(head_dim, token)).unwrap();
                assert_eq!(cache.tokens(stream).unwrap(), token + 1);
                for tile in 0..=token / 32 {
                    let rows = cache.read_tile(stream, tile, &mut out).unwrap();
                    assert_eq!(rows, (token + 1 - 32 * tile).min(32));
                    for (r, got) in out.chunks(head_dim).take(rows).enumerate() {
                        let t = 32 * tile + r;
                        let raw = t < 4 || tile == token / 32;
                        let exact = raw || matches!(mode, Mode::Raw | Mode::Lossless);
                        let want = row(head_dim, t);
                        assert_eq!(got == want, exact, "{mode:?} {head_dim}: token {t} after {token}");
                    }
                }
            }
            assert!(matches!(cache.read_tile(stream, 3, &mut out), Err(Error::NotHeld { held: 70, .. })));
            let f = cache.footprint(Kind::Value);
            assert_eq!(f.values, 2 * 32 * head_dim);
            assert_eq!(cache.footprint(Kind::Key), Footprint::default());
            let used = (64 - cache.free_pages()) * PAGE;
            assert!(f.tiles + f.rounding <= used && used < f.tiles + f.rounding + PAGE);
        }
    }
}

proptest! {
    /// Streams do not disturb each other, in whatever order their tokens arrive, and pages may move under them.
    #[test]
    fn any_interleaving(order in proptest::collection::vec((0usize..2, 0usize..2, 0usize..2, any::<bool>(), any::<bool>()), 1..400)) {
        let mut cache = Cache::new(config(32, Mode::Lossless)).unwrap();
        let mut counts = std::collections::HashMap::new();
        for (sequence, layer, head, v, shuffle) in order {
            let stream = id(sequence, layer, head, if v { Kind::Value } else { Kind::Key });
            let n = counts.entry(stream).or_insert(0usize);
            cache.append(stream, &row(32, 1000 * layer + 100 * head + *n)).unwrap();
            *n += 1;
            if shuffle {
                cache.move_page(stream, 0).unwrap();
            }
        }
        let mut out = vec![0; 32 * 32];
        for (stream, n) in counts {
            for token in 0..n {
                cache.read_tile(stream, token / 32, &mut out).unwrap();
                let want = row(32, 1000 * stream.layer + 100 * stream.head + token);
                prop_assert!(out[token % 32 * 32..][..32] == want);
            }
        }
        cache.free(0).unwrap();
        cache.free(1).unwrap();
        prop_assert_eq!(cache.free_pages(), 64);
    }

    /// A flipped byte breaks its own block of its own tile and nothing else, and is reported once a read.
    #[test]
    fn damage_is_confined(at in 0usize..3000, bit in 0u32..8) {
        let mut cache = Cache::new(config(80, Mode::Entropy { qp: 2 })).unwrap();
        let stream = id(0, 1, 1, Kind::Key);
        for token in 0..97 {
            cache.append(stream, &row(80, token)).unwrap();
        }
        let mut clean = vec![vec![0; 32 * 80]; 4];
        for (tile, out) in clean.iter_mut().enumerate() {
            cache.read_tile(stream, tile, out).unwrap();
        }
        let index = cache.index(stream).unwrap().to_vec();
        let Some(byte) = cache.byte_mut(stream, at) else { return Ok(()) };
        *byte ^= 1 << bit;
        let hit = index.iter().position(|e| (e.offset as usize * 32..e.offset as usize * 32 + 8 * e.words as usize).contains(&at));
        let mut out = vec![0; 32 * 80];
        for (tile, clean) in clean.iter().enumerate() {
            match cache.read_tile(stream, tile, &mut out) {
                Ok(rows) => prop_assert!(out[..rows * 80] == clean[..rows * 80]),
                Err(Error::Corrupt(c)) => {
                    prop_assert_eq!((c.address.tile as usize, c.address.layer, c.address.head), (tile, 1, 1));
                    prop_assert_eq!(hit, Some(2 * tile + usize::from(c.address.block)));
                    prop_assert!(out.iter().all(|&x| x == 0));
                    prop_assert_eq!(cache.take_error(), Some((c, 1)));
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
        prop_assert_eq!(cache.take_error(), None);
    }
}

#[test]
fn the_overflow_region_takes_what_no_slot_can_and_then_is_full() {
    let mut cache = Cache::new(config(64, Mode::Slot { bytes: 768 })).unwrap();
    let stream = id(0, 0, 0, Kind::Key);
    for token in 0..97 {
        let mut r = row(64, token);
        r[5] = 0x7f80; // infinity
        cache.append(stream, &r).unwrap();
    }
    assert_eq!(cache.take_error().map(|(c, n)| (c.cause, c.address.tile, n)), Some((Cause::Overflow, 1, 2)));
    let mut out = vec![0; 32 * 64];
    cache.read_tile(stream, 0, &mut out).unwrap();
    assert_eq!((out[10 * 64 + 5], out[10 * 64 + 6]), (0x7f80, row(64, 10)[6]));
    assert!(matches!(cache.read_tile(stream, 1, &mut out), Err(Error::Corrupt(c)) if c.cause == Cause::Overflow));
}

#[test]
fn a_full_memory_refuses_the_token_and_keeps_the_rest() {
    let mut cache = Cache::new(CacheConfig { pages: 1, ..config(64, Mode::Raw) }).unwrap();
    let stream = id(0, 0, 0, Kind::Key);
    for token in 0..31 {
        cache.append(stream, &row(64, token)).unwrap();
    }
    for _ in 0..2 {
        assert!(matches!(cache.append(stream, &row(64, 31)), Err(Error::OutOfPages { pages: 1 })));
        assert_eq!(cache.tokens(stream).unwrap(), 31);
    }
    let mut out = vec![0; 32 * 64];
    assert_eq!(cache.read_tile(stream, 0, &mut out).unwrap(), 31);
    assert_eq!(out[30 * 64..31 * 64], row(64, 30));
}

#[test]
fn bad_caches_are_refused() {
    assert!(matches!(Cache::new(config(60, Mode::Raw)), Err(Error::HeadDimension(60))));
    assert!(matches!(Cache::new(CacheConfig { tables: vec![], ..config(64, Mode::Mean) }), Err(Error::Uncalibrated)));
    let short = CacheConfig { tables: vec![Channel::default()], ..config(64, Mode::Raw) };
    assert!(matches!(Cache::new(short), Err(Error::Range { .. })));
    let mut cache = Cache::new(config(64, Mode::Raw)).unwrap();
    assert!(matches!(cache.append(id(2, 0, 0, Kind::Key), &[0; 64]), Err(Error::NoSuchStream { sequence: 2, .. })));
    assert!(matches!(cache.append(id(0, 0, 0, Kind::Key), &[0; 63]), Err(Error::TileShape { .. })));
}

#[test]
fn lines_of_the_index_find_every_tile() {
    let mut cache = Cache::new(config(32, Mode::Entropy { qp: 2 })).unwrap();
    let stream = id(0, 1, 1, Kind::Key);
    for token in 0..32 * 60 {
        cache.append(stream, &row(32, token)).unwrap();
    }
    let (entries, lines) = (cache.index(stream).unwrap(), cache.index_lines(stream).unwrap());
    assert_eq!((entries.len(), lines.len()), (60, 3));
    for (i, entry) in entries.iter().enumerate() {
        assert_eq!(lines[i / 28].tile(i % 28), Some((entry.offset, entry.units())));
    }
    assert_eq!(lines[2].tile(4), None);
    assert_eq!(lines[1].pack()[..5], [&entries[28].offset.to_le_bytes()[..], &[entries[28].units()]].concat());
    assert_eq!(cache.footprint(Kind::Key).index, 3 * 32);
}

#[test]
fn keys_and_values_are_stored_each_in_their_own_mode() {
    let mut cache = Cache::new(CacheConfig { values: Mode::Mean, ..config(64, Mode::Raw) }).unwrap();
    let mut bytes = [0; 2];
    for (kind, bytes) in [Kind::Key, Kind::Value].into_iter().zip(&mut bytes) {
        let stream = id(0, 0, 0, kind);
        (0..64).for_each(|token| cache.append(stream, &row(64, token)).unwrap());
        // The second tile is stored with the next token.
        cache.append(stream, &row(64, 64)).unwrap();
        let mut out = vec![0; 32 * 64];
        cache.read_tile(stream, 1, &mut out).unwrap();
        assert_eq!(out[..64] == row(64, 32), kind == Kind::Key);
        *bytes = cache.footprint(kind).bytes();
    }
    assert!(bytes[0] >= 2 * 4096 && bytes[1] > 0 && bytes[1] < 4096, "{bytes:?}");
    let parts = Footprint { values: 100, tiles: 1, rounding: 2, index: 4, overflow: 8 };
    assert_eq!(parts.bytes(), 15);
}

#[test]
fn a_tile_of_a_wrong_shape_is_refused_whatever_is_wrong() {
    let lines = [Channel::default(); 16];
    let slot = |width, channels| Slot { address: address(), width, channels };
    let mut out = vec![0; 32 * 128];
    let good = [slot(16, None), slot(16, Some(&lines[..]))];
    let bad = [slot(0, None), slot(12, None), slot(72, None), slot(8, Some(&lines[..]))];
    let shape = |slot: &Slot<'_>, out: &mut [u16]| matches!(slot.decode(&[0; 8], out), Err(Error::TileShape { .. }));
    assert!(good.iter().all(|slot| !shape(slot, &mut out)));
    assert!(bad.iter().all(|slot| shape(slot, &mut out)));
    assert!(shape(&good[0], &mut out[..32 * 16 - 1]));
}
