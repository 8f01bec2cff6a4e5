use crate::Beat;
use rtl::{Bits, Format, Module, Name, Payload, Role, Signal, Stream, Visitor};

/// Bytes of one of the two tile buffers.
pub const TILE_BYTES: usize = 8192;

/// One tile buffer: as many byte-wide banks as the bus has lanes, each with its own address.
///
/// Element (r, c) of e bytes lies in bank group (r + c) mod L, L = bus / e, at word r·(T / L) + ⌊c / L⌋: L neighbours of a row,
/// and L neighbours of a column, are in different groups, so that a beat of either takes one cycle.
#[derive(Clone, Debug)]
struct Tile {
    bytes: Vec<u8>,
    full: bool,
    /// Rows, columns: 7 bits each.
    rows: u32,
    columns: u32,
    element: u8,
    job_end: bool,
    block_end: bool,
    poison: bool,
}

impl Tile {
    fn new() -> Self {
        let bytes = vec![0; TILE_BYTES];
        Self { bytes, full: false, rows: 0, columns: 0, element: 2, job_end: false, block_end: false, poison: false }
    }
}

/// Elements of a tile's side, by their size in bytes.
fn side(bytes: u32) -> u32 {
    if bytes > 2 { 32 } else { 64 }
}

/// Where element (r, c) begins in a buffer, for elements of `size` bytes.
fn place(r: u32, c: u32, size: u32, bus: u32) -> usize {
    let lanes = bus / size;
    let word = r * (side(size) / lanes) + c / lanes;
    (word * bus + (r + c) % lanes * size) as usize
}

/// The double-buffered transposer: fills one tile by rows while it drains the other by columns; other jobs pass through.
///
/// Latency one edge through the output register, plus the tile. A beat a cycle in and out.
#[derive(Clone, Debug)]
pub struct Transposer {
    bus_bytes: u32,
    tiles: [Tile; 2],
    /// Buffer being filled, 1 bit, and the place in it: 7 bits each.
    fill: u8,
    fill_row: u32,
    fill_column: u32,
    /// Buffer being drained, and the place in it.
    drain: u8,
    drain_row: u32,
    drain_column: u32,
    out: Beat,
    out_valid: bool,
}

/// Inputs of a [`Transposer`].
pub struct TransposerIn<'a> {
    /// The packed stream.
    pub beat: Stream<&'a Beat>,
    /// The consumer takes the output.
    pub ready: bool,
}

/// Outputs of a [`Transposer`].
pub struct TransposerOut<'a> {
    /// A beat of a tiled job would be taken.
    pub ready_tiled: bool,
    /// A beat of a direct job would be taken if the consumer is ready or the output register empty.
    pub ready_direct: bool,
    /// The stream with tiles transposed.
    pub head: Stream<&'a Beat>,
}

impl Transposer {
    /// Empty.
    pub fn new(bus_bytes: u32) -> Self {
        Self {
            bus_bytes,
            tiles: [Tile::new(), Tile::new()],
            fill: 0,
            fill_row: 0,
            fill_column: 0,
            drain: 0,
            drain_row: 0,
            drain_column: 0,
            out: Beat::default(),
            out_valid: false,
        }
    }

    /// Writes one beat of a row.
    pub(crate) fn write(&mut self, beat: &Beat) {
        let size = u32::from(beat.element) / 2;
        let tile = &mut self.tiles[usize::from(self.fill)];
        let (r, c) = (self.fill_row, self.fill_column);
        let count = u32::from(beat.count) / size;
        for (i, element) in beat.data[..usize::from(beat.count)].chunks_exact(size as usize).enumerate() {
            let at = place(r, c + i as u32, size, self.bus_bytes);
            tile.bytes[at..at + size as usize].copy_from_slice(element);
        }
        tile.poison = (tile.poison && (r, c) != (0, 0)) || beat.poison;
        self.fill_column += count;
        if beat.row_end || beat.block_end {
            tile.columns = self.fill_column;
            self.fill_row += 1;
            self.fill_column = 0;
        }
        if beat.block_end {
            tile.full = true;
            tile.rows = self.fill_row;
            tile.element = beat.element;
            (tile.job_end, tile.block_end) = (beat.job_end, beat.block_end);
            self.fill_row = 0;
            self.fill ^= 1;
        }
    }

    /// Reads one beat of a column into the output register.
    pub(crate) fn read(&mut self) -> Beat {
        let tile = &mut self.tiles[usize::from(self.drain)];
        let size = u32::from(tile.element) / 2;
        let (r, c) = (self.drain_row, self.drain_column);
        let count = (self.bus_bytes / size).min(tile.rows - r);
        for (i, element) in self.out.data.chunks_exact_mut(size as usize).take(count as usize).enumerate() {
            let at = place(r + i as u32, c, size, self.bus_bytes);
            element.copy_from_slice(&tile.bytes[at..at + size as usize]);
        }
        let column_end = r + count == tile.rows;
        let last = column_end && c + 1 == tile.columns;
        self.out = Beat {
            data: self.out.data,
            count: (count * size) as u8,
            row_end: column_end,
            block_end: last,
            job_end: last && tile.job_end,
            tiled: true,
            element: tile.element,
            poison: tile.poison,
        };
        (self.drain_row, self.drain_column) = match (column_end, last) {
            (_, true) => (0, 0),
            (true, false) => (0, c + 1),
            (false, _) => (r + count, c),
        };
        if last {
            tile.full = false;
            self.drain ^= 1;
        }
        self.out
    }
}

impl Module for Transposer {
    type In<'a> = TransposerIn<'a>;
    type Out<'a> = TransposerOut<'a>;

