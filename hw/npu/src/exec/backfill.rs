//! Contexts longer than anybody wants to prefill: the cache's own tiles once more, without time.

use super::Machine;
use crate::isa::Stream;
use crate::{Fault, Npu};
use nkz::UNIT;
use std::collections::HashMap;

impl Npu {
    /// Keeps the values of every tile encoded from now on, for [`Npu::backfill`].
    pub fn keep_tiles(&mut self) {
        self.machine_mut().nkz.kept = Some(HashMap::new());
    }

    /// Appends kept tiles to every stream of a sequence, in turn, until it holds `tiles` of them: a study of long contexts needs a cache of
    /// their size and statistics, not of their sense. Takes no cycles and counts nothing. Says whether there were tiles to repeat.
    ///
    /// # Errors
    /// A sequence that the KV path was not set up for, full pages, a tile that cannot be encoded.
    pub fn backfill(&mut self, sequence: u8, tiles: u32) -> Result<bool, Fault> {
        let machine = self.machine_mut();
        let setup = machine.kv.setup();
        let (layers, heads) = (setup.layers, setup.heads);
        for i in 0..layers * heads * 2 {
            let stream =
                Stream { sequence, layer: (i / (2 * heads)) as u8, head: (i / 2 % heads) as u8, value: i % 2 == 1 };
            if !machine.repeat(stream, tiles)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Machine {
    fn repeat(&mut self, stream: Stream, tiles: u32) -> Result<bool, Fault> {
        let at = self.kv.at(stream)?;
        let Some(kept) = self.nkz.kept.as_mut().and_then(|kept| kept.remove(&at)) else { return Ok(false) };
        for tile in self.kv.tiles(at)..tiles {
            let (stored, _) = self.encode_tile(stream, at, tile, &kept[tile as usize % kept.len()])?;
            for bytes in &stored {
                self.kv.enter(at, bytes.len())?;
            }
            self.kv.commit(at);
            let mut whole = Vec::new();
            for bytes in stored {
                whole.extend_from_slice(&bytes);
                whole.resize(whole.len().next_multiple_of(UNIT), 0);
            }
            let (start, size) = self.kv.span(at, tile, 1)?;
            let mut rest = &whole[..size];
            for piece in self.kv.pieces(&self.memory, at, start, size) {
                let (part, behind) = rest.split_at(piece.bytes);
                self.memory.dram.write(piece.address, part)?;
                rest = behind;
            }
        }
        if let Some(all) = &mut self.nkz.kept {
            all.insert(at, kept);
        }
        Ok(true)
    }
}
