//! Attention as commands: the cache's tiles through the codec, a tile of queries at a time.
//!
//! A query of tile τ sees tiles below τ decoded, the sinks and its own tile raw. The decoded context comes in spans of a fixed number of
//! tokens from 0 on, and the sum over values is ((span 0 + span 1) + …) + raw tile, whatever the text's cut: a query's
//! bits do not depend on which others it attends with.

use crate::Result;
use crate::lower::{Lower, Place};
use crate::plan::{Block, ENCODED, SINKS, TILE};
use crate::program::Move;
use crate::tag::Step;
use npu::KV;
use npu::isa::{Matmul, Op, Operands, RowOp, Rows, Stream, Tokens, Vector};
use npu::numeric::FloatFormat;

/// How often each round of buffers was used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    block: u32,
    raw: u32,
    raw_keys: u32,
    encoded: u32,
    stored: u32,
    part: u32,
    sum: u32,
    /// Spans that lie decoded: keys and values.
    held: [Vec<Option<Held>>; 2],
    next: [u32; 2],
}

/// A decoded span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    sequence: u32,
    layer: u32,
    head: u32,
    span: u32,
    tiles: u32,
}

/// The raw rows that a sequence's queries see.
#[derive(Clone, Copy)]
struct Raw {
    sequence: u32,
    /// The sinks: K and V of tokens 0..4.
    sinks: u32,
    /// K and V of the tokens from `first` on.
    tiles: u32,
    /// A multiple of a tile.
    first: u32,
}

/// Queries that attend together.
#[derive(Clone, Copy)]
struct Queries {
    /// FP32 rows before RoPE, of all heads.
    rows: Rows,
    /// Where what they attend to goes.
    out: Rows,
    /// Position of the first.
    first: u32,
    count: u32,
}

