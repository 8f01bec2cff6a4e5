use crate::{Name, Signal, Visitor, mask};
use bitvec::{field::BitField, order::Lsb0, vec::BitVec};

/// All state of a module at one instant, registers and memories, as one bit vector: a checkpoint, and what two models are compared by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    bits: BitVec<u64, Lsb0>,
    widths: Vec<u8>,
}

/// One signal that differs between two images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Position in the walk: the index into [`Layout::paths`].
    pub signal: usize,
    /// Its bits in the first image.
    pub left: u64,
    /// Its bits in the second.
    pub right: u64,
}

impl Image {
    /// Takes the image of a module. Wires are left out: they follow from the registers.
    pub fn of<M: crate::Module>(module: &mut M) -> Self {
        let mut writer = ImageWriter { image: Self::default(), word_width: 0 };
        module.visit(&mut writer);
        writer.image
    }

    /// Puts the state back; the module must have the shape that the image was taken from.
    ///
    /// # Panics
    /// If the module has more state than the image.
    pub fn restore<M: crate::Module>(&self, module: &mut M) {
        module.visit(&mut ImageReader { image: self, bit: 0, word_width: 0 });
    }

    /// Bits of state.
    pub fn bits(&self) -> usize {
        self.bits.len()
    }

    /// Signals and memory lanes whose values differ, in the order of the walk.
    ///
    /// # Panics
    /// If the images are of different shapes.
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        assert_eq!(self.widths, other.widths, "images of different modules");
        let mut found = Vec::new();
        if self.bits != other.bits {
            let mut bit = 0;
            for (signal, &width) in self.widths.iter().enumerate() {
                let range = bit..bit + usize::from(width);
                let (left, right) = (self.bits[range.clone()].load_le(), other.bits[range.clone()].load_le());
                if left != right {
                    found.push(Difference { signal, left, right });
                }
                bit = range.end;
            }
        }
        found
    }
}

struct ImageWriter {
    image: Image,
    /// Of the memory being shown.
    word_width: u32,
}

impl ImageWriter {
    fn push(&mut self, width: u32, value: u64) {
        let Image { bits, widths } = &mut self.image;
        let start = bits.len();
        bits.resize(start + width as usize, false);
        bits[start..].store_le(value & mask(width));
        widths.push(width as u8);
    }
}

impl Visitor for ImageWriter {
    fn enter(&mut self, _: Name) -> bool {
        true
    }
    fn leave(&mut self) {}
    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        if signal.role == crate::Role::Register {
            self.push(signal.width, value);
        }
        value
    }
    fn memory(&mut self, signal: Signal, words: usize) -> bool {
        self.image.bits.reserve(words * signal.width as usize);
        self.word_width = signal.width;
        true
    }
    fn word(&mut self, value: u64) -> u64 {
        self.push(self.word_width, value);
        value
    }
}

struct ImageReader<'a> {
    image: &'a Image,
    bit: usize,
    word_width: u32,
}

impl ImageReader<'_> {
    fn take(&mut self, width: u32) -> u64 {
        let start = self.bit;
        self.bit += width as usize;
        self.image.bits[start..self.bit].load_le()
    }
}

impl Visitor for ImageReader<'_> {
    fn enter(&mut self, _: Name) -> bool {
        true
    }
    fn leave(&mut self) {}
    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        if signal.role == crate::Role::Register { self.take(signal.width) } else { value }
    }
    fn memory(&mut self, signal: Signal, _: usize) -> bool {
        self.word_width = signal.width;
        true
    }
    fn word(&mut self, _: u64) -> u64 {
        self.take(self.word_width)
    }
}

/// Full path and width of a register, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalPath {
    /// Scopes and name, joined by dots; memory lanes end in their number.
    pub path: String,
    /// Bits.
    pub width: u32,
    /// A lane of a memory word, not a register.
    pub memory: bool,
}

/// The registers of a module in the order of the walk: names for the positions that [`Image`] and [`FaultInjector`] use.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// One entry a register or memory lane.
    pub paths: Vec<SignalPath>,
    scope: Vec<Name>,
    /// Path, lane width and next lane of the memory being shown.
    memory: (String, u32, usize),
}

impl Layout {
    /// Walks a module once.
    pub fn of<M: crate::Module>(module: &mut M) -> Self {
        let mut layout = Self::default();
        module.visit(&mut layout);
        layout
    }

    fn path(&self, name: Name) -> String {
        let mut path = String::new();
        for scope in &self.scope {
            path += &format!("{scope}.");
        }
        path + &name.to_string()
    }
}

