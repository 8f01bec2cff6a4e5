//! The testplan: what is to be shown, block by block, as data under `tb/testplan`.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Stage of a point: V1 smoke, V2 every planned feature, V3 closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, serde::Serialize)]
pub enum Stage {
    /// The block does its job once.
    V1,
    /// Every planned feature and corner.
    V2,
    /// Closure: hostile input, stalls everywhere, full coverage.
    V3,
}

/// One thing to be shown.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Name within the block; `block.id` is the full one.
    pub id: String,
    /// When it must hold.
    pub stage: Stage,
    /// What a pass shows, in a sentence.
    pub shows: String,
    /// The tests that show it; all must pass.
    pub tests: Vec<String>,
    /// The summary of a run of this block alone gives each named case of the point a line of its own.
    #[serde(default)]
    pub list: bool,
}

/// A coverage point: a quantity and the classes of it that must occur.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoverGroup {
    /// Name within the block.
    pub id: String,
    /// What it counts.
    pub shows: String,
    /// Coverage points and their bins.
    pub points: BTreeMap<String, Vec<String>>,
    /// Pairs (or more) of points whose bins must occur together.
    #[serde(default)]
    pub crosses: Vec<Vec<String>>,
    /// Combinations that cannot occur, each with its reason.
    #[serde(default)]
    pub ignore: Vec<Ignore>,
}

/// Bins left out of a cross.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ignore {
    /// Point → bin; every cross bin that agrees with all of them is left out.
    pub bins: BTreeMap<String, String>,
    /// Why it cannot occur.
    pub reason: String,
}

/// The plan of one block.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The block, as `--block` names it.
    pub block: String,
    /// Its full name.
    pub title: String,
    /// Its page in docs/.
    pub doc: String,
    /// What is to be shown.
    #[serde(rename = "point")]
    pub points: Vec<Point>,
    /// What this bench does not show, in sentences: the page says so.
    #[serde(default)]
    pub not_verified: Vec<String>,
    /// What must have occurred for the plan to be closed.
    #[serde(rename = "covergroup", default)]
    pub covergroups: Vec<CoverGroup>,
}

impl Plan {
    /// Reads a plan. Errors name the line.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }
}

/// What is wrong with a set of plans and tests; empty when every point has tests, every test a point, and all names are known.
pub fn audit(plans: &[Plan], tests: &[super::Test]) -> Vec<String> {
    let mut faults = Vec::new();
    for plan in plans {
        let known = |name: &str| tests.iter().any(|t| t.block == plan.block && t.name == name);
        for (i, point) in plan.points.iter().enumerate() {
            if point.tests.is_empty() {
                faults.push(format!("{}.{}: no test shows this point", plan.block, point.id));
            }
            if plan.points[..i].iter().any(|p| p.id == point.id) {
                faults.push(format!("{}.{}: the point stands twice in the plan", plan.block, point.id));
            }
            for test in point.tests.iter().filter(|t| !known(t)) {
                faults.push(format!("{}.{}: test `{test}` does not exist", plan.block, point.id));
            }
        }
        for group in &plan.covergroups {
            for name in group.crosses.iter().flatten().chain(group.ignore.iter().flat_map(|i| i.bins.keys())) {
                if !group.points.contains_key(name) {
                    faults.push(format!(
                        "{}.{}: coverage point `{name}` is crossed or ignored but not declared",
                        plan.block, group.id
                    ));
                }
            }
            for ignore in group.ignore.iter().filter(|i| i.reason.trim().is_empty()) {
                faults
                    .push(format!("{}.{}: bins {:?} are ignored without a reason", plan.block, group.id, ignore.bins));
            }
        }
    }
    for (i, test) in tests.iter().enumerate() {
        let shown =
            |p: &&Plan| p.block == test.block && p.points.iter().any(|p| p.tests.iter().any(|t| t == test.name));
        if !plans.iter().any(|p| shown(&p)) {
            faults.push(format!("{}: test `{}` shows no point of the plan", test.block, test.name));
        }
        if tests[..i].iter().any(|t| t.block == test.block && t.name == test.name) {
            faults.push(format!("{}: test `{}` is registered twice", test.block, test.name));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Test;

    const PLAN: &str = r#"
        block = "toy"
        title = "Toy"
        doc = "docs/toy.md"
        [[point]]
        id = "works"
        stage = "V1"
        shows = "It works."
        tests = ["a"]
        [[covergroup]]
        id = "g"
        shows = "sizes"
        points = { m = ["one", "many"] }
    "#;

    fn test(name: &'static str) -> Test {
        Test { block: "toy", name, directed: 1, random: 0, exhaustive: false, run: |_| Ok(()) }
    }

    #[test]
    fn plan_and_tests_must_match_both_ways() {
        let plan = Plan::parse(PLAN).unwrap();
        assert_eq!(audit(std::slice::from_ref(&plan), &[test("a")]), Vec::<String>::new());
        assert_eq!(audit(std::slice::from_ref(&plan), &[]), ["toy.works: test `a` does not exist"]);
        let faults = audit(std::slice::from_ref(&plan), &[test("a"), test("b"), test("a")]);
        assert_eq!(faults, ["toy: test `b` shows no point of the plan", "toy: test `a` is registered twice"]);
        let mut empty = plan;
        empty.points[0].tests.clear();
        empty.covergroups[0].crosses.push(vec!["m".into(), "n".into()]);
        let faults = audit(&[empty], &[]);
        assert_eq!(faults.len(), 2, "{faults:?}");
    }

    #[test]
    fn unknown_keys_are_refused() {
        assert!(Plan::parse(&PLAN.replace("shows = \"It works.\"", "show = \"It works.\"")).is_err());
    }
}
