use crate::bits::copy_lanes;
use crate::{Bits, Format, Module, Name, Role, Signal, Visitor};

/// What the read port gives when both ports meet at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The word as it was before the edge.
    ReadFirst,
    /// The word being written (a bypass around the array).
    WriteFirst,
}

/// Misuse of a memory, kept sticky until reset: the first one that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SramFault {
    /// A read of a word that was never written: it would be X in hardware.
    Uninitialised {
        /// Word address.
        address: usize,
    },
    /// A read or write at or past the depth.
    OutOfRange {
        /// Word address.
        address: usize,
        /// Words in the memory.
        depth: usize,
    },
}

impl std::fmt::Display for SramFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uninitialised { address } => write!(f, "word {address} was read but never written"),
            Self::OutOfRange { address, depth } => {
                write!(f, "address {address} is past the {depth} words of the memory")
            }
        }
    }
}

/// A write of one word.
#[derive(Clone, Copy, Debug)]
pub struct SramWrite<'a, T> {
    /// Word address.
    pub address: usize,
    /// One value a lane.
    pub data: &'a [T],
}

/// Inputs of an [`Sram`]: at most one read and one write an edge.
#[derive(Clone, Copy, Debug)]
pub struct SramIn<'a, T> {
    /// Word address to read, if any; data appear after the edge and stay until the next read.
    pub read: Option<usize>,
    /// Word to write, if any.
    pub write: Option<SramWrite<'a, T>>,
}

/// Outputs of an [`Sram`].
#[derive(Clone, Copy, Debug)]
pub struct SramRead<'a, T> {
    /// The word read last.
    pub data: &'a [T],
    /// The first misuse since reset.
    pub fault: Option<SramFault>,
}

/// A memory of `depth` words of `lanes` values, one read and one write port, registered read data.
///
/// Contents survive reset. Reading a word never written raises [`SramFault::Uninitialised`].
#[derive(Clone, Debug)]
pub struct Sram<T> {
    words: Vec<T>,
    /// A byte each: as bits they would share words, and a read would wait for the write before it.
    written: Vec<bool>,
    lanes: usize,
    mode: WriteMode,
    /// The read register, one value a lane.
    data: Vec<T>,
    fault: Option<SramFault>,
}

impl<T: Bits> Sram<T> {
    /// An empty memory.
    ///
    /// # Panics
    /// If `depth` or `lanes` is zero.
    pub fn new(depth: usize, lanes: usize, mode: WriteMode) -> Self {
        assert!(depth > 0 && lanes > 0, "a memory needs at least one word of one lane");
        Self {
            words: vec![T::default(); depth * lanes],
            written: vec![false; depth],
            lanes,
            mode,
            data: vec![T::default(); lanes],
            fault: None,
        }
    }

    /// Words.
    pub fn depth(&self) -> usize {
        self.written.len()
    }

    fn word(&self, address: usize) -> std::ops::Range<usize> {
        address * self.lanes..(address + 1) * self.lanes
    }

    fn raise(&mut self, fault: SramFault) {
        self.fault.get_or_insert(fault);
    }

    #[inline]
    fn read(&mut self, address: usize) {
        if address >= self.depth() {
            return self.raise(SramFault::OutOfRange { address, depth: self.depth() });
        }
        if !self.written[address] {
            self.raise(SramFault::Uninitialised { address });
        }
        let range = self.word(address);
        copy_lanes(&mut self.data, &self.words[range]);
    }

    #[inline]
    fn write(&mut self, w: &SramWrite<'_, T>) {
        if w.address >= self.depth() {
            return self.raise(SramFault::OutOfRange { address: w.address, depth: self.depth() });
        }
        let range = self.word(w.address);
        copy_lanes(&mut self.words[range], w.data);
        self.written[w.address] = true;
    }
}

impl<T: Bits> Module for Sram<T> {
    type In<'a> = SramIn<'a, T>;
    type Out<'a> = SramRead<'a, T>;

