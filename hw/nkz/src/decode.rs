//! The transaction engine of the decoder: one stored tile in, BF16 rows out, in bounded time whatever the bytes say.

use crate::lanes::{self, STATES_BITS};
use crate::{
    Address, CHANNELS, Cause, Channel, Corrupt, Error, Format, Header, LANES, PLAIN_TABLE, Quantiser, TOKENS, Table,
    code_tables, exponent_tables,
};

/// Where a stored tile is expected, and the tables it was made with.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    /// Where it belongs.
    pub address: Address,
    /// Channels: a multiple of 8 up to 64.
    pub width: usize,
    /// The static tables' lines of these channels; `None` for a model that was not calibrated.
    pub channels: Option<&'a [Channel]>,
}

/// What was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The header.
    pub header: Header,
    /// Bytes that the tile takes, header included.
    pub bytes: usize,
    /// Of a tile that lies in the overflow region: where, in units of 32 bytes. No value was written then.
    pub overflow: Option<u32>,
}

impl Slot<'_> {
    /// Bytes of a raw tile of 32 tokens without its header: no payload is longer.
    pub(crate) fn largest(&self) -> usize {
        2 * TOKENS * self.width
    }

    fn check(&self, out: &[u16]) -> Result<(), Error> {
        let lines = self.channels.is_none_or(|lines| lines.len() == self.width);
        if self.width == 0
            || !self.width.is_multiple_of(LANES)
            || self.width > CHANNELS
            || !lines
            || out.len() < TOKENS * self.width
        {
            return Err(Error::TileShape { tokens: TOKENS, width: self.width, values: out.len() });
        }
        Ok(())
    }

    /// Reads and checks the header and the CRC: everything that needs no static table.
    ///
    /// # Errors
    /// The first cause that applies, in the order of [`Cause`].
    pub fn open<'b>(&self, bytes: &'b [u8]) -> Result<(Header, &'b [u8]), Cause> {
        let first = bytes.first_chunk().ok_or(Cause::Truncated)?;
        let header = Header::unpack(u64::from_le_bytes(*first))?;
        if header.payload() > self.largest() {
            return Err(Cause::Length);
        }
        let payload = bytes.get(Header::BYTES..Header::BYTES + header.payload()).ok_or(Cause::Truncated)?;
        if header.checksum(&self.address, payload) != header.crc {
            return Err(Cause::Crc);
        }
        self.check_header(&header)?;
        Ok((header, payload))
    }

    /// Whose tile it is, the fields that each format leaves at zero, and the lengths that it may have.
    pub(crate) fn check_header(&self, header: &Header) -> Result<(), Cause> {
        if header.sequence != self.address.sequence || header.kind != self.address.kind {
            return Err(Cause::Misplaced);
        }
        let values = header.tokens() * self.width;
        let stepless = header.qp == 0 && header.offset == 0;
        let (fields, length) = match header.format {
            Format::Raw => (stepless && header.flags == 0, header.payload() == 2 * values),
            Format::Lossless => (
                header.flags & !Header::PLAIN == 0 && (header.flags != 0 || self.channels.is_some()),
                header.payload() < 2 * values,
            ),
            Format::Fixed => (
                header.offset == 0 && header.flags & !Header::CLAMPED == 0 && self.channels.is_some(),
                header.payload() == (values / 2).next_multiple_of(8),
            ),
            Format::Entropy => (header.flags == 0 && self.channels.is_some(), header.payload() < 2 * values),
            Format::Slot => (header.flags == 0 && self.channels.is_some(), true),
            Format::Mean => (stepless && header.flags == 0 && self.channels.is_some(), header.payload() == 0),
            Format::Overflow => (stepless && header.flags == 0, header.payload() == 8),
        };
        match (fields, length) {
            (false, _) => Err(Cause::Field),
            (_, false) => Err(Cause::Length),
            _ => Ok(()),
        }
    }

    /// Where the lanes' stream begins in an opened payload, in bits.
    ///
    /// # Errors
    /// [`Cause::Length`] for a payload without room for its states.
    pub(crate) fn stream(&self, header: &Header) -> Result<usize, Cause> {
        let mantissas = if header.format == Format::Lossless { header.tokens() * self.width } else { 0 };
        if 8 * mantissas + STATES_BITS > 8 * header.payload() { Err(Cause::Length) } else { Ok(8 * mantissas) }
    }

    /// Decodes a tile into `out` [32, width], of which as many rows as the tile has tokens are written.
    ///
    /// # Errors
    /// A shape that does not fit, or [`Error::Corrupt`]: `out` is zero then.
    pub fn decode(&self, bytes: &[u8], out: &mut [u16]) -> Result<Decoded, Error> {
        self.check(out)?;
        self.decode_tile(bytes, out).map_err(|cause| {
            out.fill(0);
            Corrupt { address: self.address, cause }.into()
        })
    }

    fn decode_tile(&self, bytes: &[u8], out: &mut [u16]) -> Result<Decoded, Cause> {
        let (header, payload) = self.open(bytes)?;
        let width = self.width;
        let out = &mut out[..header.tokens() * width];
        let lines = self.channels.unwrap_or_default();
        let mut overflow = None;
        match header.format {
            Format::Raw => {
                for (x, two) in out.iter_mut().zip(payload.chunks_exact(2)) {
                    *x = u16::from_le_bytes([two[0], two[1]]);
                }
            }
            Format::Mean => out.chunks_exact_mut(width).for_each(|row| {
                row.iter_mut().zip(lines).for_each(|(x, line)| *x = line.mean);
            }),
            Format::Fixed => {
                let quantisers: Vec<_> = lines.iter().map(|line| Quantiser::fixed(line, header.qp)).collect();
                for (row, codes) in out.chunks_exact_mut(width).zip(payload.chunks_exact(width / 2)) {
                    for (channel, x) in row.iter_mut().enumerate() {
                        let nibble = codes[channel / 2] >> (channel % 2 * 4);
                        *x = quantisers[channel].rebuild(i32::from((nibble << 4) as i8 >> 4));
                    }
                }
                let used = out.len() / 2;
                if payload[used..].iter().any(|&b| b != 0) {
                    return Err(Cause::Padding);
                }
            }
            Format::Entropy | Format::Slot => {
                let first = self.stream(&header)?;
                let offset = i32::from(header.offset) - 2;
                let tables: Vec<&Table> =
                    lines.iter().map(|line| &code_tables()[line.table(header.qp, offset)]).collect();
                let quantisers: Vec<_> = lines.iter().map(|line| Quantiser::entropy(line, header.qp)).collect();
                lanes::decode(
                    payload,
                    first,
                    &tables,
                    header.tokens(),
                    header.format == Format::Slot,
                    |token, channel, code| {
                        out[token * width + channel] = quantisers[channel].rebuild(code);
                    },
                )?;
            }
            Format::Lossless => {
                let first = self.stream(&header)?;
                let plain = [Channel { exponent_table: PLAIN_TABLE, ..Channel::default() }; CHANNELS];
                let lines = if header.flags & Header::PLAIN != 0 { &plain[..width] } else { lines };
                let tables: Vec<&Table> =
                    lines.iter().map(|line| &exponent_tables()[usize::from(line.exponent_table & 15)]).collect();
                lanes::decode(
                    payload,
                    first,
                    &tables,
                    header.tokens(),
                    header.format == Format::Slot,
                    |token, channel, difference| {
                        let exponent =
                            (difference as u8).wrapping_add(lines[channel].exponent).wrapping_add(header.shift() as u8);
                        let rest = u16::from(payload[token * width + channel]);
                        out[token * width + channel] = (rest & 0x80) << 8 | u16::from(exponent) << 7 | rest & 0x7f;
                    },
                )?;
            }
            Format::Overflow => {
                let (offset, rest) = payload.split_at(4);
                if rest != [0; 4] {
                    return Err(Cause::Padding);
                }
                overflow = Some(u32::from_le_bytes([offset[0], offset[1], offset[2], offset[3]]));
            }
        }
        Ok(Decoded { header, bytes: Header::BYTES + header.payload(), overflow })
    }
}
