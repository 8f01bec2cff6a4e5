//! The peers against other implementations (dev/peers.py), against bounds of their own steps, and inside a cache.

mod common;

use golden::kv::peers::{self, Kivi};
use golden::kv::{CodecCache, Kind, KvShape, Policy, Stream, TileCodec};
use golden::{Llm, Logits, SafeTensors, agreement};
use proptest::prelude::*;
use std::sync::LazyLock;

static LLM: LazyLock<Llm> = LazyLock::new(|| golden::builtin().unwrap());

fn stream(kind: Kind) -> Stream {
    Stream { layer: 0, head: 0, kind }
}

fn data() -> SafeTensors {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/peers.safetensors");
    SafeTensors::open(std::path::Path::new(path)).unwrap()
}

#[test]
fn decoded_values_of_other_implementations() {
    let data = data();
    let x = data.f32("x").unwrap();
    for name in ["q8_0", "q4_0", "fp8", "mxfp4", "nvfp4"] {
        let want = data.f32(name).unwrap();
        let mut codec = peers::by_name(name, 64).unwrap();
        let mut found = x.data().to_vec();
        for (i, tile) in found.chunks_mut(32 * 64).enumerate() {
            codec.round_trip(stream(Kind::K), 32 * i, tile).unwrap();
        }
        let wrong = (0..x.data().len()).filter(|&i| found[i] != want.data()[i]).collect::<Vec<_>>();
        assert!(wrong.is_empty(), "{name}: {} of {} differ, first at {:?}", wrong.len(), found.len(), wrong.first());
    }
}

#[test]
fn bits_count_every_scale() {
    // Head dimension 64, 64 tokens: the figures of each format's own description.
    for (name, k, v) in [
        ("q8_0", 8.5, 8.5),
        ("fp8", 8.0, 8.0),
        ("q4_0", 4.5, 4.5),
        ("q4_0+hadamard", 4.5, 4.5),
        ("nvfp4", 4.5 + 32.0 / 2048.0, 4.5 + 32.0 / 2048.0),
        ("mxfp4", 4.25, 4.25),
        ("kivi4", 4.5, 4.5),
        ("kivi3", 4.0, 4.0),
        ("kivi2", 3.0, 3.0),
        ("turboquant4", 4.25, 4.25),
        ("turboquant3", 3.25, 3.25),
    ] {
        let mut codec = peers::by_name(name, 64).unwrap();
        assert_eq!(codec.name(), name);
        for (kind, want) in [(Kind::K, k), (Kind::V, v)] {
            let mut tile = vec![1.5; codec.tokens() * 64];
            let bits = codec.round_trip(stream(kind), 0, &mut tile).unwrap();
            assert_eq!(bits as f64 / tile.len() as f64, want, "{name} {kind:?}");
        }
    }
    assert_eq!(peers::NAMES.len(), 11);
    assert!(peers::NAMES.iter().all(|n| peers::by_name(n, 64).is_some_and(|c| c.name() == *n)));
    assert!(peers::by_name("zip", 64).is_none());
}

proptest! {
    #![proptest_config(common::config(common::seeds!("peers"), 2))]
    #[test]
    fn errors_stay_within_half_a_step(
        tokens in 1usize..33, head_dim in prop::sample::select(vec![32usize, 64, 80, 96, 128]), seed in any::<u64>(),
    ) {
        let mut state = seed;
        let tile: Vec<f32> = (0..tokens * head_dim).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            golden::float16::round_bf16((state >> 40) as f32 / (1 << 23) as f32 * 2.0 - 2.0)
        }).collect();
        for name in peers::NAMES {
            for kind in [Kind::K, Kind::V] {
                let mut found = tile.clone();
                let bits = peers::by_name(name, head_dim).unwrap().round_trip(stream(kind), 0, &mut found).unwrap();
                prop_assert!(bits > 0 && found.iter().all(|x| x.is_finite()), "{}", name);
                let error = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
                // All values lie in ±2. Half a step of the widest group there can be, and FP16 roundings of its scale.
                let bound = match name {
                    "q8_0" => 2.0 / 127.0 / 2.0 + 2.0 / 1024.0,
                    "fp8" => 2.0 / 16.0,
                    "q4_0" => 2.0 / 8.0 + 0.01, // the end opposite the extreme value is cut at 7
                    "mxfp4" | "nvfp4" => 2.0 / 4.0 + 0.02,
                    "kivi4" => 4.0 / 15.0 / 2.0 + 0.01,
                    "kivi3" => 4.0 / 7.0 / 2.0 + 0.01,
                    "kivi2" => 4.0 / 3.0 / 2.0 + 0.01,
                    _ => continue, // rotations bound the error of a row's norm: below
                };
                prop_assert!(error(&found, &tile) <= bound, "{} {:?}: {} > {}", name, kind, error(&found, &tile), bound);
            }
        }
    }

    #[test]
    fn kivi_keeps_the_ends_of_each_group(values in prop::collection::vec(-8i8..8, 32 * 4), bits in 2u32..5) {
        // Values of few bits: minimum and scale are exact in FP16 when (max − min) is a multiple of the top code.
        let mut tile: Vec<f32> = values.iter().map(|&v| f32::from(v)).collect();
        let mut codec = Kivi { bits, group: 32, head_dim: 4 };
        let original = tile.clone();
        codec.round_trip(stream(Kind::K), 0, &mut tile).unwrap();
        for channel in 0..4 {
            let of = |x: &[f32]| (0..32).map(|t| x[t * 4 + channel]).collect::<Vec<_>>();
            let (was, is) = (of(&original), of(&tile));
            let low = was.iter().copied().fold(f32::INFINITY, f32::min);
            let at = was.iter().position(|&x| x == low).unwrap();
            prop_assert_eq!(is[at], low);
            let distinct = is.iter().map(|x| x.to_bits()).collect::<std::collections::BTreeSet<_>>();
            prop_assert!(distinct.len() <= 1 << bits);
        }
    }
}

