//! Commands as bytes: the opcode, three zero bytes, then the fields in their order, little endian, and zeros to the end.

use super::Command;
use super::fields::{Fields, IsaError, blank, opcode};

/// Bytes of a command.
pub const COMMAND_BYTES: usize = 96;

struct Writer {
    bytes: [u8; COMMAND_BYTES],
    at: usize,
}

impl Fields for Writer {
    fn field(&mut self, _: &'static str, bytes: usize, value: u64) -> u64 {
        self.bytes[self.at..][..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        self.at += bytes;
        value
    }
}

struct Reader<'a> {
    bytes: &'a [u8; COMMAND_BYTES],
    at: usize,
}

impl Fields for Reader<'_> {
    fn field(&mut self, _: &'static str, bytes: usize, _: u64) -> u64 {
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(&self.bytes[self.at..][..bytes]);
        self.at += bytes;
        u64::from_le_bytes(value)
    }
}

/// Bytes of the opcode and the reserved ones behind it.
const HEAD: usize = 4;

impl Command {
    /// The wire bytes.
    pub fn encode(&self) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0] = opcode(&self.op);
        let mut writer = Writer { bytes, at: HEAD };
        // A command that exists has fields with a meaning.
        let same = self.fields(&mut writer);
        debug_assert_eq!(same, Ok(*self));
        writer.bytes
    }

    /// Reads wire bytes.
    ///
    /// # Errors
    /// The first field whose value has no meaning; bytes that must be zero are the field `reserved`.
    pub fn decode(bytes: &[u8; COMMAND_BYTES]) -> Result<Self, IsaError> {
        let mut reader = Reader { bytes, at: HEAD };
        let command = Self { wait: 0, signal: 0, tag: 0, op: blank(bytes[0])? }.fields(&mut reader)?;
        let mut rest = bytes[1..HEAD].iter().chain(&bytes[reader.at..]);
        match rest.find(|b| **b != 0) {
            Some(&value) => Err(IsaError { field: "reserved", value: u64::from(value) }),
            None => Ok(command),
        }
    }
}
