//! A compressed cache as a file: a safetensors file whose tensors docs/nkz.md describes.

use super::Calibration;
use super::dump::{Dump, bf16, read};
use crate::out;
use anyhow::{Context, bail, ensure};
use golden::kv::KvShape;
use nkz::{
    Address, CHANNELS, Channel, Corrupt, Encoder, Format, Header, Kind, Mode, SINKS, Slot, TOKENS, TileIn,
    column_blocks,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::HashMap;
use std::path::Path;

/// What the file's metadata call it, and the version that is written and read.
const FORMAT: (&str, &str) = ("nkz-cache", "1");

/// A compressed cache: every full tile encoded, the sinks and the tokens behind the last full tile raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Layers, KV heads and head dimension.
    pub shape: KvShape,
    /// Tokens of every stream.
    pub tokens: usize,
    /// The static tables, [layer][head][K, V][channel]; empty without calibration.
    pub tables: Vec<Channel>,
    /// The stored tiles, [layer][head][K, V][tile][block], header and payload, without gaps.
    tiles: Vec<u8>,
    /// Words of 8 bytes of each tile, its header included.
    words: Vec<u16>,
    /// BF16 [layer, head, K or V, sinks, head_dim].
    sinks: Vec<u16>,
    /// BF16 [layer, head, K or V, tokens mod 32, head_dim].
    tail: Vec<u16>,
}

/// A stored tile's place and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'a> {
    /// Where it belongs.
    pub address: Address,
    /// Channels.
    pub width: usize,
    /// Header and payload.
    pub bytes: &'a [u8],
}

impl Tile<'_> {
    /// The header, unless its version or format does not exist.
    pub fn header(&self) -> Option<Header> {
        Header::unpack(u64::from_le_bytes(*self.bytes.first_chunk()?)).ok()
    }
}

impl Stored {
    /// Encodes a dump. A tile that a slot sends to the overflow region is stored lossless: a file has no such region.
    ///
    /// # Errors
    /// A head dimension or a mode that the codec refuses.
    pub fn encode(dump: &Dump, calibration: Option<&Calibration>, modes: [Mode; 2]) -> anyhow::Result<Self> {
        let (shape, d) = (dump.shape, dump.shape.head_dim);
        let tables = calibration.map(|c| c.lines.clone()).unwrap_or_default();
        let mut stored =
            Self { shape, tokens: dump.tokens, tables, tiles: vec![], words: vec![], sinks: vec![], tail: vec![] };
        let (mut encoder, mut bytes, mut block) = (Encoder::default(), Vec::new(), Vec::new());
        for stream in 0..2 * shape.layers * shape.heads {
            let rows = dump.rows(stream / 2 / shape.heads, stream / 2 % shape.heads, stream % 2);
            stored.sinks.extend(&rows[..dump.tokens.min(SINKS) * d]);
            let full = rows.chunks_exact(TOKENS * d);
            stored.tail.extend(full.remainder());
            for (tile, rows) in full.enumerate() {
                for (number, width) in column_blocks(d)?.enumerate() {
                    block.clear();
                    block.extend(rows.chunks_exact(d).flat_map(|row| &row[number * CHANNELS..][..width]));
                    let address = address(shape, stream, tile, number);
                    let channels = stored.lines(stream, number, width);
                    let tile = TileIn { address, values: &block, width, channels };
                    let done = encoder.encode(&tile, modes[stream % 2], &mut bytes)?;
                    if done.header.format == Format::Overflow {
                        encoder.encode(&tile, Mode::Lossless, &mut bytes)?;
                    }
                    stored.words.push((bytes.len() / 8) as u16);
                    stored.tiles.extend(&bytes);
                }
            }
        }
        Ok(stored)
    }

    fn lines(&self, stream: usize, block: usize, width: usize) -> Option<&[Channel]> {
        let first = stream * self.shape.head_dim + block * CHANNELS;
        self.tables.get(first..first + width)
    }