#[test]
fn quantisation_noise_of_a_gaussian_is_the_theoretical_one() {
    // Max (1960): mean squared error of 16 and 8 levels on a Gaussian: 0.009497 and 0.03454 of the variance. A row's norm is
    // kept apart, so its coordinates lie on a sphere: kurtosis 3·64/66, lighter tails, an error some percent lower.
    let mut state = 9u64;
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as f64 + 0.5) / 2f64.powi(31)
    };
    let x: Vec<f32> = (0..64 * 4096)
        .map(|_| ((-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32)
        .collect();
    for (name, want) in [("turboquant4", 0.009497), ("turboquant3", 0.03454)] {
        let mut codec = peers::by_name(name, 64).unwrap();
        let mut found = x.clone();
        for tile in found.chunks_mut(32 * 64) {
            codec.round_trip(stream(Kind::V), 0, tile).unwrap();
        }
        let error = x.iter().zip(&found).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>() / x.len() as f64;
        println!("{name}: {error:.5} of the variance, {want} in theory");
        assert!((error / want - 1.0).abs() < 0.05, "{name}: {error}");
    }
}

#[test]
fn caches_with_peers_answer_nearly_as_without() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-1m/heldout.txt")).unwrap();
    let ids = &LLM.tokenizer.encode(&text).unwrap()[..320];
    let shape = KvShape::from(LLM.model.config());
    let mut plain = golden::kv::PlainCache::new(shape, golden::kv::Storage::Bf16);
    let reference = LLM.model.forward(ids, &mut plain, &mut (), Logits::All).unwrap();
    let run = |name: &str, policy| {
        let mut cache = CodecCache::new(shape, policy, peers::by_name(name, shape.head_dim).unwrap());
        let logits = LLM.model.forward(ids, &mut cache, &mut (), Logits::All).unwrap();
        let a = agreement(&reference, &logits).unwrap();
        let bits = (cache.bits(Kind::K).per_value() + cache.bits(Kind::V).per_value()) / 2.0;
        println!("{name:14} {policy:?}: {bits:.3} bits, KL {:.5}, top-1 {:.3}", a.mean_kl, a.top1);
        a.mean_kl
    };
    for name in peers::NAMES {
        let (with, without) = (run(name, Policy::SINKS_AND_TILE), run(name, Policy::NONE));
        assert!(with > 0.0 && with < without, "{name}: raw sinks and tile must help");
    }
    assert!(run("q8_0", Policy::NONE) < run("kivi4", Policy::NONE));
    assert!(run("kivi4", Policy::NONE) < run("kivi3", Policy::NONE));
    assert!(run("kivi3", Policy::NONE) < run("kivi2", Policy::NONE));
}

#[test]
fn a_group_of_two_tiles_stays_raw_until_it_is_full() {
    use golden::KvCache;
    let shape = KvShape { layers: 1, heads: 1, head_dim: 4 };
    let mut cache = CodecCache::new(shape, Policy::SINKS_AND_TILE, Kivi { bits: 2, group: 64, head_dim: 4 });
    let value = |t: usize| (t * t % 61) as f32;
    let mut rows = vec![0.0; 80 * 4];
    for t in 0..80 {
        cache.append(0, 0, &[value(t); 4], &[value(t); 4]).unwrap();
        let rows = &mut rows[..(t + 1) * 4];
        cache.read(stream(Kind::K), 0, rows).unwrap();
        let raw = (0..=t).filter(|&s| rows[s * 4] == value(s)).count();
        if t < 63 {
            assert_eq!(raw, t + 1);
        }
    }
    assert!((4..32).any(|s| rows[s * 4] != value(s)), "decoded once the group is full");
    assert!((64..80).all(|s| rows[s * 4] == value(s)) && (0..4).all(|s| rows[s * 4] == value(s)));
    assert_eq!(cache.bits(Kind::K).values, 64 * 4);
}
