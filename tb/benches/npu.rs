//! A whole model on the NPU, every bit computed and every cycle counted, against the f32 reference on the same core.

use golden::kv::KvCache;
use golden::{Llm, Logits};
use host::{Options, Session};
use std::hint::black_box;
use tb::ratio::{PAIRS, Ratio, Target, compare};

/// Tokens of the prompt.
const PROMPT: usize = 128;
/// Tokens of a decode run.
const STEPS: usize = 8;

/// The reference over the same tokens: a prompt, or single steps after it.
fn golden(llm: &Llm, ids: &[u32], decode: bool) -> impl FnMut() -> f64 {
    let mut cache = llm.cache();
    move || {
        let run = |ids: &[u32], cache: &mut golden::kv::PlainCache| {
            llm.model.forward(ids, cache, &mut (), Logits::Last).expect("the ids fit the model")
        };
        if !decode {
            cache.clear();
            black_box(run(&ids[..PROMPT], &mut cache));
            return PROMPT as f64;
        }
        if cache.tokens(0) == 0 || cache.tokens(0) + STEPS > ids.len() {
            cache.clear();
            run(&ids[..PROMPT], &mut cache);
        }
        let held = cache.tokens(0);
        for &id in &ids[held..held + STEPS] {
            black_box(run(&[id], &mut cache));
        }
        STEPS as f64
    }
}

fn npu(session: &mut Session, ids: &[u32], decode: bool) -> impl FnMut() -> f64 {
    move || {
        if !decode {
            session.forget(0);
            black_box(session.prefill(0, &ids[..PROMPT], host::Logits::Last).expect("the ids fit the model"));
            return PROMPT as f64;
        }
        let held = session.held(0);
        for &id in &ids[held..held + STEPS] {
            black_box(session.decode(&[(0, id)]).expect("the ids fit the model"));
        }
        STEPS as f64
    }
}

fn main() {
    println!("{}", Ratio::header());
    let text = include_str!("../../golden/models/kjv-1m/heldout.txt");
    for name in ["kjv-1m", "smollm2"] {
        let source = match tb::run::source(name) {
            Ok(source) => source,
            Err(error) => {
                eprintln!("SKIPPED, NOTHING SHOWN: {error}");
                continue;
            }
        };
        let llm = source.llm();
        let ids = llm.tokenizer.encode(text).expect("a text has tokens");
        // The runs of a comparison, its warm-up included, go on where the last one ended.
        let ids = &ids[..PROMPT + STEPS * (PAIRS + 1)];
        for format in ["bf16", "int8/32", "q4_1"] {
            let format = format.parse().expect("a format");
            let options = Options { format, ..Options::new(npu::Config::default()) };
            let mut session = Session::new(&source, &options).expect("the model fits");
            for (what, decode) in [("prefill of 128 tokens", false), ("decode after 128 tokens", true)] {
                let row = compare(
                    &format!("{name}, {format}, {what}"),
                    "tokens",
                    ("NPU", &mut npu(&mut session, ids, decode)),
                    ("golden", &mut golden(llm, ids, decode)),
                    PAIRS,
                    if name == "smollm2" && format == host::Format::Bf16 { Target::AtLeast(0.4) } else { Target::None },
                );
                println!("{row}");
            }
        }
    }
}
