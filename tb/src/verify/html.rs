//! The report as one HTML page: nothing to load, readable on a screen and on paper, plain about what is not verified.

use super::evidence::{self, Evidence};
use super::report::{grouped, seeds};
use super::{BlockResult, Outcome, Plan, PointResult, Run, Status};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::BTreeMap;

const STYLE: &str = include_str!("report.css");

/// The page.
///
/// # Errors
/// Committed results that do not parse.
pub fn html(plans: &[Plan], run: &Run) -> anyhow::Result<String> {
    let evidence = Evidence::committed()?;
    let (passed, failed) = run.tally();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Magpie: verification report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Magpie " span.light { "verification report" } }
                    p.verdict.ok[run.passed()].bad[!run.passed()] { @if run.passed() { "PASSED" } @else { "FAILED" } }
                    p { (passed) " of " (passed + failed) " points passed, " (seeds(run)) ", " (format!("{:.1} s", run.seconds)) @if !run.faults.is_empty() { ", " (run.faults.len()) " faults of the bench itself" } ", magpie " (env!("CARGO_PKG_VERSION")) }
                }
                main {
                    p.lead {
                        "Magpie models an accelerator for language models bit by bit and clock cycle by clock cycle. Its bench holds each block "
                        "against references that share no code with it. This page says what that showed, how strong the evidence is, and what "
                        "stays open."
                    }
                    (failures(run))
                    (overview(run, &evidence))
                    (missing(run, plans, &evidence))
                    (legend())
                    @for block in &run.blocks { (section(block, plans.iter().find(|p| p.block == block.block), &evidence)) }
                    section #performance {
                        h2 { "Performance" }
                        p.note { "From docs/performance.md; each figure stands there beside the command that reproduces it." }
                        div.prose { (PreEscaped(evidence::performance())) }
                    }
                }
            }
        }
    };
    Ok(page.into_string())
}

fn failures(run: &Run) -> Markup {
    let failing = run.points().filter(|p| p.status != Status::Passed);
    html! {
        @if !run.passed() {
            section #failures {
                h2 { "What failed" }
                @for fault in &run.faults { p.fail { strong { "the bench itself: " } (fault) } }
                @for point in failing {
                    @if let Status::Failed(why) = &point.status { p.fail { strong { (point.id) } ": " (why) } }
                    @for f in &point.failures {
                        div.case {
                            p { (f.test) ", case " (f.case) }
                            ul { @for message in &f.messages { li { (message) } } }
                            p { "replay: " code { (f.replay) } }
                            @if let Some(wave) = &f.wave { p { "waveform: " code { (wave.display()) } } }
                        }
                    }
                }
            }
        }
    }
}

fn bar(percent: f64) -> Markup {
    let width = format!("width:{:.1}%", percent.clamp(0.0, 100.0));
    html! { span.share { span.bar { span.fill.full[percent >= 99.95] style=(width) {} } span.figure { (format!("{percent:.1} %")) } } }
}

fn share(value: Option<f64>) -> Markup {
    html! { @match value { Some(percent) => (bar(percent)), None => span.none { "not measured" } } }
}

fn coverage_of(block: &BlockResult) -> Option<f64> {
    let n = block.coverage.len();
    (n > 0).then(|| block.coverage.iter().map(|g| g.percent).sum::<f64>() / n as f64)
}

