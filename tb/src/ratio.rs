//! Benchmarks as ratios: two runs side by side in one process, again and again, and the median of their quotients.
//!
//! A machine's speed drifts and differs from machine to machine; the quotient of two runs a moment apart hardly does.
//! Nothing here fails on a slow machine: a row says whether its target is met.

use std::time::Instant;

/// Fewest pairs that a figure rests on.
pub const PAIRS: usize = 5;

/// What a ratio should reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Ours must be at least so many times the peer's speed.
    AtLeast(f64),
    /// For information.
    None,
}

/// A side of a comparison: its name, and a run that returns how many units of work it did.
pub type Side<'a> = (&'a str, &'a mut dyn FnMut() -> f64);

/// The outcome of one comparison.
#[derive(Clone, Debug)]
pub struct Ratio {
    /// What was compared.
    pub name: String,
    /// Unit of work, as in `cycles`.
    pub unit: &'static str,
    /// Names of ours and the peer.
    pub sides: [String; 2],
    /// Median speeds of ours and the peer, in units a second.
    pub speeds: [f64; 2],
    /// Speed of ours over that of the peer, one a pair, ascending.
    pub ratios: Vec<f64>,
    /// What it should be.
    pub target: Target,
}

/// Runs `ours` and `peer` in turn, after one run of each to warm up: A B A B …, at least [`PAIRS`] times.
pub fn compare(name: &str, unit: &'static str, ours: Side<'_>, peer: Side<'_>, pairs: usize, target: Target) -> Ratio {
    let (speed_of, sides) = (
        |run: &mut dyn FnMut() -> f64| {
            let start = Instant::now();
            let work = run();
            work / start.elapsed().as_secs_f64().max(1e-9)
        },
        [ours.0.to_string(), peer.0.to_string()],
    );
    (ours.1)();
    (peer.1)();
    let (mut a, mut b, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pairs.max(PAIRS) {
        a.push(speed_of(ours.1));
        b.push(speed_of(peer.1));
        ratios.push(a[a.len() - 1] / b[b.len() - 1]);
    }
    for list in [&mut a, &mut b, &mut ratios] {
        list.sort_by(f64::total_cmp);
    }
    Ratio { name: name.into(), unit, sides, speeds: [median(&a), median(&b)], ratios, target }
}

/// The middle of an ascending list.
fn median(ascending: &[f64]) -> f64 {
    let n = ascending.len();
    match n {
        0 => f64::NAN,
        _ => (ascending[(n - 1) / 2] + ascending[n / 2]) / 2.0,
    }
}

impl Ratio {
    /// The figure.
    pub fn median(&self) -> f64 {
        median(&self.ratios)
    }

    /// Whether the target is met; one without a target is.
    pub fn met(&self) -> bool {
        match self.target {
            Target::AtLeast(least) => self.median() >= least,
            Target::None => true,
        }
    }

    /// The line over a table of ratios.
    pub fn header() -> &'static str {
        "| comparison | ours | peer | ratio (least to most) | target |\n| --- | --- | --- | --- | --- |"
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, unit, sides, speeds, ratios, .. } = self;
        let speed = |i: usize| format!("{}: {}{unit}/s", sides[i], engineering(speeds[i]));
        let (least, most) = (ratios.first().unwrap_or(&f64::NAN), ratios.last().unwrap_or(&f64::NAN));
        let target = match self.target {
            Target::AtLeast(least) => format!("≥ {least}× {}", if self.met() { "met" } else { "MISSED" }),
            Target::None => "–".into(),
        };
        write!(f, "| {name} | {} | {} | ", speed(0), speed(1))?;
        let (median, least, most) = (quotient(self.median()), quotient(*least), quotient(*most));
        write!(f, "**{median}×** ({least} to {most}, {} pairs) | {target} |", ratios.len())
    }
}

/// Two places; four below a tenth.
fn quotient(value: f64) -> String {
    if value < 0.1 { format!("{value:.4}") } else { format!("{value:.2}") }
}

/// Three significant digits and a prefix: 12.3 M.
fn engineering(value: f64) -> String {
    let (scale, prefix) =
        [(1e9, " G"), (1e6, " M"), (1e3, " k")].into_iter().find(|&(s, _)| value.abs() >= s).unwrap_or((1.0, " "));
    let scaled = value / scale;
    let places = if scaled.abs() >= 100.0 {
        0
    } else if scaled.abs() >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.places$}{prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_runs_in_turn_and_the_median_is_the_middle() {
        let order = std::cell::RefCell::new(String::new());
        let mut ours = || {
            order.borrow_mut().push('a');
            2.0
        };
        let mut peer = || {
            order.borrow_mut().push('b');
            1.0
        };
        let ratio = compare("order", "runs", ("a", &mut ours), ("b", &mut peer), 0, Target::None);
        assert_eq!(order.into_inner(), "ab".repeat(1 + PAIRS));
        assert_eq!(ratio.ratios.len(), PAIRS);
        assert!(ratio.ratios.is_sorted() && ratio.met());
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }

    #[test]
    fn a_missed_target_is_said_not_thrown() {
        let mut ratio = Ratio {
            name: "x".into(),
            unit: "cycles",
            sides: ["a".into(), "b".into()],
            speeds: [12_345.0, 1.0],
            ratios: vec![9.0, 9.5, 10.0],
            target: Target::AtLeast(10.0),
        };
        assert!(!ratio.met() && ratio.to_string().contains("MISSED"));
        assert!(ratio.to_string().contains("12.3 kcycles/s"), "{ratio}");
        ratio.target = Target::AtLeast(9.5);
        assert!(ratio.met());
    }
}
