use super::{PortError, PortShape};
use crate::{Beat, Beats, GemvJob};
use rtl::{Format, Module, Name, Payload, Stream, Visitor};

/// P stored bytes, the first in lane 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word(pub Vec<u8>);

impl Payload for Word {
    fn visit(&mut self, name: Name, v: &mut impl Visitor) {
        self.0.visit(name, v);
    }
}

/// Wires into a [`WeightPort`].
#[derive(Clone, Copy, Debug)]
pub struct WeightPortIn<'a> {
    /// A job; taken if none is under way.
    pub start: Option<GemvJob>,
    /// Stored bytes. A job begins at a word's first byte; what is left of its last word is dropped.
    pub word: Stream<&'a Word>,
    /// The beat on offer is taken.
    pub ready: bool,
}

/// Wires out of a [`WeightPort`].
pub struct WeightPortOut {
    /// No job is under way.
    pub idle: bool,
    /// A word will be taken.
    pub ready: bool,
    /// q rows of a chunk, expanded; nothing but valid counts while it is not valid.
    pub w: Stream<Beats>,
}

/// The gearbox between words of P bytes and beats of B, and the expander behind it.
///
/// A beat is on offer as soon as its last byte is here, one edge after that byte's word was taken. Up to B + 2P bytes are held, so that
/// neither words nor beats ever wait for the handshake alone.
#[derive(Clone, Debug)]
pub struct WeightPort {
    shape: PortShape,
    /// B + 2P bytes, the oldest first; `fill` of them count.
    bytes: Vec<u8>,
    fill: usize,
    /// Beats of the job that have not left.
    left: u64,
    /// Bytes behind the job's last beat in its last word.
    tail: usize,
}

impl WeightPort {
    /// An empty port.
    ///
    /// # Errors
    /// If the shape cannot be built.
    pub fn new(shape: PortShape) -> Result<Self, PortError> {
        let shape = shape.checked()?;
        Ok(Self { shape, bytes: vec![0; shape.beat_bytes() + 2 * shape.bytes], fill: 0, left: 0, tail: 0 })
    }

    /// Its shape.
    pub fn shape(&self) -> PortShape {
        self.shape
    }

    fn offers(&self) -> bool {
        self.left > 0 && self.fill >= self.shape.beat_bytes()
    }

    /// The expander's wires.
    fn beats(&self) -> Beats {
        let mut beats = vec![Beat::column(self.shape.gemv.config); self.shape.gemv.outputs];
        let segments = self.bytes.chunks_exact(self.shape.segment_bytes());
        beats.iter_mut().zip(segments).for_each(|(beat, segment)| self.shape.expand(segment, beat));
        Beats(beats)
    }
}

impl Module for WeightPort {
    type In<'a> = WeightPortIn<'a>;
    type Out<'a> = WeightPortOut;

    fn out(&self) -> WeightPortOut {
        let valid = self.offers();
        let data = if valid { self.beats() } else { Beats::default() };
        WeightPortOut {
            idle: self.left == 0,
            ready: self.fill + self.shape.bytes <= self.bytes.len(),
            w: Stream { valid, data },
        }
    }

    fn clock(&mut self, i: &WeightPortIn<'_>) {
        let (takes, gives) = (self.fill + self.shape.bytes <= self.bytes.len(), self.offers() && i.ready);
        if self.left == 0
            && let Some(job) = i.start
        {
            self.left = self.shape.beats(job) as u64;
            self.tail = self.shape.stored_bytes(job).next_multiple_of(self.shape.bytes) - self.shape.stored_bytes(job);
        }
        if gives {
            self.left -= 1;
            let gone = self.shape.beat_bytes() + if self.left == 0 { self.tail } else { 0 };
            self.bytes.copy_within(gone..self.fill, 0);
            self.fill -= gone;
        }
        if i.word.fires(takes) {
            self.bytes[self.fill..][..self.shape.bytes].copy_from_slice(&i.word.data.0);
            self.fill += self.shape.bytes;
        }
    }

    fn reset(&mut self) {
        (self.fill, self.left, self.tail) = (0, 0, 0);
        self.bytes.fill(0);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        fn count(v: &mut impl Visitor, name: &'static str, value: &mut usize) {
            let mut word = *value as u32;
            v.reg(name, 32, Format::Unsigned, &mut word);
            *value = word as usize;
        }
        self.bytes.visit("byte_q".into(), v);
        count(v, "fill_q", &mut self.fill);
        v.reg("left_q", 64, Format::Unsigned, &mut self.left);
        count(v, "tail_q", &mut self.tail);
    }
}