fn overview(run: &Run, evidence: &Evidence) -> Markup {
    html! {
        section #overview {
            h2 { "At a glance" }
            div.wide { table.stack {
                thead { tr { th { "block" } th.n { "points passed" } th.n { "cases" } th.n { "compared" } th { "functional coverage" } th { "faults noticed" } th { "mutants killed" } th { "lines run" } } }
                tbody {
                    @for b in &run.blocks {
                        @let passed = b.points.iter().filter(|p| p.status == Status::Passed).count();
                        @let sum = |f: fn(&Outcome) -> u64| b.points.iter().map(|p| f(&p.total)).sum::<u64>();
                        tr {
                            td { a href=(format!("#{}", b.block)) { (b.title) } }
                            td.n.bad[passed < b.points.len()] data-l="points passed" { (passed) " of " (b.points.len()) }
                            td.n data-l="cases" { (grouped(sum(|o| o.cases))) }
                            td.n data-l="compared" { (grouped(sum(|o| o.compared))) }
                            td data-l="functional coverage" { (share(coverage_of(b))) }
                            td data-l="faults noticed" { (share(evidence.faults.get(&b.block).and_then(|f| f.detection))) }
                            td data-l="mutants killed" { (share(evidence.mutants.get(&b.block).map(|m| m.score()))) }
                            td data-l="lines run" { (share(evidence.lines.get(&b.block).map(|l| l.percent()))) }
                        }
                    }
                }
            } }
            p.note {
                "Points, cases and functional coverage are of this run. The rest takes longer and is kept with the sources"
                @if !evidence.origin().is_empty() { ": " (evidence.origin()) } "."
            }
        }
    }
}

fn section(block: &BlockResult, plan: Option<&Plan>, evidence: &Evidence) -> Markup {
    html! {
        section id=(block.block) {
            h2 { (block.title) " " span.light { (block.block) } }
            @if let Some(plan) = plan { p.note { "Ports, numerics and limits: " code { (plan.doc) } } }
            (points(block))
            (accuracy(block))
            (coverage(block, plan))
            (faults(&block.block, evidence))
            (mutants(&block.block, evidence))
            (lines(&block.block, evidence))
            @if let Some(plan) = plan { (open(plan)) }
        }
    }
}

fn points(block: &BlockResult) -> Markup {
    html! {
        h3 { "Testplan" }
        div.wide { table.stack {
            thead { tr { th { "point" } th { "stage" } th { "what a pass shows" } th { "result" } th.n { "cases" } th.n { "compared" } th.n { "differ" } th.n { "cycles" } } }
            tbody { @for p in &block.points { tr {
                td { code { (p.id) } }
                td data-l="stage" { (format!("{:?}", p.stage)) }
                td { (p.shows) }
                td data-l="result" { (result(p)) }
                td.n data-l="cases" { (grouped(p.total.cases)) }
                td.n data-l="compared" { (grouped(p.total.compared)) }
                td.n data-l="differ" { (grouped(p.total.mismatches)) }
                td.n data-l="cycles" { (grouped(p.total.cycles)) }
            } } }
        } }
    }
}

fn result(point: &PointResult) -> Markup {
    html! { @match &point.status {
        Status::Passed if point.exhaustive => span.ok { "passed, exhaustive" },
        Status::Passed => span.ok { "passed" },
        Status::Failed(why) => span.bad { "FAILED: " (why) },
    } }
}

/// What the cases measured: for each figure its least and largest value, and the case of the largest.
fn accuracy(block: &BlockResult) -> Markup {
    let mut figures: BTreeMap<(&str, &str), Vec<(f64, &str)>> = BTreeMap::new();
    for point in &block.points {
        for detail in &point.details {
            for m in &detail.measures {
                let label = detail.label.as_deref().unwrap_or("");
                figures.entry((&point.id, &m.name)).or_default().push((m.value, label));
            }
        }
    }
    html! { @if !figures.is_empty() {
        h3 { "Accuracy and other figures of the cases" }
        div.wide { table {
            thead { tr { th { "point" } th { "figure" } th.n { "cases" } th.n { "least" } th.n { "largest" } th { "case of the largest" } } }
            tbody { @for ((point, name), values) in &mut figures {
                @let () = values.sort_by(|a, b| a.0.total_cmp(&b.0));
                @if let (Some(least), Some(most)) = (values.first(), values.last()) { tr {
                    td { code { (point) } } td { (name) } td.n { (values.len()) }
                    td.n { (figure(least.0)) } td.n { (figure(most.0)) } td { (most.1) }
                } }
            } }
        } }
    } }
}

fn figure(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) { format!("{value:.3e}") } else { format!("{value:.4}") }
}