    fn out(&self) -> SramRead<'_, T> {
        SramRead { data: &self.data, fault: self.fault }
    }

    #[inline]
    fn clock(&mut self, i: &SramIn<'_, T>) {
        if let (WriteMode::WriteFirst, Some(w)) = (self.mode, &i.write) {
            self.write(w);
        }
        if let Some(address) = i.read {
            self.read(address);
        }
        if let (WriteMode::ReadFirst, Some(w)) = (self.mode, &i.write) {
            self.write(w);
        }
    }

    fn reset(&mut self) {
        self.data.fill(T::default());
        self.fault = None;
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        let format = if T::SIGNED { Format::Signed } else { Format::Hex };
        for (lane, value) in self.data.iter_mut().enumerate() {
            v.reg(("rdata_q", lane), T::WIDTH, format, value);
        }
        let signal = Signal { name: Name::from("words"), width: T::WIDTH, format, role: Role::Register };
        if v.memory(signal, self.words.len()) {
            for value in &mut self.words {
                let old = value.to_bits() & crate::mask(T::WIDTH);
                let new = v.word(old);
                if new != old {
                    *value = T::from_bits(new, T::WIDTH);
                }
            }
        }
    }
}

/// `banks` single-ported-per-direction memories, interleaved by the low address bits, shared by requesters of fixed priority.
///
/// A requester whose bank is taken by a lower-numbered one in the same cycle is not granted and must ask again.
#[derive(Clone, Debug)]
pub struct BankedSram<T> {
    banks: Vec<Sram<T>>,
    /// Per requester: the bank its last granted read went to, whose read register holds its data.
    last_bank: Vec<u32>,
}

/// Inputs of a [`BankedSram`].
pub struct BankIn<'a, T> {
    /// One slot a requester.
    pub requests: &'a [SramIn<'a, T>],
    /// Must be the `read_grant` and `write_grant` that [`BankedSram::grants`] gives for the same requests.
    pub grants: &'a [(bool, bool)],
}

/// Outputs of a [`BankedSram`].
pub struct BankOut<'a, T> {
    memory: &'a BankedSram<T>,
}

impl<'a, T: Bits> BankOut<'a, T> {
    /// The word that `requester` read last. Valid in the cycle after its grant, until its bank is read again.
    pub fn data(&self, requester: usize) -> &'a [T] {
        self.memory.banks[self.memory.last_bank[requester] as usize].out().data
    }

    /// The first misuse since reset of the lowest bank that has one, with the bank; the address in it is the bank's own.
    pub fn fault(&self) -> Option<(usize, SramFault)> {
        self.memory.banks.iter().enumerate().find_map(|(b, m)| m.out().fault.map(|f| (b, f)))
    }
}

impl<T: Bits> BankedSram<T> {
    /// `depth` words in all, which `banks` must divide.
    ///
    /// # Panics
    /// If a size is zero or `banks` does not divide `depth`.
    pub fn new(depth: usize, lanes: usize, banks: usize, requesters: usize, mode: WriteMode) -> Self {
        assert!(banks > 0 && depth.is_multiple_of(banks), "{banks} banks must divide {depth} words");
        Self { banks: vec![Sram::new(depth / banks, lanes, mode); banks], last_bank: vec![0; requesters] }
    }

    /// Who wins: per requester (read granted, write granted). The arbiter is a function of the requests alone.
    pub fn grants(&self, requests: &[SramIn<'_, T>]) -> Vec<(bool, bool)> {
        let mut taken = vec![(false, false); self.banks.len()];
        let claim = |address: Option<usize>, port: fn(&mut (bool, bool)) -> &mut bool, taken: &mut [(bool, bool)]| {
            address.is_some_and(|a| !std::mem::replace(port(&mut taken[a % self.banks.len()]), true))
        };
        requests
            .iter()
            .map(|r| {
                let read = claim(r.read, |t| &mut t.0, &mut taken);
                let write = claim(r.write.map(|w| w.address), |t| &mut t.1, &mut taken);
                (read, write)
            })
            .collect()
    }
}

impl<T: Bits> Module for BankedSram<T> {
    type In<'a> = BankIn<'a, T>;
    type Out<'a> = BankOut<'a, T>;

    fn out(&self) -> BankOut<'_, T> {
        BankOut { memory: self }
    }

    fn clock(&mut self, i: &BankIn<'_, T>) {
        let n = self.banks.len();
        let mut ports = vec![SramIn { read: None, write: None }; n];
        for (r, (request, grant)) in i.requests.iter().zip(i.grants).enumerate() {
            if let (Some(address), true) = (request.read, grant.0) {
                ports[address % n].read = Some(address / n);
                self.last_bank[r] = (address % n) as u32;
            }
            if let (Some(w), true) = (request.write, grant.1) {
                ports[w.address % n].write = Some(SramWrite { address: w.address / n, data: w.data });
            }
        }
        for (bank, port) in self.banks.iter_mut().zip(&ports) {
            bank.clock(port);
        }
    }

