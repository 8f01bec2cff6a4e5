//! kjv-1m against logits that Hugging Face transformers made (golden/models/kjv-1m/reference_logits.py), and against itself.

mod common;

use golden::kv::{CodecCache, KvShape, PlainCache, Policy, Storage, Stream, TileCodec};
use golden::{KvCache, Llm, Logits, Projected, Projection, SafeTensors, Tensor, agreement};
use proptest::prelude::*;
use std::path::Path;
use std::sync::LazyLock;

static LLM: LazyLock<Llm> = LazyLock::new(|| golden::builtin().unwrap());

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-1m"))
}

fn prompts() -> [String; 3] {
    let heldout = std::fs::read_to_string(folder().join("heldout.txt")).unwrap();
    [
        "In the beginning God created the heaven and the earth.".into(),
        "And the LORD spake unto Moses, saying, Speak unto the children of Israel".into(),
        heldout.chars().take(1200).collect(),
    ]
}

fn forward(ids: &[u32], cache: &mut dyn KvCache) -> Tensor {
    LLM.model.forward(ids, cache, &mut (), Logits::All).unwrap()
}

/// Largest |a − b| of rows that both have; they must have some.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert!(!a.is_empty() && a.len() == b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |m, d| if d.is_nan() { d } else { m.max(d) })
}

#[test]
fn logits_and_ids_of_the_reference() {
    let reference = SafeTensors::open(&folder().join("reference_logits.safetensors")).unwrap();
    for (i, prompt) in prompts().iter().enumerate() {
        let ids = LLM.tokenizer.encode(prompt).unwrap();
        let want_ids: Vec<u32> = reference.i32(&format!("ids.{i}")).unwrap().iter().map(|&id| id as u32).collect();
        assert_eq!(ids, want_ids, "prompt {i}");
        let want = reference.f32(&format!("logits.{i}")).unwrap();
        let found = LLM.logits(&ids).unwrap();
        assert_eq!(found.shape(), want.shape());
        let worst = difference(found.data(), want.data());
        let a = agreement(&want, &found).unwrap();
        println!("prompt {i}: {} tokens, largest difference {worst:e}, largest KL {:e}", ids.len(), a.max_kl);
        assert!(worst <= 2e-3, "prompt {i}: {worst}");
        assert_eq!(a.top1, 1.0);
        assert_eq!(LLM.tokenizer.decode(&ids).unwrap(), *prompt);
    }
}

#[test]
fn the_folder_is_the_built_in_model() {
    let folder = Llm::open(folder()).unwrap();
    assert_eq!(folder.name, "kjv-1m");
    assert_eq!(folder.model.weights().parameters(), 1_054_080);
    let ids = LLM.tokenizer.encode("The song of").unwrap();
    assert_eq!(folder.logits(&ids).unwrap(), LLM.logits(&ids).unwrap());
}

#[test]
fn held_out_perplexity_is_the_trained_one() {
    // models/kjv-1m/README.md: 2.99 nats a token in windows of 320. Ours have other borders, so agree to 0.05 nats.
    let text = std::fs::read_to_string(folder().join("heldout.txt")).unwrap();
    let ids = LLM.tokenizer.encode_plain(&text).unwrap();
    let mut nll = Vec::new();
    for window in ids.chunks_exact(320) {
        nll.extend(golden::negative_log_likelihoods(&LLM.logits(window).unwrap(), window).unwrap());
    }
    let mean = golden::perplexity(&nll).unwrap().ln();
    println!("{} tokens, {mean:.4} nats a token", nll.len());
    assert!((mean - 2.9885).abs() < 0.05, "{mean}");
}

