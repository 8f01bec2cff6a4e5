//! The software engines of NeuKompression in bytes of BF16 a second on one core, against memcpy and `lz4_flex` on the same data: the cache that
//! kjv-1m fills from its held-out text.

use golden::Logits;
use golden::kv::{KvShape, PlainCache, Storage};
use nkz::{Address, Channel, Encoder, Mode, Slot, TOKENS, TileIn};
use std::hint::black_box;
use tb::kv::{Calibration, Dump};
use tb::ratio::{PAIRS, Ratio, Target, compare};

/// A tile of the cache: the model's heads two by two, so that it has the full 64 channels.
struct Tile {
    values: Vec<u16>,
    channels: Vec<Channel>,
    address: Address,
}

fn tiles() -> anyhow::Result<Vec<Tile>> {
    let llm = golden::builtin()?;
    let shape = KvShape::from(llm.model.config());
    let text = include_str!("../../golden/models/kjv-1m/heldout.txt");
    let ids: Vec<u32> = llm.tokenizer.encode(text)?.into_iter().take(512).collect();
    let mut cache = PlainCache::new(shape, Storage::Bf16);
    llm.model.forward(&ids, &mut cache, &mut (), Logits::Skip)?;
    let (dump, tables) = (Dump::of(&cache, shape), Calibration::builtin(shape)?.lines);
    let (d, mut tiles) = (shape.head_dim, Vec::new());
    for layer in 0..shape.layers {
        for kind in 0..2 {
            let lines = |head: usize| &tables[((layer * shape.heads + head) * 2 + kind) * d..][..d];
            let rows =
                |head: usize| &dump.values[kind][(layer * shape.heads + head) * dump.tokens * d..][..dump.tokens * d];
            let channels: Vec<Channel> = [lines(0), lines(1)].concat();
            for (number, (left, right)) in
                rows(0).chunks_exact(TOKENS * d).zip(rows(1).chunks_exact(TOKENS * d)).enumerate()
            {
                let values =
                    left.chunks(d).zip(right.chunks(d)).flat_map(|(a, b)| a.iter().chain(b)).copied().collect();
                let kind = [nkz::Kind::Key, nkz::Kind::Value][kind];
                let address = Address { layer: layer as u16, kind, tile: number as u32, ..Address::default() };
                tiles.push(Tile { values, channels: channels.clone(), address });
            }
        }
    }
    Ok(tiles)
}

fn main() -> anyhow::Result<()> {
    println!("{}", Ratio::header());
    let tiles = tiles()?;
    let width = tiles[0].channels.len();
    let plain: Vec<u8> = tiles.iter().flat_map(|t| t.values.iter().flat_map(|x| x.to_le_bytes())).collect();
    let size = plain.len() as f64;
    let mut copy = vec![0; plain.len()];
    let mut memcpy = || {
        for _ in 0..20 {
            black_box(&mut copy).copy_from_slice(black_box(&plain));
        }
        20.0 * size
    };
    let packed = lz4_flex::compress(&plain);
    println!("lz4_flex: {:.3} to 1", plain.len() as f64 / packed.len() as f64);
    let mut compressed = vec![0; lz4_flex::block::get_maximum_output_size(plain.len())];
    let mut lz4_encode = || {
        black_box(lz4_flex::compress_into(black_box(&plain), &mut compressed).expect("there is room"));
        size
    };
    let mut unpacked = vec![0; plain.len()];
    let mut lz4_decode = || {
        black_box(lz4_flex::decompress_into(black_box(&packed), &mut unpacked).expect("it was packed above"));
        size
    };
    for (name, mode) in [
        ("lossless", Mode::Lossless),
        ("near-lossless", tb::kv::mode("near-lossless", width)?),
        ("standard", tb::kv::mode("standard", width)?),
        ("lowest", tb::kv::mode("lowest", width)?),
        ("fixed", Mode::Fixed { qp: 0 }),
    ] {
        let mut encoder = Encoder::default();
        let mut stored: Vec<Vec<u8>> = vec![Vec::new(); tiles.len()];
        let mut encode = || {
            for (tile, out) in tiles.iter().zip(&mut stored) {
                let tile =
                    TileIn { address: tile.address, values: &tile.values, width, channels: Some(&tile.channels) };
                encoder.encode(black_box(&tile), mode, out).expect("the tile is well-formed");
            }
            size
        };
        encode();
        let title = format!("encode, {name}");
        println!(
            "{}",
            compare(&title, "B", ("engine", &mut encode), ("memcpy", &mut memcpy), 4 * PAIRS + 1, Target::None)
        );
        println!(
            "{}",
            compare(&title, "B", ("engine", &mut encode), ("lz4_flex", &mut lz4_encode), 4 * PAIRS + 1, Target::None)
        );
        let bytes: usize = stored.iter().map(Vec::len).sum();
        let mut out = vec![0; TOKENS * width];
        let mut decode = || {
            for (tile, bytes) in tiles.iter().zip(&stored) {
                let slot = Slot { address: tile.address, width, channels: Some(&tile.channels) };
                slot.decode(black_box(bytes), black_box(&mut out)).expect("it was encoded above");
            }
            size
        };
        let title = format!("decode, {name}, {:.2} to 1", plain.len() as f64 / bytes as f64);
        println!(
            "{}",
            compare(&title, "B", ("engine", &mut decode), ("memcpy", &mut memcpy), 4 * PAIRS + 1, Target::None)
        );
        println!(
            "{}",
            compare(&title, "B", ("engine", &mut decode), ("lz4_flex", &mut lz4_decode), 4 * PAIRS + 1, Target::None)
        );
    }
    Ok(())
}
