//! The product in the specified order, one operation of `numeric`'s exact core at a time: slow, and independent of both engines.

use super::driver::Operands;
use mvp::{Config, Datapath, Job};
use numeric::{Flags, FloatFormat, Mode};

const FP32: FloatFormat = FloatFormat::FP32;

fn fma32(a: u32, b: u32, c: u32) -> u32 {
    numeric::fma(FP32, a, FP32, b, c, &mut Flags::default())
}

fn mul32(a: f32, b: f32) -> u32 {
    numeric::mul(FP32, a.to_bits(), b.to_bits(), Mode::IEEE, &mut Flags::default())
}

fn from_int(value: i64) -> u32 {
    (value as f32).to_bits() // below 2²⁴ in magnitude: exact
}

/// One element of Y: INT32 or the bits of FP32.
pub fn element(config: Config, job: Job, operands: &Operands, m: usize, n: usize) -> i32 {
    let groups = config.group.map_or(1, |g| job.k.div_ceil(g));
    let (mut int, mut acc) = (0i64, 0u32);
    for tile in 0..config.k_tiles(job.k) {
        let range = config.k_range(job.k, tile);
        let group = config.group.map_or(0, |g| range.start / g);
        let (mut partial, mut sum, mut s) = (0i64, 0i64, 0u32);
        for k in range {
            let (x, w) = (operands.x[m * job.k + k], operands.w[k * job.n + n]);
            match config.datapath {
                Datapath::Int8 | Datapath::Int4 => {
                    partial += i64::from(x) * i64::from(w);
                    sum += i64::from(x);
                }
                Datapath::Float { act, weight } => {
                    s = numeric::fma(act, x as u32, weight, w as u32, s, &mut Flags::default());
                }
            }
        }
        let is_float = config.datapath.is_float();
        if config.group.is_some() {
            let scale = operands.x_scales[m * groups + group];
            let at = group * job.n + n;
            let partial = if is_float { s } else { from_int(partial) };
            acc = fma32(mul32(scale, operands.w_scales[at]), partial, acc);
            if !is_float {
                let minimum = operands.w_minima.get(at).copied().unwrap_or(0.0);
                acc = fma32(mul32(scale, minimum), from_int(sum), acc);
            }
        } else if is_float {
            acc = if tile == 0 { s } else { numeric::add(FP32, acc, s, Mode::IEEE, &mut Flags::default()) };
        } else {
            int += partial;
        }
    }
    if config.sums_float() { acc as i32 } else { int as i32 }
}

/// All of Y, row by row.
pub fn product(config: Config, job: Job, operands: &Operands) -> Vec<i32> {
    (0..job.m * job.n).map(|i| element(config, job, operands, i / job.n, i % job.n)).collect()
}
