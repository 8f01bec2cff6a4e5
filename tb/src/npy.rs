//! NumPy's `.npy` files: a strict reader and a writer.
//!
//! A file is the magic `\x93NUMPY`, a version (1.0, 2.0 or 3.0), the length of the header, a header that is a Python dictionary of
//! `descr`, `fortran_order` and `shape`, and the values (format: numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
//! Little-endian, row-major arrays are read; anything else is refused by name. No more is read than the header
//! asks for, and nothing is allocated that the file itself does not hold.

use std::fs::File;
use std::io::{self, Read};
use std::{fmt, path::Path};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header: NumPy's own limit for untrusted files is 10,000 characters.
const MAX_HEADER: usize = 10_000;
/// Most dimensions, as NumPy has them.
const MAX_DIMENSIONS: usize = 64;
/// Most bytes of values.
const MAX_VALUES: usize = 1 << 30;

/// The type of an array's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 8 bits; also the codes of an 8-bit float.
    U8,
    /// Unsigned, 16 bits: codes of BF16 or FP16.
    U16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// FP16.
    F16,
    /// FP32.
    F32,
    /// FP64.
    F64,
    /// A byte that NumPy has no type for: how ml_dtypes stores 8-bit floats.
    Raw8,
    /// Two bytes that NumPy has no type for: how ml_dtypes stores BF16.
    Raw16,
}

/// Every type that is read, by its `descr`; the first of a type is the one that is written.
const DTYPES: [(&str, Dtype); 11] = [
    ("|i1", Dtype::I8),
    ("|u1", Dtype::U8),
    ("<u2", Dtype::U16),
    ("<i4", Dtype::I32),
    ("<i8", Dtype::I64),
    ("<f2", Dtype::F16),
    ("<f4", Dtype::F32),
    ("<f8", Dtype::F64),
    ("|V1", Dtype::Raw8),
    ("<f1", Dtype::Raw8),
    ("|V2", Dtype::Raw16),
];

impl Dtype {
    /// Bytes of a value.
    pub const fn bytes(self) -> usize {
        match self {
            Dtype::I8 | Dtype::U8 | Dtype::Raw8 => 1,
            Dtype::U16 | Dtype::F16 | Dtype::Raw16 => 2,
            Dtype::I32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::F64 => 8,
        }
    }

    /// How a file names it.
    pub fn descr(self) -> &'static str {
        DTYPES.iter().find(|(_, dtype)| *dtype == self).map_or("", |(descr, _)| descr)
    }

    /// The type of a `descr`.
    fn of(descr: &str) -> Option<Self> {
        // `<i1` and `<V2` are written by some; single bytes have no order.
        let known = |(name, _): &&(&str, Dtype)| *name == descr || (descr.starts_with('<') && name[1..] == descr[1..]);
        DTYPES.iter().find(known).map(|(_, dtype)| *dtype)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.descr())
    }
}

/// An array as it stood in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Npy {
    /// Type of the values.
    pub dtype: Dtype,
    /// Extents; none for a scalar.
    pub shape: Vec<usize>,
    /// The values, little-endian, the last dimension fastest.
    pub data: Vec<u8>,
}

