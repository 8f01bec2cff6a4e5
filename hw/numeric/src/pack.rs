//! Codes of 1 to 8 bits, packed as memory holds them.

use crate::NumericError;

/// Bytes that `count` codes of `width` bits take.
pub const fn packed_len(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Packs codes of `width` bits (1..=8), first code in the lowest bits: INT4 and FP4 low nibble first, four FP6 in three
/// bytes. Bits above the width are dropped; the last byte is filled with zeros.
pub fn pack_codes(codes: &[u8], width: u32) -> Vec<u8> {
    let mut bytes = vec![0; packed_len(codes.len(), width)];
    for (i, code) in codes.iter().enumerate() {
        let bit = i * width as usize;
        let field = ((*code as u16) & ((1 << width) - 1)) << (bit % 8);
        bytes[bit / 8] |= field as u8;
        if field >> 8 != 0 {
            bytes[bit / 8 + 1] |= (field >> 8) as u8;
        }
    }
    bytes
}

/// Takes `count` codes of `width` bits (1..=8) back out of packed bytes.
///
/// # Errors
/// `Length` if the bytes do not hold exactly that many.
pub fn unpack_codes(bytes: &[u8], width: u32, count: usize) -> Result<Vec<u8>, NumericError> {
    if bytes.len() != packed_len(count, width) {
        let (got, want) = (bytes.len(), packed_len(count, width));
        return Err(NumericError::Length { what: "packed codes", got, want });
    }
    let code = |i: usize| {
        let bit = i * width as usize;
        let next = bytes.get(bit / 8 + 1).copied().unwrap_or(0);
        let pair = u16::from_le_bytes([bytes[bit / 8], next]);
        (pair >> (bit % 8) & ((1 << width) - 1)) as u8
    };
    Ok((0..count).map(code).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn int4_goes_low_nibble_first() {
        assert_eq!(pack_codes(&[0x1, 0x2, 0xf], 4), [0x21, 0x0f]);
    }

    #[test]
    fn four_fp6_fill_three_bytes() {
        let codes = [0b000001, 0b100000, 0b111111, 0b010101];
        let bytes = pack_codes(&codes, 6);
        assert_eq!(bytes, [0x01, 0xf8, 0x57]);
        assert_eq!(unpack_codes(&bytes, 6, 4).as_deref(), Ok(&codes[..]));
    }

    #[test]
    fn every_width_and_length_comes_back() {
        for width in 1..=8 {
            for count in 0..20 {
                let codes: Vec<u8> = (0..count).map(|i| (i * 37 + 5) as u8 & (0xff >> (8 - width))).collect();
                let bytes = pack_codes(&codes, width);
                assert_eq!(unpack_codes(&bytes, width, count), Ok(codes));
                assert!(unpack_codes(&bytes, width, count + 9).is_err());
            }
        }
    }
}
