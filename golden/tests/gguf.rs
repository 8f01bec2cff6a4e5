//! GGUF: a small synthetic file that is always tested, and SmolLM2-135M-Instruct against readers that others wrote, where
//! `make smollm2` has fetched it. Without it those tests say so and return: they are not counted as evidence.

mod common;

use golden::gguf::{BlockType, Metadatum};
use golden::{Gguf, Llm, Pairing, Projection};
use proptest::prelude::*;
use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

/// Writes the little of GGUF that a test needs.
#[derive(Default)]
struct Writer {
    metadata: Vec<u8>,
    metadata_count: u64,
    entries: Vec<u8>,
    data: Vec<u8>,
    tensor_count: u64,
}

impl Writer {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
    fn key(&mut self, key: &str, kind: u32) {
        Self::text(&mut self.metadata, key);
        self.metadata.extend(kind.to_le_bytes());
        self.metadata_count += 1;
    }
    fn u32(mut self, key: &str, value: u32) -> Self {
        self.key(key, 4);
        self.metadata.extend(value.to_le_bytes());
        self
    }
    fn f32(mut self, key: &str, value: f32) -> Self {
        self.key(key, 6);
        self.metadata.extend(value.to_le_bytes());
        self
    }
    fn bool(mut self, key: &str, value: bool) -> Self {
        self.key(key, 7);
        self.metadata.push(value.into());
        self
    }
    fn string(mut self, key: &str, value: &str) -> Self {
        self.key(key, 8);
        Self::text(&mut self.metadata, value);
        self
    }
    fn strings(mut self, key: &str, values: &[String]) -> Self {
        self.key(key, 9);
        self.metadata.extend(8u32.to_le_bytes());
        self.metadata.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|v| Self::text(&mut self.metadata, v));
        self
    }
    fn i32s(mut self, key: &str, values: &[i32]) -> Self {
        self.key(key, 9);
        self.metadata.extend(5u32.to_le_bytes());
        self.metadata.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|v| self.metadata.extend(v.to_le_bytes()));
        self
    }
    /// A tensor of `shape` (row-major), ggml type `code`, and stored bytes.
    fn tensor(mut self, name: &str, shape: &[u64], code: u32, bytes: &[u8]) -> Self {
        Self::text(&mut self.entries, name);
        self.entries.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|d| self.entries.extend(d.to_le_bytes()));
        self.entries.extend(code.to_le_bytes());
        self.entries.extend((self.data.len() as u64).to_le_bytes());
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        self.tensor_count += 1;
        self
    }
    fn finish(self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend(self.tensor_count.to_le_bytes());
        out.extend(self.metadata_count.to_le_bytes());
        out.extend(self.metadata);
        out.extend(self.entries);
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(self.data);
        out
    }
}

/// Q8_0 blocks of a [rows, columns] matrix: d = 2^−7, value = d · code.
fn q8(rows: usize, columns: usize, code: impl Fn(usize, usize) -> i8) -> Vec<u8> {
    let mut out = Vec::new();
    for r in 0..rows {
        for block in 0..columns / 32 {
            out.extend(0x2000u16.to_le_bytes());
            out.extend((0..32).map(|j| code(r, block * 32 + j) as u8));
        }
    }
    out
}

/// A one-layer model of hidden 32, 2 heads of 16, 1 KV head, FFN 32, whose vocabulary is the 256 byte characters and " 1".
fn writer() -> Writer {
    // GPT-2's characters for bytes: printable ones are themselves, the others follow from U+0100 on.
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 0x100u32;
    let mut tokens: Vec<String> = (0..=255u8)
        .map(|b| {
            let code = if printable(b) { u32::from(b) } else { next };
            next += u32::from(!printable(b));
            char::from_u32(code).unwrap().to_string()
        })
        .collect();
    tokens.extend(["Ġ1".into(), "<s>".into(), "12".into(), "ab".into()]);
    let n = tokens.len();
    let mut types = vec![1; n];
    types[257] = 3;
    let code = |seed: usize| move |r: usize, c: usize| ((r * 31 + c * 17 + seed * 7) % 51) as i8 - 25;
    let ones: Vec<u8> = (0..32).flat_map(|_| 1f32.to_le_bytes()).collect();
    let mut w = Writer::default()
        .string("general.architecture", "llama")
        .u32("llama.block_count", 1)
        .u32("llama.context_length", 64)
        .u32("llama.embedding_length", 32)
        .u32("llama.feed_forward_length", 32)
        .u32("llama.attention.head_count", 2)
        .u32("llama.attention.head_count_kv", 1)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "smollm")
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", &["Ġ 1".into(), "1 2".into(), "a b".into()])
        .i32s("tokenizer.ggml.token_type", &types)
        .u32("tokenizer.ggml.bos_token_id", 257)
        .bool("tokenizer.ggml.add_bos_token", true)
        .tensor("token_embd.weight", &[n as u64, 32], 8, &q8(n, 32, code(1)));
    for norm in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
        w = w.tensor(norm, &[32], 0, &ones);
    }
    for (i, (name, rows)) in [
        ("attn_q", 32),
        ("attn_k", 16),
        ("attn_v", 16),
        ("attn_output", 32),
        ("ffn_gate", 32),
        ("ffn_up", 32),
        ("ffn_down", 32),
    ]
    .into_iter()
    .enumerate()
    {
        w = w.tensor(&format!("blk.0.{name}.weight"), &[rows, 32], 8, &q8(rows as usize, 32, code(i + 2)));
    }
    w
}