    /// All tiles in order of the file.
    pub fn tiles(&self) -> impl Iterator<Item = Tile<'_>> {
        let widths: Vec<usize> = column_blocks(self.shape.head_dim).map(Iterator::collect).unwrap_or_default();
        let (per_stream, mut at) = (self.tokens / TOKENS * widths.len(), 0);
        self.words.iter().enumerate().map(move |(i, &words)| {
            let bytes = &self.tiles[at..at + 8 * usize::from(words)];
            at += bytes.len();
            let (stream, tile, block) = (i / per_stream, i % per_stream / widths.len(), i % widths.len());
            Tile { address: address(self.shape, stream, tile, block), width: widths[block], bytes }
        })
    }

    /// Decodes all tiles. The rows of a corrupt one are zero, and it is named.
    pub fn decode(&self) -> (Dump, Vec<Corrupt>) {
        let d = self.shape.head_dim;
        let streams = 2 * self.shape.layers * self.shape.heads;
        let stream_of =
            |a: &Address| (usize::from(a.layer) * self.shape.heads + usize::from(a.head)) * 2 + a.kind as usize;
        let mut rows = vec![vec![0u16; self.tokens * d]; streams];
        let (mut corrupt, mut out) = (Vec::new(), vec![0; TOKENS * CHANNELS]);
        for tile in self.tiles() {
            let (a, stream, block) = (tile.address, stream_of(&tile.address), usize::from(tile.address.block));
            let out = &mut out[..TOKENS * tile.width];
            let slot = Slot { address: a, width: tile.width, channels: self.lines(stream, block, tile.width) };
            let cause = match slot.decode(tile.bytes, out) {
                Ok(done) if done.overflow.is_some() => Some(nkz::Cause::Overflow),
                Ok(done) if done.header.tokens() != TOKENS => Some(nkz::Cause::Field),
                Ok(_) => None,
                Err(nkz::Error::Corrupt(c)) => Some(c.cause),
                Err(_) => Some(nkz::Cause::Length),
            };
            if let Some(cause) = cause {
                out.fill(0);
                corrupt.push(Corrupt { address: a, cause });
            }
            let first = a.tile as usize * TOKENS * d + block * CHANNELS;
            for (row, from) in rows[stream][first..].chunks_mut(d).zip(out.chunks_exact(tile.width)) {
                row[..tile.width].copy_from_slice(from);
            }
        }
        let (sinks, tail) = (self.tokens.min(SINKS) * d, self.tokens % TOKENS * d);
        for (stream, rows) in rows.iter_mut().enumerate() {
            rows[..sinks].copy_from_slice(&self.sinks[stream * sinks..][..sinks]);
            let full = rows.len() - tail;
            rows[full..].copy_from_slice(&self.tail[stream * tail..][..tail]);
        }
        let of = |kind: usize| rows.iter().skip(kind).step_by(2).flatten().copied().collect();
        (Dump { shape: self.shape, tokens: self.tokens, values: [of(0), of(1)] }, corrupt)
    }

    /// Bytes of tiles, lengths, raw tokens.
    pub fn sizes(&self) -> [usize; 3] {
        [self.tiles.len(), 2 * self.words.len(), 2 * (self.sinks.len() + self.tail.len())]
    }

    /// Writes the file.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let s = self.shape;
        let bytes16 = |v: &[u16]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let raw = |tokens: usize| vec![s.layers, s.heads, 2, tokens, s.head_dim];
        let parts = [
            ("tiles", Dtype::U8, vec![self.tiles.len()], self.tiles.clone()),
            ("words", Dtype::U16, vec![self.words.len()], bytes16(&self.words)),
            ("sinks", Dtype::BF16, raw(self.tokens.min(SINKS)), bytes16(&self.sinks)),
            ("tail", Dtype::BF16, raw(self.tokens % TOKENS), bytes16(&self.tail)),
            (
                "tables",
                Dtype::U64,
                vec![self.tables.len()],
                self.tables.iter().flat_map(|c| c.pack().to_le_bytes()).collect(),
            ),
        ];
        let view =
            |(name, dtype, shape, bytes)| -> anyhow::Result<_> { Ok((name, TensorView::new(dtype, shape, bytes)?)) };
        let views = parts.iter().map(|(n, t, s, b)| view((*n, *t, s.clone(), b.as_slice())));
        let views = views.collect::<anyhow::Result<Vec<_>>>()?;
        let dimensions = [("layers", s.layers), ("heads", s.heads), ("head_dim", s.head_dim), ("tokens", self.tokens)];
        let mut metadata: HashMap<_, _> = dimensions.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        metadata.extend([("format".into(), FORMAT.0.into()), ("version".into(), FORMAT.1.into())]);
        out::save_bytes(path, &safetensors::serialize(views, Some(metadata))?)
    }

    /// Reads a file. Its tiles may still be corrupt: [`Stored::decode`] says so.
    ///
    /// # Errors
    /// Another file, format or version, and sizes that do not fit each other.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        Self::parse(&read(path)?).with_context(|| path.display().to_string())
    }

    fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let (_, head) = SafeTensors::read_metadata(bytes).context("this is no safetensors file")?;
        let metadata = head.metadata().clone().unwrap_or_default();
        let field = |name: &str| metadata.get(name).map_or("", String::as_str);
        ensure!(field("format") == FORMAT.0, "this is no compressed cache: write one by `magpie kv encode`");
        ensure!(field("version") == FORMAT.1, "version {} is not {}", field("version"), FORMAT.1);
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
        let u16s =
            |v: TensorView| v.data().chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect::<Vec<_>>();
        let mut tables = Vec::new();
        for (i, eight) in tensor("tables", Dtype::U64)?.data().as_chunks().0.iter().enumerate() {
            let word = u64::from_le_bytes(*eight);
            let line = Channel::unpack(word);
            ensure!(line.pack() == word && line.mean & 0x7f80 != 0x7f80, "line {i} of the tables holds {word:#x}");
            tables.push(line);
        }
        let tiles = tensor("tiles", Dtype::U8)?.data().to_vec();
        let words = u16s(tensor("words", Dtype::U16)?);
        let (sinks, tail) = (tensor("sinks", Dtype::BF16)?, tensor("tail", Dtype::BF16)?);
        let (sinks, tail) = (bf16("sinks", &sinks)?, bf16("tail", &tail)?);
        let stored = Self { shape, tokens, tables, tiles, words, sinks, tail };
        stored.check()?;
        Ok(stored)
    }

    /// That every size follows from the shape.
    fn check(&self) -> anyhow::Result<()> {
        let (s, blocks) = (self.shape, column_blocks(self.shape.head_dim)?.count());
        // Wide enough for any sizes that the metadata may claim.
        let product = |factors: [usize; 4]| factors.iter().map(|&f| f as u128).product::<u128>();
        let [streams, d] = [2 * s.layers * s.heads, s.head_dim];
        let tables = if self.tables.is_empty() { 0 } else { product([streams, d, 1, 1]) };
        let expected = [
            ("words", self.words.len(), product([streams, self.tokens / TOKENS, blocks, 1])),
            ("sinks", self.sinks.len(), product([streams, self.tokens.min(SINKS), d, 1])),
            ("tail", self.tail.len(), product([streams, self.tokens % TOKENS, d, 1])),
            ("tiles", self.tiles.len(), self.words.iter().map(|&w| 8 * u128::from(w)).sum()),
            ("tables", self.tables.len(), tables),
        ];
        for (name, got, expected) in expected {
            ensure!(got as u128 == expected, "tensor `{name}` has {got} elements, the shape needs {expected}");
        }
        if let Some(i) = self.words.iter().position(|&w| w == 0) {
            bail!("tensor `words`: tile {i} has no header");
        }
        Ok(())
    }
}

