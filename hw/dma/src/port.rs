use crate::beat::{Lanes, MAX_BUS, visit_lanes};
use crate::{Config, Run};
use rtl::{Format, Name, Payload, Stream, Visitor};

/// An AXI4 response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Response {
    /// OKAY, 0.
    #[default]
    Okay,
    /// SLVERR, 2: the slave was reached and failed.
    SlaveError,
    /// DECERR, 3: no slave there.
    DecodeError,
}

impl Response {
    /// The two bits on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Okay => 0,
            Self::SlaveError => 2,
            Self::DecodeError => 3,
        }
    }

    /// The response of two bits; EXOKAY counts as OKAY.
    pub const fn from_code(code: u8) -> Self {
        match code & 3 {
            2 => Self::SlaveError,
            3 => Self::DecodeError,
            _ => Self::Okay,
        }
    }
}

/// A beat of the AR or AW channel: an incrementing burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AxiAddress {
    /// AxADDR: first byte, 48 bits; need not be aligned.
    pub address: u64,
    /// AxLEN + 1: 1..=256 beats.
    pub beats: u16,
    /// AxSIZE: log2 of the bus width in bytes.
    pub size: u8,
}

impl AxiAddress {
    /// The burst of a run.
    pub fn of(run: &Run, bus_bytes: u32) -> Self {
        Self { address: run.address >> 1, beats: run.beats(bus_bytes) as u16, size: bus_bytes.trailing_zeros() as u8 }
    }
}

impl Payload for AxiAddress {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("address_q", 48, Format::Hex, &mut self.address);
            v.reg("beats_q", 9, Format::Unsigned, &mut self.beats);
            v.reg("size_q", 3, Format::Unsigned, &mut self.size);
        });
    }
}

/// A beat of the R channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBeat {
    /// RDATA, in the lanes of the address.
    pub data: Lanes,
    /// RRESP.
    pub response: Response,
    /// RLAST.
    pub last: bool,
}

impl Default for ReadBeat {
    fn default() -> Self {
        Self { data: [0; MAX_BUS], response: Response::Okay, last: false }
    }
}

impl Payload for ReadBeat {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            visit_lanes("data_q", &mut self.data, v);
            let mut code = self.response.code();
            v.reg("resp_q", 2, Format::Unsigned, &mut code);
            self.response = Response::from_code(code);
            v.reg("last_q", 1, Format::Unsigned, &mut self.last);
        });
    }
}

/// A beat of the W channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBeat {
    /// WDATA.
    pub data: Lanes,
    /// WSTRB, bit i for lane i.
    pub strobe: u64,
    /// WLAST.
    pub last: bool,
}

impl Default for WriteBeat {
    fn default() -> Self {
        Self { data: [0; MAX_BUS], strobe: 0, last: false }
    }
}

impl Payload for WriteBeat {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            visit_lanes("data_q", &mut self.data, v);
            v.reg("strobe_q", 64, Format::Hex, &mut self.strobe);
            v.reg("last_q", 1, Format::Unsigned, &mut self.last);
        });
    }
}

/// What the engine drives on its AXI4 port (one ID, INCR bursts, full-width beats).
#[derive(Clone, Copy, Debug)]
pub struct PortOut<'a> {
    /// Read addresses.
    pub ar: Stream<AxiAddress>,
    /// RREADY.
    pub r_ready: bool,
    /// Write addresses.
    pub aw: Stream<AxiAddress>,
    /// Write data.
    pub w: Stream<&'a WriteBeat>,
    /// BREADY.
    pub b_ready: bool,
}

/// What the memory drives.
#[derive(Clone, Copy, Debug)]
pub struct PortIn<'a> {
    /// ARREADY.
    pub ar_ready: bool,
    /// Read data, in the order of the addresses.
    pub r: Stream<&'a ReadBeat>,
    /// AWREADY.
    pub aw_ready: bool,
    /// WREADY.
    pub w_ready: bool,
    /// Write responses, in the order of the addresses.
    pub b: Stream<Response>,
}

/// A bus error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusFault {
    /// The response; OKAY if there was no error.
    pub response: Response,
    /// Byte address of the beat that failed; of the burst, for a write.
    pub address: u64,
}

impl BusFault {
    /// Whether there was an error.
    pub fn raised(&self) -> bool {
        self.response != Response::Okay
    }
}

impl Payload for BusFault {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        v.scope(name, |v| {
            let mut code = self.response.code();
            v.reg("resp_q", 2, Format::Unsigned, &mut code);
            self.response = Response::from_code(code);
            v.reg("address_q", 48, Format::Hex, &mut self.address);
        });
    }
}

/// A configuration that cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The bus width.
    #[error("a bus of {0} bytes cannot be built: 8, 16, 32 or 64")]
    Bus(u32),
    /// Queue sizes.
    #[error("{0} bursts in flight cannot be built: 1 to 1024")]
    InFlight(usize),
}

impl Config {
    /// Checks the numbers.
    ///
    /// # Errors
    /// [`ConfigError`] names the one that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !matches!(self.bus_bytes, 8 | 16 | 32 | 64) {
            return Err(ConfigError::Bus(self.bus_bytes));
        }
        let in_flight = [self.reads_in_flight, self.writes_in_flight];
        in_flight.into_iter().find(|n| !(1..=1024).contains(n)).map_or(Ok(()), |n| Err(ConfigError::InFlight(n)))
    }
}