fn parse(bytes: Vec<u8>) -> golden::Result<Llm> {
    Llm::from_gguf(&Gguf::parse("m.gguf", bytes)?, "m".into())
}

#[test]
fn a_synthetic_model_loads_and_runs() {
    let gguf = Gguf::parse("m.gguf", writer().finish()).unwrap();
    let llm = Llm::from_gguf(&gguf, "m".into()).unwrap();
    let c = llm.model.config();
    assert_eq!((c.heads, c.kv_heads, c.head_dim, c.pairing, c.tied), (2, 1, 16, Pairing::Interleaved, true));
    let q = llm.model.weights().layers[0].projection(Projection::Q).unwrap();
    assert_eq!(q.name, "blk.0.attn_q.weight");
    assert_eq!(q.weight.row(3)[5], ((3 * 31 + 5 * 17 + 2 * 7) % 51 - 25) as f32 / 128.0);
    let (info, raw) = gguf.raw("blk.0.attn_q.weight").unwrap();
    assert_eq!((info.block_type, raw.len()), (BlockType::Q8_0, 32 * 34));
    assert_eq!(gguf.metadata()["llama.block_count"], Metadatum::Unsigned(1));
    // `<s>` first; " 1" is a token and "12" is one, but smollm splits digits before it merges.
    let ids = llm.tokenizer.encode(" 12ab<s>").unwrap();
    assert_eq!(ids, [257, 0x20, u32::from(b'1'), u32::from(b'2'), 259, 257]);
    assert_eq!(llm.tokenizer.decode(&ids).unwrap(), " 12ab");
    assert_eq!(llm.tokenizer.encode_plain("\u{e9}").unwrap(), [0xC3, 0xA9]);
    let logits = llm.logits(&ids).unwrap();
    assert_eq!(logits.shape(), [6, 260]);
    assert!(logits.data().iter().all(|x| x.is_finite()) && logits.data().iter().any(|x| *x != 0.0));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let error = |w: Writer| parse(w.finish()).unwrap_err().to_string();
    for (found, name) in [
        (error(writer().string("llama.rope.scaling.type", "yarn")), "llama.rope.scaling.type"),
        (error(writer().u32("llama.expert_count", 8)), "llama.expert_count"),
        (error(writer().u32("llama.rope.dimension_count", 8)), "llama.rope.dimension_count"),
        (error(writer().tensor("blk.0.attn_q.bias", &[32], 0, &[0; 128])), "blk.0.attn_q.bias"),
        (error(writer().tensor("rope_freqs.weight", &[8], 0, &[0; 32])), "rope_freqs.weight"),
        (error(writer().tensor("x", &[2, 16], 8, &[0; 34])), "`x`"),
        (error(writer().tensor("x", &[32], 12, &[0; 34])), "ggml type 12"),
        (error(writer().tensor("x", &[1 << 40, 1 << 40], 0, &[])), "`x`"),
        (error(writer().tensor("x", &[1 << 20, 1 << 20], 0, &[0; 1000])), "`x`: needs 4398046511104 bytes"),
        (error(writer().tensor("x", &[1, 1, 1, 1, 1], 0, &[0; 4])), "5 dimensions"),
        (error(writer().tensor("output_norm.weight", &[32], 0, &[0; 128])), "appears twice"),
        (error(writer().u32("llama.block_count", 2)), "appears twice"),
        (error(Writer::default().string("general.architecture", "bert")), "bert"),
        (error(Writer::default().string("general.architecture", "llama")), "llama.attention.head_count"),
    ] {
        assert!(found.contains(name) && found.contains("m.gguf"), "{name}: {found}");
    }
    let bytes = writer().finish();
    let cut = |n: usize| Gguf::parse("m.gguf", bytes[..n].to_vec()).unwrap_err().to_string();
    assert!(cut(0).contains("ends at byte 0") && cut(bytes.len() - 64).contains("blk.0.ffn_down.weight"));
    let mut old = bytes.clone();
    old[4] = 1;
    assert!(Gguf::parse("m.gguf", old).unwrap_err().to_string().contains("version 1"));
    // 2^60 metadata and tensors declared in a few bytes.
    let absurd = [&b"GGUF\x03\0\0\0"[..], &(1u64 << 60).to_le_bytes(), &(1u64 << 60).to_le_bytes()].concat();
    assert!(Gguf::parse("m.gguf", absurd).unwrap_err().to_string().contains("ends at byte 24"));
}

