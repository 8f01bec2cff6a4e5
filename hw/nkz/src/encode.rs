//! The transaction engine of the encoder: one tile in, one stored tile out.

use crate::lanes::{LaneEncoder, STATES_BITS};
use crate::quantiser::is_special;
use crate::{
    Address, CHANNELS, CODE_MAX, COST_BITS, Channel, Error, FIXED_MAX, Format, Header, LANES, PLAIN_TABLE, Quantiser,
    TOKENS, Table, code_tables, exponent_tables,
};

/// What the encoder is asked for; it may fall back to [`Format::Lossless`], [`Format::Raw`] or, in a slot, to
/// [`Format::Mean`] and [`Format::Overflow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// BF16 rows.
    Raw,
    /// Lossless.
    Lossless,
    /// Fixed length, 4 bits.
    Fixed {
        /// 0..=63.
        qp: u8,
    },
    /// Entropy-coded, variable size.
    Entropy {
        /// 0..=63.
        qp: u8,
    },
    /// Entropy-coded into a slot.
    Slot {
        /// Bytes of the slot, header included: a multiple of 8 from 40 up to a header and a raw tile of 32 tokens.
        bytes: usize,
    },
    /// Every value its channel's mean.
    Mean,
}

/// A tile on its way to the encoder.
#[derive(Clone, Copy, Debug)]
pub struct TileIn<'a> {
    /// Where it belongs.
    pub address: Address,
    /// BF16 [tokens, width].
    pub values: &'a [u16],
    /// Channels: a multiple of 8 up to 64.
    pub width: usize,
    /// The static tables' lines of these channels; `None` for a model that was not calibrated.
    pub channels: Option<&'a [Channel]>,
}

impl TileIn<'_> {
    /// Tokens of the tile.
    ///
    /// # Errors
    /// Sizes outside what a tile may have, or that do not fit each other.
    pub fn tokens(&self) -> Result<usize, Error> {
        let (width, values) = (self.width, self.values.len());
        let tokens = values.checked_div(width).unwrap_or(0);
        let lines = self.channels.is_none_or(|lines| lines.len() == width);
        let fits = width.is_multiple_of(LANES) && width <= CHANNELS && (1..=TOKENS).contains(&tokens);
        if fits && lines && tokens * width == values {
            Ok(tokens)
        } else {
            Err(Error::TileShape { tokens, width, values })
        }
    }
}

/// What became of a tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The header as stored.
    pub header: Header,
    /// Bytes stored, header included.
    pub bytes: usize,
    /// Codes with the escape symbol.
    pub escapes: u32,
    /// Values whose fixed-length code was clamped.
    pub clamped: u32,
    /// Passes over the tile that compared lengths, beside the one that runs while the tile comes in.
    pub passes: u32,
    /// Passes that coded the tile's lanes.
    pub codings: u32,
    /// Bits of the lanes' stream, its states included, where the format has one.
    pub stream: u32,
}

/// Lengths of a tile at one step under the four table offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Σ cost in 1/32 bit, offsets −2, −1, 0, +1; one accumulator each.
    pub(crate) costs: [u32; 4],
    /// A code wider than the escape holds, or a residual at its limit.
    pub(crate) wide: bool,
}

impl Survey {
    /// The first of the least costs, as 0..=3.
    pub(crate) fn best(&self) -> usize {
        (0..4).min_by_key(|&i| self.costs[i]).unwrap_or(0)
    }

    /// What a slot must hold, in bits: the estimate, a 64th more for what the coder loses, and the states.
    pub(crate) fn estimate(&self) -> u32 {
        let bits = self.costs[self.best()] >> COST_BITS;
        bits + (bits >> 6) + STATES_BITS as u32
    }
}

/// The steps of the slot's bisection: `fits(qp)` is asked six times, the answer is the first QP to code at.
pub(crate) fn bisect(mut fits: impl FnMut(u8) -> bool) -> u8 {
    let mut qp = 0;
    for bit in [32, 16, 8, 4, 2, 1] {
        if !fits(qp + bit - 1) {
            qp += bit;
        }
    }
    qp
}

