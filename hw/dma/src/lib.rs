//! The data-movement engine: 2D and 3D gather, scatter, remap and transposition over an AXI4 port.
//!
//! ```text
//!  doorbell ─▶ front end ──job──▶ mid end ──runs──▶ back end ◀──▶ AXI4: AR R AW W B
//!              fetch, check       addresses         bursts, realign,
//!              link, index lists  transposer        pack, complete ──▶ completions
//!                  ▲                  ▲    stream       │
//!                  └──── control ─────┴─────────────────┘
//! ```
//!
//! A [`Descriptor`] is one job: three counts, signed strides on both sides, an index list on one dimension of either side, a
//! window with a fill value. [`Preset`] builds them. [`Dma`] is the cycle engine, every register clocked; [`Transaction`]
//! gives the same bytes and the same cycle counts without clocking. docs/dma.md has the formats, the order that is
//! promised, and the timing.

mod address;
mod align;
mod back;
mod beat;
mod check;
mod completion;
mod descriptor;
mod engine;
mod field;
mod front;
mod hazard;
mod index;
mod latency;
mod mid;
mod net;
mod plan;
mod port;
mod preset;
mod reader;
mod run;
mod state;
mod timed;
mod transaction;
mod transposer;
mod walk;
mod writer;

pub use address::{AddressUnit, AddressUnitIn, AddressUnitOut, RUN_QUEUE};
pub use back::{BackEnd, BackIn, BackOut, COMPLETIONS, TICKETS};
pub use beat::{Beat, Lanes, MAX_BUS};
pub use check::{Checked, Checker, Limits, ListPlan, Span};
pub use completion::{Access, Completion, JobError, Outcome, Ticket};
pub use descriptor::{
    ADDRESS_BITS, Descriptor, Element, INDEX_ENTRIES, IndexList, REGIONS, Remap, Side, VERSION, WIRE_ALIGN, WIRE_BYTES,
    Window,
};
pub use engine::{Config, Counters, Dma, DmaIn, DmaOut, Stalls, Traffic};
pub use field::{Field, Refusal};
pub use front::{DOORBELLS, FrontEnd, FrontIn, FrontOut};
pub use latency::Latency;
pub use mid::{CHUNK_BYTES, CHUNK_NIBBLES, IndexWrite, MidEnd, MidIn, MidOut, WRITE_JOBS};
pub use net::Bytes;
pub use plan::{Plan, Region, SidePlan};
pub use port::{AxiAddress, BusFault, ConfigError, PortIn, PortOut, ReadBeat, Response, WriteBeat};
pub use preset::{Kernel, Layout, List, Place, Preset, PresetError, chain};
pub use reader::{Bite, Context, Control, Reader, ReaderIn, ReaderOut};
pub use run::{Build, Builder, Kind, MAX_BEATS, PAGE, Run};
pub use state::State;
pub use transaction::{Report, Transaction};
pub use transposer::{TILE_BYTES, Transposer, TransposerIn, TransposerOut};
pub use walk::{Phase, Segment, Walk};
pub use writer::{WRITE_BURSTS, Writer, WriterIn, WriterOut, write_lanes};
