//! How much of a forward pass is its matrix products: time of the bare products of the same shapes over that of the pass.
//!
//! Each figure is the best of a few runs side by side. SmolLM2 is measured where `make smollm2` has fetched it.

use golden::{Llm, Logits, Model, Projected, Tensor, matmul_nt};
use std::path::Path;
use std::time::{Duration, Instant};

fn best(mut run: impl FnMut()) -> Duration {
    let once = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    let first = once(&mut run);
    let runs = (Duration::from_millis(600).as_nanos() / first.as_nanos().max(1)).clamp(2, 200);
    (0..runs).map(|_| once(&mut run)).min().unwrap_or(first)
}

/// The operands of every projection of a pass.
fn operands(model: &Model, ids: &[u32], cache: &mut golden::kv::PlainCache) -> Vec<(Tensor, Tensor)> {
    let mut seen = Vec::new();
    let mut watch = |p: &Projected<'_>, _: &mut Tensor| {
        seen.push((p.input.clone(), p.linear.weight.clone()));
        Ok(())
    };
    model.forward(ids, cache, &mut watch, Logits::Last).expect("a pass");
    seen
}

fn measure(llm: &Llm, name: &str, held: usize, tokens: usize) {
    let ids: Vec<u32> = (0..held + tokens).map(|i| (i * 37 % llm.model.config().vocabulary) as u32).collect();
    let mut full = llm.cache();
    llm.model.forward(&ids[..held], &mut full, &mut (), Logits::Skip).expect("a pass");
    let products = operands(&llm.model, &ids[held..], &mut full.clone());
    let bare = best(|| {
        for (x, w) in &products {
            std::hint::black_box(matmul_nt(x, w).expect("a product"));
        }
    });
    let mut pass = Duration::MAX;
    let budget = Instant::now();
    while pass == Duration::MAX || budget.elapsed() < Duration::from_millis(600) {
        let mut cache = full.clone();
        let start = Instant::now();
        std::hint::black_box(llm.model.forward(&ids[held..], &mut cache, &mut (), Logits::Last).expect("a pass"));
        pass = pass.min(start.elapsed());
    }
    let rate = tokens as f64 / pass.as_secs_f64();
    let ratio = bare.as_secs_f64() / pass.as_secs_f64();
    println!(
        "{name:10} {tokens:4} tokens after {held:4}: {rate:10.0} tokens/s, {ratio:.2} of the bare products' speed"
    );
}

fn main() {
    let kjv = golden::builtin().expect("the built-in model");
    for (held, tokens) in [(0, 64), (0, 512), (64, 1), (448, 1)] {
        measure(&kjv, "kjv-1m", held, tokens);
    }
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/SmolLM2-135M-Instruct.Q4_1.gguf"));
    match Llm::open_gguf(path) {
        Ok(llm) => {
            for (held, tokens) in [(0, 64), (0, 512), (0, 1024), (512, 1)] {
                measure(&llm, "SmolLM2", held, tokens);
            }
        }
        Err(e) => println!("SmolLM2 not measured: {e}"),
    }
}
