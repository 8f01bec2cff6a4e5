//! A decoder and a quantiser written from docs/nkz.md alone, in floating point and one bit at a time: they share no line with hw/nkz.

use std::f64::consts::PI;

/// A line of the static tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) mean: u16,
    pub(super) step: i32,
    pub(super) spread: i32,
    pub(super) fixed_step: i32,
    pub(super) exponent: u8,
    pub(super) exponent_table: usize,
}

/// A frequency table: low bits, reach, frequencies with the escape last, raw bits after the escape.
pub(super) struct Table {
    low: u32,
    reach: i32,
    pub(super) frequencies: Vec<u32>,
    escaped: u32,
}

/// Frequencies of at least one with the sum 1,024; the rest goes to the symbol `peak`.
fn normalise(p: &[f64], peak: usize) -> Vec<u32> {
    let mut f: Vec<u32> = p.iter().map(|&p| ((1024.0 * p + 0.5).floor() as u32).max(1)).collect();
    f[peak] = f[peak] + 1024 - f.iter().sum::<u32>();
    f
}

/// Table i of the codes: a logistic distribution of standard deviation 2^(−2.5 + i/2), in cells of 2^low.
pub(super) fn code_table(i: usize) -> Table {
    let sigma = 2f64.powf(-2.5 + i as f64 / 2.0);
    let low = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4][i];
    let reach = ((6.0 * sigma / f64::from(1 << low) + 0.999_999) as i32).clamp(1, 15);
    let s = sigma * 3f64.sqrt() / PI;
    let below = |z: f64| 1.0 / (1.0 + (-z / s).exp());
    let cell = |k: i32| below(f64::from((k + 1) << low) - 0.5) - below(f64::from(k << low) - 0.5);
    let mut p: Vec<f64> = (-reach..=reach).map(cell).collect();
    p.push(1.0 - p.iter().sum::<f64>());
    Table { low, reach, frequencies: normalise(&p, reach as usize), escaped: 16 }
}

/// The error function by its series of positive terms: erf x = 2/√π · e^(−x²) · Σ 2ⁿ x^(2n+1) / (1·3·5 … (2n+1)).
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..300 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

/// Table i of the exponents: of a normal variable whose mean is so many standard deviations, against the exponent of
/// its root mean square.
pub(super) fn exponent_table(i: usize) -> Table {
    let ratio = [0.0, 0.75, 1.25, 2.0, 3.0, 4.5, 7.0, 12.0][i / 2];
    let rms = 2f64.powf(if i.is_multiple_of(2) { 0.25 } else { 0.75 });
    let sigma = rms / (1.0f64 + ratio * ratio).sqrt();
    let below = |z: f64| 0.5 * (1.0 + erf((z - ratio * sigma) / sigma / 2f64.sqrt()));
    let inside = |a: f64| below(a) - below(-a);
    let mut p: Vec<f64> = (-15..=15).map(|k| inside(2f64.powi(k + 1)) - inside(2f64.powi(k))).collect();
    let peak = (0..31).rev().max_by(|&a, &b| p[a].total_cmp(&p[b])).unwrap_or(0);
    p.push((1.0 - p.iter().sum::<f64>()).max(0.0));
    Table { low: 0, reach: 15, frequencies: normalise(&p, peak), escaped: 8 }
}

/// The stream: bits from `position` on, read one by one.
struct Stream<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Stream<'_> {
    fn bits(&mut self, n: u32) -> u32 {
        (0..n).fold(0, |value, i| {
            let bit = self.bytes.get(self.position / 8).map_or(0, |b| b >> (self.position % 8) & 1);
            self.position += 1;
            value | u32::from(bit) << i
        })
    }

    /// The next symbol of the lane whose state is `state`.
    fn symbol(&mut self, state: &mut u32, table: &Table) -> i32 {
        let slot = *state % 1024;
        let (mut symbol, mut start) = (0, 0);
        while start + table.frequencies[symbol] <= slot {
            start += table.frequencies[symbol];
            symbol += 1;
        }
        let small = table.frequencies[symbol] * (*state / 1024) + slot - start;
        let mut shift = 0;
        while small << shift < 4096 {
            shift += 1;
        }
        *state = (small << shift) + self.bits(shift);
        if symbol + 1 == table.frequencies.len() {
            let value = self.bits(table.escaped) as i32;
            if value >= 1 << (table.escaped - 1) { value - (1 << table.escaped) } else { value }
        } else {
            (symbol as i32 - table.reach) * (1 << table.low) + self.bits(table.low) as i32
        }
    }
}

fn field(word: u64, from: u32, bits: u32) -> u64 {
    word >> from & ((1 << bits) - 1)
}

fn value(x: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(x) << 16))
}

/// Rounds once to BF16, half to even, saturating. `x` is exact in f64.
fn bf16(x: f64) -> u16 {
    if x == 0.0 {
        return 0;
    }
    let unit = 2f64.powi((x.abs().log2().floor() as i32 - 7).max(-133));
    let rounded = (x / unit).round_ties_even() * unit;
    let bits = ((rounded as f32).to_bits() >> 16) as u16;
    if bits & 0x7f80 == 0x7f80 { bits & 0x8000 | 0x7f7f } else { bits }
}

/// C[e mod 8]: the step's mantissa.
fn mantissa(e: i32) -> f64 {
    [65_536.0, 71_468.0, 77_936.0, 84_990.0, 92_682.0, 101_070.0, 110_218.0, 120_194.0][e.rem_euclid(8) as usize]
}

/// Rebuilds a code: mean + code · step.
fn rebuild(mean: u16, e: i32, code: i32) -> u16 {
    if code == 0 { mean } else { bf16(value(mean) + f64::from(code) * mantissa(e) * 2f64.powi(e.div_euclid(8) - 16)) }
}