/// A file that is no array, or not the one that was wanted.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// The file cannot be read.
    #[error("cannot be read")]
    Read(#[source] std::io::Error),
    /// The array is larger than any operand.
    #[error("shape {shape:?} of {dtype} has {bytes} bytes of values: at most {MAX_VALUES} are read")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
        /// The type.
        dtype: Dtype,
        /// Bytes.
        bytes: usize,
    },
    /// It does not begin as an `.npy` file does.
    #[error("no .npy file: it does not begin with \\x93NUMPY (numpy.save writes one)")]
    Magic,
    /// A version of the format that is not known.
    #[error("version {major}.{minor} of the .npy format: 1.0, 2.0 and 3.0 are known")]
    Version {
        /// Its first byte.
        major: u8,
        /// Its second byte.
        minor: u8,
    },
    /// The file ends within its header.
    #[error("torn: it ends within the header, after {0} bytes")]
    TornHeader(usize),
    /// A header longer than NumPy takes from strangers.
    #[error("a header of {0} bytes: at most {MAX_HEADER}")]
    HeaderTooLong(usize),
    /// The header is no dictionary of the three keys.
    #[error("header: {expected} expected at byte {at} of it")]
    Header {
        /// What should stand there.
        expected: &'static str,
        /// Where.
        at: usize,
    },
    /// Values of a type that no operand has.
    #[error(
        "values of type {0:?}: little-endian |i1 |u1 <u2 <i4 <i8 <f2 <f4 <f8 (or |V1, |V2 for float codes) are read"
    )]
    Descr(String),
    /// Column-major order.
    #[error("Fortran order: save numpy.ascontiguousarray(array)")]
    Fortran,
    /// A shape whose size does not fit 64 bits.
    #[error("shape {0:?} has more values than can be counted")]
    TooMany(Vec<usize>),
    /// More bytes than the shape needs.
    #[error("too long: shape {shape:?} of {dtype} needs {expected} bytes of values, and more follow them")]
    TooLong {
        /// The shape.
        shape: Vec<usize>,
        /// The type.
        dtype: Dtype,
        /// Bytes needed.
        expected: usize,
    },
    /// Fewer bytes than the shape needs.
    #[error("torn: shape {shape:?} of {dtype} needs {expected} bytes of values, the file has {got}")]
    Torn {
        /// The shape.
        shape: Vec<usize>,
        /// The type.
        dtype: Dtype,
        /// Bytes needed.
        expected: usize,
        /// Bytes present.
        got: usize,
    },
    /// Another type than this operand takes.
    #[error("values of type {got}: this operand takes {wants}")]
    WrongType {
        /// The file's type.
        got: Dtype,
        /// What is taken.
        wants: String,
    },
    /// Another shape than this operand has.
    #[error("shape {got:?}: this operand is {wants}")]
    WrongShape {
        /// The file's shape.
        got: Vec<usize>,
        /// The shape that fits.
        wants: String,
    },
}

/// What a header says.
struct Layout {
    dtype: Dtype,
    shape: Vec<usize>,
    /// Where the values begin.
    start: usize,
    /// Bytes of values.
    expected: usize,
}

impl Layout {
    /// Of a file that begins with these bytes.
    fn parse(bytes: &[u8]) -> Result<Self, NpyError> {
        let torn = || NpyError::TornHeader(bytes.len());
        if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) || bytes.is_empty() {
            return Err(NpyError::Magic);
        }
        let (Some(&major), Some(&minor)) = (bytes.get(6), bytes.get(7)) else { return Err(torn()) };
        let (length, start) = match (major, minor) {
            (1, 0) => (bytes.get(8..10).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]]))), 10),
            (2 | 3, 0) => (bytes.get(8..12).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize), 12),
            _ => return Err(NpyError::Version { major, minor }),
        };
        let length = length.ok_or_else(torn)?;
        if length > MAX_HEADER {
            return Err(NpyError::HeaderTooLong(length));
        }
        let header = bytes.get(start..start + length).ok_or_else(torn)?;
        let (dtype, shape) = Header { text: header, at: 0 }.parse()?;
        let count = shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent));
        let expected = count.and_then(|n| n.checked_mul(dtype.bytes()));
        let Some(expected) = expected else { return Err(NpyError::TooMany(shape)) };
        Ok(Self { dtype, shape, start: start + length, expected })
    }
}

impl Npy {
    /// Reads a file, or a pipe.
    ///
    /// # Errors
    /// If it cannot be read, is too large, torn, too long, no `.npy` file, not in C order or of an unknown type.
    pub fn read(path: &Path) -> Result<Self, NpyError> {
        Self::take(File::open(path).map_err(NpyError::Read)?)
    }

