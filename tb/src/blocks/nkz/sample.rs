//! Stimulus: tiles such as a model makes, and tiles such as no model makes.

use super::plain::{Line, Place};
use nkz::{Address, Channel, Kind, Mode};
use rand::{Rng, RngExt};

/// A tile, its tables and its place.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) width: usize,
    pub(super) values: Vec<u16>,
    pub(super) channels: Vec<Channel>,
    pub(super) address: Address,
    /// Which values were put in, one of [`OUTLIERS`].
    pub(super) outlier: &'static str,
}

pub(super) fn bf16(x: f64) -> u16 {
    ((x as f32).to_bits() >> 16) as u16
}

pub(super) fn value(x: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(x) << 16))
}

/// Twelve uniform numbers less six: nearly normal.
fn normal(rng: &mut impl Rng) -> f64 {
    (0..12).fold(-6.0, |sum, _| sum + rng.random_range(0.0..1.0))
}

/// The fill classes of the testplan.
pub(super) fn tokens(rng: &mut impl Rng, fill: &str) -> usize {
    match fill {
        "one" => 1,
        "full" => 32,
        _ => rng.random_range(2..32),
    }
}

impl Sample {
    /// Around a mean, with a spread of up to 64 steps, and one outlier of the class.
    pub(super) fn new(rng: &mut impl Rng, tokens: usize, outlier: &'static str) -> Self {
        let width = 8 * rng.random_range(1..=8);
        let spread = rng.random_range(-1.5..6.0);
        let mean = rng.random_range(-3.0..3.0);
        let sigma = 2f64.powf(spread - 4.0);
        let channels: Vec<Channel> = (0..width)
            .map(|c| Channel {
                mean: bf16(mean + c as f64 / 64.0),
                step: -16 + rng.random_range(-2..2),
                spread: (4.0 * (spread + 2.5)) as i8,
                fixed_step: (4.0 * (spread - 5.5)) as i8,
                exponent: 127 + mean.abs().max(sigma).log2().floor() as u8,
                exponent_table: rng.random_range(0..16),
            })
            .collect();
        let mut values: Vec<u16> =
            (0..tokens * width).map(|i| bf16(value(channels[i % width].mean) + sigma * normal(rng))).collect();
        let at = rng.random_range(0..values.len());
        match outlier {
            "large" => values[at] = bf16(sigma * rng.random_range(30.0..300.0)),
            "huge" => values[at] = rng.random_range(139..=254) << 7 | rng.random::<u16>() & 0x807f,
            "special" => values[at] = [0x7f80, 0xff80, 0x7fc0, 0xffff][rng.random_range(0..4)],
            _ => {}
        }
        let address = Address {
            sequence: rng.random(),
            layer: rng.random_range(0..200),
            head: rng.random_range(0..64),
            kind: if rng.random() { Kind::Value } else { Kind::Key },
            block: rng.random_range(0..4),
            tile: rng.random_range(0..100_000),
        };
        Self { width, values, channels, address, outlier }
    }

    /// The tables as the plain decoder takes them.
    pub(super) fn lines(&self) -> Vec<Line> {
        let line = |c: &Channel| Line {
            mean: c.mean,
            step: c.step.into(),
            spread: c.spread.into(),
            fixed_step: c.fixed_step.into(),
            exponent: c.exponent,
            exponent_table: c.exponent_table.into(),
        };
        self.channels.iter().map(line).collect()
    }

    /// The place as the plain decoder takes it.
    pub(super) fn place(&self) -> Place {
        let a = self.address;
        let v = a.kind == Kind::Value;
        Place { sequence: a.sequence, layer: a.layer, head: a.head, v, block: a.block, tile: a.tile }
    }
}

/// The kinds of outliers, by the names of the testplan: none; some hundred steps; finite from 2^12, about where residuals end, up to the
/// largest number; infinities and NaN.
pub(super) const OUTLIERS: [&str; 4] = ["none", "large", "huge", "special"];

/// The modes, by the names of the testplan.
pub(super) const MODES: [&str; 6] = ["raw", "lossless", "fixed", "entropy", "slot", "mean"];

/// A mode by its name, with a random setting.
pub(super) fn mode(rng: &mut impl Rng, name: &str, width: usize) -> Mode {
    match name {
        "raw" => Mode::Raw,
        "lossless" => Mode::Lossless,
        "fixed" => Mode::Fixed { qp: rng.random_range(0..6) },
        "entropy" => Mode::Entropy { qp: rng.random_range(0..20) },
        "slot" => Mode::Slot { bytes: 8 * rng.random_range(5..=1 + 8 * width) },
        _ => Mode::Mean,
    }
}