/// The code of a finite value; `None` where the residual meets its limit. The difference must be exact in f64, or lie past the limit.
fn code(mean: u16, e: i32, x: u16) -> Option<i32> {
    let residual = ((value(x) - value(mean)) / 2f64.powi(e.div_euclid(8) - 8)).round_ties_even();
    let reciprocal = (2f64.powi(34) / mantissa(e)).round();
    let magnitude = (residual.abs() * reciprocal / 2f64.powi(26) + 0.5).floor();
    (residual.abs() < 8_388_607.0).then_some(magnitude.copysign(residual) as i32)
}

/// What a value becomes in an entropy-coded tile or a slot at `qp`; `None` for one that those do not hold.
pub(super) fn coded(line: &Line, qp: u8, x: u16) -> Option<u16> {
    let e = 2 * line.step + i32::from(qp);
    let code = code(line.mean, e, x).filter(|code| value(x).is_finite() && code.abs() <= 32_767)?;
    Some(rebuild(line.mean, e, code))
}

/// What a value becomes in the fixed-length mode at `qp`, and whether it was clamped.
pub(super) fn fixed(line: &Line, qp: u8, x: u16) -> (u16, bool) {
    let e = 2 * line.fixed_step + i32::from(qp);
    let exact = code(line.mean, e, x).filter(|code| value(x).is_finite() && code.abs() <= 7);
    let most = if value(x) > value(line.mean) { 7 } else { -7 };
    let code = if value(x).is_nan() { 0 } else { exact.unwrap_or(most) };
    (rebuild(line.mean, e, code), exact.is_none())
}

/// CRC-16/0x8BB7, bit by bit.
fn crc(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |register, &byte| {
        (0..8).rev().fold(register, |r, bit| {
            let out = r >> 15 ^ u16::from(byte >> bit & 1);
            r << 1 ^ if out == 1 { 0x8BB7 } else { 0 }
        })
    })
}

/// A tile's place, as the CRC sees it.
pub(super) struct Place {
    pub(super) sequence: u16,
    pub(super) layer: u16,
    pub(super) head: u16,
    pub(super) v: bool,
    pub(super) block: u8,
    pub(super) tile: u32,
}

impl Place {
    fn seed(&self) -> u16 {
        let mut bytes = Vec::new();
        for field in [self.sequence, self.layer, self.head] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(self.tile.to_le_bytes());
        bytes.extend([self.block * 2 + u8::from(self.v), 0]);
        crc(0xFFFF, &bytes)
    }
}

/// Decodes a stored tile of `lines.len()` channels to rows of BF16; `None` if it is corrupt, or only points elsewhere.
pub(super) fn decode(place: &Place, lines: &[Line], bytes: &[u8]) -> Option<Vec<u16>> {
    let word = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let format = field(word, 2, 3);
    let tokens = field(word, 6, 5) as usize + 1;
    let (qp, offset) = (field(word, 11, 6) as i32, field(word, 17, 2) as i32 - 2);
    let payload = bytes.get(8..8 + 8 * field(word, 19, 10) as usize)?;
    let expected = crc(crc(place.seed(), payload), &(word & 0xffff_ffff_ffff).to_le_bytes());
    let fits = field(word, 0, 2) == 2
        && field(word, 5, 1) == u64::from(place.v)
        && field(word, 32, 16) == u64::from(place.sequence)
        && field(word, 48, 16) == u64::from(expected);
    if !fits {
        return None;
    }
    let width = lines.len();
    let mut out = vec![0u16; tokens * width];
    match format {
        0 => out.iter_mut().zip(payload.chunks(2)).for_each(|(x, b)| *x = u16::from(b[0]) + 256 * u16::from(b[1])),
        2 => {
            for (i, x) in out.iter_mut().enumerate() {
                let code = i32::from(payload[i / 2] >> (i % 2 * 4) & 15);
                let line = &lines[i % width];
                *x = rebuild(line.mean, 2 * line.fixed_step + qp, if code > 7 { code - 16 } else { code });
            }
        }
        5 => out.iter_mut().enumerate().for_each(|(i, x)| *x = lines[i % width].mean),
        1 | 3 | 4 => {
            let lossless = format == 1;
            let plain = lossless && field(word, 29, 3) == 2;
            let mut stream = Stream { bytes: payload, position: if lossless { 8 * tokens * width } else { 0 } };
            let mut states: Vec<u32> = (0..8).map(|_| 4096 + stream.bits(12)).collect();
            let (codes, exponents): (Vec<Table>, Vec<Table>) =
                ((0..16).map(code_table).collect(), (0..16).map(exponent_table).collect());
            for (i, x) in out.iter_mut().enumerate() {
                let (channel, line) = (i % width, &lines[i % width]);
                let state = &mut states[channel % 8];
                *x = if lossless {
                    let (reference, table) = if plain { (0, 0) } else { (line.exponent, line.exponent_table) };
                    let shift = (qp << 2 | (offset + 2)) as u8;
                    let difference = stream.symbol(state, &exponents[table]) as u8;
                    let exponent = difference.wrapping_add(reference).wrapping_add(shift);
                    let rest = u16::from(payload[i]);
                    (rest & 0x80) << 8 | u16::from(exponent) << 7 | rest & 0x7f
                } else {
                    let table = ((2 * line.spread - qp).div_euclid(4) + offset).clamp(0, 15);
                    rebuild(line.mean, 2 * line.step + qp, stream.symbol(state, &codes[table as usize]))
                };
            }
            if states.iter().any(|&state| state != 4096) {
                return None;
            }
        }
        _ => return None,
    }
    Some(out)
}
