use crate::{Address, Cause, Crc, Kind};

/// How a tile is stored; the code is its number in the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// 0: BF16 rows.
    #[default]
    Raw,
    /// 1: lossless, exponents entropy-coded.
    Lossless,
    /// 2: rows of 4-bit codes, appended token by token.
    Fixed,
    /// 3: entropy-coded, variable size.
    Entropy,
    /// 4: entropy-coded into a slot of fixed size.
    Slot,
    /// 5: every value is its channel's mean.
    Mean,
    /// 6: a slot that only points into the overflow region.
    Overflow,
}

impl Format {
    /// All formats, in order of their codes.
    pub const ALL: [Self; 7] =
        [Self::Raw, Self::Lossless, Self::Fixed, Self::Entropy, Self::Slot, Self::Mean, Self::Overflow];
}

/// The first 64 bits of every tile, little-endian; fields from bit 0 up in the order written here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// 2 bits: [`Header::VERSION`].
    pub version: u8,
    /// 3 bits; code 7 does not exist.
    pub format: Format,
    /// 1 bit.
    pub kind: Kind,
    /// 5 bits: tokens − 1.
    pub last_token: u8,
    /// 6 bits: eighth octaves by which the step is coarser than the static one. Lossless: the shift's high 6 bits.
    pub qp: u8,
    /// 2 bits: table offset + 2. Lossless: the shift's low 2 bits.
    pub offset: u8,
    /// 10 bits: bytes behind the header / 8.
    pub words: u16,
    /// 3 bits: [`Header::CLAMPED`], [`Header::PLAIN`].
    pub flags: u8,
    /// 16 bits.
    pub sequence: u16,
    /// 16 bits, over the payload and then the header with this field zero, seeded by the address.
    pub crc: u16,
}

impl Header {
    /// The version that this crate writes and reads.
    pub const VERSION: u8 = 2;
    /// Bytes of a header.
    pub const BYTES: usize = 8;
    /// Flag 0, fixed-length tiles: at least one code was clamped, or a NaN became the mean.
    pub const CLAMPED: u8 = 1;
    /// Flag 1, lossless tiles: coded without static tables; every channel has reference 0 and table [`crate::PLAIN_TABLE`].
    pub const PLAIN: u8 = 2;

    /// The 64 bits.
    pub fn pack(&self) -> u64 {
        u64::from(self.version & 3)
            | (self.format as u64) << 2
            | (self.kind as u64) << 5
            | u64::from(self.last_token & 31) << 6
            | u64::from(self.qp & 63) << 11
            | u64::from(self.offset & 3) << 17
            | u64::from(self.words & 1023) << 19
            | u64::from(self.flags & 7) << 29
            | u64::from(self.sequence) << 32
            | u64::from(self.crc) << 48
    }

    /// Reads the 64 bits.
    ///
    /// # Errors
    /// [`Cause::Version`] for another version, [`Cause::Field`] for a format that does not exist.
    pub fn unpack(bits: u64) -> Result<Self, Cause> {
        let version = (bits & 3) as u8;
        if version != Self::VERSION {
            return Err(Cause::Version);
        }
        Ok(Self {
            version,
            format: *Format::ALL.get((bits >> 2 & 7) as usize).ok_or(Cause::Field)?,
            kind: if bits >> 5 & 1 == 0 { Kind::Key } else { Kind::Value },
            last_token: (bits >> 6 & 31) as u8,
            qp: (bits >> 11 & 63) as u8,
            offset: (bits >> 17 & 3) as u8,
            words: (bits >> 19 & 1023) as u16,
            flags: (bits >> 29 & 7) as u8,
            sequence: (bits >> 32) as u16,
            crc: (bits >> 48) as u16,
        })
    }

    /// Tokens of the tile, 1..=32.
    pub fn tokens(&self) -> usize {
        usize::from(self.last_token) + 1
    }

    /// Bytes behind the header.
    pub fn payload(&self) -> usize {
        8 * usize::from(self.words)
    }

    /// The shift of a lossless tile's exponents, two's complement.
    pub fn shift(&self) -> i8 {
        (self.qp << 2 | self.offset) as i8
    }

    /// Sets the shift of a lossless tile.
    pub fn set_shift(&mut self, shift: i8) {
        (self.qp, self.offset) = (shift as u8 >> 2, shift as u8 & 3);
    }

    /// The CRC that this header and `payload` have at `address`.
    pub fn checksum(&self, address: &Address, payload: &[u8]) -> u16 {
        self.close(address.seed().over(payload))
    }

    /// The CRC from the register after the payload.
    pub(crate) fn close(&self, crc: Crc) -> u16 {
        crc.over(&Self { crc: 0, ..*self }.pack().to_le_bytes()).value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_survive(bits: u64) {
            let bits = bits & !3 | u64::from(Header::VERSION);
            match Header::unpack(bits) {
                Ok(header) => prop_assert_eq!(header.pack(), bits),
                Err(cause) => prop_assert_eq!((cause, bits >> 2 & 7), (Cause::Field, 7)),
            }
        }

        #[test]
        fn shifts_survive(shift: i8) {
            let mut header = Header::default();
            header.set_shift(shift);
            prop_assert_eq!(header.shift(), shift);
        }
    }
}
