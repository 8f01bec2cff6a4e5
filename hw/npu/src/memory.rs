//! The memories: DRAM, the banked scratchpad and the control RAM, and the map under which the DMA sees them.

use crate::{Config, Fault};
use dma::Response;
use rtl::{Format, Role, Signal, Visitor};
use std::ops::Range;

#[cfg(target_endian = "big")]
compile_error!(
    "the model keeps its memories as little-endian words: a big-endian host needs conversions that it does not have"
);

/// Where the DMA sees the scratchpad.
pub const SCRATCHPAD_BASE: u64 = 1 << 40;
/// Where the DMA sees the control RAM.
pub const CONTROL_BASE: u64 = 2 << 40;

/// Bytes on an 8-byte boundary, so that rows of any element can be looked at in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Words(Vec<u64>);

impl Words {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// The DRAM. It takes host memory only up to the highest byte ever written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DramBytes {
    words: Words,
    size: u64,
}

impl DramBytes {
    fn new(size: u64) -> Self {
        Self { words: Words::default(), size }
    }

    /// Bytes in all.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Makes room at once for bytes below `end`, which saves moves of what is there.
    pub fn reserve(&mut self, end: u64) {
        let words = end.min(self.size).div_ceil(8) as usize;
        if words > self.words.0.len() {
            self.words.0.reserve_exact(words - self.words.0.len());
        }
    }

    fn range(&self, address: u64, bytes: usize) -> Result<Range<usize>, Fault> {
        match address.checked_add(bytes as u64) {
            Some(end) if end <= self.size => Ok(address as usize..end as usize),
            _ => Err(Fault::Dram { address, bytes: bytes as u64, size: self.size }),
        }
    }

    /// Bytes that were written before; `None` past the highest of them.
    ///
    /// # Errors
    /// Addresses past the end.
    pub fn read(&self, address: u64, bytes: usize) -> Result<Option<&[u8]>, Fault> {
        let range = self.range(address, bytes)?;
        Ok(self.words.bytes().get(range))
    }

    /// Writes.
    ///
    /// # Errors
    /// Addresses past the end.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let range = self.range(address, bytes.len())?;
        let words = range.end.div_ceil(8);
        if words > self.words.0.len() {
            self.words.0.resize(words, 0);
        }
        self.words.bytes_mut()[range].copy_from_slice(bytes);
        Ok(())
    }
}

/// Bytes of a granule of the scratchpad: what is known to be written is known granule by granule.
const GRANULE: usize = 4;

/// The scratchpad: banks side by side, with a bit a granule that says whether it was ever written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    words: Words,
    written: Vec<u64>,
    bank_bytes: usize,
}

impl Scratch {
    fn new(config: &Config) -> Self {
        let bytes = config.scratchpad.bytes as usize;
        Self {
            words: Words(vec![0; bytes / 8]),
            written: vec![0; bytes.div_ceil(64 * GRANULE)],
            bank_bytes: config.bank_bytes() as usize,
        }
    }

    /// Bytes in all.
    pub fn size(&self) -> usize {
        8 * self.words.0.len()
    }

    fn range(&self, base: usize, bytes: usize) -> Result<Range<usize>, Fault> {
        match base.checked_add(bytes) {
            Some(end) if end <= self.size() => Ok(base..end),
            _ => Err(Fault::Scratchpad { base: base as u64, bytes: bytes as u64, size: self.size() as u64 }),
        }
    }

    /// Banks that hold bytes of the range, bit by bit.
    pub(crate) fn banks(&self, range: &Range<usize>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (first, last) = (range.start / self.bank_bytes, (range.end - 1) / self.bank_bytes);
        (first..=last.min(63)).fold(0, |mask, bank| mask | 1 << bank)
    }

    /// Runs `f` over the words of the written bits that the bytes touch, with the mask of those bits.
    fn granules(range: &Range<usize>, mut f: impl FnMut(usize, u64)) {
        let (mut at, end) = (range.start / GRANULE, range.end.div_ceil(GRANULE));
        while at < end {
            let (word, bit) = (at / 64, at % 64);
            let count = (64 - bit).min(end - at);
            f(word, (u64::MAX >> (64 - count)) << bit);
            at += count;
        }
    }

    /// Written bytes.
    ///
    /// # Errors
    /// Bytes past the end, or that were never written.
    pub fn read(&self, base: usize, bytes: usize) -> Result<&[u8], Fault> {
        let range = self.range(base, bytes)?;
        let mut known = true;
        Self::granules(&range, |word, mask| known &= self.written[word] & mask == mask);
        match known {
            true => Ok(&self.words.bytes()[range]),
            false => Err(Fault::Unwritten { base: base as u64, bytes: bytes as u64 }),
        }
    }

    /// Bytes to be written.
    ///
    /// # Errors
    /// Bytes past the end.
    pub fn write(&mut self, base: usize, bytes: usize) -> Result<&mut [u8], Fault> {
        let range = self.range(base, bytes)?;
        Self::granules(&range, |word, mask| self.written[word] |= mask);
        Ok(&mut self.words.bytes_mut()[range])
    }
}

