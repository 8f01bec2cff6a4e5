//! Tiles that once failed, for ever: one file each, under tb/regressions/nkz. Each is held in every mode.

use super::hold;
use super::sample::Sample;
use crate::verify::Case;
use anyhow::Context;
use nkz::{Address, Channel, Kind, Mode};
use serde::Deserialize;

const FILES: [(&str, &str); 3] = [
    ("one-token", include_str!("../../../regressions/nkz/one-token.toml")),
    ("two-tokens", include_str!("../../../regressions/nkz/two-tokens.toml")),
    ("forty-channels", include_str!("../../../regressions/nkz/forty-channels.toml")),
];
pub(super) const CASES: usize = FILES.len();

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    width: usize,
    values: Vec<u16>,
    /// Mean, step, spread, fixed step, exponent, exponent table.
    channels: Vec<(u16, i8, i8, i8, u8, u8)>,
}

pub(super) fn archive(case: &mut Case) -> anyhow::Result<()> {
    let (name, text) = FILES[case.index];
    let Failure { width, values, channels } =
        toml::from_str(text).with_context(|| format!("tb/regressions/nkz/{name}.toml"))?;
    case.label(name);
    let channel = |(mean, step, spread, fixed_step, exponent, exponent_table)| Channel {
        mean,
        step,
        spread,
        fixed_step,
        exponent,
        exponent_table,
    };
    let channels = channels.into_iter().map(channel).collect();
    let address = Address { sequence: 0, layer: 0, head: 0, kind: Kind::Key, block: 0, tile: 0 };
    let sample = Sample { width, values, channels, address, outlier: "none" };
    let steps = (0..20).map(|qp| Mode::Entropy { qp }).chain((0..6).map(|qp| Mode::Fixed { qp }));
    let slots = (5..=1 + 8 * width).map(|words| Mode::Slot { bytes: 8 * words });
    for mode in [Mode::Raw, Mode::Lossless, Mode::Mean].into_iter().chain(steps).chain(slots) {
        hold(case, &sample, mode)?;
    }
    Ok(())
}
