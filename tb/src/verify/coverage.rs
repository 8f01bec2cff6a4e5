//! Functional coverage: which of the planned classes of stimulus and state have occurred.

use super::plan::{CoverGroup, Plan};
use std::collections::{BTreeMap, BTreeSet};

/// A bin: coverage point(s) and the class(es) of each; one pair for a plain point, several for a cross.
type Bin = Vec<(String, String)>;

/// Hits of all covergroups, mergeable over cases, threads and seeds.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "Flat", into = "Flat")]
pub struct Coverage {
    /// (block, group) → bin → samples.
    hits: BTreeMap<(String, String), BTreeMap<Bin, u64>>,
    /// Samples that name something that the plan does not.
    unknown: BTreeSet<String>,
}

/// Bins of a group and how often each was hit.
type Hits = Vec<(Bin, u64)>;

/// The same as lists, for files.
#[derive(serde::Serialize, serde::Deserialize)]
struct Flat {
    hits: Vec<(String, String, Hits)>,
    unknown: BTreeSet<String>,
}

impl From<Flat> for Coverage {
    fn from(flat: Flat) -> Self {
        let hits = flat.hits.into_iter().map(|(block, group, bins)| ((block, group), bins.into_iter().collect()));
        Self { hits: hits.collect(), unknown: flat.unknown }
    }
}

impl From<Coverage> for Flat {
    fn from(coverage: Coverage) -> Self {
        let hits = coverage.hits.into_iter().map(|((block, group), bins)| (block, group, bins.into_iter().collect()));
        Self { hits: hits.collect(), unknown: coverage.unknown }
    }
}

/// How far one covergroup is closed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct GroupReport {
    /// Block and group, joined by a dot.
    pub id: String,
    /// What it counts.
    pub shows: String,
    /// Bins that occurred.
    pub hit: usize,
    /// Bins that must occur.
    pub bins: usize,
    /// Bins left out with a reason.
    pub ignored: usize,
    /// The mean over points and crosses of hit/bins, so that a big cross cannot drown the rest.
    pub percent: f64,
    /// Names of bins that did not occur.
    pub missing: Vec<String>,
}

fn name(bin: &Bin) -> String {
    bin.iter().map(|(p, b)| format!("{p}={b}")).collect::<Vec<_>>().join(" × ")
}

/// All bins of a cross: the product of its points' bins.
fn product(group: &CoverGroup, of: &[String]) -> Vec<Bin> {
    of.iter().fold(vec![Vec::new()], |partial, point| {
        let bins = &group.points[point];
        partial
            .iter()
            .flat_map(|p| bins.iter().map(move |b| p.iter().cloned().chain([(point.clone(), b.clone())]).collect()))
            .collect()
    })
}

fn ignored(group: &CoverGroup, bin: &Bin) -> bool {
    group.ignore.iter().any(|i| i.bins.iter().all(|(point, class)| bin.iter().any(|(p, c)| p == point && c == class)))
}

impl Coverage {
    /// Samples a covergroup of the plans: each (point, bin) counts, and so does every cross whose points are all given.
    pub fn sample(&mut self, plans: &[Plan], block: &str, group: &str, classes: &[(&str, &str)]) {
        let found = plans.iter().filter(|p| p.block == block).flat_map(|p| &p.covergroups).find(|g| g.id == group);
        let Some(declared) = found else {
            self.unknown.insert(format!("{block}.{group}: no such covergroup in the plan"));
            return;
        };
        for (point, class) in classes {
            if !declared.points.get(*point).is_some_and(|bins| bins.iter().any(|b| b == class)) {
                self.unknown.insert(format!("{block}.{group}: no bin `{point}={class}` in the plan"));
                return;
            }
        }
        let hits = self.hits.entry((block.into(), group.into())).or_default();
        for (point, class) in classes {
            *hits.entry(vec![((*point).into(), (*class).into())]).or_default() += 1;
        }
        for cross in &declared.crosses {
            let class =
                |point: &String| classes.iter().find(|(p, _)| p == point).map(|(_, c)| (point.clone(), (*c).into()));
            if let Some(bin) = cross.iter().map(class).collect::<Option<Bin>>() {
                *hits.entry(bin).or_default() += 1;
            }
        }
    }

    /// Adds another run's hits.
    pub fn merge(&mut self, other: Self) {
        for (group, bins) in other.hits {
            let mine = self.hits.entry(group).or_default();
            for (bin, n) in bins {
                *mine.entry(bin).or_default() += n;
            }
        }
        self.unknown.extend(other.unknown);
    }

    /// Samples that named an unknown group, point or bin: faults of the bench.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.iter().map(String::as_str)
    }

    /// Holds the hits against the plan of a block.
    pub fn report(&self, plan: &Plan) -> Vec<GroupReport> {
        let empty = BTreeMap::new();
        let report = |group: &CoverGroup| {
            let hits = self.hits.get(&(plan.block.clone(), group.id.clone())).unwrap_or(&empty);
            let plain = group.points.keys().map(|p| vec![p.clone()]);
            let (mut hit, mut bins, mut left_out, mut missing, mut shares) = (0, 0, 0, Vec::new(), Vec::new());
            for of in plain.chain(group.crosses.iter().cloned()) {
                let (out, needed): (Vec<Bin>, Vec<Bin>) =
                    product(group, &of).into_iter().partition(|b| ignored(group, b));
                let open: Vec<_> = needed.iter().filter(|b| !hits.contains_key(*b)).map(name).collect();
                shares.push(if needed.is_empty() { 1.0 } else { 1.0 - open.len() as f64 / needed.len() as f64 });
                hit += needed.len() - open.len();
                bins += needed.len();
                left_out += out.len();
                missing.extend(open);
            }
            let percent = 100.0 * shares.iter().sum::<f64>() / shares.len().max(1) as f64;
            let id = format!("{}.{}", plan.block, group.id);
            GroupReport { id, shows: group.shows.clone(), hit, bins, ignored: left_out, percent, missing }
        };
        plan.covergroups.iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::parse(
            r#"
            block = "toy"
            title = "Toy"
            doc = ""
            point = []
            [[covergroup]]
            id = "g"
            shows = "sizes"
            points = { m = ["one", "many"], n = ["one", "many"] }
            crosses = [["m", "n"]]
            ignore = [{ bins = { m = "one", n = "many" }, reason = "impossible" }]
            "#,
        )
        .unwrap()
    }

    #[test]
    fn crosses_are_counted_and_ignored_bins_left_out() {
        let plans = [plan()];
        let mut coverage = Coverage::default();
        coverage.sample(&plans, "toy", "g", &[("m", "one"), ("n", "one")]);
        let report = &coverage.report(&plans[0])[0];
        assert_eq!((report.hit, report.bins, report.ignored), (3, 7, 1));
        assert!((report.percent - 100.0 * (0.5 + 0.5 + 1.0 / 3.0) / 3.0).abs() < 1e-9);
        let mut other = Coverage::default();
        other.sample(&plans, "toy", "g", &[("m", "many"), ("n", "one")]);
        other.sample(&plans, "toy", "g", &[("m", "many"), ("n", "many")]);
        coverage.merge(other);
        assert_eq!(coverage.report(&plans[0])[0].percent, 100.0);
    }

    #[test]
    fn unknown_names_are_faults() {
        let plans = [plan()];
        let mut coverage = Coverage::default();
        coverage.sample(&plans, "toy", "h", &[]);
        coverage.sample(&plans, "toy", "g", &[("m", "few")]);
        assert_eq!(coverage.unknown().count(), 2);
    }
}
