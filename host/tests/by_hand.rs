//! The time to the first token and to the next one, by hand: the longest chain of commands that wait for each other, their cycles by
//! the closed forms of docs/npu.md, docs/mvp.md and docs/vector.md, written down here once more.

use host::{Logits, Options, Session, Source};
use npu::Config;

/// Matrix-vector product of BF16 on 32 × 32 with four stages: m vectors, n outputs of k products; 32/m outputs a beat, and at
/// most 512 bytes a cycle through the weight port, whose first beat is there when the job starts.
fn product(m: u64, n: u64, k: u64) -> u64 {
    let (q, chunks) = (32 / m, k.div_ceil(32));
    let beats = n.div_ceil(q) * chunks;
    let port = (beats * q.min(n) * 2 * k.min(32)).div_ceil(512);
    5 + 1 + beats.max(port) + 32 * 4 + 4 - u64::from(port > beats)
}

/// One pass of n steps over rows of `len` values on 32 lanes, c operands in one bank.
fn elementwise(c: u64, n: u64, rows: u64, len: u64) -> u64 {
    c * (2 + rows * len.div_ceil(32) + 4 * n + 3)
}

fn norm(rows: u64) -> u64 {
    2 + (4 * rows).max(4 + 4 * (1 + 15) + 2) + 4 * rows + 4 * 4 + 3
}

/// Rows of at most 32 values in three passes.
fn softmax(rows: u64) -> u64 {
    2 + rows.max(1 + 4 * (2 + 8) + 2) + rows.max(1 + 4 * (12 + 14) + 2) + rows + 4 * 3 + 3
}

/// The DMA from DRAM: descriptor and first data at 100 cycles, a beat of 64 bytes a cycle, the pipeline of both.
fn load(bytes: u64) -> u64 {
    100 + 100 + 31 + bytes.div_ceil(64)
}

/// To DRAM: descriptor, beats, response at 60 cycles.
fn store(bytes: u64) -> u64 {
    100 + 60 + 31 + bytes.div_ceil(64)
}

/// A command's cycles, and the one in which the next one in the chain starts.
fn chain(commands: &[u64]) -> u64 {
    commands.iter().map(|d| d + 1).sum()
}

/// Weights of a layer and of the head with their norms.
const LAYER: u64 = 2 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 352) + 2 * 4 * 128;
const HEAD: u64 = 2 * 128 * 1024 + 4 * 128;

/// What a layer does behind its attention: `o` and what follows, up to SwiGLU's operands.
fn swiglu(rows: u64) -> [u64; 2] {
    [elementwise(2, 23, rows, 352), elementwise(1, 2, rows, 352)]
}

#[test]
fn ttft_and_tpot_are_those_of_the_longest_chain() {
    let source = Source::builtin().unwrap();
    let ids = source.llm().tokenizer.encode("And God said, Let there be").unwrap();
    assert_eq!(ids.len(), 9);
    let mut session = Session::new(&source, &Options::new(Config::default())).unwrap();

    // Gathered rows of embeddings, and the way of raw tokens to DRAM: as the DMA's recurrences (docs/dma.md) have them.
    let (embed, raw) = (410, 299);
    // A layer of this model is a whole weight buffer, and takes longer to load than to compute. So the DMA sets the pace up to the last
    // layer: its weights come behind those of four others and the raw tokens of the layers between.
    let first = 2 + chain(&[embed, load(LAYER), load(LAYER)]) + 3 * chain(&[raw, load(LAYER)]);
    let (up, down, add) = (product(9, 352, 128), product(9, 128, 352), elementwise(2, 3, 9, 128));
    let (scores, mix) = (product(18, 9, 32), product(9, 32, 9));
    let qkv = [norm(9), product(9, 128, 128), product(9, 64, 128), product(9, 64, 128), 17 + 2];
    let attention = 2 * chain(&[scores, softmax(9), softmax(9), mix, mix]);
    let behind = [elementwise(1, 2, 9, 128), product(9, 128, 128), add, norm(9), up, up];
    let last = chain(&qkv) + attention + chain(&behind) + chain(&swiglu(9)) + chain(&[down, add]);
    let end = chain(&[norm(1), product(1, 1024, 128), store(4096)]);
    let ttft = first + last + end - 1;
    assert_eq!(session.prefill(0, &ids, Logits::Last).unwrap().cycles, ttft);

    // A single row is computed faster than the head's weights come, so the DMA sets the pace to the end. The raw tokens of the tile being
    // filled come from DRAM before they are needed, and the new one goes there.
    let (embed, raw_in, raw_out) = (345, 267, 195);
    let first = chain(&[embed, raw_in, load(LAYER), load(LAYER)]);
    let others = 3 * chain(&[raw_out, raw_in, load(LAYER)]) + chain(&[raw_out, raw_in, load(HEAD)]);
    let tpot = 2 + first + others + end - 1;
    assert_eq!(session.decode(&[(0, 17)]).unwrap().cycles, tpot);
}