    /// Reads the longest header there is, then what that header asks for and one byte more.
    fn take(mut file: impl Read) -> Result<Self, NpyError> {
        let mut bytes = Vec::new();
        let mut read = |bytes: &mut Vec<u8>, limit: usize| -> io::Result<usize> {
            file.by_ref().take(limit as u64).read_to_end(bytes)
        };
        read(&mut bytes, 12 + MAX_HEADER).map_err(NpyError::Read)?;
        let Layout { dtype, shape, start, expected } = Layout::parse(&bytes)?;
        if expected > MAX_VALUES {
            return Err(NpyError::TooLarge { shape, dtype, bytes: expected });
        }
        let rest = (start + expected + 1).saturating_sub(bytes.len());
        read(&mut bytes, rest).map_err(NpyError::Read)?;
        Self::parse(&bytes)
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// As [`Npy::read`].
    pub fn parse(bytes: &[u8]) -> Result<Self, NpyError> {
        let Layout { dtype, shape, start, expected } = Layout::parse(bytes)?;
        let data = &bytes[start..];
        match data.len().cmp(&expected) {
            std::cmp::Ordering::Less => Err(NpyError::Torn { shape, dtype, expected, got: data.len() }),
            std::cmp::Ordering::Greater => Err(NpyError::TooLong { shape, dtype, expected }),
            std::cmp::Ordering::Equal => Ok(Self { dtype, shape, data: data.to_vec() }),
        }
    }

    /// The bytes of a file, version 1.0, values aligned to 64 bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let extents: String = self.shape.iter().map(|extent| format!("{extent}, ")).collect();
        let extents = if self.shape.len() == 1 { extents.trim_end() } else { extents.trim_end_matches(", ") };
        let mut header =
            format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({extents}), }}", self.dtype.descr());
        let padded = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
        header.extend(std::iter::repeat_n(' ', padded - 1 - header.len()));
        header.push('\n');
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((padded as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(&self.data);
        bytes
    }

    /// Refuses a type that is not among `types`; `wants` says which are, in words.
    ///
    /// # Errors
    /// [`NpyError::WrongType`].
    pub fn expect_type(&self, types: &[Dtype], wants: &str) -> Result<(), NpyError> {
        match types.contains(&self.dtype) {
            true => Ok(()),
            false => Err(NpyError::WrongType { got: self.dtype, wants: wants.into() }),
        }
    }

    /// Refuses another shape.
    ///
    /// # Errors
    /// [`NpyError::WrongShape`].
    pub fn expect_shape(&self, shape: &[usize]) -> Result<(), NpyError> {
        match self.shape == shape {
            true => Ok(()),
            false => Err(NpyError::WrongShape { got: self.shape.clone(), wants: format!("{shape:?}") }),
        }
    }

    /// The values as numbers of N bytes.
    pub fn words<const N: usize, T>(&self, number: fn([u8; N]) -> T) -> Vec<T> {
        self.data.as_chunks().0.iter().map(|&bytes| number(bytes)).collect()
    }
}

