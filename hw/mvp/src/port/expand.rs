use super::{BLOCK, Block, PortError, PortShape, Stored};
use crate::{Beat, Code, Datapath, GemvJob};
use numeric::fast::decode_fp16;
use numeric::{Exact, Flags, FloatFormat, Mode, Unpacked};

/// An FP16 at the start of `bytes`.
fn fp16(bytes: &[u8]) -> f32 {
    decode_fp16(u16::from_le_bytes([bytes[0], bytes[1]]))
}

/// A nibble as INT4.
fn int4(nibble: u8) -> i8 {
    (nibble << 4) as i8 >> 4
}

/// Code i of a block, Q4 codes as 0..=15.
fn block_code(block: Block, bytes: &[u8], i: usize) -> i8 {
    let nibble = |codes: &[u8]| (codes[i % 16] >> (4 * (i / 16)) & 0xf) as i8;
    match block {
        Block::Q4_0 => nibble(&bytes[2..]),
        Block::Q4_1 => nibble(&bytes[4..]),
        Block::Q8_0 => bytes[2 + i] as i8,
    }
}

/// The exact d·q + m of a block's value in one rounding; NaN where d or m is not finite.
fn expanded(block: Block, bytes: &[u8], i: usize, format: FloatFormat) -> Code {
    let (d, m) = (fp16(bytes), if block == Block::Q4_1 { fp16(&bytes[2..]) } else { 0.0 });
    let q = block_code(block, bytes, i) - if block == Block::Q4_0 { 8 } else { 0 };
    // FP16 numbers are multiples of 2^−24 below 2^16.
    let fixed = |v: f32| (v * 2f32.powi(24)) as i64;
    let value = if d.is_finite() && m.is_finite() {
        Unpacked::Finite(Exact::from_int(fixed(d) * i64::from(q) + fixed(m), -24))
    } else {
        Unpacked::Nan { signaling: false }
    };
    format.pack(value, Mode::IEEE, &mut Flags::default()) as Code
}

impl PortShape {
    /// Fills a beat's lanes, scale and minimum from a segment. Lanes past the chunk get what is stored there.
    pub(super) fn expand(&self, segment: &[u8], beat: &mut Beat) {
        match self.stored {
            Stored::Codes => self.codes(segment, beat),
            Stored::Scaled => {
                beat.scale = fp16(segment);
                self.codes(&segment[2..], beat);
            }
            Stored::Block(block) => self.blocks(block, segment, beat),
        }
    }

    fn codes(&self, bytes: &[u8], beat: &mut Beat) {
        let lanes = beat.codes.iter_mut();
        match self.gemv.config.datapath {
            Datapath::Int4 => {
                let pair = |&byte: &u8| Code::from_le_bytes([int4(byte) as u8, int4(byte >> 4) as u8]);
                lanes.zip(bytes).for_each(|(lane, byte)| *lane = pair(byte));
            }
            Datapath::Float { weight, .. } if weight.width() > 8 => {
                lanes.zip(bytes.as_chunks().0).for_each(|(lane, &word)| *lane = Code::from_le_bytes(word));
            }
            _ => lanes.zip(bytes).for_each(|(lane, &byte)| *lane = Code::from(byte as i8)),
        }
    }

    fn blocks(&self, block: Block, segment: &[u8], beat: &mut Beat) {
        // Q4 codes enter as q − 8, and Q4_1's minimum makes good for it.
        let centred = |i: usize| block_code(block, segment, i) - if block == Block::Q8_0 { 0 } else { 8 };
        match self.gemv.config.datapath {
            Datapath::Float { weight, .. } => {
                for (lanes, bytes) in beat.codes.chunks_mut(BLOCK).zip(segment.chunks_exact(block.bytes())) {
                    lanes.iter_mut().enumerate().for_each(|(i, lane)| *lane = expanded(block, bytes, i, weight));
                }
                return;
            }
            Datapath::Int8 => {
                (0..BLOCK).zip(&mut beat.codes).for_each(|(i, lane)| *lane = centred(i).into());
            }
            Datapath::Int4 => (0..BLOCK / 2).zip(&mut beat.codes).for_each(|(i, lane)| {
                *lane = Code::from_le_bytes([2 * i, 2 * i + 1].map(|i| centred(i) as u8));
            }),
        }
        beat.scale = fp16(segment);
        beat.minimum = if block == Block::Q4_1 { fp16(&segment[2..]) + 8.0 * beat.scale } else { 0.0 };
    }
}

/// Weights out of their stored form: what the transaction engine takes.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredWeights {
    /// K × N codes, row by row, one a value: INT4 and INT8 sign-extended.
    pub codes: Vec<Code>,
    /// Scales, groups × N; none without groups.
    pub scales: Vec<f32>,
    /// Minima, groups × N; none but for Q4_1.
    pub minima: Vec<f32>,
}

/// Takes stored weights apart as the port does.
///
/// # Errors
/// A shape or job that the port refuses, or bytes that are too many or too few.
pub fn unpack(shape: PortShape, job: GemvJob, bytes: &[u8]) -> Result<StoredWeights, PortError> {
    let (shape, job) = (shape.checked()?, shape.checked_job(job)?);
    let expected = shape.stored_bytes(job);
    if bytes.len() != expected {
        return Err(PortError::Length { got: bytes.len(), expected });
    }
    let (config, q) = (shape.gemv.config, shape.gemv.outputs);
    let has_minima = shape.stored == Stored::Block(Block::Q4_1) && config.group.is_some();
    let groups = config.group.map_or(0, |_| config.k_tiles(job.k));
    let mut weights = StoredWeights {
        codes: vec![0; job.k * job.n],
        scales: vec![0.0; groups * job.n],
        minima: vec![0.0; if has_minima { groups * job.n } else { 0 }],
    };
    let mut beat = Beat::column(config);
    let mut segments = bytes.chunks_exact(shape.segment_bytes());
    let beats = job.n.div_ceil(q);
    for panel in (0..beats).step_by(config.depth) {
        for chunk in 0..config.k_tiles(job.k) {
            let range = config.k_range(job.k, chunk);
            let rows = panel * q..beats.min(panel + config.depth) * q;
            for (n, segment) in rows.zip(&mut segments).filter(|(n, _)| *n < job.n) {
                shape.expand(segment, &mut beat);
                for (i, k) in range.clone().enumerate() {
                    weights.codes[k * job.n + n] = match config.datapath {
                        Datapath::Int4 => Code::from(beat.codes[i / 2].to_le_bytes()[i % 2] as i8),
                        _ => beat.codes[i],
                    };
                }
                // A tile is a group here.
                if groups > 0 {
                    weights.scales[chunk * job.n + n] = beat.scale;
                }
                if has_minima {
                    weights.minima[chunk * job.n + n] = beat.minimum;
                }
            }
        }
    }
    Ok(weights)
}
