//! The cache: append by token, visibility, pages, damage.

use super::sample::bf16;
use crate::verify::Case;
use nkz::{Cache, CacheConfig, Channel, Error, Kind, Mode, SINKS, StreamId, TOKENS};
use rand::{Rng, RngExt};

const HEADS: [usize; 6] = [32, 64, 80, 96, 128, 256];

fn config(head_dim: usize, mode: Mode) -> CacheConfig {
    let line = Channel { mean: 0x3f80, step: -12, spread: 18, fixed_step: -4, exponent: 127, exponent_table: 4 };
    let (layers, heads) = (1, 2);
    let tables = vec![line; layers * heads * 2 * head_dim];
    CacheConfig { sequences: 1, layers, heads, head_dim, keys: mode, values: mode, pages: 64, overflow: 2, tables }
}

fn rows(rng: &mut impl Rng, tokens: usize, head_dim: usize) -> Vec<Vec<u16>> {
    (0..tokens).map(|_| (0..head_dim).map(|_| bf16(rng.random_range(0.5..1.5))).collect()).collect()
}

/// What query `query` sees of `token`: raw, or decoded.
fn raw(query: usize, token: usize) -> bool {
    token < SINKS || token / TOKENS == query / TOKENS
}

pub(super) fn cache(case: &mut Case) -> anyhow::Result<()> {
    let head_dim = HEADS[case.index % 6];
    let name = ["lossless", "entropy", "slot", "fixed", "raw", "mean"][case.index / 6 % 6];
    let mode = match name {
        "slot" => Mode::Slot { bytes: if head_dim.is_multiple_of(64) { 768 } else { 512 } },
        "entropy" => Mode::Entropy { qp: 2 },
        "fixed" => Mode::Fixed { qp: 0 },
        "raw" => Mode::Raw,
        "mean" => Mode::Mean,
        _ => Mode::Lossless,
    };
    let exact = matches!(mode, Mode::Raw | Mode::Lossless);
    let mut cache = Cache::new(config(head_dim, mode))?;
    let tokens = rows(&mut case.rng, 70, head_dim);
    let mut out = vec![0; TOKENS * head_dim];
    for kind in [Kind::Key, Kind::Value] {
        let id = StreamId { sequence: 0, layer: 0, head: 1, kind };
        for (query, row) in tokens.iter().enumerate() {
            cache.append(id, row)?;
            let position = match query % TOKENS {
                0 if query > 0 => "after",
                0 => "first",
                31 => "border",
                _ => "middle",
            };
            case.cover("append", &[("position", position), ("stream", if kind == Kind::Key { "k" } else { "v" })]);
            for tile in 0..=query / TOKENS {
                let held = cache.read_tile(id, tile, &mut out)?;
                case.equal("rows", (query + 1 - tile * TOKENS).min(TOKENS), held);
                for (r, got) in out.chunks_exact(head_dim).take(held).enumerate() {
                    let token = tile * TOKENS + r;
                    let same = got == &tokens[token][..];
                    case.check(
                        same == (exact || raw(query, token)),
                        format_args!("{name}, head of {head_dim}: query {query} sees token {token}, same: {same}"),
                    );
                }
            }
        }
        cache.move_page(id, 0)?;
        case.check(cache.read_tile(id, 0, &mut out).is_ok(), "a tile does not survive the move of its page");
    }
    cache.free(0)?;
    case.equal("pages free at the end", 64, cache.free_pages());
    Ok(())
}

/// A flipped bit breaks its own tile, is reported with its place, and nothing else changes.
pub(super) fn damage(case: &mut Case) -> anyhow::Result<()> {
    let head_dim = 80;
    let mut cache = Cache::new(config(head_dim, Mode::Entropy { qp: 2 }))?;
    let id = StreamId { sequence: 0, layer: 0, head: 1, kind: Kind::Value };
    for row in rows(&mut case.rng, 97, head_dim) {
        cache.append(id, &row)?;
    }
    let mut clean = vec![vec![0; TOKENS * head_dim]; 3];
    for (tile, out) in clean.iter_mut().enumerate() {
        cache.read_tile(id, tile, out)?;
    }
    let index = cache.index(id)?.to_vec();
    let block = case.rng.random_range(0..index.len());
    let at = 32 * index[block].offset as usize + case.rng.random_range(0..8 * usize::from(index[block].words));
    let bit = case.rng.random_range(0..8);
    if let Some(byte) = cache.byte_mut(id, at) {
        *byte ^= 1 << bit;
    }
    let mut out = vec![0; TOKENS * head_dim];
    for (tile, clean) in clean.iter().enumerate() {
        match cache.read_tile(id, tile, &mut out) {
            Ok(_) => {
                case.check(tile != block / 2, "a broken tile decodes in silence");
                case.equal_slices("another tile", clean, &out);
            }
            Err(Error::Corrupt(c)) => {
                let place = (tile, c.address.layer, c.address.head, c.address.kind, usize::from(c.address.block));
                case.equal("place", (block / 2, 0, 1, Kind::Value, block % 2), place);
                case.equal("sticky error", Some((c, 1)), cache.take_error());
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}
