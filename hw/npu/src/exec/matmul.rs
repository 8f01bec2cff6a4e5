//! Matrix products.

use super::port::known_stalls;
use super::{Machine, MatmulShape, fp32, put_rows, rows};
use crate::isa::{Block, Matmul, Mode, Operands};
use crate::{Config, Fault, Work};
use mvp::{Codes, Computed, GemvJob, GemvShape, GroupScales, Job, Sums, gemm_cycles, gemv_cycles, grouped_sums, sums};
use numeric::fast::{Encoder, decode_fp16};
use numeric::{Flags, FloatFormat, Mode as Rounding};

/// Cycles of the shell around the processor: two before the job's start has passed (the first beats are read, and enter the processor's
/// buffers), three behind the last sum (through the output FIFO and both stages of the output stage).
const AROUND: u64 = 5;

/// Cycles of a product on the processor alone whose weights are always at hand.
fn cycles(shape: &MatmulShape) -> Result<u64, Fault> {
    let MatmulShape { m, n, k, config, outputs, .. } = *shape;
    Ok(match shape.command.mode {
        Mode::Gemm => gemm_cycles(config, Job { m, n, k }),
        Mode::Gemv => gemv_cycles(GemvShape { config, outputs, vectors: m }.checked()?, GemvJob { n, k }),
    })
}

impl Machine {
    pub(super) fn matmul(&mut self, p: &Matmul, conflict: u64) -> Result<Work, Fault> {
        let shape = MatmulShape::checked(&self.config, p, &self.memory.scratch)?;
        let MatmulShape { m, n, k, config, .. } = shape;
        let free = cycles(&shape)?;
        let stalls = known_stalls(&mut self.stalls, &shape, self.config.array.port_bytes as u64);
        let y = self.products(p, config, [m, n, k])?;
        let scratch = &mut self.memory.scratch;
        match p.y_bf16 {
            false => put_rows(scratch, p.y, n, &y)?,
            true => {
                let mut codes = vec![0u16; y.len()];
                let encoder = Encoder::new(FloatFormat::BF16, Rounding::IEEE);
                let encoded = encoder.encode_slice(&y, &mut codes, &mut Flags::default());
                debug_assert!(encoded.is_ok(), "both have Y's length");
                put_rows(scratch, p.y, n, &codes)?;
            }
        }
        let macs = (m * n * k) as u64;
        Ok(Work { macs, port_stall: stalls, ..Work::of(AROUND + free + stalls, conflict) })
    }

    /// Y in FP32.
    fn products(&self, p: &Matmul, processor: mvp::Config, [m, n, k]: [usize; 3]) -> Result<Vec<f32>, Fault> {
        let (scratch, job) = (&self.memory.scratch, Job { m, n, k });
        let x_scales = |count| fp32(scratch, "x_scales", p.x_scales, count);
        let w_scales = |count| fp32(scratch, "w_scales", p.w_scales, count);
        let float = |computed: Computed| match computed.sums {
            Sums::Fp32(y) => y,
            Sums::Int32(y) => y.into_iter().map(|v| v as f32).collect(),
        };
        let plain = |x, w| Ok::<_, Fault>(float(sums(processor, job, x, w)?));
        match p.operands {
            Operands::Float(f) if f.width() == 16 => {
                plain(Codes::Bits16(&rows(scratch, p.x, m, k)?), Codes::Bits16(&rows(scratch, p.w, k, n)?))
            }
            Operands::Float(_) => {
                plain(Codes::Bits8(&rows(scratch, p.x, m, k)?), Codes::Bits8(&rows(scratch, p.w, k, n)?))
            }
            Operands::PerChannel(format) => {
                let mut y = match format {
                    None => plain(Codes::Int(&rows(scratch, p.x, m, k)?), Codes::Int(&rows(scratch, p.w, k, n)?))?,
                    Some(_) => {
                        plain(Codes::Bits8(&rows(scratch, p.x, m, k)?), Codes::Bits8(&rows(scratch, p.w, k, n)?))?
                    }
                };
                let (rows, columns) = (x_scales(m)?, w_scales(n)?);
                for (y, &row) in y.chunks_exact_mut(n).zip(rows) {
                    for (y, &column) in y.iter_mut().zip(columns) {
                        *y = numeric::fast::canonical(*y * (row * column));
                    }
                }
                Ok(y)
            }
            Operands::PerGroup { format, group } => {
                let groups = k.div_ceil(usize::from(group));
                let scales = GroupScales { x: x_scales(m * groups)?, w: w_scales(groups * n)?, minima: &[] };
                let computed = match format {
                    None => {
                        let (x, w) = (rows(scratch, p.x, m, k)?, rows(scratch, p.w, k, n)?);
                        grouped_sums(processor, job, Codes::Int(&x), Codes::Int(&w), scales)?
                    }
                    Some(_) => {
                        let (x, w) = (rows(scratch, p.x, m, k)?, rows(scratch, p.w, k, n)?);
                        grouped_sums(processor, job, Codes::Bits8(&x), Codes::Bits8(&w), scales)?
                    }
                };
                Ok(float(computed))
            }
            Operands::Stored(block) => {
                let groups = k.div_ceil(Block::VALUES);
                let x = rows(scratch, p.x, m, k)?;
                let blocks = rows::<u8>(scratch, p.w, groups, n * block.bytes())?;
                let w = Expanded::new(block, &blocks, groups, n);
                let scales = GroupScales { x: x_scales(m * groups)?, w: &w.scales, minima: &w.minima };
                Ok(float(grouped_sums(processor, job, Codes::Int(&x), Codes::Int(&w.codes), scales)?))
            }
        }
    }
}

/// Stored blocks as the array sees them behind the port.
struct Expanded {
    /// K × N.
    codes: Vec<i8>,
    /// ⌈K/32⌉ × N.
    scales: Vec<f32>,
    minima: Vec<f32>,
}

impl Expanded {
    fn new(block: Block, blocks: &[u8], groups: usize, n: usize) -> Self {
        let mut codes = vec![0i8; groups * Block::VALUES * n];
        let mut scales = Vec::with_capacity(groups * n);
        let mut minima = Vec::new();
        let half = |bytes: &[u8]| decode_fp16(u16::from_le_bytes([bytes[0], bytes[1]]));
        for (at, stored) in blocks.chunks_exact(block.bytes()).enumerate() {
            let (group, column) = (at / n, at % n);
            let d = half(stored);
            scales.push(d);
            let body = match block {
                Block::Q41 => {
                    // Unsigned codes enter as q − 8: what that takes away returns in the minimum.
                    minima.push(8.0f32.mul_add(d, half(&stored[2..])));
                    &stored[4..]
                }
                _ => &stored[2..],
            };
            let mut put = |j: usize, code: i8| codes[(group * Block::VALUES + j) * n + column] = code;
            match block {
                Block::Q80 => body.iter().enumerate().for_each(|(j, &byte)| put(j, byte as i8)),
                Block::Q40 | Block::Q41 => body.iter().enumerate().for_each(|(j, &byte)| {
                    put(j, (byte & 15) as i8 - 8);
                    put(j + 16, (byte >> 4) as i8 - 8);
                }),
            }
        }
        Self { codes, scales, minima }
    }
}

/// Multiply-accumulates that the array does in a cycle at most: one an element, two of 4-bit weights.
pub fn peak_macs(config: &Config, operands: Operands) -> u64 {
    let pair = matches!(operands, Operands::Stored(Block::Q40 | Block::Q41));
    (config.array.rows * config.array.cols) as u64 * if pair { 2 } else { 1 }
}