/// All memories of an NPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// DRAM.
    pub dram: DramBytes,
    /// Scratchpad.
    pub scratch: Scratch,
    /// Control RAM: the descriptors that the KV commands compose, and the block tables.
    pub(crate) control: Vec<u8>,
}

impl Memory {
    pub(crate) fn new(config: &Config, control: usize) -> Self {
        Self { dram: DramBytes::new(config.dram.bytes), scratch: Scratch::new(config), control: vec![0; control] }
    }

    /// Bytes as the DMA sees them. DRAM that nobody wrote reads as zeros.
    pub(crate) fn fetch(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let bytes = out.len();
        if address >= CONTROL_BASE {
            let at = (address - CONTROL_BASE) as usize;
            let from = self.control.get(at..at + bytes).ok_or(Fault::Control { address, bytes: bytes as u64 })?;
            out.copy_from_slice(from);
        } else if address >= SCRATCHPAD_BASE {
            out.copy_from_slice(self.scratch.read((address - SCRATCHPAD_BASE) as usize, bytes)?);
        } else {
            match self.dram.read(address, bytes)? {
                Some(from) => out.copy_from_slice(from),
                None => {
                    for (i, out) in out.iter_mut().enumerate() {
                        *out = self.dram.read(address + i as u64, 1)?.map_or(0, |b| b[0]);
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies `bytes` bytes between two places of the map.
    pub(crate) fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), Fault> {
        let written = from < SCRATCHPAD_BASE && self.dram.read(from, bytes)?.is_some();
        if written && (SCRATCHPAD_BASE..CONTROL_BASE).contains(&to) {
            let out = self.scratch.write((to - SCRATCHPAD_BASE) as usize, bytes)?;
            if let Some(from) = self.dram.read(from, bytes)? {
                out.copy_from_slice(from);
            }
            return Ok(());
        }
        let mut buffer = vec![0; bytes];
        self.fetch(from, &mut buffer)?;
        self.put(to, &buffer)
    }

    /// The first place where two machines' memories differ, if any does.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let first = |a: &[u64], b: &[u64]| {
            (a.len() != b.len()).then(|| a.len().min(b.len())).or_else(|| a.iter().zip(b).position(|(a, b)| a != b))
        };
        let pairs = [
            ("the DRAM", &self.dram.words.0, &other.dram.words.0, 8),
            ("the scratchpad", &self.scratch.words.0, &other.scratch.words.0, 8),
            ("what was written of the scratchpad", &self.scratch.written, &other.scratch.written, 64 * GRANULE),
        ];
        let found =
            pairs.into_iter().find_map(|(name, a, b, bytes)| Some(format!("{name} at {:#x}", first(a, b)? * bytes)));
        found.or_else(|| (self.control != other.control).then(|| "the control RAM".into()))
    }

    /// Lanes of a beat as the DMA's port gives them. Lanes around what a job moves are read too, so bytes never written read as they are.
    pub(crate) fn load(&self, address: u64, lanes: &mut [u8]) -> Response {
        if self.fetch(address, lanes).is_err() {
            for (i, lane) in lanes.iter_mut().enumerate() {
                let mut byte = [0];
                // Past the end of a memory, or never written: only lanes that nobody uses.
                *lane = self.fetch(address + i as u64, &mut byte).map_or(0, |()| byte[0]);
            }
        }
        Response::Okay
    }

    /// Lanes of a beat into memory, those whose bit of the strobe is set.
    pub(crate) fn store(&mut self, address: u64, lanes: &[u8], strobe: u64) -> Response {
        let on = (0..lanes.len()).filter(|i| strobe >> i & 1 == 1);
        let mut result = Response::Okay;
        for i in on {
            if self.put(address + i as u64, &lanes[i..=i]).is_err() {
                result = Response::DecodeError;
            }
        }
        result
    }

    /// Shows the on-chip memories.
    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        let word =
            |name: &'static str, width| Signal { name: name.into(), width, format: Format::Hex, role: Role::Register };
        let Scratch { words, written, .. } = &mut self.scratch;
        if v.memory(word("scratchpad", 64), words.0.len()) {
            words.0.iter_mut().for_each(|w| *w = v.word(*w));
        }
        if v.memory(word("written", 64), written.len()) {
            written.iter_mut().for_each(|w| *w = v.word(*w));
        }
        if v.memory(word("control", 8), self.control.len()) {
            self.control.iter_mut().for_each(|w| *w = v.word(u64::from(*w)) as u8);
        }
    }

    /// Writes bytes as the DMA does.
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        if address >= CONTROL_BASE {
            return Err(Fault::Control { address, bytes: bytes.len() as u64 });
        }
        if address >= SCRATCHPAD_BASE {
            let base = (address - SCRATCHPAD_BASE) as usize;
            self.scratch.write(base, bytes.len())?.copy_from_slice(bytes);
            return Ok(());
        }
        self.dram.write(address, bytes)
    }
}