fn coverage(block: &BlockResult, plan: Option<&Plan>) -> Markup {
    let ignored = |id: &str| {
        let name = id.strip_prefix(&format!("{}.", block.block)).unwrap_or(id).to_string();
        let group = plan.and_then(|p| p.covergroups.iter().find(|g| g.id == name));
        group.map(|g| g.ignore.clone()).unwrap_or_default()
    };
    html! { @if !block.coverage.is_empty() {
        h3 { "Functional coverage" }
        div.wide { table.stack {
            thead { tr { th { "covergroup" } th { "what it counts" } th { "closed" } th.n { "bins" } th { "never occurred" } th { "left out, with the reason" } } }
            tbody { @for g in &block.coverage { tr {
                td { code { (g.id) } } td { (g.shows) } td data-l="closed" { (bar(g.percent)) } td.n data-l="bins" { (g.hit) " of " (g.bins) }
                td data-l="never occurred" { @if g.missing.is_empty() { span.none { "–" } } @else { (g.missing.join(", ")) } }
                td data-l=[(!ignored(&g.id).is_empty()).then_some("left out")] { @for i in ignored(&g.id) {
                    div { (i.bins.iter().map(|(p, b)| format!("{p}={b}")).collect::<Vec<_>>().join(" × ")) ": " (i.reason) }
                } }
            } } }
        } }
    } }
}

fn faults(block: &str, evidence: &Evidence) -> Markup {
    let Some(f) = evidence.faults.get(block) else {
        return html! { h3 { "Fault injection" } p.none { "Not measured." } };
    };
    html! {
        h3 { "Fault injection" }
        p {
            (grouped(f.faults as u64)) " faults in " (f.workloads) " cases: " (f.detected) " noticed by the block's own bench, "
            (f.escaped) " escaped it, " (f.latent) " left only state behind, " (f.masked) " left nothing. Of the "
            (f.changed) " that changed an output it noticed " strong { @match f.detection { Some(share) => (format!("{share:.1} %")), None => "none" } } "."
        }
        @if !f.escapes.is_empty() {
            p { "Escaped:" }
            ul { @for s in &f.escapes { li { (s.kind) " " code { (s.site) } ", cycle " (s.cycle) ", " (s.test) " case " (s.case) } } }
        }
        div.wide { table {
            thead { tr { th { "checker" } th.n { "noticed" } th.n { "alone" } th { "were it switched off" } } }
            tbody { @for (name, c) in f.checkers.iter().filter(|c| c.1.noticed > 0) { tr {
                td { (name) } td.n { (c.noticed) } td.n { (c.alone) } td { (c.off(name)) }
            } } }
        } }
        @let asleep: Vec<&str> = f.checkers.iter().filter(|c| c.1.noticed == 0).map(|c| c.0.as_str()).collect();
        @if !asleep.is_empty() { p.note { "Noticed none of these faults: " (asleep.join("; ")) "." } }
    }
}

fn mutants(block: &str, evidence: &Evidence) -> Markup {
    html! { @if let Some(m) = evidence.mutants.get(block) {
        h3 { "Mutation testing" }
        p {
            (m.tests) " of " (m.killed() + m.survivors.len()) " changes to the source are rejected by the crate's tests, " (m.bench)
            " more by the block's bench: " strong { (format!("{:.1} %", m.score())) } "; " (m.unviable) " others do not build."
        }
        @if !m.survivors.is_empty() {
            p { "Survived:" }
            ul { @for s in &m.survivors { li { code { (s.mutant) } ": " (s.reason) } } }
        }
    } }
}

fn lines(block: &str, evidence: &Evidence) -> Markup {
    html! { @if let Some(l) = evidence.lines.get(block) {
        h3 { "Lines run" }
        p {
            "Tests and benches run " (grouped(l.run as u64)) " of the crate's " (grouped(l.total as u64)) " lines of code: "
            strong { (format!("{:.1} %", l.percent())) } "."
        }
    } }
}

