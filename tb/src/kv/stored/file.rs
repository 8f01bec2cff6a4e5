//! A compressed cache as a file: a safetensors file whose tensors docs/nkz.md describes.

use super::Stored;
use crate::kv::{dump::bf16, file::read};
use crate::out;
use anyhow::{Context, bail, ensure};
use golden::kv::KvShape;
use nkz::{Channel, SINKS, TOKENS, column_blocks};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::HashMap;
use std::path::Path;

/// What the file's metadata call it, and the version that is written and read.
const FORMAT: (&str, &str) = ("nkz-cache", "2");

/// The way out of a damaged file.
const DAMAGED: &str = "the file is damaged: take a sound copy, or write it anew by `magpie kv encode`";

/// The metadata's name for a tensor's checksum.
fn checksum_of(name: &str) -> String {
    format!("crc32.{name}")
}

/// CRC-32 as zlib has it, eight hexadecimal digits.
fn checksum(bytes: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(bytes))
}

impl Stored {
    /// The shape of the sinks and of the tail.
    fn raw_shape(shape: KvShape, tokens: usize) -> Vec<usize> {
        vec![shape.layers, shape.heads, 2, tokens, shape.head_dim]
    }

    /// Writes the file.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let s = self.shape;
        let bytes16 = |v: &[u16]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let raw = |tokens| Self::raw_shape(s, tokens);
        let tables = self.tables.iter().flat_map(|c| c.pack().to_le_bytes()).collect();
        let guarded = [
            ("words", Dtype::U16, vec![self.words.len()], bytes16(&self.words)),
            ("sinks", Dtype::BF16, raw(self.tokens.min(SINKS)), bytes16(&self.sinks)),
            ("tail", Dtype::BF16, raw(self.tokens % TOKENS), bytes16(&self.tail)),
            ("tables", Dtype::U64, vec![self.tables.len()], tables),
        ];
        let dimensions = [("layers", s.layers), ("heads", s.heads), ("head_dim", s.head_dim), ("tokens", self.tokens)];
        let mut metadata: HashMap<_, _> = dimensions.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        metadata.extend([("format".into(), FORMAT.0.into()), ("version".into(), FORMAT.1.into())]);
        metadata.extend(guarded.iter().map(|(name, .., bytes)| (checksum_of(name), checksum(bytes))));
        let mut views = vec![("tiles", TensorView::new(Dtype::U8, vec![self.tiles.len()], &self.tiles)?)];
        for (name, dtype, shape, bytes) in &guarded {
            views.push((name, TensorView::new(*dtype, shape.clone(), bytes)?));
        }
        out::save_bytes(path, &safetensors::serialize(views, Some(metadata))?)
    }

    /// Reads a file. Its tiles may still be corrupt: [`Stored::decode`] says so.
    ///
    /// # Errors
    /// Another file, format or version, sizes that do not fit each other, damage outside of the tiles.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        Self::parse(&read(path)?).with_context(|| path.display().to_string())
    }

    /// Whether the bytes of a file call themselves a compressed cache.
    pub(in crate::kv) fn marks(bytes: &[u8]) -> bool {
        SafeTensors::read_metadata(bytes).is_ok_and(|(_, head)| {
            head.metadata().as_ref().is_some_and(|metadata| metadata.get("format").is_some_and(|f| f == FORMAT.0))
        })
    }

    pub(in crate::kv) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let (_, head) = SafeTensors::read_metadata(bytes).context("this is no safetensors file")?;
        let metadata = head.metadata().clone().unwrap_or_default();
        let field = |name: &str| metadata.get(name).map_or("", String::as_str);
        ensure!(field("format") == FORMAT.0, "this is no compressed cache: write one by `magpie kv encode`");
        ensure!(
            field("version") == FORMAT.1,
            "version {} of a compressed cache, {} is read: encode its dump anew by `magpie kv encode`",
            field("version"),
            FORMAT.1
        );
        let number = |name: &str| -> anyhow::Result<usize> {
            let n: u16 = field(name).parse().with_context(|| format!("metadata `{name}` is {:?}", field(name)))?;
            Ok(n.into())
        };
        let shape = KvShape { layers: number("layers")?, heads: number("heads")?, head_dim: number("head_dim")? };
        let tokens: u32 =
            field("tokens").parse().with_context(|| format!("metadata `tokens` is {:?}", field("tokens")))?;
        let tokens = tokens as usize;
        let file = SafeTensors::deserialize(bytes)?;
        let tensor = |name: &str, dtype: Dtype| -> anyhow::Result<TensorView> {
            let view = file.tensor(name).with_context(|| format!("there is no tensor `{name}`"))?;
            ensure!(view.dtype() == dtype, "tensor `{name}` has the type {:?}, not {dtype:?}", view.dtype());
            Ok(view)
        };
        let guarded = |name: &str, dtype: Dtype| -> anyhow::Result<TensorView> {
            let view = tensor(name, dtype)?;
            let (said, is) = (field(&checksum_of(name)), checksum(view.data()));
            ensure!(said == is, "tensor `{name}` has the checksum {is}, not {said:?}: {DAMAGED}");
            Ok(view)
        };
        let raw = |name: &str, tokens: usize| -> anyhow::Result<Vec<u16>> {
            let (view, expected) = (guarded(name, Dtype::BF16)?, Self::raw_shape(shape, tokens));
            ensure!(view.shape() == expected, "tensor `{name}` is {:?}, not {expected:?}: {DAMAGED}", view.shape());
            bf16(name, &view)
        };
        let mut tables = Vec::new();
        for (i, eight) in guarded("tables", Dtype::U64)?.data().as_chunks().0.iter().enumerate() {
            let word = u64::from_le_bytes(*eight);
            let line = Channel::unpack(word);
            ensure!(line.pack() == word && line.mean & 0x7f80 != 0x7f80, "line {i} of the tables holds {word:#x}");
            tables.push(line);
        }
        let words = guarded("words", Dtype::U16)?;
        let words = words.data().as_chunks().0.iter().map(|&b| u16::from_le_bytes(b)).collect();
        let tiles = tensor("tiles", Dtype::U8)?.data().to_vec();
        let (sinks, tail) = (raw("sinks", tokens.min(SINKS))?, raw("tail", tokens % TOKENS)?);
        let stored = Self { shape, tokens, tables, tiles, words, sinks, tail };
        stored.check()?;
        Ok(stored)
    }

    /// That the sizes of tiles and tables follow from the shape.
    fn check(&self) -> anyhow::Result<()> {
        let (s, blocks) = (self.shape, column_blocks(self.shape.head_dim)?.count());
        // Wide enough for any sizes that the metadata may claim.
        let product = |factors: [usize; 3]| factors.iter().map(|&f| f as u128).product::<u128>();
        let [streams, d] = [2 * s.layers * s.heads, s.head_dim];
        let tables = if self.tables.is_empty() { 0 } else { product([streams, d, 1]) };
        let expected = [
            ("words", self.words.len(), product([streams, self.tokens / TOKENS, blocks])),
            ("tiles", self.tiles.len(), self.words.iter().map(|&w| 8 * u128::from(w)).sum()),
            ("tables", self.tables.len(), tables),
        ];
        for (name, got, expected) in expected {
            ensure!(
                got as u128 == expected,
                "tensor `{name}` has {got} elements, the shape needs {expected}: {DAMAGED}"
            );
        }
        if let Some(i) = self.words.iter().position(|&w| w == 0) {
            bail!("tensor `words`: tile {i} has no header");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::dump;
    use super::*;
    use crate::kv::{Calibration, Dump};
    use nkz::Mode;

    fn file() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        (folder, path)
    }

    #[test]
    fn lossless_files_come_back() {
        let (_folder, path) = file();
        let stored = Stored::encode(&dump(), None, [Mode::Lossless, Mode::Raw]).unwrap();
        stored.save(&path).unwrap();
        let again = Stored::open(&path).unwrap();
        assert_eq!(again, stored);
        assert_eq!(again.decode(), (dump(), vec![]));
        dump().save(&path).unwrap();
        assert_eq!(Dump::open(&path).unwrap(), dump());
    }

    /// A link stays a link and a pipe a pipe, and a new file has the rights of any other.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_there_is_written_to_and_not_replaced() {
        use std::fs;
        use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
        let (folder, path) = file();
        let [plain, link, pipe] = ["plain", "link", "pipe"].map(|name| folder.path().join(name));
        let stored = Stored::encode(&dump(), None, [Mode::Lossless; 2]).unwrap();
        type Written<'a> = (&'a dyn Fn(&Path) -> anyhow::Result<()>, &'a dyn Fn(&[u8]) -> bool);
        let written: [Written<'_>; 2] = [
            (&|path| dump().save(path), &|bytes| Dump::parse(bytes).is_ok_and(|(read, _)| read == dump())),
            (&|path| stored.save(path), &|bytes| Stored::parse(bytes).is_ok_and(|read| read == stored)),
        ];
        for (save, same) in written {
            fs::write(&plain, "").unwrap();
            save(&path).unwrap();
            let rights = |path| fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(rights(&path), rights(&plain));
            let whole = fs::read(&path).unwrap();
            assert!(same(&whole));

            symlink(&plain, &link).unwrap();
            save(&link).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert!(same(&fs::read(&plain).unwrap()));

            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            // Open at both ends, so that neither waits; it holds 64 KiB.
            let mut ends = fs::File::options().read(true).write(true).open(&pipe).unwrap();
            save(&pipe).unwrap();
            assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
            let mut got = vec![0; whole.len()];
            std::io::Read::read_exact(&mut ends, &mut got).unwrap();
            assert!(same(&got));
            for path in [&path, &link, &pipe] {
                fs::remove_file(path).unwrap();
            }
        }
    }

    /// Through a link, so that a writer that replaces what it finds would replace the link.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_an_error() {
        let (_folder, path) = file();
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let error = format!("{:#}", dump().save(&path).unwrap_err());
        assert!(error.contains(&path.display().to_string()) && error.contains("No space left"), "{error}");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
    }

    /// A small file with static tables: one head of 8 channels, a full tile and a token behind it.
    fn small() -> Vec<u8> {
        let (_folder, path) = file();
        let shape = KvShape { layers: 1, heads: 1, head_dim: 8 };
        let line = |i: u16| Channel { mean: 0x3f00 + i, step: -20, spread: 20, ..Channel::default() };
        let calibration = Calibration { shape, lines: (0..16).map(line).collect() };
        let values = [0x3f00u16, 0x3f20].map(|base| (0..33 * 8).map(|i| base + (i * 7919 % 200) as u16).collect());
        let dump = Dump { shape, tokens: 33, values };
        Stored::encode(&dump, Some(&calibration), [Mode::Entropy { qp: 8 }; 2]).unwrap().save(&path).unwrap();
        std::fs::read(&path).unwrap()
    }

    /// Whether a file is read and decoded without a word.
    fn sound(bytes: &[u8]) -> bool {
        Stored::parse(bytes).is_ok_and(|stored| stored.decode().1.is_empty())
    }

    #[test]
    fn every_flipped_bit_is_an_error_or_a_corrupt_tile() {
        let mut bytes = small();
        assert!(sound(&bytes));
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!sound(&bytes), "bit {} of byte {} is flipped in silence", bit % 8, bit / 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    proptest::proptest! {
        /// Up to three flipped bits, which the checksums find wherever they lie.
        #[test]
        fn no_damage_is_silent(flips in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), 0u8..8), 1..=3)) {
            static BYTES: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(small);
            let mut bytes = BYTES.clone();
            for (at, bit) in flips {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            proptest::prop_assert!(bytes == *BYTES || !sound(&bytes));
        }
    }

    #[test]
    fn damage_is_named_with_the_way_out() {
        let bytes = small();
        let refusal = |bytes: &[u8]| format!("{:#}", Stored::parse(bytes).unwrap_err());
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let start = |name: &str| file.tensor(name).unwrap().data().as_ptr() as usize - bytes.as_ptr() as usize;
        for name in ["words", "sinks", "tail", "tables"] {
            let mut broken = bytes.clone();
            broken[start(name)] ^= 4;
            let error = refusal(&broken);
            assert!(error.contains(&format!("`{name}`")) && error.contains("magpie kv encode"), "{error}");
        }
        let old = String::from_utf8_lossy(&bytes[..start("tables")]).replace("\"version\":\"2\"", "\"version\":\"1\"");
        let old = [old.as_bytes(), &bytes[start("tables")..]].concat();
        let error = refusal(&old);
        assert!(error.contains("version 1 ") && error.contains("magpie kv encode"), "{error}");
    }
}
