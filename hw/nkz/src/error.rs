use crate::Address;
use std::fmt;

/// A request that the codec refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A head that cannot be cut in lanes.
    #[error("head dimension {0} is no multiple of 8 within 8..=8192: pad the head, or keep its cache uncompressed")]
    HeadDimension(usize),
    /// A tile of another size than its channels and tokens say.
    #[error(
        "a tile of {tokens} tokens × {width} channels with {values} values: tokens are 1..=32, channels 8..=64 by 8, values their product"
    )]
    TileShape {
        /// Tokens.
        tokens: usize,
        /// Channels.
        width: usize,
        /// Values given.
        values: usize,
    },
    /// A lossy mode for a model without static tables.
    #[error("this mode needs the model's static tables: calibrate the model, or use the raw or the lossless mode")]
    Uncalibrated,
    /// A setting outside its range.
    #[error("{what} is {value}, it must lie in {least}..={most}")]
    Range {
        /// The setting.
        what: &'static str,
        /// As given.
        value: usize,
        /// Least.
        least: usize,
        /// Most.
        most: usize,
    },
    /// A stream that was not announced.
    #[error(
        "sequence {sequence}, layer {layer}, head {head} is not in a cache of {sequences} sequences, {layers} layers, {heads} heads"
    )]
    NoSuchStream {
        /// As asked.
        sequence: usize,
        /// As asked.
        layer: usize,
        /// As asked.
        head: usize,
        /// Held.
        sequences: usize,
        /// Held.
        layers: usize,
        /// Held.
        heads: usize,
    },
    /// Every page is taken.
    #[error("all {pages} pages of the cache are taken: free a sequence or configure more")]
    OutOfPages {
        /// Pages configured.
        pages: usize,
    },
    /// Tokens that the cache does not hold.
    #[error("tokens {first}..{end} are not held; {held} are")]
    NotHeld {
        /// First asked for.
        first: usize,
        /// Past the last asked for.
        end: usize,
        /// Tokens held.
        held: usize,
    },
    /// A tile whose bytes do not decode.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// A tile that does not decode: where, and why. The tile's tokens are masked; the host recomputes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sequence {}, layer {}, head {}, {:?}, block {}, tile {}: {cause}; recompute its tokens", address.sequence, address.layer, address.head, address.kind, address.block, address.tile)]
pub struct Corrupt {
    /// The tile.
    pub address: Address,
    /// What was wrong.
    pub cause: Cause,
}

/// Why a tile does not decode, in the order in which the checks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Fewer bytes than a header, or than the header says.
    Truncated,
    /// A version other than [`crate::Header::VERSION`].
    Version,
    /// A payload longer than a raw tile, or of another length than its mode fixes.
    Length,
    /// The CRC differs: bytes have changed, or the tile belongs elsewhere.
    Crc,
    /// Sequence or K/V of the header are not the address's.
    Misplaced,
    /// A mode, flag or field that this mode does not use.
    Field,
    /// The lanes read past the payload's end or stopped a word before it.
    Lane,
    /// A lane's coder did not return to its start.
    State,
    /// Bits set in the padding behind the last symbol.
    Padding,
    /// The overflow region has no such tile.
    Overflow,
}

impl Cause {
    /// All causes, in order of their codes.
    pub const ALL: [Self; 10] = [
        Self::Truncated,
        Self::Version,
        Self::Length,
        Self::Crc,
        Self::Misplaced,
        Self::Field,
        Self::Lane,
        Self::State,
        Self::Padding,
        Self::Overflow,
    ];
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "shorter than its header says",
            Self::Version => "another version of the stream",
            Self::Length => "a length that its mode does not have",
            Self::Crc => "the CRC differs",
            Self::Misplaced => "the header is another stream's",
            Self::Field => "a field that its mode does not have",
            Self::Lane => "the lanes end elsewhere",
            Self::State => "a lane's coder did not return to its start",
            Self::Padding => "bits set behind the last symbol",
            Self::Overflow => "no such tile in the overflow region",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_words_of_its_own() {
        let words: std::collections::BTreeSet<_> = Cause::ALL.iter().map(|cause| cause.to_string()).collect();
        assert_eq!(words.len(), Cause::ALL.len());
        assert_eq!(Cause::Crc.to_string(), "the CRC differs");
    }
}