#[test]
fn prefill_is_prefill_of_one_less_and_decode() {
    let ids = &LLM.tokenizer.encode(&prompts()[2]).unwrap()[..64];
    let mut worst = 0f32;
    for t in 1..=64 {
        let whole = forward(&ids[..t], &mut LLM.cache());
        let mut cache = LLM.cache();
        forward(&ids[..t - 1], &mut cache);
        let last = forward(&ids[t - 1..t], &mut cache);
        worst = worst.max(difference(whole.row(t - 1), last.row(0)));
    }
    println!("largest difference {worst:e}");
    assert!(worst <= 1e-4, "{worst}");
}

/// Rounds to multiples of 1/4, so that raw and decoded tokens differ visibly.
struct Coarse;
impl TileCodec for Coarse {
    fn name(&self) -> String {
        "coarse".into()
    }
    fn round_trip(&mut self, _: Stream, _: usize, tile: &mut [f32]) -> golden::Result<usize> {
        tile.iter_mut().for_each(|x| *x = (*x * 4.0).round() / 4.0);
        Ok(tile.len() * 8)
    }
}

proptest! {
    #![proptest_config(common::config(common::seeds!("reference"), 10))]
    #[test]
    fn any_cut_of_a_prefill_agrees(cuts in prop::collection::vec(4usize..50, 1..10), storage in 0..3) {
        let ids = LLM.tokenizer.encode(&prompts()[2]).unwrap();
        let shape = KvShape::from(LLM.model.config());
        let cache = || -> Box<dyn KvCache> { match storage {
            0 => Box::new(PlainCache::new(shape, Storage::F32)),
            1 => Box::new(PlainCache::new(shape, Storage::Bf16)),
            _ => Box::new(CodecCache::new(shape, Policy::SINKS_AND_TILE, Coarse)),
        }};
        let total: usize = cuts.iter().sum();
        prop_assume!(total <= ids.len());
        let whole = forward(&ids[..total], &mut *cache());
        let (mut pieces, mut split, mut rest) = (cache(), Vec::new(), &ids[..total]);
        for &cut in &cuts {
            let (chunk, after) = rest.split_at(cut);
            split.extend_from_slice(forward(chunk, &mut *pieces).data());
            rest = after;
        }
        prop_assert!(rest.is_empty());
        // Not close but equal: from 4 rows up one row's sums do not depend on the others.
        prop_assert!(whole.data() == split);
    }

    #[test]
    fn cuts_down_to_one_token_agree(cuts in prop::collection::vec(1usize..6, 1..30)) {
        let ids = LLM.tokenizer.encode(&prompts()[2]).unwrap();
        let total: usize = cuts.iter().sum();
        let whole = forward(&ids[..total], &mut LLM.cache());
        let (mut cache, mut start, mut worst) = (LLM.cache(), 0, 0f32);
        for &cut in &cuts {
            let piece = forward(&ids[start..start + cut], &mut cache);
            worst = worst.max(difference(piece.data(), &whole.data()[start * 1024..][..cut * 1024]));
            start += cut;
        }
        prop_assert!(worst <= 1e-4, "{}", worst);
    }
}

#[test]
fn the_observer_sees_every_projection_and_may_replace_it() {
    let ids = LLM.tokenizer.encode("And it came to pass").unwrap();
    let mut seen = Vec::new();
    let mut watch = |p: &Projected<'_>, output: &mut Tensor| {
        assert_eq!(p.linear.weight.shape(), p.projection.shape(LLM.model.config()));
        assert_eq!(p.input.shape(), [ids.len(), p.linear.weight.columns()]);
        assert_eq!(*output, golden::matmul_nt(p.input, &p.linear.weight)?);
        seen.push((p.layer, p.projection, p.linear.name.clone()));
        Ok(())
    };
    let plain = LLM.model.forward(&ids, &mut LLM.cache(), &mut watch, Logits::All).unwrap();
    assert_eq!(plain, LLM.logits(&ids).unwrap());
    let per_layer = (0..5).flat_map(|l| Projection::LAYER.map(|p| (Some(l), p)));
    let order: Vec<_> = per_layer.chain([(None, Projection::Head)]).collect();
    assert_eq!(seen.iter().map(|s| (s.0, s.1)).collect::<Vec<_>>(), order);
    assert_eq!(seen[0].2, "model.layers.0.self_attn.q_proj.weight");
    assert_eq!(seen[35].2, "model.embed_tokens.weight", "the head is tied");

    let mut silence = |p: &Projected<'_>, output: &mut Tensor| {
        if p.projection == Projection::Head {
            output.data_mut().fill(0.0);
        }
        Ok(())
    };
    let silent = LLM.model.forward(&ids, &mut LLM.cache(), &mut silence, Logits::Last).unwrap();
    assert_eq!((silent.shape(), silent.data().iter().all(|&x| x == 0.0)), (&[1, 1024][..], true));
    let mut reshape = |_: &Projected<'_>, output: &mut Tensor| {
        *output = Tensor::zeros(1, 1);
        Ok(())
    };
    assert!(LLM.model.forward(&ids, &mut LLM.cache(), &mut reshape, Logits::Last).is_err());
}