/// The first of the four shifts that a lossless tile with static tables tries.
pub(crate) const SHIFT_FIRST: i8 = -2;

/// The first of the four shifts that one without tries: the largest finite exponent of a normal tile lies some two
/// octaves above its root mean square.
pub(crate) fn plain_shift(largest: u8) -> i8 {
    largest.wrapping_sub(5) as i8
}

/// The biased exponent of a BF16 pattern.
#[inline]
pub(crate) fn exponent(x: u16) -> u8 {
    (x >> 7) as u8
}

/// Sign and mantissa.
#[inline]
pub(crate) fn mantissa(x: u16) -> u8 {
    (x >> 8 & 0x80 | x & 0x7f) as u8
}

/// What the lossless mode codes.
#[inline]
pub(crate) fn difference(x: u16, line: &Channel, shift: i8) -> i32 {
    i32::from(exponent(x).wrapping_sub(line.exponent).wrapping_sub(shift as u8) as i8)
}

/// The encoder of one tile at a time; it keeps no state between tiles but its buffers.
#[derive(Clone, Debug)]
pub struct Encoder {
    lanes: LaneEncoder,
    quantisers: Vec<Quantiser>,
    codes: Vec<i32>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { lanes: LaneEncoder::new(), quantisers: Vec::new(), codes: Vec::new() }
    }
}

impl Encoder {
    /// Encodes a tile into `out`, which is cleared first.
    ///
    /// # Errors
    /// A tile's shape or a setting out of range, or a lossy mode without static tables.
    pub fn encode(&mut self, tile: &TileIn, mode: Mode, out: &mut Vec<u8>) -> Result<Encoded, Error> {
        let tokens = tile.tokens()?;
        let header = Header {
            version: Header::VERSION,
            kind: tile.address.kind,
            last_token: (tokens - 1) as u8,
            sequence: tile.address.sequence,
            ..Header::default()
        };
        out.clear();
        out.extend([0; Header::BYTES]);
        let lines = || tile.channels.ok_or(Error::Uncalibrated);
        let qp_in_range = |qp: u8| check_range("QP", usize::from(qp), 0, 63);
        let mut done = Encoded { header, ..Encoded::default() };
        match mode {
            Mode::Raw => raw(tile, &mut done, out),
            Mode::Lossless => self.lossless(tile, &mut done, out),
            Mode::Fixed { qp } => {
                qp_in_range(qp)?;
                fixed(tile, lines()?, qp, &mut done, out);
            }
            Mode::Entropy { qp } => {
                qp_in_range(qp)?;
                self.entropy(tile, lines()?, qp, &mut done, out);
            }
            Mode::Slot { bytes } => {
                check_range("slot bytes", bytes, 40, Header::BYTES + 2 * TOKENS * tile.width)?;
                check_range("slot bytes mod 8", bytes % 8, 0, 0)?;
                self.slot(tile, lines()?, bytes, &mut done, out);
            }
            Mode::Mean => {
                lines()?;
                done.header.format = Format::Mean;
            }
        }
        seal(tile.address, &mut done, out);
        Ok(done)
    }

    fn entropy(&mut self, tile: &TileIn, lines: &[Channel], qp: u8, done: &mut Encoded, out: &mut Vec<u8>) {
        if tile.values.iter().any(|&x| is_special(x)) {
            done.passes = 1;
            return self.lossless(tile, done, out);
        }
        let survey = self.survey(tile, lines, qp);
        if survey.wide {
            done.passes = 1;
            return self.lossless(tile, done, out);
        }
        done.header.format = Format::Entropy;
        self.code(lines, qp, survey.best(), done);
        if self.stored(0) >= 2 * tile.values.len() {
            return raw(tile, done, out);
        }
        self.lanes.stack.append_to(out);
    }

