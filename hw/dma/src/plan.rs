use rtl::{Format, Name, Payload, Visitor};

/// A region register: what a descriptor may touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First byte, 48 bits.
    pub base: u64,
    /// Past the last byte, 49 bits.
    pub limit: u64,
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
}

impl Region {
    /// A region that may be read and written.
    pub const fn read_write(base: u64, bytes: u64) -> Self {
        Self { base, limit: base + bytes, read: true, write: true }
    }

    /// A region that may only be read.
    pub const fn read_only(base: u64, bytes: u64) -> Self {
        Self { base, limit: base + bytes, read: true, write: false }
    }

    /// Size.
    pub const fn bytes(&self) -> u64 {
        self.limit.saturating_sub(self.base)
    }
}

impl Payload for Region {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("base_q", 48, Format::Hex, &mut self.base);
            v.reg("limit_q", 49, Format::Hex, &mut self.limit);
            v.reg("read_q", 1, Format::Unsigned, &mut self.read);
            v.reg("write_q", 1, Format::Unsigned, &mut self.write);
        });
    }
}

/// The loop nest of one side, as the address unit runs it. Addresses and strides are in nibbles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SidePlan {
    /// Address of the first element, without what an index adds: signed, 51 bits.
    pub base: i64,
    /// Iterations of the outer loop, the row loop and the inner loop.
    pub counts: [u32; 3],
    /// Their strides, 50 bits; zero for the loop with an index list.
    pub strides: [i64; 3],
    /// A loop goes through an index list.
    pub indexed: bool,
    /// Which one.
    pub index_dim: u8,
    /// Distance of neighbouring indices, 50 bits.
    pub index_stride: i64,
    /// Neighbours along the inner loop are neighbours in memory.
    pub run: bool,
}

impl SidePlan {
    fn visit(&mut self, name: &'static str, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("base_q", 51, Format::Hex, &mut self.base);
            for d in 0..3 {
                v.reg(("count_q", d), 32, Format::Unsigned, &mut self.counts[d]);
                v.reg(("stride_q", d), 50, Format::Signed, &mut self.strides[d]);
            }
            v.reg("indexed_q", 1, Format::Unsigned, &mut self.indexed);
            v.reg("index_dim_q", 2, Format::Unsigned, &mut self.index_dim);
            v.reg("index_stride_q", 50, Format::Signed, &mut self.index_stride);
            v.reg("run_q", 1, Format::Unsigned, &mut self.run);
        });
    }
}

/// A checked job: what the front end hands to the mid end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Nibbles an element, 5 bits.
    pub element: u8,
    /// Side of a transposer tile in elements, 7 bits.
    pub tile: u8,
    /// Through the transposer.
    pub tiled: bool,
    /// Source and destination meet: block by block, each read to its end before it is written.
    pub ordered: bool,
    /// Index entries are 32 bits wide.
    pub wide_index: bool,
    /// The window counts.
    pub windowed: bool,
    /// Window, dimension order.
    pub lo: [u32; 3],
    /// Past the window.
    pub hi: [u32; 3],
    /// Fill value.
    pub fill: u64,
    /// Source side: loops (0, 1, 2).
    pub read: SidePlan,
    /// Destination side: loops (0, 1, 2), or (0, 2, 1) when tiled.
    pub write: SidePlan,
}

impl Payload for Plan {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("element_q", 5, Format::Unsigned, &mut self.element);
            v.reg("tile_q", 7, Format::Unsigned, &mut self.tile);
            v.reg("tiled_q", 1, Format::Unsigned, &mut self.tiled);
            v.reg("ordered_q", 1, Format::Unsigned, &mut self.ordered);
            v.reg("wide_index_q", 1, Format::Unsigned, &mut self.wide_index);
            v.reg("windowed_q", 1, Format::Unsigned, &mut self.windowed);
            for d in 0..3 {
                v.reg(("window_lo_q", d), 32, Format::Unsigned, &mut self.lo[d]);
                v.reg(("window_hi_q", d), 32, Format::Unsigned, &mut self.hi[d]);
            }
            v.reg("fill_q", 64, Format::Hex, &mut self.fill);
            self.read.visit("read", v);
            self.write.visit("write", v);
        });
    }
}
