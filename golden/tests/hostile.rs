//! Torn, hostile and absurd model files: typed errors that name file and tensor, no panic, no large allocation.

mod common;

use golden::{Config, HuggingFace, Llm, SafeTensors, TensorSource, Tokenizer, Weights};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/kjv-1m");

fn read(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(MODEL).join(name)).unwrap()
}

fn file(header: &Value, data: usize) -> Vec<u8> {
    let header = header.to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn refused(bytes: Vec<u8>) -> String {
    SafeTensors::parse("m.safetensors", bytes).unwrap_err().to_string()
}

/// A fresh folder that goes away at the end.
struct Folder(PathBuf);
impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("golden-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn write(&self, name: &str, bytes: &[u8]) -> &Self {
        std::fs::write(self.0.join(name), bytes).unwrap();
        self
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_trillion_parameters_in_a_kilobyte() {
    let huge =
        json!({"w": {"dtype": "F32", "shape": [1_000_000, 1_000_000], "data_offsets": [0, 4_000_000_000_000u64]}});
    let error = refused(file(&huge, 1024));
    assert!(error.contains("m.safetensors") && error.contains("`w`"), "{error}");
    let config = json!({"architectures": ["LlamaForCausalLM"], "hidden_size": 16_000_000, "num_hidden_layers": 16_000_000,
        "num_attention_heads": 1, "intermediate_size": 16_000_000, "vocab_size": 16_000_000,
        "max_position_embeddings": 16_000_000, "rms_norm_eps": 1e-5});
    let config = Config::from_json("config.json", config.to_string().as_bytes()).unwrap();
    let weights = SafeTensors::parse("m.safetensors", read("model.safetensors")).unwrap();
    let error = Weights::load(&config, &HuggingFace::single(weights)).unwrap_err().to_string();
    assert!(error.contains("`model.embed_tokens.weight`") && error.contains("16000000"), "{error}");
}

#[test]
fn malformed_headers_are_refused_by_name() {
    assert!(refused(vec![1, 2, 3]).contains("too few"));
    assert!(refused(u64::MAX.to_le_bytes().to_vec()).contains("declares a header"));
    assert!(refused([&9u64.to_le_bytes()[..], b"{}"].concat()).contains("declares a header"));
    assert!(refused([&2u64.to_le_bytes()[..], b"[]"].concat()).contains("header"));
    for (entry, what) in [
        (json!({"dtype": "F32", "shape": [2], "data_offsets": [0, 9]}), "lies at"),
        (json!({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}), "lies at"),
        (json!({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}), "does not fill"),
        (json!({"dtype": "F32", "shape": [u64::MAX, u64::MAX], "data_offsets": [0, 8]}), "does not fill"),
        (json!({"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}), "unknown type"),
        (json!({"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}), "header entry"),
        (json!([]), "header entry"),
    ] {
        let error = refused(file(&json!({"w": entry}), 8));
        assert!(error.contains(what) && error.contains("`w`"), "{error}");
    }
}

#[test]
fn tensors_that_share_bytes_are_refused() {
    let f = |start: usize| {
        file(
            &json!({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                    "b": {"dtype": "F32", "shape": [2], "data_offsets": [start, start + 8]}}),
            16,
        )
    };
    assert!(refused(f(4)).contains("`b`: shares bytes with `a`"));
    assert!(SafeTensors::parse("m", f(8)).is_ok());
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let folder = Folder::new("regular");
    assert!(SafeTensors::open(&folder.0).unwrap_err().to_string().contains("no regular file"));
    assert!(Llm::load(&folder.0.join("absent")).unwrap_err().to_string().contains("cannot read"));
    // A sparse terabyte takes no space on disk and must take none in memory.
    let sparse = folder.0.join("sparse.gguf");
    std::fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    assert!(Llm::load(&sparse).unwrap_err().to_string().contains("1099511627776 bytes"));
}

#[test]
fn wrong_tensors_are_named() {
    let f =
        SafeTensors::parse("m", file(&json!({"w": {"dtype": "I8", "shape": [8], "data_offsets": [0, 8]}}), 8)).unwrap();
    assert!(f.f32("w").unwrap_err().to_string().contains("type I8"));
    assert!(f.i32("w").unwrap_err().to_string().contains("type I8"));
    assert!(f.f32("x").unwrap_err().to_string().contains("`x`: is missing"));
    let hf = HuggingFace::single(f);
    assert!(hf.tensor("w", &[2, 4]).unwrap_err().to_string().contains("[8]"));
}

#[test]
fn folders_with_a_wrong_part() {
    let folder = Folder::new("parts");
    let open = || Llm::open(&folder.0).unwrap_err().to_string();
    assert!(open().contains("config.json"));
    folder.write("config.json", &read("config.json"));
    assert!(open().contains("tokenizer.json"));
    folder.write("tokenizer.json", b"{\"model\":");
    assert!(open().contains("tokenizer.json"));
    folder.write("tokenizer.json", &read("tokenizer.json"));
    assert!(open().contains("model.safetensors"));
    let weights = read("model.safetensors");
    folder.write("model.safetensors", &weights[..weights.len() - 1]);
    assert!(open().contains("model.norm.weight"), "the last tensor is torn");
    folder.write("model.safetensors", &weights);
    assert!(Llm::open(&folder.0).is_ok());
    let mut config: Value = serde_json::from_slice(&read("config.json")).unwrap();
    config["intermediate_size"] = json!(353);
    folder.write("config.json", config.to_string().as_bytes());
    assert!(open().contains("mlp.gate_proj.weight"));
    config["vocab_size"] = json!(1000);
    folder.write("config.json", config.to_string().as_bytes());
    assert!(open().contains("outside the model's vocabulary of 1000"));
}

#[test]
fn shards_read_like_one_file() {
    let whole = SafeTensors::parse("m", read("model.safetensors")).unwrap();
    let bytes = read("model.safetensors");
    let parsed = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let (first, second): (Vec<_>, Vec<_>) = parsed.tensors().into_iter().partition(|(n, _)| n.contains("layers.1"));
    let mut map = serde_json::Map::new();
    let folder = Folder::new("shards");
    folder.write("config.json", &read("config.json")).write("tokenizer.json", &read("tokenizer.json"));
    for (name, part) in [("a.safetensors", first), ("b.safetensors", second)] {
        part.iter().for_each(|(n, _)| drop(map.insert(n.clone(), json!(name))));
        folder.write(name, &safetensors::serialize(part, None).unwrap());
    }
    folder.write("model.safetensors.index.json", json!({"weight_map": map}).to_string().as_bytes());
    let llm = Llm::open(&folder.0).unwrap();
    let layer = llm.model.weights().layers[1].projection(golden::Projection::Down).unwrap();
    assert_eq!(layer.weight, whole.f32("model.layers.1.mlp.down_proj.weight").unwrap());
    folder.write("model.safetensors.index.json", br#"{"weight_map": {"w": "../a.safetensors"}}"#);
    assert!(Llm::open(&folder.0).unwrap_err().to_string().contains("plain file name"));
}

#[test]
fn every_tensor_reads_as_the_public_crate_reads_it() {
    for name in ["model.safetensors", "reference_logits.safetensors"] {
        let bytes = read(name);
        let ours = SafeTensors::parse(name, bytes.clone()).unwrap();
        let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(ours.names().count(), theirs.len());
        for (name, view) in theirs.tensors() {
            assert_eq!(ours.shape(&name), Some(view.shape()));
            match view.dtype() {
                safetensors::Dtype::BF16 => {
                    let bits = ours.f32(&name).unwrap().data().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert!(
                        bits.iter()
                            .map(|b| (b >> 16) as u16)
                            .flat_map(u16::to_le_bytes)
                            .eq(view.data().iter().copied())
                    );
                    assert!(bits.iter().all(|b| b & 0xFFFF == 0));
                }
                safetensors::Dtype::F32 => {
                    let t = ours.f32(&name).unwrap();
                    assert!(t.data().iter().flat_map(|x| x.to_le_bytes()).eq(view.data().iter().copied()));
                }
                _ => {
                    let t = ours.i32(&name).unwrap();
                    assert!(t.iter().flat_map(|x| x.to_le_bytes()).eq(view.data().iter().copied()));
                }
            }
        }
    }
}

/// Changes to a file: bytes put elsewhere, and perhaps the end cut off.
#[derive(Clone, Debug)]
struct Damage {
    edits: Vec<(prop::sample::Index, u8)>,
    cut: Option<prop::sample::Index>,
}

impl Damage {
    fn apply(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        for (at, byte) in &self.edits {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        bytes.truncate(self.cut.map_or(bytes.len(), |c| c.index(bytes.len())));
        bytes
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6);
    let cut = prop::option::weighted(0.2, any::<prop::sample::Index>());
    (edits, cut).prop_map(|(edits, cut)| Damage { edits, cut })
}

fn small_safetensors() -> Vec<u8> {
    file(
        &json!({"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
                "b": {"dtype": "F32", "shape": [4], "data_offsets": [12, 28]}, "__metadata__": {"format": "pt"}}),
        28,
    )
}

proptest! {
    #![proptest_config(common::config(common::seeds!("hostile"), 1))]
    #[test]
    fn mutated_safetensors_never_panic(damage in damage()) {
        if let Ok(f) = SafeTensors::parse("m", damage.apply(small_safetensors())) {
            for name in f.names() {
                let _ = (f.f32(name), f.i32(name));
            }
        }
    }

    #[test]
    fn mutated_configurations_never_panic(damage in damage()) {
        let _ = Config::from_json("config.json", &damage.apply(read("config.json")));
    }
}

proptest! {
    #![proptest_config(common::config(common::seeds!("tokenizer"), 8))]
    #[test]
    fn mutated_tokenizers_never_panic(damage in damage()) {
        if let Ok(t) = Tokenizer::from_json("tokenizer.json", &damage.apply(read("tokenizer.json")), 1024) {
            let _ = t.encode("And God said, Let there be light. \u{1F600} 123").map(|ids| t.decode(&ids));
        }
    }
}
