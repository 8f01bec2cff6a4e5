//! What the pipeline registers of the hardware MAC hold for one multiply-add.

use numeric::{FloatFormat, Mac, MacConfig, MacIn};
use rtl::{Module, Name, Signal, Visitor};
use serde_json::{Value, json};

/// The register after one of the five steps.
pub(super) struct Step {
    /// The step.
    pub(super) name: &'static str,
    /// Field, width, bits.
    fields: Vec<(String, u32, u64)>,
}

impl Step {
    pub(super) fn text(&self) -> String {
        let field = |(name, width, bits): &(String, u32, u64)| match width {
            1 => format!("{name} {bits}"),
            // Exponents are the only signed fields.
            11 => format!("{name} {}", (*bits as i64) << 53 >> 53),
            _ => format!("{name} {bits:#0digits$x}", digits = 2 + width.div_ceil(4) as usize),
        };
        self.fields.iter().map(field).collect::<Vec<_>>().join("  ")
    }

    pub(super) fn json(&self) -> Value {
        let fields: serde_json::Map<_, _> = self
            .fields
            .iter()
            .map(|(name, width, bits)| (name.clone(), json!({ "width": width, "bits": bits })))
            .collect();
        json!({ "step": self.name, "registers": fields })
    }
}

/// Gathers the registers of one scope.
struct Gather {
    stage: usize,
    inside: bool,
    fields: Vec<(String, u32, u64)>,
}

impl Visitor for Gather {
    fn enter(&mut self, name: Name) -> bool {
        self.inside = name == Name::from(("stage", self.stage));
        self.inside
    }

    fn leave(&mut self) {
        self.inside = false;
    }

    fn signal(&mut self, signal: Signal, value: u64) -> u64 {
        if self.inside {
            let name = signal.name.to_string();
            self.fields.push((name.trim_end_matches("_q").to_string(), signal.width, value));
        }
        value
    }
}

/// Clocks the operands through a MAC with a register after every step.
pub(super) fn of(a_format: FloatFormat, a: u32, b_format: FloatFormat, b: u32, c: u32) -> anyhow::Result<Vec<Step>> {
    let names = ["unpack", "align", "add", "normalise", "round"];
    let mut mac = Mac::new(MacConfig::new(a_format, b_format, names.len())?);
    let mut steps = Vec::new();
    for (stage, name) in names.into_iter().enumerate() {
        mac.clock(&MacIn { enable: true, valid: stage == 0, a, b, c });
        let mut gather = Gather { stage, inside: false, fields: Vec::new() };
        mac.visit(&mut gather);
        steps.push(Step { name, fields: gather.fields });
    }
    Ok(steps)
}