    fn out(&self) -> TransposerOut<'_> {
        TransposerOut {
            ready_tiled: !self.tiles[usize::from(self.fill)].full,
            ready_direct: !self.tiles.iter().any(|t| t.full),
            head: Stream { valid: self.out_valid, data: &self.out },
        }
    }

    fn clock(&mut self, i: &TransposerIn<'_>) {
        let direct = self.out().ready_direct;
        let fill = i.beat.valid && i.beat.data.tiled && self.out().ready_tiled;
        let free = !self.out_valid || i.ready;
        if free {
            self.out_valid = false;
        }
        if free && self.tiles[usize::from(self.drain)].full {
            self.read();
            self.out_valid = true;
        } else if free && direct && i.beat.valid && !i.beat.data.tiled {
            self.out = *i.beat.data;
            self.out_valid = true;
        }
        if fill {
            self.write(i.beat.data);
        }
    }

    fn reset(&mut self) {
        for tile in &mut self.tiles {
            tile.full = false;
        }
        (self.fill, self.fill_row, self.fill_column) = (0, 0, 0);
        (self.drain, self.drain_row, self.drain_column) = (0, 0, 0);
        self.out_valid = false;
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        for (t, tile) in self.tiles.iter_mut().enumerate() {
            v.scope(("tile", t), |v| {
                v.reg("full_q", 1, Format::Unsigned, &mut tile.full);
                v.reg("rows_q", 7, Format::Unsigned, &mut tile.rows);
                v.reg("columns_q", 7, Format::Unsigned, &mut tile.columns);
                v.reg("element_q", 5, Format::Unsigned, &mut tile.element);
                v.reg("job_end_q", 1, Format::Unsigned, &mut tile.job_end);
                v.reg("block_end_q", 1, Format::Unsigned, &mut tile.block_end);
                v.reg("poison_q", 1, Format::Unsigned, &mut tile.poison);
                memory(&mut tile.bytes, v);
            });
        }
        v.reg("fill_q", 1, Format::Unsigned, &mut self.fill);
        v.reg("fill_row_q", 7, Format::Unsigned, &mut self.fill_row);
        v.reg("fill_column_q", 7, Format::Unsigned, &mut self.fill_column);
        v.reg("drain_q", 1, Format::Unsigned, &mut self.drain);
        v.reg("drain_row_q", 7, Format::Unsigned, &mut self.drain_row);
        v.reg("drain_column_q", 7, Format::Unsigned, &mut self.drain_column);
        v.reg("out_valid_q", 1, Format::Unsigned, &mut self.out_valid);
        self.out.visit("out".into(), v);
    }
}

fn memory(bytes: &mut [u8], v: &mut impl Visitor) {
    let signal = Signal { name: Name::from("bytes"), width: 8, format: Format::Hex, role: Role::Register };
    if v.memory(signal, bytes.len()) {
        for byte in bytes {
            *byte = u8::from_bits(v.word(byte.to_bits()), 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn neighbours_of_rows_and_columns_are_in_different_banks() {
        for bus in [8, 16, 32, 64] {
            for size in [1, 2, 4, 8] {
                let (lanes, t) = (bus / size, side(size));
                let mut seen = HashSet::new();
                for r in 0..t {
                    for c in 0..t {
                        let at = place(r, c, size, bus);
                        assert!(at + size as usize <= TILE_BYTES && seen.insert(at), "two elements share a place");
                    }
                }
                let bank = |r, c| place(r, c, size, bus) % bus as usize;
                for r in 0..t {
                    let row: HashSet<_> = (0..lanes.min(t)).map(|c| bank(r, c)).collect();
                    let column: HashSet<_> = (0..lanes.min(t)).map(|c| bank(c, r)).collect();
                    assert_eq!((row.len(), column.len()), (lanes.min(t) as usize, lanes.min(t) as usize));
                }
            }
        }
    }

    #[test]
    fn two_tiles_stream_at_a_beat_a_cycle() {
        let mut unit = Transposer::new(64);
        let value = |t: usize, r: usize, c: usize| (t * 5003 + r * 64 + c) as u16;
        let mut beats = Vec::new();
        for t in 0..3 {
            for r in 0..64 {
                for half in 0..2 {
                    let mut beat = Beat { count: 64, tiled: true, element: 4, ..Beat::default() };
                    for i in 0..32 {
                        beat.data[2 * i..2 * i + 2].copy_from_slice(&value(t, r, 32 * half + i).to_le_bytes());
                    }
                    beat.row_end = half == 1;
                    beat.block_end = beat.row_end && r == 63;
                    beat.job_end = beat.block_end && t == 2;
                    beats.push(beat);
                }
            }
        }
        let (mut sent, mut got, mut cycles) = (0, Vec::new(), 0);
        while got.last().is_none_or(|b: &Beat| !b.job_end) {
            let out = unit.out();
            let take = out.ready_tiled && sent < beats.len();
            if out.head.valid {
                got.push(*out.head.data);
            }
            let blank = Beat::default();
            let beat = beats.get(sent).map_or(Stream::idle(&blank), Stream::offer);
            unit.clock(&TransposerIn { beat, ready: true });
            sent += usize::from(take);
            cycles += 1;
        }
        assert!(cycles <= 4 * 128 + 4, "{cycles} cycles for three tiles of 128 beats");
        for (n, beat) in got.iter().enumerate() {
            let (t, c, half) = (n / 128, n % 128 / 2, n % 2);
            for i in 0..32 {
                let bits = u16::from_le_bytes([beat.data[2 * i], beat.data[2 * i + 1]]);
                assert_eq!(bits, value(t, 32 * half + i, c));
            }
        }
    }
}