proptest! {
    #![proptest_config(common::config(common::seeds!("gguf"), 1))]
    #[test]
    fn mutated_files_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        near_the_start in any::<bool>(),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = BYTES.clone();
        for (at, byte) in edits {
            let range = if near_the_start { 700 } else { bytes.len() };
            bytes[at.index(range)] = byte;
        }
        bytes.truncate(cut.map_or(bytes.len(), |c| c.index(bytes.len())));
        if let Ok(llm) = parse(bytes) {
            let _ = llm.tokenizer.encode("ab 12").and_then(|ids| llm.logits(&ids));
        }
    }
}

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| writer().finish());

/// The SmolLM2 file, or a loud word that a test did not run.
fn smollm2(test: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/SmolLM2-135M-Instruct.Q4_1.gguf"));
    if !path.exists() {
        // Past the harness, which shows the output of failing tests only.
        let word = format!(
            "SKIPPED, NOTHING SHOWN: {test}: models/SmolLM2-135M-Instruct.Q4_1.gguf is absent (make smollm2)\n"
        );
        std::io::stderr().write_all(word.as_bytes()).unwrap();
        return None;
    }
    Some(path)
}

fn data(name: &str) -> Vec<u8> {
    std::fs::read(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).join(name)).unwrap()
}

#[test]
fn smollm2_every_tensor_as_the_public_reader_reads_it() {
    let Some(path) = smollm2("every tensor against PyPI's gguf") else { return };
    let gguf = Gguf::open(&path).unwrap();
    let reference: Vec<serde_json::Value> = serde_json::from_slice(&data("smollm2_tensors.json")).unwrap();
    assert_eq!((gguf.tensors().len(), reference.len()), (272, 272));
    for r in &reference {
        let name = r["name"].as_str().unwrap();
        let (info, _) = gguf.raw(name).unwrap();
        assert_eq!(format!("{:?}", info.block_type), r["type"].as_str().unwrap(), "{name}");
        let shape: Vec<usize> = r["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect();
        assert_eq!(info.shape, shape, "{name}");
        let tensor = gguf.f32(name).unwrap();
        let bits = |i: usize| u64::from(tensor.data()[i].to_bits());
        for sample in r["samples"].as_array().unwrap() {
            let index = sample[0].as_u64().unwrap() as usize;
            assert_eq!(bits(index), sample[1].as_u64().unwrap(), "{name}[{index}]");
        }
        let (mut sum, mut weighted) = (0u64, 0u64);
        for i in 0..tensor.data().len() {
            sum = sum.wrapping_add(bits(i));
            weighted = weighted.wrapping_add(bits(i).wrapping_mul(i as u64 % 65521 + 1));
        }
        assert_eq!(
            (sum.to_string().as_str(), weighted.to_string().as_str()),
            (r["sum"].as_str().unwrap(), r["weighted"].as_str().unwrap()),
            "{name}"
        );
    }
}

#[test]
fn smollm2_token_ids_of_an_independent_tokenizer() {
    let Some(path) = smollm2("200 strings against llama.cpp's tokenizer") else { return };
    let tokenizer = Gguf::open(&path).unwrap().tokenizer(49152).unwrap();
    let reference: Vec<(String, Vec<u32>)> = serde_json::from_slice(&data("smollm2_ids.json")).unwrap();
    assert_eq!(reference.len(), 200);
    let wrong: Vec<String> = reference
        .iter()
        .map(|(text, ids)| (text, ids, tokenizer.encode(text).unwrap()))
        .filter(|(_, want, found)| *want != found)
        .map(|(text, want, found)| format!("{text:?}: {found:?}, not {want:?}"))
        .collect();
    assert!(wrong.is_empty(), "{} of 200 differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn smollm2_logits_of_the_reference() {
    let Some(path) = smollm2("logits against Hugging Face transformers") else { return };
    let llm = Llm::open_gguf(&path).unwrap();
    let reference = golden::SafeTensors::parse("smollm2_logits", data("smollm2_logits.safetensors")).unwrap();
    let ids: Vec<u32> = reference.i32("ids").unwrap().iter().map(|&i| i as u32).collect();
    let (top, want) = (reference.i32("top").unwrap(), reference.f32("logits").unwrap());
    let found = llm.logits(&ids).unwrap();
    assert_eq!((ids.len(), want.shape()), (192, &[192, 72][..]));
    let mut worst = 0f32;
    for t in 0..ids.len() {
        let columns = top[t * 8..][..8].iter().map(|&i| i as usize).chain((0..64).map(|i| i * 768));
        for (column, want) in columns.zip(want.row(t)) {
            worst = worst.max((found.row(t)[column] - want).abs());
        }
        assert_eq!(golden::argmax(found.row(t)), top[t * 8] as usize, "position {t}");
    }
    println!("largest difference of a logit {worst:e}");
    assert!(worst <= 2e-3, "{worst}");
}