impl Visitor for Layout {
    fn enter(&mut self, name: Name) -> bool {
        self.scope.push(name);
        true
    }
    fn leave(&mut self) {
        self.scope.pop();
    }
    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        if signal.role == crate::Role::Register {
            self.paths.push(SignalPath { path: self.path(signal.name), width: signal.width, memory: false });
        }
        value
    }
    fn memory(&mut self, signal: Signal, _: usize) -> bool {
        self.memory = (self.path(signal.name), signal.width, 0);
        true
    }
    fn word(&mut self, value: u64) -> u64 {
        let (path, width, lane) = &mut self.memory;
        self.paths.push(SignalPath { path: format!("{path}_{lane}"), width: *width, memory: true });
        *lane += 1;
        value
    }
}

/// Flips bits of one register: a single-event upset, or, called every cycle with `stuck`, a stuck-at fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultInjector {
    /// Position of the register in the walk, as in [`Layout::paths`].
    pub signal: usize,
    /// Bits to change.
    pub mask: u64,
    /// `None` flips them; `Some(true)` sets, `Some(false)` clears.
    pub stuck: Option<bool>,
}

impl FaultInjector {
    /// Applies the fault once.
    pub fn inject<M: crate::Module>(self, module: &mut M) {
        module.visit(&mut Injection { fault: self, next: 0 });
    }
}

struct Injection {
    fault: FaultInjector,
    next: usize,
}

impl Injection {
    fn apply(&mut self, value: u64) -> u64 {
        let hit = self.next == self.fault.signal;
        self.next += 1;
        match (hit, self.fault.stuck) {
            (false, _) => value,
            (true, None) => value ^ self.fault.mask,
            (true, Some(true)) => value | self.fault.mask,
            (true, Some(false)) => value & !self.fault.mask,
        }
    }
}

