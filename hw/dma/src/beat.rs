use rtl::{Format, Name, Payload, Visitor};

/// Widest bus, bytes.
pub const MAX_BUS: usize = 64;

/// Bytes of one bus beat; a narrower bus uses the low lanes.
pub type Lanes = [u8; MAX_BUS];

/// Shows the bytes of a beat, eight a signal.
pub(crate) fn visit_lanes(name: &'static str, lanes: &mut Lanes, v: &mut impl Visitor) {
    for (i, lane) in lanes.chunks_exact_mut(8).enumerate() {
        let mut word = lane.iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b));
        v.reg((name, i), 64, Format::Hex, &mut word);
        lane.copy_from_slice(&word.to_le_bytes());
    }
}

/// A beat of the packed stream inside the engine: bytes without gaps, in element order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The bytes; those past `count` mean nothing.
    pub data: Lanes,
    /// Bytes that count, 1..=bus width: 7 bits.
    pub count: u8,
    /// Ends a row of a tile.
    pub row_end: bool,
    /// Ends a tile, or a chunk of an ordered job.
    pub block_end: bool,
    /// Ends the job.
    pub job_end: bool,
    /// Goes through the transposer.
    pub tiled: bool,
    /// Nibbles an element, 5 bits.
    pub element: u8,
    /// Follows a read error in its job: must not reach memory.
    pub poison: bool,
}

impl Default for Beat {
    fn default() -> Self {
        Self {
            data: [0; MAX_BUS],
            count: 0,
            row_end: false,
            block_end: false,
            job_end: false,
            tiled: false,
            element: 2,
            poison: false,
        }
    }
}

impl Payload for Beat {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            visit_lanes("data_q", &mut self.data, v);
            v.reg("count_q", 7, Format::Unsigned, &mut self.count);
            v.reg("row_end_q", 1, Format::Unsigned, &mut self.row_end);
            v.reg("block_end_q", 1, Format::Unsigned, &mut self.block_end);
            v.reg("job_end_q", 1, Format::Unsigned, &mut self.job_end);
            v.reg("tiled_q", 1, Format::Unsigned, &mut self.tiled);
            v.reg("element_q", 5, Format::Unsigned, &mut self.element);
            v.reg("poison_q", 1, Format::Unsigned, &mut self.poison);
        });
    }
}
