//! The cycles of the clocked engines without clocking them. Edges are counted from 0; a handshake falls on the first edge, from the
//! one on which both sides can, on which the other side does.

use crate::{Cause, Encoded, Format, Header, LANES, Mode};

/// The first edge from `edge` on at which `holds`.
fn first(mut edge: u64, holds: impl Fn(u64) -> bool) -> u64 {
    while !holds(edge) {
        edge += 1;
    }
    edge
}

/// The edges of a tile in the encoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeEdges {
    /// The command is taken.
    pub command: u64,
    /// The last row is taken.
    pub row: u64,
    /// The header word is given to the output register.
    pub head: u64,
    /// The header word leaves the output register.
    pub word: u64,
    /// The status leaves; the next command is taken an edge later at the earliest.
    pub status: u64,
}

/// The edges of a tile that became `done` after the tile `before`, if there was one. The closures say on which edges a command and rows are
/// offered, and words and statuses taken.
///
/// With no stall the status follows the command by tokens + 1 + passes · (tokens + 1) + codings · (tokens · width/8 + 1) +
/// pieces + 3 edges; a piece is up to 64 bits of the rows or of the stream, or padding.
pub fn encode_edges(
    done: &Encoded,
    width: usize,
    mode: Mode,
    before: Option<&EncodeEdges>,
    (command, row): (impl Fn(u64) -> bool, impl Fn(u64) -> bool),
    (word, status): (impl Fn(u64) -> bool, impl Fn(u64) -> bool),
) -> EncodeEdges {
    let tokens = done.header.tokens() as u64;
    let mut edges =
        EncodeEdges { command: first(before.map_or(0, |b| b.status + 1), command), ..EncodeEdges::default() };
    edges.row = (0..tokens).fold(edges.command, |edge, _| first(edge + 1, &row));
    let passes = u64::from(done.passes) * (tokens + 1);
    let codings = u64::from(done.codings) * (tokens * (width / LANES) as u64 + 1);
    let mut edge = edges.row + 1 + passes + codings;
    // When the word in the output register leaves it: a word may take its place on that edge.
    let mut leaves = 0;
    let mut give = |edge: u64| {
        let edge = edge.max(leaves);
        leaves = first(edge + 1, &word);
        edge
    };
    let (mut held, mut words) = (0, 0);
    let slot = match (done.header.format, mode) {
        (Format::Slot, Mode::Slot { bytes }) => bytes / 8 - 1,
        _ => 0,
    };
    let mut take = |bits: usize, held: &mut usize, words: &mut usize| {
        edge += 1;
        *held += bits;
        if *held >= 64 {
            *held -= 64;
            *words += 1;
            edge = give(edge);
        }
    };
    for bits in pieces(done, width) {
        take(bits, &mut held, &mut words);
    }
    while held > 0 || words < slot {
        let bits = 64 - held;
        take(bits, &mut held, &mut words);
    }
    edges.head = give(edge + 1);
    edges.word = leaves;
    edges.status = first(edges.word + 1, status);
    edges
}

/// The payload's pieces before the padding, in bits.
fn pieces(done: &Encoded, width: usize) -> Vec<usize> {
    let values = done.header.tokens() * width;
    let cut = |bits: usize| (0..bits.div_ceil(64)).map(move |i| 64.min(bits - 64 * i));
    match done.header.format {
        Format::Raw => cut(16 * values).collect(),
        Format::Fixed => cut(4 * values).collect(),
        Format::Mean => Vec::new(),
        Format::Overflow => vec![64],
        Format::Entropy | Format::Slot => cut(done.stream as usize).collect(),
        Format::Lossless => cut(8 * values).chain(cut(done.stream as usize)).collect(),
    }
}

/// The edges of a tile in the decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeEdges {
    /// The command is taken.
    pub command: u64,
    /// The loader has checked the tile.
    pub check: u64,
    /// The lanes are set on their places.
    pub start: u64,
    /// The last row leaves the output register.
    pub row: u64,
    /// The status leaves, and the tile buffer is free.
    pub status: u64,
}

/// The edges of a tile after the tiles `before` (the last, and the one before it). `header` is what decoded, `words` the
/// stored words with the header, `cause` what the loader's checks found: a lane's fault shows only at the end.
///
/// With no stall and both stages idle: words + 1 edges to the check, tokens · ⌈width / 8 / depth⌉ row beats, 3 more to the status.
pub fn decode_edges(
    (header, words, width, depth): (&Header, usize, usize, usize),
    cause: Option<Cause>,
    before: [Option<&DecodeEdges>; 2],
    (command, word): (impl Fn(u64) -> bool, impl Fn(u64) -> bool),
    (row, status): (impl Fn(u64) -> bool, impl Fn(u64) -> bool),
) -> DecodeEdges {
    let [last, second] = before;
    let free = second.map_or(0, |b| b.status + 1).max(last.map_or(0, |b| b.check + 1));
    let mut edges = DecodeEdges { command: first(free, command), ..DecodeEdges::default() };
    edges.check = (0..words).fold(edges.command, |edge, _| first(edge + 1, &word)) + 1;
    edges.start = (edges.check + 1).max(last.map_or(0, |b| b.status + 1));
    let early = matches!(cause, Some(c) if !matches!(c, Cause::Lane | Cause::State | Cause::Padding));
    let beats =
        if early || header.format == Format::Overflow { 0 } else { header.tokens() * (width / LANES).div_ceil(depth) };
    let mut leaves = 0;
    let mut edge = edges.start;
    for _ in 0..beats {
        edge = (edge + 1).max(leaves);
        leaves = first(edge + 1, &row);
    }
    edges.row = leaves;
    edges.status = first(edge.max(leaves) + 1, status);
    edges
}