/// What a reader must not take for verified, block by block, in one place.
fn missing(run: &Run, plans: &[Plan], evidence: &Evidence) -> Markup {
    html! {
        section #open {
            h2 { "What stays open" }
            ul.open { @for block in &run.blocks {
                @let plan = plans.iter().find(|p| p.block == block.block);
                @let failed = block.points.iter().filter(|p| p.status != Status::Passed).count();
                @let bins = block.coverage.iter().map(|g| g.bins - g.hit).sum::<usize>();
                @let escaped = evidence.faults.get(&block.block).map(|f| f.escaped);
                @let holes = evidence.mutants.get(&block.block).map(|m| m.survivors.iter().filter(|s| !s.equivalent()).count());
                li {
                    a href=(format!("#{}", block.block)) { (block.title) } ": "
                    @if failed > 0 { strong.bad { (failed) " points failed" } ", " }
                    @if block.coverage.is_empty() { "functional coverage not judged in this run, " } @else if bins > 0 { (bins) " bins never occurred, " }
                    @match escaped { None => "no faults injected, ", Some(n) => { (n) " faults escaped, " } }
                    @match holes { None => "no mutants tried", Some(n) => { (n) " mutants slipped through" } }
                    @if let Some(plan) = plan { @for what in &plan.not_verified { "; " (what.trim_end_matches('.')) } }
                    "."
                }
            } }
            p.note { "Faults and mutants are samples, whose sizes stand with each block. Mutants that change nothing are left out here." }
        }
    }
}

fn open(plan: &Plan) -> Markup {
    html! { @if !plan.not_verified.is_empty() {
        h3 { "Not verified here" }
        ul { @for what in &plan.not_verified { li { (what) } } }
    } }
}

fn legend() -> Markup {
    html! {
        section #legend {
            h2 { "How to read this" }
            dl {
                dt { "point" } dd { "One thing to be shown, with the tests that show it. V1: the block does its job; V2: every planned feature and corner; V3: hostile input, stalls, closure. A test that compared nothing fails." }
                dt { "functional coverage" } dd { "Classes of stimulus and state that must have occurred, with their crosses; the mean over coverage points, so that a big cross cannot drown the rest." }
                dt { "faults noticed" } dd { "Of bits flipped or stuck in registers during the block's own tests, and that changed what left the design: the share that the block's own bench noticed. Switching a checker off shows what it is worth." }
                dt { "mutants killed" } dd { "Of changes to the source that build: the share that the crate's tests or the block's bench reject." }
                dt { "lines run" } dd { "Lines of the block's crate that its tests and benches execute." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{Options, Selection, Test, run};

    #[test]
    fn a_failing_case_stands_on_the_page_with_all_that_it_takes_to_see_it_again() {
        const BREAKS: Test = Test::new("rtl", "breaks", 3, 0, |case| {
            case.equal("sum <a & b>", case.index, 1);
            Ok(())
        });
        let text = "block = 'rtl'\ntitle = 'Toy'\ndoc = 'docs/toy.md'\nnot_verified = ['Its colour.']\n\
                    [[point]]\nid = 'p'\nstage = 'V1'\nshows = 'It adds.'\ntests = ['breaks']";
        let plans = [Plan::parse(text).unwrap()];
        let selection = Selection { block: None, point: None, case: None, seed: 4, seeds: 1, cases: 1.0 };
        let options = Options { selection, shard: (1, 1), threads: 1, waves: std::env::temp_dir(), vectors: None };
        let mut ran = run(&plans, &[BREAKS], &options, &());
        ran.blocks[0].points[0].failures[0].wave = Some("report/waves/toy.vcd".into());
        let page = html(&plans, &ran).unwrap();
        let holds = [
            "FAILED",
            "2 failing cases",
            "sum &lt;a &amp; b&gt;",
            "magpie verify --point rtl.p --case 2 --seed 4",
            "report/waves/toy.vcd",
            "Its colour",
            // Evidence that is kept with the sources.
            "changes to the source are rejected",
            "noticed by the block's own bench",
        ];
        for part in holds {
            assert!(page.contains(part), "no {part}");
        }
        assert!(!page.contains("src=\"") && !page.contains("http"), "the page loads something");
    }
}
