//! Matrix products.

use super::{Machine, counted, fp32, placed, put_rows, rows};
use crate::isa::{Block, Matmul, Mode, Operands};
use crate::{Config, Fault, Work};
use mvp::{
    Codes, Computed, Datapath, GemvJob, GemvShape, GroupScales, Job, Sums, gemm_cycles, gemv_cycles, grouped_sums, sums,
};
use numeric::fast::{Encoder, decode_fp16};
use numeric::{Flags, FloatFormat, Mode as Rounding};

/// Cycles of the engine around the processor: the one that takes the command, the one that sees the last result.
const AROUND: u64 = 2;

/// The processor as a product uses it.
pub(super) fn processor(config: &Config, operands: Operands) -> mvp::Config {
    let a = &config.array;
    let datapath = match operands {
        Operands::Float(format) => Datapath::float(format),
        Operands::PerChannel(format) | Operands::PerGroup { format, .. } => {
            format.map_or(Datapath::Int8, Datapath::float)
        }
        Operands::Stored(Block::Q80) => Datapath::Int8,
        Operands::Stored(Block::Q40 | Block::Q41) => Datapath::Int4,
    };
    let group = match operands {
        Operands::PerGroup { group, .. } => Some(usize::from(group)),
        Operands::Stored(_) => Some(Block::VALUES),
        _ => None,
    };
    mvp::Config {
        rows: a.rows,
        cols: a.cols,
        depth: a.depth,
        datapath,
        mac_stages: a.mac_stages,
        adder_stages: a.adder_stages,
        group,
    }
}

/// Stored bytes of W, its scales included: what crosses the weight port.
pub(super) fn stored_bytes(p: &Matmul) -> u64 {
    let (n, k) = (u64::from(p.n), u64::from(p.k));
    match p.operands {
        Operands::Float(f) => n * k * u64::from(f.width().div_ceil(8)),
        Operands::PerChannel(_) => n * k + 4 * n,
        Operands::PerGroup { group, .. } => n * k + 4 * n * k.div_ceil(u64::from(group)),
        Operands::Stored(b) => n * k.div_ceil(Block::VALUES as u64) * b.bytes() as u64,
    }
}

/// Cycles of a product on the processor alone, and the part of them in which the array would not have waited for the port.
pub(super) fn cycles(config: &Config, p: &Matmul) -> Result<(u64, u64), Fault> {
    let processor = processor(config, p.operands);
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let free = match p.mode {
        Mode::Gemm => gemm_cycles(processor.checked()?, Job { m, n, k }.checked()?),
        Mode::Gemv => {
            let outputs = processor.cols / m;
            let shape = GemvShape { config: processor, outputs, vectors: m }.checked()?;
            gemv_cycles(shape, GemvJob { n, k }.checked()?)
        }
    };
    // The port feeds the same sequence of beats: where it is the slower, its bytes set the pace.
    let port = stored_bytes(p).div_ceil(config.array.port_bytes as u64) + 1 + latency(&processor);
    Ok((free.max(port), free))
}

/// Cycles from the last beat into the array to its last result.
fn latency(p: &mvp::Config) -> u64 {
    (p.rows * p.mac_latency() + p.accumulator_latency()) as u64
}

impl Machine {
    pub(super) fn matmul(&mut self, p: &Matmul, conflict: u64) -> Result<Work, Fault> {
        let (m, n, k) = (counted("m", p.m)?, counted("n", p.n)?, counted("k", p.k)?);
        let (x_bytes, w_rows, w_bytes) = match p.operands {
            Operands::Float(f) => {
                let bytes = f.width().div_ceil(8) as usize;
                (k * bytes, k, n * bytes)
            }
            Operands::PerChannel(_) | Operands::PerGroup { .. } => (k, k, n),
            Operands::Stored(block) => (k, k.div_ceil(Block::VALUES), n * block.bytes()),
        };
        let scratch = &self.memory.scratch;
        placed(scratch, "x", p.x, m, x_bytes)?;
        placed(scratch, "w", p.w, w_rows, w_bytes)?;
        placed(scratch, "y", p.y, m, n * if p.y_bf16 { 2 } else { 4 })?;
        let processor = processor(&self.config, p.operands);
        if p.mode == Mode::Gemv && m > processor.cols {
            let rule = "a matrix-vector product takes at most as many rows of X as the array has columns";
            return Err(Fault::Field { field: "m", value: m as u64, rule });
        }
        let (cycles, free) = cycles(&self.config, p)?;
        let y = self.products(p, processor, [m, n, k])?;
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
        Ok(Work { macs, port_stall: cycles - free, ..Work::of(AROUND + cycles, conflict) })
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
                if !k.is_multiple_of(Block::VALUES) {
                    let rule = "stored blocks hold 32 values each: K must be a multiple";
                    return Err(Fault::Field { field: "k", value: k as u64, rule });
                }
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

/// The array's share of the multiply-accumulates that it could have done in so many cycles.
pub fn utilisation(config: &Config, macs: u64, cycles: u64) -> f64 {
    let peak = (config.array.rows * config.array.cols) as f64 * cycles as f64;
    if cycles == 0 { 0.0 } else { macs as f64 / peak }
}
