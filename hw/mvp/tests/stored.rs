//! Weights out of their stored blocks, value by value.

use mvp::{Block, Config, Datapath, GemvJob, GemvShape, PortError, PortShape, Stored, unpack};
use numeric::FloatFormat;

const N: usize = 3;
const K: usize = 64;

/// FP16 codes of small exact numbers: ±(1 + i/4).
fn fp16(i: usize) -> (u16, f32) {
    let sign = i % 2;
    let fraction = i % 4;
    ((sign << 15 | 15 << 10 | fraction << 8) as u16, (1.0 + fraction as f32 / 4.0) * if sign == 1 { -1.0 } else { 1.0 })
}

/// d, m and q of a value, of each place of each row.
type Values = Vec<Vec<(f32, f32, i32)>>;

/// Blocks in the order in which they lie (chunk by chunk, row by row), and of each value of row n and place k: d, m, q.
fn blocks(block: Block) -> (Vec<u8>, Values) {
    let (mut bytes, mut values) = (Vec::new(), vec![Vec::new(); N]);
    for chunk in 0..K / 32 {
        for (n, row) in values.iter_mut().enumerate() {
            let (d, m) = (fp16(3 * chunk + n), fp16(5 * chunk + 2 * n + 1));
            let code = |i: usize| (i * 7 + 5 * n + 11 * chunk + 3) as u8;
            bytes.extend(d.0.to_le_bytes());
            let m = match block {
                Block::Q4_1 => {
                    bytes.extend(m.0.to_le_bytes());
                    m.1
                }
                _ => 0.0,
            };
            match block {
                Block::Q8_0 => bytes.extend((0..32).map(code)),
                _ => bytes.extend((0..16).map(|j| code(j) & 15 | (code(j + 16) & 15) << 4)),
            }
            row.extend((0..32).map(|i| match block {
                Block::Q8_0 => (d.1, m, i32::from(code(i) as i8)),
                Block::Q4_0 => (d.1, m, i32::from(code(i) & 15) - 8),
                Block::Q4_1 => (d.1, m, i32::from(code(i) & 15)),
            }));
        }
    }
    (bytes, values)
}

fn shape(block: Block, datapath: Datapath) -> PortShape {
    let whole = matches!(datapath, Datapath::Int8 | Datapath::Int4);
    let rows = if datapath == Datapath::Int4 { 16 } else { 32 };
    let config = Config { rows, depth: 8, datapath, group: whole.then_some(32), ..Config::default() };
    let gemv = GemvShape { config, outputs: 1, vectors: 1 };
    PortShape { gemv, stored: Stored::Block(block), bytes: 16 }
}

#[test]
fn codes_scales_and_minima_stand_for_the_stored_values() {
    let job = GemvJob { n: N, k: K };
    for (block, datapath) in [
        (Block::Q4_0, Datapath::Int8),
        (Block::Q4_1, Datapath::Int8),
        (Block::Q8_0, Datapath::Int8),
        (Block::Q4_0, Datapath::Int4),
        (Block::Q4_1, Datapath::Int4),
    ] {
        let (bytes, values) = blocks(block);
        let stored = unpack(shape(block, datapath), job, &bytes).unwrap();
        for (n, row) in values.iter().enumerate() {
            for (k, &(d, m, q)) in row.iter().enumerate() {
                let at = k / 32 * N + n;
                let minimum = stored.minima.get(at).copied().unwrap_or(0.0);
                let value = f32::from(stored.codes[k * N + n] as i16) * stored.scales[at] + minimum;
                assert_eq!(value, d * q as f32 + m, "{block:?}, {datapath:?}: row {n}, place {k}");
            }
        }
        assert_eq!(stored.minima.is_empty(), block != Block::Q4_1);
    }
}

#[test]
fn a_float_datapath_takes_each_value_expanded() {
    for block in [Block::Q4_0, Block::Q4_1, Block::Q8_0] {
        let (bytes, values) = blocks(block);
        let shape = shape(block, Datapath::float(FloatFormat::BF16));
        let stored = unpack(shape, GemvJob { n: N, k: K }, &bytes).unwrap();
        for (n, row) in values.iter().enumerate() {
            for (k, &(d, m, q)) in row.iter().enumerate() {
                let bits = (d * q as f32 + m).to_bits();
                let rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16; // half to even
                assert_eq!(stored.codes[k * N + n] as u16, rounded as u16, "{block:?}: row {n}, place {k}");
            }
        }
        assert!(stored.scales.is_empty() && stored.minima.is_empty());
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (bytes, _) = blocks(Block::Q4_0);
    let good = shape(Block::Q4_0, Datapath::Int8);
    let refused = |shape, k, bytes: &[u8]| unpack(shape, GemvJob { n: N, k }, bytes).unwrap_err();
    assert_eq!(refused(good, 48, &bytes), PortError::Cut(48));
    assert_eq!(refused(good, K, &bytes[1..]), PortError::Length { got: bytes.len() - 1, expected: bytes.len() });
    let too_wide = shape(Block::Q8_0, Datapath::Int4);
    assert!(refused(too_wide, K, &bytes).to_string().contains("codes of 8 bits need int8"));
}
