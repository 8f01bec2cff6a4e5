//! What can go wrong.

use crate::ConfigError;
use crate::isa::Stream;

/// Why an NPU cannot be set up.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A size of the KV path.
    #[error("{what}: {value}, must lie in {least}..={most}")]
    Range {
        /// Which.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The least allowed.
        least: usize,
        /// The most allowed.
        most: usize,
    },
    /// The codec refuses it.
    #[error(transparent)]
    Nkz(nkz::Error),
    /// Pages off their boundary.
    #[error("KV pages at {0:#x}: must begin on a multiple of 4096")]
    Pages(u64),
    /// The pages do not fit the DRAM.
    #[error("KV pages end at {end:#x}, the DRAM at {size:#x}: fewer sequences, a shorter context or more DRAM")]
    PagesEnd {
        /// Past the last page.
        end: u64,
        /// Bytes of DRAM.
        size: u64,
    },
}

/// Why a command could not be carried out: the sticky error of the NPU.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// DRAM addresses past its end.
    #[error("{bytes} bytes at {address:#x} of a DRAM of {size} bytes")]
    Dram {
        /// First byte.
        address: u64,
        /// How many.
        bytes: u64,
        /// Of the DRAM.
        size: u64,
    },
    /// Scratchpad addresses past its end.
    #[error("{bytes} bytes at {base:#x} of a scratchpad of {size} bytes")]
    Scratchpad {
        /// First byte.
        base: u64,
        /// How many.
        bytes: u64,
        /// Of the scratchpad.
        size: u64,
    },
    /// Bytes that nobody wrote.
    #[error("{bytes} bytes at {base:#x} of the scratchpad are read, but not all were ever written")]
    Unwritten {
        /// First byte.
        base: u64,
        /// How many.
        bytes: u64,
    },
    /// Control RAM addresses past its end, or written by the DMA.
    #[error("{bytes} bytes at {address:#x}: outside the control RAM, or written to it")]
    Control {
        /// First byte.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// A DMA job ended otherwise than done.
    #[error("descriptor {number} of the chain: {cause}")]
    Dma {
        /// Position in the chain.
        number: usize,
        /// Why.
        cause: String,
    },
    /// A chain touches banks that its command does not hold.
    #[error("a DMA chain touches banks {touched:#x} of the scratchpad, but its command holds {held:#x}")]
    Banks {
        /// Bit by bit.
        touched: u64,
        /// Bit by bit.
        held: u64,
    },
    /// A field of a command that does not fit the machine or the other fields.
    #[error("{field} = {value}: {rule}")]
    Field {
        /// Its name in a listing.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
    /// No such stream.
    #[error("{0:?}: the KV path was not set up for this sequence, layer or head")]
    Stream(Stream),
    /// Tiles that the index does not hold.
    #[error("tiles {first}..{first}+{tiles}: the index holds {held}")]
    Tiles {
        /// First tile.
        first: u32,
        /// How many.
        tiles: u32,
        /// Tiles of the stream.
        held: u32,
    },
    /// No room for a tile.
    #[error("a stream's pages are full: they were set up for {tokens} tokens")]
    KvFull {
        /// Tokens.
        tokens: u64,
    },
    /// A tile that the codec finds corrupt, or does not store.
    #[error(transparent)]
    Nkz(#[from] nkz::Error),
    /// A tile with values that are not finite does not fit its slot.
    #[error("a tile does not fit its slot: the slot modes need a host that keeps an overflow region")]
    Slot,
    /// The vector unit refuses it.
    #[error(transparent)]
    Vector(#[from] vector::VectorError),
    /// The matrix-vector processor refuses it.
    #[error(transparent)]
    Mvp(#[from] mvp::GemmError),
    /// A token counter would pass its 16 bits.
    #[error("token counter t{0} overflows")]
    Tokens(u32),
}

impl From<mvp::JobError> for Fault {
    fn from(error: mvp::JobError) -> Self {
        Fault::Mvp(error.into())
    }
}

impl From<mvp::ConfigError> for Fault {
    fn from(error: mvp::ConfigError) -> Self {
        Fault::Mvp(error.into())
    }
}

/// Why a program did not run to its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// A command failed; those behind it on any engine did not start.
    #[error("command {number} ({listing}): {fault}")]
    Command {
        /// Its place in the program.
        number: usize,
        /// As the assembler shows it.
        listing: String,
        /// Why.
        fault: Fault,
    },
    /// A program in memory that cannot be read.
    #[error("command {number} cannot be fetched: {cause}")]
    Fetch {
        /// Its place in the program.
        number: usize,
        /// Why.
        cause: String,
    },
    /// Nothing runs and nothing can start: what the watchdog saw.
    #[error("deadlock in cycle {cycle}: {state}")]
    Deadlock {
        /// When.
        cycle: u64,
        /// Every queue's head and what it waits for, and the token counters.
        state: String,
    },
}