    /// Quantises at `qp` and measures the four offsets.
    fn survey(&mut self, tile: &TileIn, lines: &[Channel], qp: u8) -> Survey {
        self.quantisers.clear();
        self.quantisers.extend(lines.iter().map(|line| Quantiser::entropy(line, qp)));
        self.codes.clear();
        self.codes.reserve(tile.values.len());
        for row in tile.values.chunks_exact(tile.width) {
            self.codes.extend(row.iter().zip(&self.quantisers).map(|(&x, q)| q.code(x)));
        }
        let mut survey = Survey { wide: self.codes.iter().any(|q| q.abs() > CODE_MAX), ..Survey::default() };
        if survey.wide {
            return survey;
        }
        for (channel, line) in lines.iter().enumerate() {
            let tables: [&Table; 4] = std::array::from_fn(|o| &code_tables()[line.table(qp, o as i32 - 2)]);
            for &code in self.codes[channel..].iter().step_by(tile.width) {
                for (cost, table) in survey.costs.iter_mut().zip(tables) {
                    *cost += table.cost(code);
                }
            }
        }
        survey
    }

    /// Codes `self.codes`, last first, with the tables at `qp` and `offset` (0..=3).
    fn code(&mut self, lines: &[Channel], qp: u8, offset: usize, done: &mut Encoded) {
        let tables: Vec<&Table> = lines.iter().map(|line| &code_tables()[line.table(qp, offset as i32 - 2)]).collect();
        (done.header.qp, done.header.offset) = (qp, offset as u8);
        self.code_lanes(&tables, done);
    }

    fn code_lanes(&mut self, tables: &[&Table], done: &mut Encoded) {
        self.lanes.clear();
        done.codings += 1;
        done.escapes = 0;
        for row in self.codes.chunks_exact(tables.len()).rev() {
            for (channel, (&code, table)) in row.iter().zip(tables).enumerate().rev() {
                done.escapes += u32::from(table.symbol(code) == table.escape());
                self.lanes.push(channel % LANES, table, code);
            }
        }
        self.lanes.close();
        done.stream = self.lanes.stack.len() as u32;
    }

    /// Bytes of the payload with `mantissas` bytes of them.
    fn stored(&self, mantissas: usize) -> usize {
        (mantissas + self.lanes.stack.len().div_ceil(8)).next_multiple_of(8)
    }

    fn slot(&mut self, tile: &TileIn, lines: &[Channel], bytes: usize, done: &mut Encoded, out: &mut Vec<u8>) {
        if tile.values.iter().any(|&x| is_special(x)) {
            return overflow(done, out);
        }
        let room = 8 * (bytes - Header::BYTES);
        let mut qp = bisect(|qp| {
            let survey = self.survey(tile, lines, qp);
            !survey.wide && survey.estimate() as usize <= room
        });
        // The bisection's first question is answered while the tile comes in.
        done.passes = 5;
        loop {
            done.passes += 1;
            let survey = self.survey(tile, lines, qp);
            if !survey.wide {
                self.code(lines, qp, survey.best(), done);
                if self.lanes.stack.len() <= room {
                    done.header.format = Format::Slot;
                    self.lanes.stack.append_to(out);
                    out.resize(bytes, 0);
                    return;
                }
            }
            if qp == 63 {
                (done.header.qp, done.header.offset, done.escapes) = (0, 0, 0);
                return if survey.wide { overflow(done, out) } else { done.header.format = Format::Mean };
            }
            qp += 1;
        }
    }