/// The address of a tile of stream number `stream` ([layer][head][K, V]).
fn address(shape: KvShape, stream: usize, tile: usize, block: usize) -> Address {
    Address {
        sequence: 0,
        layer: (stream / 2 / shape.heads) as u16,
        head: (stream / 2 % shape.heads) as u16,
        kind: [Kind::Key, Kind::Value][stream % 2],
        block: block as u8,
        tile: tile as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers, one head of 80 channels in two column blocks, 70 tokens: two full tiles a stream and a tail.
    fn dump() -> Dump {
        let shape = KvShape { layers: 2, heads: 1, head_dim: 80 };
        let values = [0x3f00u16, 0x3f20].map(|base| (0..2 * 70 * 80).map(|i| base + (i * 7919 % 200) as u16).collect());
        Dump { shape, tokens: 70, values }
    }

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
            (&|path| dump().save(path), &|bytes| Dump::parse(bytes).is_ok_and(|read| read == dump())),
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

    #[test]
    fn lossy_files_keep_sinks_and_tail() {
        let dump = dump();
        let line = Channel { mean: 0x3f00, step: -20, spread: 20, ..Channel::default() };
        let calibration = Calibration { shape: dump.shape, lines: vec![line; 2 * 2 * 80] };
        let stored = Stored::encode(&dump, Some(&calibration), [Mode::Entropy { qp: 8 }; 2]).unwrap();
        let (decoded, corrupt) = stored.decode();
        assert!(corrupt.is_empty());
        let raw = |token: usize| !(SINKS..64).contains(&token);
        for (rows, back) in dump.values.iter().zip(&decoded.values) {
            for (i, (row, back)) in rows.chunks(80).zip(back.chunks(80)).enumerate() {
                assert_eq!(row == back, raw(i % 70), "token {}", i % 70);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_a_typed_error_or_a_corrupt_tile() {
        let (_folder, path) = file();
        let small = Dump { tokens: 32, ..dump() };
        let small = Dump { values: small.values.map(|v| v[..2 * 32 * 80].to_vec()), ..small };
        let stored = Stored::encode(&small, None, [Mode::Lossless; 2]).unwrap();
        stored.save(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut corrupt = 0;
        for at in (0..bytes.len()).step_by(7) {
            let mut broken = bytes.clone();
            broken[at] ^= 1 << (at % 8);
            if let Ok(stored) = Stored::parse(&broken) {
                corrupt += stored.decode().1.len();
            }
        }
        assert!(corrupt > bytes.len() / 10, "{corrupt}");
        for length in (0..bytes.len()).step_by(97) {
            assert!(Stored::parse(&bytes[..length]).is_err());
        }
    }
}
