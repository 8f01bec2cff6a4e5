//! The built-in model on the NPU, against golden and against itself.

use golden::{Tensor, agreement};
use host::{Logits, Options, Session, Source};
use npu::Config;

const TEXT: &str = "In the beginning God created the heaven and the earth. And the earth was without form, and void; and \
     darkness was upon the face of the deep. And the Spirit of God moved upon the face of the waters. And God said, Let \
     there be light: and there was light. And God saw the light, that it was good: and God divided the light from the \
     darkness. And God called the light Day, and the darkness he called Night. And the evening and the morning were the \
     first day.";

fn options() -> Options {
    Options::new(Config::default())
}

fn ids(source: &Source, count: usize) -> Vec<u32> {
    let ids = source.llm().tokenizer.encode(TEXT).unwrap();
    assert!(ids.len() >= count, "{} tokens", ids.len());
    ids[..count].to_vec()
}

fn bits(t: &Tensor) -> Vec<u32> {
    t.data().iter().map(|v| v.to_bits()).collect()
}

#[test]
fn bf16_agrees_with_golden() {
    let source = Source::builtin().unwrap();
    let ids = ids(&source, 100);
    let mut session = Session::new(&source, &options()).unwrap();
    let answer = session.prefill(0, &ids, Logits::All).unwrap();
    let golden = source.llm().logits(&ids).unwrap();
    let a = agreement(&golden, &answer.logits).unwrap();
    assert!(a.mean_kl < 3e-4 && a.top1 >= 0.97, "{a:?}");
    assert!(a.mean_kl > 0.0, "BF16 is not f32");
}

/// Any cut of a text into prefills and decode steps gives the same bits: of a cache that loses something, too.
#[test]
fn the_cut_does_not_matter() {
    let source = Source::builtin().unwrap();
    let ids = ids(&source, 75);
    let mut want = Vec::new();
    for (chunk, cut) in
        [(128, vec![75]), (32, vec![75]), (128, vec![40, 1, 1, 33]), (64, vec![1; 75]), (96, vec![3, 30, 31, 11])]
    {
        let options = Options { chunk, ..options() };
        let mut session = Session::new(&source, &options).unwrap();
        let mut rows = Vec::new();
        let mut at = 0;
        for n in cut {
            let part = &ids[at..at + n];
            let answer = match n {
                1 => session.decode(&[(0, part[0])]).unwrap(),
                _ => session.prefill(0, part, Logits::All).unwrap(),
            };
            rows.extend(bits(&answer.logits));
            at += n;
        }
        if want.is_empty() {
            want = rows;
        } else {
            assert!(want == rows, "chunk {chunk}");
        }
    }
}

/// What a session refuses, it refuses by name, and it goes on.
#[test]
fn refusals() {
    let source = Source::builtin().unwrap();
    let ids = ids(&source, 60);
    let options = Options { context: 64, sequences: 2, ..options() };
    let mut session = Session::new(&source, &options).unwrap();
    let said = |error: host::Error, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|w| text.contains(w)), "{text}");
    };
    session.prefill(0, &ids, Logits::Last).unwrap();
    said(session.prefill(0, &ids[..5], Logits::Last).unwrap_err(), &["60 tokens", "5 more", "64", "--truncate"]);
    said(session.prefill(2, &ids, Logits::Last).unwrap_err(), &["sequence 2"]);
    said(session.decode(&[(0, 1024)]).unwrap_err(), &["1024"]);
    said(session.decode(&[(0, 1), (0, 1)]).unwrap_err(), &["twice"]);
    assert_eq!((session.held(0), session.held(1)), (60, 0));
    session.decode(&[(0, 1)]).unwrap();
    session.forget(0);
    session.prefill(0, &ids, Logits::Last).unwrap();

    let new = |change: &dyn Fn(&mut Options)| {
        let mut options = options.clone();
        change(&mut options);
        Session::new(&source, &options).map(|_| ()).unwrap_err()
    };
    said(new(&|o| o.config.scratchpad.bytes = 128 << 10), &["scratchpad"]);
    said(new(&|o| o.config.dram.bytes = 1 << 20), &["DRAM"]);
    said(new(&|o| o.sequences = 0), &["0 sequences"]);
    said(new(&|o| o.format = "int8/96".parse().unwrap()), &["128", "96"]);
}

/// Too few banks for every buffer to have its own: other cycles, the same bits.
#[test]
fn few_banks_only_cost_time() {
    let source = Source::builtin().unwrap();
    let ids = ids(&source, 40);
    let mut answers = Vec::new();
    for banks in [32, 4] {
        let mut options = options();
        options.config.scratchpad.banks = banks;
        let mut session = Session::new(&source, &options).unwrap();
        let answer = session.prefill(0, &ids, Logits::All).unwrap();
        answers.push((bits(&answer.logits), answer.cycles));
    }
    assert!(answers[0].0 == answers[1].0);
    assert!(answers[0].1 < answers[1].1, "{} {}", answers[0].1, answers[1].1);
}