    fn reset(&mut self) {
        self.banks.iter_mut().for_each(Sram::reset);
        self.last_bank.fill(0);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        for (r, bank) in self.last_bank.iter_mut().enumerate() {
            v.reg(("last_bank_q", r), 32 - (self.banks.len() as u32).leading_zeros(), Format::Unsigned, bank);
        }
        for (b, bank) in self.banks.iter_mut().enumerate() {
            v.scope(("bank", b), |v| bank.visit(v));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(address: usize, data: &[i32]) -> SramIn<'_, i32> {
        SramIn { read: None, write: Some(SramWrite { address, data }) }
    }

    #[test]
    fn data_come_one_edge_after_the_address_and_stay() {
        let mut m = Sram::new(4, 2, WriteMode::ReadFirst);
        m.clock(&write(1, &[5, -6]));
        m.clock(&SramIn { read: Some(1), write: None });
        assert_eq!(m.out().data, [5, -6]);
        m.clock(&SramIn { read: None, write: None });
        assert_eq!(m.out().data, [5, -6]);
        assert_eq!(m.out().fault, None);
    }

    #[test]
    fn both_ports_at_one_address() {
        for (mode, expected) in [(WriteMode::ReadFirst, 1), (WriteMode::WriteFirst, 2)] {
            let mut m = Sram::new(4, 1, mode);
            m.clock(&write(3, &[1]));
            m.clock(&SramIn { read: Some(3), write: Some(SramWrite { address: 3, data: &[2] }) });
            assert_eq!(m.out().data, [expected]);
            m.clock(&SramIn { read: Some(3), write: None });
            assert_eq!(m.out().data, [2]);
        }
    }

    #[test]
    fn misuse_is_sticky_until_reset_and_contents_survive_it() {
        let mut m = Sram::<i32>::new(4, 1, WriteMode::ReadFirst);
        m.clock(&write(0, &[9]));
        m.clock(&SramIn { read: Some(2), write: None });
        m.clock(&write(7, &[1]));
        assert_eq!(m.out().fault, Some(SramFault::Uninitialised { address: 2 }));
        m.reset();
        assert_eq!((m.out().fault, m.out().data), (None, &[0][..]));
        m.clock(&SramIn { read: Some(0), write: None });
        assert_eq!((m.out().fault, m.out().data), (None, &[9][..]));
        m.clock(&SramIn { read: Some(4), write: None });
        assert_eq!(m.out().fault, Some(SramFault::OutOfRange { address: 4, depth: 4 }));
    }

    #[test]
    fn banks_conflict_and_serve_by_priority() {
        let mut m = BankedSram::<i32>::new(8, 1, 4, 3, WriteMode::ReadFirst);
        let values: Vec<i32> = (100..108).collect();
        for (address, value) in values.iter().enumerate() {
            let requests = [write(address, std::slice::from_ref(value))];
            let grants = m.grants(&requests);
            m.clock(&BankIn { requests: &requests, grants: &grants });
        }
        let read = |address| SramIn { read: Some(address), write: None };
        let requests = [read(1), read(5), read(2)];
        let grants = m.grants(&requests);
        assert_eq!(grants.iter().map(|g| g.0).collect::<Vec<_>>(), [true, false, true], "1 and 5 share bank 1");
        m.clock(&BankIn { requests: &requests, grants: &grants });
        assert_eq!((m.out().data(0), m.out().data(2)), (&[101][..], &[102][..]));
        assert_eq!(m.out().fault(), None);

        let (image, layout) = (crate::Image::of(&mut m), crate::Layout::of(&mut m));
        assert!(layout.paths.iter().any(|p| p.path == "bank_3.rdata_q_0"));
        m.reset();
        assert_eq!((m.out().data(0), m.out().data(2)), (&[0][..], &[0][..]));
        image.restore(&mut m);
        assert_eq!((m.out().data(0), m.out().data(2)), (&[101][..], &[102][..]));
        m.clock(&BankIn { requests: &[read(7)], grants: &[(true, false)] });
        assert_eq!((m.out().data(0), m.out().fault()), (&[107][..], None));
    }

    #[test]
    fn a_misuse_is_told_in_words() {
        let text = SramFault::Uninitialised { address: 7 }.to_string();
        assert_eq!(text, "word 7 was read but never written");
        let text = SramFault::OutOfRange { address: 9, depth: 8 }.to_string();
        assert_eq!(text, "address 9 is past the 8 words of the memory");
    }
}