impl Lower<'_> {
    fn stream(&self, sequence: u32, head: u32, value: bool) -> Stream {
        Stream { sequence: sequence as u8, layer: self.layer as u8, head: head as u8, value }
    }

    /// First byte of a head's K or V in a row of K and V.
    fn channel(&self, head: u32, value: bool) -> u32 {
        let shape = self.layout.shape;
        2 * (head * shape.head_pad + if value { shape.kv_pad() } else { 0 })
    }

    /// A chunk of one sequence.
    pub(crate) fn attend_chunk(&mut self, queries: Rows) -> Result<()> {
        let (shape, plan, places) = (self.layout.shape, self.plan, self.places);
        let (Some(&Place { sequence, position }), count) = (places.first(), places.len() as u32) else { return Ok(()) };
        let (row, end) = (shape.token_bytes(), position + count);
        let first = position / TILE * TILE;
        let base = plan.raw.at(0);
        let tiles = base + SINKS * row;
        let raw = Raw { sequence, sinks: if first == 0 { tiles } else { base }, tiles, first };
        for tile in first / TILE..end / TILE {
            self.encode(raw, tile);
        }
        for head in 0..shape.kv_heads {
            let mut at = position;
            while at < end {
                let stop = end.min((at / TILE + 1) * TILE);
                self.attend(raw, head, queries, position, at..stop, (end - 1) / TILE)?;
                at = stop;
            }
        }
        self.step(Step::RawTokens);
        let dram = self.layout.map.raw_at(shape, sequence, self.layer);
        let mut out = Vec::new();
        if position < SINKS {
            // What is there of the sinks; later ones follow with their own chunk.
            out.push(Move::linear(false, dram, tiles, end.min(SINKS) * row));
        }
        if !end.is_multiple_of(TILE) {
            let tile = tiles + (end / TILE * TILE - first) * row;
            out.push(Move::linear(false, dram + u64::from(SINKS * row), tile, end % TILE * row));
        }
        self.program.moves(&out, KV);
        Ok(())
    }

    /// A token of each of several sequences.
    pub(crate) fn attend_batch(&mut self, queries: Rows) -> Result<()> {
        let (shape, plan) = (self.layout.shape, self.plan);
        let row = shape.token_bytes();
        let mut out = Vec::new();
        for (i, &Place { sequence, position }) in self.places.iter().enumerate() {
            let i = i as u32;
            let base = plan.raw.at(self.turns.raw + i);
            if i > 0 {
                self.load_raw(i);
            }
            let (tiles, at) = (base + SINKS * row, position % TILE);
            self.step(Step::RawTokens);
            self.program.push(Op::KvRaw {
                rows: 1,
                width: row / 2,
                position,
                from: Rows::packed(plan.fresh + i * row, row),
                tokens: Tokens { to: Rows::packed(tiles + at * row, row), transposed: false, rotated: false },
            });
            let first = position - at;
            let raw = Raw { sequence, sinks: if first == 0 { tiles } else { base }, tiles, first };
            let of = |rows: Rows| Rows { base: rows.base + i * rows.pitch, ..rows };
            for head in 0..shape.kv_heads {
                let queries = Queries { rows: of(queries), out: of(plan.attended), first: position, count: 1 };
                let block = plan.block(shape, position + 1, 1)?;
                let keys = self.raw_keys(raw, head, first, at + 1);
                self.block(raw, head, queries, block, keys, position / TILE)?;
            }
            let dram = self.layout.map.raw_at(shape, sequence, self.layer);
            let tile = dram + u64::from(SINKS * row);
            if at + 1 == TILE {
                self.encode(raw, position / TILE);
            } else {
                out.push(Move::linear(false, tile + u64::from(at * row), plan.fresh + i * row, row));
            }
            if position < SINKS {
                out.push(Move::linear(false, dram + u64::from(position * row), plan.fresh + i * row, row));
            }
        }
        self.turns.raw += self.places.len() as u32;
        self.step(Step::RawTokens);
        self.program.moves(&out, KV);
        Ok(())
    }

    /// Of place `i`, if the pass has it: the sinks and the rows of the tile being filled before its position.
    pub(crate) fn load_raw(&mut self, i: u32) {
        let Some(&Place { sequence, position }) = self.places.get(i as usize) else { return };
        let row = self.layout.shape.token_bytes();
        let base = self.plan.raw.at(self.turns.raw + i);
        // In the first tile the sinks are rows of the tile itself.
        let (skip, rows) = if position < TILE { (SINKS, position) } else { (0, SINKS + position % TILE) };
        if rows == 0 {
            return;
        }
        self.step(Step::RawTokens);
        let dram = self.layout.map.raw_at(self.layout.shape, sequence, self.layer) + u64::from(skip * row);
        self.program.moves(&[Move::linear(true, dram, base + skip * row, rows * row)], KV);
    }

    /// A full tile of all heads into the codec, and to DRAM.
    fn encode(&mut self, raw: Raw, tile: u32) {
        let row = self.layout.shape.token_bytes();
        let bytes = self.layout.kv.tile_bytes() as u32;
        self.step(Step::Encode);
        for head in 0..self.layout.shape.kv_heads {
            for value in [false, true] {
                let stream = self.stream(raw.sequence, head, value);
                let to = self.plan.encoded.at(self.turns.encoded);
                self.turns.encoded = (self.turns.encoded + 1) % ENCODED;
                let base = raw.tiles + (tile * TILE - raw.first) * row + self.channel(head, value);
                self.program.push_sized(Op::KvEncode { stream, tile, from: Rows { base, pitch: row }, to }, bytes);
                self.program.push_sized(Op::KvStore { stream, tile, from: to }, bytes);
            }
        }
    }

    /// Queries of one tile and one KV head, block by block as scores fit.
    fn attend(
        &mut self,
        raw: Raw,
        head: u32,
        rows: Rows,
        start: u32,
        span: std::ops::Range<u32>,
        last: u32,
    ) -> Result<()> {
        let (shape, plan) = (self.layout.shape, self.plan);
        let first = span.start / TILE * TILE;
        let block = plan.block(shape, span.end, span.end - span.start)?;
        let keys = self.raw_keys(raw, head, first, span.end - first);
        let mut at = span.start;
        while at < span.end {
            let count = block.queries.min(span.end - at);
            let of = |rows: Rows| Rows { base: rows.base + (at - start) * rows.pitch, ..rows };
            let queries = Queries { rows: of(rows), out: of(plan.attended), first: at, count };
            self.block(raw, head, queries, block, keys, last)?;
            at += count;
        }
        Ok(())
    }

    /// Rotated keys of `count` raw tokens from `first` on.
    fn raw_keys(&mut self, raw: Raw, head: u32, first: u32, count: u32) -> Rows {
        let row = self.layout.shape.token_bytes();
        let to = Rows { base: self.plan.raw_keys.at(self.turns.raw_keys), pitch: (2 * count).next_multiple_of(4) };
        self.turns.raw_keys += 1;
        self.step(Step::Rotate);
        let base = raw.tiles + (first - raw.first) * row + self.channel(head, false);
        self.program.push(Op::KvRaw {
            rows: count,
            width: self.layout.shape.head_dim,
            position: first,
            from: Rows { base, pitch: row },
            tokens: Tokens { to, transposed: true, rotated: true },
        });
        to
    }

    /// A block of queries of one KV head. `last`: the last tile that any query of this pass lies in.
    fn block(&mut self, raw: Raw, head: u32, q: Queries, block: Block, raw_keys: Rows, last: u32) -> Result<()> {
        let (shape, plan) = (self.layout.shape, self.plan);
        let (d, g) = (shape.head_dim, shape.group());
        let tile = q.first / TILE;
        let (decoded, end) = (tile * TILE, q.first + q.count);
        let turn = self.turns.block;
        self.turns.block += 1;

        self.step(Step::Rotate);
        let rotated = plan.queries.at(turn);
        let x = Rows { base: q.rows.base + head * g * d * 4, ..q.rows };
        let op = Vector::Rope { position: q.first, step: 1 };
        let y = Rows { base: rotated, pitch: 2 * g * d };
        self.program.push(Op::Vector(RowOp { op, rows: q.count, len: g * d, x, y }));

        // Rows: query by query, within each its heads.
        let m = q.count * g;
        let x = Rows { base: rotated, pitch: 2 * d };
        let scores = Rows { base: block.scores.at(turn), pitch: block.score_pitch };
        let spans = decoded.div_ceil(plan.span);
        for span in 0..spans {
            let first = span * plan.span;
            let w = self.decoded(raw, head, false, span, last);
            let n = plan.span.min(decoded - first);
            let y = Rows { base: scores.base + 4 * first, ..scores };
            self.matmul(Step::Scores, [m, n, d], x, w, y);
        }
        let y = Rows { base: scores.base + 4 * decoded, ..scores };
        self.matmul(Step::Scores, [m, end - decoded, d], x, raw_keys, y);

        let shares = Rows { base: block.shares.at(turn), pitch: block.share_pitch };
        self.softmax(q, end, scores, shares);

        let of = |first: u32| Rows { base: shares.base + 2 * first, ..shares };
        let sum = Rows { base: plan.sums.at(self.turns.sum), pitch: 4 * d };
        for span in 0..spans {
            let first = span * plan.span;
            let w = self.decoded(raw, head, true, span, last);
            let k = plan.span.min(decoded - first);
            let y = if span == 0 { sum } else { self.part() };
            self.matmul(Step::Mix, [m, d, k], of(first), w, y);
            if span > 0 {
                self.sum(sum, y, sum, m, d);
            }
        }
        let row = shape.token_bytes();
        let base = raw.tiles + (decoded - raw.first) * row + self.channel(head, true);
        let (w, k) = (Rows { base, pitch: row }, end - decoded);
        let out = Rows { base: q.out.base + head * g * d * 4, ..q.out };
        if spans > 0 {
            let part = self.part();
            self.matmul(Step::Mix, [m, d, k], of(decoded), w, part);
            let token = |rows: Rows| Rows { pitch: 4 * g * d, ..rows };
            self.sum(token(sum), token(part), out, q.count, g * d);
            self.turns.sum += 1;
        } else if q.count == 1 {
            self.matmul(Step::Mix, [m, d, k], shares, w, Rows { pitch: 4 * d, ..out });
        } else {
            for j in 0..g {
                let x = Rows { base: shares.base + j * shares.pitch, pitch: g * shares.pitch };
                let y = Rows { base: out.base + j * d * 4, ..out };
                self.matmul(Step::Mix, [q.count, d, k], x, w, y);
            }
        }
        Ok(())
    }

    fn part(&mut self) -> Rows {
        self.turns.part += 1;
        Rows { base: self.plan.parts.at(self.turns.part), pitch: 4 * self.layout.shape.head_dim }
    }

    fn matmul(&mut self, step: Step, [m, n, k]: [u32; 3], x: Rows, w: Rows, y: Rows) {
        self.step(step);
        let operands = Operands::Float(FloatFormat::BF16);
        let mode = self.mode(m);
        let product = Matmul { mode, operands, m, n, k, x, x_scales: 0, w, w_scales: 0, y, y_bf16: false };
        self.program.push(Op::Matmul(product));
    }

    fn sum(&mut self, x: Rows, b: Rows, y: Rows, rows: u32, len: u32) {
        self.step(Step::Mix);
        self.program.push(Op::Vector(RowOp { op: Vector::Add { b }, rows, len, x, y }));
    }

    /// A query sees itself and all before it.
    fn softmax(&mut self, q: Queries, len: u32, x: Rows, y: Rows) {
        let g = self.layout.shape.group();
        self.step(Step::Softmax);
        let (scale, visible) = (self.layout.shape.scale, q.first + 1);
        let mut push = |op, rows, x, y| self.program.push(Op::Vector(RowOp { op, rows, len, x, y }));
        if q.count == 1 {
            return push(Vector::Softmax { scale, visible, step: 0 }, g, x, y);
        }
        let of = |rows: Rows, j: u32| Rows { base: rows.base + j * rows.pitch, pitch: g * rows.pitch };
        for j in 0..g {
            push(Vector::Softmax { scale, visible, step: 1 }, q.count, of(x, j), of(y, j));
        }
    }

    /// A span of decoded keys (rotated, channel-major) or values as W of a product: as it lies, or loaded and decoded.
    fn decoded(&mut self, raw: Raw, head: u32, value: bool, span: u32, last: u32) -> Rows {
        let (plan, d) = (self.plan, self.layout.shape.head_dim);
        let first = span * plan.span / TILE;
        let tiles = (plan.span / TILE).min(last - first);
        let slots = if value { plan.values } else { plan.keys };
        let rows = |slot: u32| match value {
            true => Rows { base: slots.at(slot), pitch: 2 * d },
            false => Rows { base: slots.at(slot), pitch: 2 * TILE * tiles },
        };
        let held = Held { sequence: raw.sequence, layer: self.layer, head, span, tiles };
        let kind = usize::from(value);
        self.turns.held[kind].resize(slots.count as usize, None);
        if let Some(slot) = self.turns.held[kind].iter().position(|h| *h == Some(held)) {
            return rows(slot as u32);
        }
        let slot = self.turns.next[kind] % slots.count;
        self.turns.next[kind] += 1;
        self.turns.held[kind][slot as usize] = Some(held);
        let to = rows(slot);
        self.step(Step::Decode);
        let (stream, from) = (self.stream(raw.sequence, head, value), plan.stored.at(self.turns.stored));
        self.turns.stored += 1;
        let tokens = Tokens { to, transposed: !value, rotated: !value };
        self.program.push_sized(Op::KvLoad { stream, first, tiles, to: from }, plan.stored_bytes);
        self.program.push_sized(Op::KvDecode { stream, first, tiles, from, tokens }, plan.stored_bytes);
        if span == 0 {
            let base = raw.sinks + self.channel(head, value);
            let from = Rows { base, pitch: self.layout.shape.token_bytes() };
            self.program.push(Op::KvRaw { rows: SINKS, width: d, position: 0, from, tokens });
        }
        to
    }
}