/// A header, read from left to right. It is Python, but of the only shape that NumPy gives it.
struct Header<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Header<'a> {
    fn parse(mut self) -> Result<(Dtype, Vec<usize>), NpyError> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.symbol(b'{', "{")?;
        while !self.takes(b'}') {
            let key_at = self.at;
            let key = self.string()?;
            self.symbol(b':', ":")?;
            match key {
                "descr" if descr.is_none() => descr = Some(self.string()?),
                "fortran_order" if fortran.is_none() => fortran = Some(self.boolean()?),
                "shape" if shape.is_none() => shape = Some(self.tuple()?),
                _ => {
                    return Err(NpyError::Header { expected: "descr, fortran_order or shape, each once", at: key_at });
                }
            }
            if !self.takes(b',') && self.peek() != Some(b'}') {
                return self.expected(", or }");
            }
        }
        if self.peek().is_some() {
            return self.expected("nothing after the dictionary");
        }
        let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
            return self.expected("a dictionary of descr, fortran_order and shape");
        };
        let dtype = Dtype::of(descr).ok_or_else(|| NpyError::Descr(descr.into()))?;
        // One dimension or none has no order.
        if fortran && shape.len() > 1 { Err(NpyError::Fortran) } else { Ok((dtype, shape)) }
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T, NpyError> {
        Err(NpyError::Header { expected, at: self.at })
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(|b| b" \n".contains(b)) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn takes(&mut self, symbol: u8) -> bool {
        let found = self.peek() == Some(symbol);
        self.at += usize::from(found);
        found
    }

    fn symbol(&mut self, symbol: u8, name: &'static str) -> Result<(), NpyError> {
        if self.takes(symbol) { Ok(()) } else { self.expected(name) }
    }

    /// A string in quotes of either kind, without escapes.
    fn string(&mut self) -> Result<&'a str, NpyError> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else { return self.expected("a string") };
        let text = &self.text[self.at + 1..];
        let length = text.iter().position(|&b| b == quote);
        match length.and_then(|n| std::str::from_utf8(&text[..n]).ok()).filter(|s| !s.contains('\\')) {
            Some(string) => {
                self.at += string.len() + 2;
                Ok(string)
            }
            None => self.expected("a string without escapes"),
        }
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        self.peek();
        for (name, value) in [("True", true), ("False", false)] {
            if self.text[self.at..].starts_with(name.as_bytes()) {
                self.at += name.len();
                return Ok(value);
            }
        }
        self.expected("True or False")
    }

    fn tuple(&mut self) -> Result<Vec<usize>, NpyError> {
        let mut shape = Vec::new();
        self.symbol(b'(', "(")?;
        while !self.takes(b')') {
            if shape.len() == MAX_DIMENSIONS {
                return self.expected("at most 64 dimensions");
            }
            self.peek();
            let digits = self.text[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
            let number = std::str::from_utf8(&self.text[self.at..self.at + digits]).ok().and_then(|s| s.parse().ok());
            match number {
                Some(extent) => shape.push(extent),
                None => return self.expected("an extent"),
            }
            self.at += digits;
            if !self.takes(b',') && (self.peek() != Some(b')') || shape.len() == 1) {
                return self.expected(", or )");
            }
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `numpy.save` of numpy.array([[1, -2, 3]], 'int8') as NumPy 2.4.6 writes it.
    fn saved() -> Vec<u8> {
        let text = "{'descr': '|i1', 'fortran_order': False, 'shape': (1, 3), }";
        [b"\x93NUMPY\x01\x00v\x00", text.as_bytes(), &[b' '; 58], b"\n\x01\xfe\x03"].concat()
    }

    /// A stream without an end that counts what was taken of it.
    struct Endless {
        head: Vec<u8>,
        taken: usize,
    }

    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            for byte in into.iter_mut() {
                *byte = self.head.get(self.taken).copied().unwrap_or(0);
                self.taken += 1;
            }
            Ok(into.len())
        }
    }

    #[test]
    fn no_more_is_read_than_the_header_asks_for() {
        let header = |shape: &str| {
            let text = format!("{{'descr': '|i1', 'fortran_order': False, 'shape': {shape}}}");
            [b"\x93NUMPY\x01\x00", (text.len() as u16).to_le_bytes().as_slice(), text.as_bytes()].concat()
        };
        let large = MAX_VALUES + 1;
        for (head, word, most) in [
            (vec![0; 16], "no .npy file", 12 + MAX_HEADER),
            (header("(3,)"), "too long", 12 + MAX_HEADER),
            (header("(50000,)"), "too long", 50_000 + 128),
            (header(&format!("({large},)")), "at most 1073741824", 12 + MAX_HEADER),
        ] {
            let mut endless = Endless { head, taken: 0 };
            let error = Npy::take(&mut endless).unwrap_err().to_string();
            assert!(error.contains(word), "{error:?} lacks {word:?}");
            assert!(endless.taken <= most, "{word}: {} bytes taken", endless.taken);
        }
        let long = Npy { dtype: Dtype::I8, shape: vec![30_000], data: vec![7; 30_000] };
        assert_eq!(Npy::take(long.bytes().as_slice()).unwrap(), long);
        assert_eq!(Npy::take(saved().as_slice()).unwrap(), Npy::parse(&saved()).unwrap());
    }

    fn any_array() -> impl Strategy<Value = Npy> {
        (0..DTYPES.len(), proptest::collection::vec(0..5usize, 0..4), any::<u8>()).prop_map(|(dtype, shape, seed)| {
            let dtype = DTYPES[dtype].1;
            let bytes = shape.iter().product::<usize>() * dtype.bytes();
            Npy { dtype, shape, data: (0..bytes).map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed)).collect() }
        })
    }

    #[test]
    fn a_file_that_numpy_wrote() {
        let read = Npy::parse(&saved()).unwrap();
        assert_eq!(read, Npy { dtype: Dtype::I8, shape: vec![1, 3], data: vec![1, 0xfe, 3] });
        assert_eq!(read.bytes(), saved());
    }

    #[test]
    fn each_fault_has_its_error() {
        let header = |text: &str| {
            let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.bytes());
            Npy::parse(&bytes).unwrap_err().to_string()
        };
        let with = |descr: &str, fortran: &str, shape: &str| {
            header(&format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}}}"))
        };
        let too_long = [saved(), vec![0]].concat();
        for (got, part) in [
            (with("<i4", "True", "(2, 3)"), "Fortran order"),
            (with(">i4", "False", "()"), "\">i4\""),
            (with("|O", "False", "()"), "\"|O\""),
            (with("|i1", "False", "(18446744073709551616,)"), "an extent expected"),
            (with("<i4", "False", "(4611686018427387904, 4)"), "more values"),
            (with("<i4", "False", "(1000000000, 1000000000)"), "torn"),
            (with("<i4", "False", "(-1,)"), "an extent"),
            (with("<i4", "0", "()"), "True or False"),
            (header("{'descr': '<i4', 'descr': '<i4'}"), "each once"),
            (header("{'descr': '<i4'}"), "a dictionary of"),
            (header(&" ".repeat(MAX_HEADER + 1)), "at most 10000"),
            (Npy::parse(&too_long).unwrap_err().to_string(), "too long"),
            (Npy::parse(b"\x89PNG").unwrap_err().to_string(), "\\x93NUMPY"),
            (Npy::parse(b"\x93NUMPY\x07\x00").unwrap_err().to_string(), "version 7.0"),
        ] {
            assert!(got.contains(part), "{got:?} lacks {part:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(array in any_array()) {
            let bytes = array.bytes();
            prop_assert_eq!(bytes.len() - array.data.len(), (bytes.len() - array.data.len()) / 64 * 64);
            prop_assert_eq!(Npy::parse(&bytes).unwrap(), array);
        }

        #[test]
        fn a_torn_file_is_refused(array in any_array(), cut in any::<proptest::sample::Index>()) {
            let bytes = array.bytes();
            prop_assert!(Npy::parse(&bytes[..cut.index(bytes.len())]).is_err());
        }

        #[test]
        fn mutated_bytes_never_panic(
            array in any_array(),
            mutations in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = array.bytes();
            for (at, byte) in mutations {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(read) = Npy::parse(&bytes) {
                // Whatever was read is what stands there, and no more.
                prop_assert_eq!(read.shape.iter().product::<usize>() * read.dtype.bytes(), read.data.len());
                prop_assert!(bytes.ends_with(&read.data));
            }
        }

        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), version in 1..4u8) {
            let _ = Npy::parse(&bytes);
            let _ = Npy::parse(&[MAGIC, &[version, 0], &bytes].concat());
        }
    }
}