impl Visitor for Injection {
    fn enter(&mut self, _: Name) -> bool {
        true
    }
    fn leave(&mut self) {}
    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        if signal.role == crate::Role::Register { self.apply(value) & mask(signal.width) } else { value }
    }
    fn memory(&mut self, _: Signal, words: usize) -> bool {
        let inside = (self.next..self.next + words).contains(&self.fault.signal);
        self.next += if inside { 0 } else { words };
        inside
    }
    fn word(&mut self, value: u64) -> u64 {
        self.apply(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fifo, FifoIn, Module, Stream};

    fn filled() -> Fifo<i16> {
        let mut fifo = Fifo::new(3, 0i16);
        for value in [-1i16, 300] {
            fifo.clock(&FifoIn { push: Stream::offer(&value), pop: false });
        }
        fifo
    }

    #[test]
    fn an_image_restores_the_state() {
        let mut fifo = filled();
        let image = Image::of(&mut fifo);
        let mut fresh = Fifo::new(3, 0i16);
        assert!(!image.differences(&Image::of(&mut fresh)).is_empty());
        image.restore(&mut fresh);
        assert_eq!(Image::of(&mut fresh), image);
        assert_eq!(*fresh.out().head.data, -1);
        assert_eq!(image.bits(), 2 + 2 + 2 + 3 * 16);
    }

    #[test]
    fn lanes_of_a_payload_have_names_and_go_back() {
        let mut fifo = Fifo::new(2, vec![false; 3]);
        for value in [[true, false, true], [false, true, true]] {
            fifo.clock(&FifoIn { push: Stream { valid: true, data: &value.to_vec() }, pop: false });
        }
        let paths: Vec<_> = Layout::of(&mut fifo).paths.into_iter().map(|p| (p.path, p.width)).collect();
        assert_eq!(paths[3..6], ["slot_q_0_0", "slot_q_0_1", "slot_q_0_2"].map(|path| (path.to_string(), 1)));
        let image = Image::of(&mut fifo);
        let mut fresh = Fifo::new(2, vec![false; 3]);
        image.restore(&mut fresh);
        assert_eq!(*fresh.out().head.data, [true, false, true]);
        fresh.clock(&FifoIn { push: Stream { valid: false, data: &vec![false; 3] }, pop: true });
        assert_eq!(*fresh.out().head.data, [false, true, true]);
    }

    #[test]
    fn a_fault_hits_the_register_that_the_layout_names() {
        let mut fifo = filled();
        let layout = Layout::of(&mut fifo);
        let signal = layout.paths.iter().position(|p| p.path == "slot_q_1").unwrap();
        let before = Image::of(&mut fifo);
        FaultInjector { signal, mask: 1 << 15, stuck: None }.inject(&mut fifo);
        let differences = before.differences(&Image::of(&mut fifo));
        assert_eq!(differences, [Difference { signal, left: 300, right: 300 | 1 << 15 }]);
        FaultInjector { signal, mask: 1 << 15, stuck: Some(false) }.inject(&mut fifo);
        assert_eq!(Image::of(&mut fifo), before);
    }

    /// A module of a wire, two registers of which one lies in a scope, and a memory of two words of one lane between them.
    struct Toy {
        first: u8,
        memory: crate::Sram<i8>,
        last: i16,
    }

    impl Toy {
        fn new() -> Self {
            let mut memory = crate::Sram::new(2, 1, crate::WriteMode::ReadFirst);
            for (address, data) in [[-2i8], [5]].iter().enumerate() {
                memory.clock(&crate::SramIn { read: None, write: Some(crate::SramWrite { address, data }) });
            }
            Self { first: 0x5a, memory, last: -3 }
        }
    }

    impl Module for Toy {
        type In<'a> = ();
        type Out<'a> = ();
        fn out(&self) {}
        fn clock(&mut self, (): &()) {}
        fn reset(&mut self) {}
        fn visit(&mut self, v: &mut impl Visitor) {
            v.wire("sum", 4, crate::Format::Unsigned, self.first);
            v.reg("first_q", 8, crate::Format::Hex, &mut self.first);
            v.scope("inner", |v| {
                self.memory.visit(v);
                v.reg("last_q", 12, crate::Format::Signed, &mut self.last);
            });
        }
    }

    #[test]
    fn an_image_holds_registers_and_memories_and_no_wires() {
        let (mut full, mut empty) = (Toy::new(), Toy::new());
        let image = Image::of(&mut full);
        // first_q, rdata_q, two words, last_q.
        assert_eq!(image.bits(), 8 + 8 + 2 * 8 + 12);
        (empty.first, empty.last) = (0, 0);
        empty.memory = crate::Sram::new(2, 1, crate::WriteMode::ReadFirst);
        let different: Vec<_> = image.differences(&Image::of(&mut empty)).iter().map(|d| (d.signal, d.left)).collect();
        assert_eq!(different, [(0, 0x5a), (2, 0xfe), (3, 5), (4, 0xffd)]);
        image.restore(&mut empty);
        assert_eq!((empty.first, empty.last), (0x5a, -3));
        assert_eq!(Image::of(&mut empty), image);
    }

    #[test]
    fn a_fault_hits_what_the_layout_names_and_nothing_else() {
        let layout = Layout::of(&mut Toy::new());
        let named: Vec<_> = layout.paths.iter().map(|p| (p.path.as_str(), p.width, p.memory)).collect();
        let expected = [
            ("first_q", 8, false),
            ("inner.rdata_q_0", 8, false),
            ("inner.words_0", 8, true),
            ("inner.words_1", 8, true),
            ("inner.last_q", 12, false),
        ];
        assert_eq!(named, expected);
        for signal in 0..expected.len() {
            let mut toy = Toy::new();
            let before = Image::of(&mut toy);
            FaultInjector { signal, mask: 2, stuck: None }.inject(&mut toy);
            let [d] = before.differences(&Image::of(&mut toy))[..] else { panic!("{signal}: not one register") };
            assert_eq!((d.signal, d.right), (signal, d.left ^ 2));
            FaultInjector { signal, mask: 2, stuck: Some(d.left & 2 != 0) }.inject(&mut toy);
            assert_eq!(Image::of(&mut toy), before);
        }
    }

    /// Looks at what it is shown, as a waveform does.
    #[derive(Default)]
    struct Onlooker {
        memories: bool,
        seen: Vec<(String, u64)>,
    }

    impl Visitor for Onlooker {
        fn enter(&mut self, _: Name) -> bool {
            true
        }
        fn leave(&mut self) {}
        fn signal(&mut self, signal: Signal, value: u64) -> u64 {
            self.seen.push((signal.name.to_string(), value));
            value
        }
        fn memory(&mut self, _: Signal, _: usize) -> bool {
            self.memories
        }
    }

    #[test]
    fn a_visitor_that_only_looks_changes_nothing() {
        for memories in [false, true] {
            let mut toy = Toy::new();
            let before = Image::of(&mut toy);
            let mut onlooker = Onlooker { memories, ..Onlooker::default() };
            toy.visit(&mut onlooker);
            let seen: Vec<_> = onlooker.seen.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            assert_eq!(seen, [("sum", 0xa), ("first_q", 0x5a), ("rdata_q_0", 0), ("last_q", 0xffd)]);
            assert_eq!(Image::of(&mut toy), before);
        }
    }
}