    fn lossless(&mut self, tile: &TileIn, done: &mut Encoded, out: &mut Vec<u8>) {
        let plain = Channel { exponent_table: PLAIN_TABLE, ..Channel::default() };
        let line = |channel: usize| tile.channels.map_or(plain, |lines| lines[channel]);
        let first = match tile.channels {
            Some(_) => SHIFT_FIRST,
            None => {
                done.passes = 1;
                let largest = tile.values.iter().filter(|&&x| !is_special(x)).map(|&x| exponent(x)).max();
                plain_shift(largest.unwrap_or(0))
            }
        };
        let shift = |offset: usize| first.wrapping_add(offset as i8);
        let mut survey = Survey::default();
        for (i, &x) in tile.values.iter().enumerate() {
            let line = line(i % tile.width);
            let table = &exponent_tables()[usize::from(line.exponent_table & 15)];
            for offset in 0..4 {
                survey.costs[offset] += table.cost(difference(x, &line, shift(offset)));
            }
        }
        let shift = shift(survey.best());
        let lines: Vec<Channel> = (0..tile.width).map(line).collect();
        self.codes.clear();
        self.codes.extend(tile.values.iter().enumerate().map(|(i, &x)| difference(x, &lines[i % tile.width], shift)));
        let tables: Vec<&Table> =
            lines.iter().map(|l| &exponent_tables()[usize::from(l.exponent_table & 15)]).collect();
        self.code_lanes(&tables, done);
        if self.stored(tile.values.len()) >= 2 * tile.values.len() {
            return raw(tile, done, out);
        }
        done.header.format = Format::Lossless;
        done.header.set_shift(shift);
        done.header.flags = if tile.channels.is_none() { Header::PLAIN } else { 0 };
        out.extend(tile.values.iter().map(|&x| mantissa(x)));
        self.lanes.stack.append_to(out);
    }
}

fn check_range(what: &'static str, value: usize, least: usize, most: usize) -> Result<(), Error> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(Error::Range { what, value, least, most }) }
}

/// A place in the overflow region, which whoever keeps the region writes.
fn overflow(done: &mut Encoded, out: &mut Vec<u8>) {
    done.header.format = Format::Overflow;
    out.extend([0; 8]);
}

fn raw(tile: &TileIn, done: &mut Encoded, out: &mut Vec<u8>) {
    (done.header.format, done.header.qp, done.header.offset, done.escapes) = (Format::Raw, 0, 0, 0);
    out.extend(tile.values.iter().flat_map(|x| x.to_le_bytes()));
}

fn fixed(tile: &TileIn, lines: &[Channel], qp: u8, done: &mut Encoded, out: &mut Vec<u8>) {
    (done.header.format, done.header.qp) = (Format::Fixed, qp);
    let quantisers: Vec<_> = lines.iter().map(|line| Quantiser::fixed(line, qp)).collect();
    for row in tile.values.chunks_exact(tile.width) {
        done.clamped += fixed_row(row, &quantisers, out);
    }
    done.header.flags = if done.clamped > 0 { Header::CLAMPED } else { 0 };
}

/// The 4-bit code of any pattern, and whether it was clamped.
#[inline]
pub(crate) fn fixed_code(x: u16, q: &Quantiser) -> (u8, bool) {
    let wide = match x {
        // An infinity clamps like any large number; a NaN has no side to clamp to.
        x if is_special(x) => [1 << 20, -(1 << 20)][usize::from(x >> 15)] * i32::from(x & 0x7f == 0),
        x => q.code(x),
    };
    let code = wide.clamp(-FIXED_MAX, FIXED_MAX);
    ((code & 15) as u8, code != wide || is_special(x))
}

/// Appends a row of 4-bit codes, the even channel in the low nibble, and returns how many were clamped.
fn fixed_row(row: &[u16], quantisers: &[Quantiser], out: &mut Vec<u8>) -> u32 {
    let mut clamped = 0;
    let mut code = |x: u16, q: &Quantiser| {
        let (code, was_clamped) = fixed_code(x, q);
        clamped += u32::from(was_clamped);
        code
    };
    for (pair, q) in row.chunks_exact(2).zip(quantisers.chunks_exact(2)) {
        out.push(code(pair[0], &q[0]) | code(pair[1], &q[1]) << 4);
    }
    clamped
}

/// Pads the payload to whole words and writes the header in front.
fn seal(address: Address, done: &mut Encoded, out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
    done.header.words = ((out.len() - Header::BYTES) / 8) as u16;
    done.header.crc = done.header.checksum(&address, &out[Header::BYTES..]);
    out[..Header::BYTES].copy_from_slice(&done.header.pack().to_le_bytes());
    done.bytes = out.len();
}
