//! The presets on the built-in model, whose held-out text the calibration never saw.

use crate::kv::{self, Calibration, Text};
use crate::verify::Case;
use golden::kv::KvShape;

/// Tokens of held-out text, and positions left out at its start.
const TOKENS: usize = 512;
const SKIP: usize = 64;

/// Name, least ratio, largest KL. The divergences are the presets' promises on any model; the ratios are of this model, whose
/// heads of 32 channels pay for a header and eight lanes with half the values of a full tile.
const TARGETS: [(&str, f64, f64); 7] = [
    ("lossless", 1.4, 0.0),
    ("near-lossless", 1.95, 0.0003),
    ("standard", 2.8, 0.004),
    ("low", 3.4, 0.025),
    ("lowest", 3.7, 0.04),
    ("slot384", 5.0, 0.02),
    ("fixed", 3.6, 0.02),
];

pub(super) fn kjv(case: &mut Case) -> anyhow::Result<()> {
    let llm = golden::builtin()?;
    let shape = KvShape::from(llm.model.config());
    let calibration = Calibration::builtin(shape)?;
    let text = crate::run::HELD_OUT;
    let ids = llm.tokenizer.encode(text)?.into_iter().take(TOKENS.min(llm.model.config().context)).collect();
    let texts = [Text { name: "held-out".into(), ids }];
    let rows = kv::evaluate(&llm, Some(&calibration), &kv::presets(shape.head_dim), &texts, SKIP, 1, &())?;
    case.label("kjv-1m");
    for row in &rows {
        case.measure(format!("{}_bits", row.name.replace(['-', ' ', ','], "_")), row.bits);
        case.measure(format!("{}_kl", row.name.replace(['-', ' ', ','], "_")), row.kl);
    }
    for (name, ratio, kl) in TARGETS {
        let Some(row) = rows.iter().find(|r| r.name == name) else { anyhow::bail!("no preset {name}") };
        case.check(row.ratio >= ratio, format_args!("{name}: ratio {:.3} is below {ratio}", row.ratio));
        case.within(format_args!("{name}: KL"), row.kl, kl);
    }
    Ok(())
}