#[test]
fn what_a_forward_pass_refuses() {
    let fails = |ids: &[u32], cache: &mut dyn KvCache| {
        LLM.model.forward(ids, cache, &mut (), Logits::Last).unwrap_err().to_string()
    };
    assert!(fails(&[5, 1024], &mut LLM.cache()).contains("token id 1024 at position 1"));
    assert!(fails(&[5; 513], &mut LLM.cache()).contains("512 tokens"));
    let mut nearly_full = LLM.cache();
    forward(&[5; 510], &mut nearly_full);
    assert!(fails(&[5; 3], &mut nearly_full).contains("510 tokens in the cache and 3 more"));
    forward(&[5; 2], &mut nearly_full);
    let other = KvShape { layers: 5, heads: 3, head_dim: 32 };
    assert!(fails(&[5], &mut PlainCache::new(other, Storage::F32)).contains("shape"));
    let mut torn = LLM.cache();
    torn.append(0, 0, &[0.0; 32], &[0.0; 32]).unwrap();
    torn.append(0, 1, &[0.0; 32], &[0.0; 32]).unwrap();
    assert!(fails(&[5], &mut torn).contains("clear it"));
    assert_eq!(forward(&[], &mut LLM.cache()).shape(), [0, 1024]);
}

/// Hides one token, as a cache with a corrupt tile does.
struct Hiding(PlainCache, usize);
impl KvCache for Hiding {
    fn shape(&self) -> KvShape {
        self.0.shape()
    }
    fn tokens(&self, layer: usize) -> usize {
        self.0.tokens(layer)
    }
    fn append(&mut self, layer: usize, head: usize, k: &[f32], v: &[f32]) -> golden::Result<()> {
        self.0.append(layer, head, k, v)
    }
    fn read(&mut self, stream: Stream, first: usize, rows: &mut [f32]) -> golden::Result<()> {
        self.0.read(stream, first, rows)?;
        if self.1 < rows.len() / 32 {
            rows[self.1 * 32..][..32].fill(1e3); // whatever lies there
        }
        Ok(())
    }
    fn mask(&self, _: usize, _: usize, visible: &mut [bool]) {
        if let Some(v) = visible.get_mut(self.1) {
            *v = false;
        }
    }
    fn clear(&mut self) {
        self.0.clear();
    }
}

#[test]
fn a_masked_token_has_no_influence() {
    let ids = LLM.tokenizer.encode("And it came to pass in the days").unwrap();
    let run = |ids: &[u32]| forward(ids, &mut Hiding(LLM.cache(), 2));
    let mut other = ids.clone();
    other[2] = 77;
    let (a, b) = (run(&ids), run(&other));
    assert_eq!(a.row(ids.len() - 1), b.row(ids.len() - 1));
    assert!(a.data().iter().all(|x| x.is_finite()), "a fully masked row gives zeros");
    assert_ne!(a.row(2), b.row(2), "its own residual stream still differs");
}
