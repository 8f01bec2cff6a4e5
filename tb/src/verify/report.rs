//! What a run looks like: the plan as a list, the summary on a terminal, JSON and JUnit XML.

use super::{BlockResult, GroupReport, Outcome, Plan, PointResult, Run, Status};
use serde_json::{Value, json as object};
use std::fmt::Write;

/// Version of the JSON form; grows when a field changes its meaning or goes.
const JSON_VERSION: u32 = 1;

/// Rules above, below the header and below; none between rows.
const TABLE: comfy_table::TableStyle = {
    let rule = comfy_table::LineStyle::none().fill('─').junction('─');
    comfy_table::TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule)
};

/// A table of the house's style; every column but the first is a figure.
pub(crate) fn table(header: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(TABLE);
    table.set_header(header.iter().copied());
    for column in 1..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    table
}

/// A table as text, without blanks at the ends of its lines.
pub(crate) fn shown(table: &comfy_table::Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Groups digits by three.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// The testplan, point by point.
pub fn listing(plans: &[Plan]) -> String {
    let mut out = String::new();
    for plan in plans {
        let _ = writeln!(out, "{} — {} ({})", plan.block, plan.title, plan.doc);
        for point in &plan.points {
            let _ = writeln!(out, "  {:?}  {}.{}", point.stage, plan.block, point.id);
            let _ = writeln!(out, "      {}", point.shows);
            let _ = writeln!(out, "      tests: {}", point.tests.join(", "));
        }
        for group in &plan.covergroups {
            let bins: usize = group.points.values().map(Vec::len).sum();
            let crosses: Vec<_> = group.crosses.iter().map(|c| c.join(" × ")).collect();
            let crossed = if crosses.is_empty() { String::new() } else { format!("; crosses: {}", crosses.join(", ")) };
            let _ = writeln!(out, "  covergroup {}.{}: {} ({bins} bins{crossed})", plan.block, group.id, group.shows);
        }
        out.push('\n');
    }
    out
}

fn worst<'a>(details: &'a [Outcome], name: &str) -> Option<(&'a Outcome, f64)> {
    let values = details.iter().filter_map(|d| d.measures.iter().find(|m| m.name == name).map(|m| (d, m.value)));
    values.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Which seeds a run had, in words.
pub(super) fn seeds(run: &Run) -> String {
    match run.seeds {
        1 => format!("seed {}", run.seed),
        n => format!("seeds {} to {}", run.seed, run.seed + n - 1),
    }
}

/// The table per block, the failures with their replay commands, and the verdict.
pub fn summary(run: &Run) -> String {
    let mut out = String::new();
    for block in &run.blocks {
        out += &block_table(block);
    }
    if let [block] = run.blocks.as_slice() {
        out += &case_list(block);
    }
    for point in run.points() {
        for failure in &point.failures {
            let _ = writeln!(out, "FAILED {} ({}, case {})", point.id, failure.test, failure.case);
            for message in &failure.messages {
                let _ = writeln!(out, "    {message}");
            }
            let _ = writeln!(out, "    replay:   {}", failure.replay);
            if let Some(wave) = &failure.wave {
                let _ = writeln!(out, "    waveform: {}", wave.display());
            }
        }
    }
    for fault in &run.faults {
        let _ = writeln!(out, "FAULT  {fault}");
    }
    let (passed, failed) = run.tally();
    let verdict = if run.passed() { "PASSED" } else { "FAILED" };
    let points = if passed == 1 { "point" } else { "points" };
    let _ = writeln!(out, "{verdict}: {passed} {points} passed, {failed} failed, {}, {:.1} s", seeds(run), run.seconds);
    out
}

fn block_table(block: &BlockResult) -> String {
    let mut table = table(&["point", "stage", "status", "cases", "compared", "mismatches", "cycles", "core time"]);
    for column in 1..3 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(comfy_table::CellAlignment::Left);
        }
    }
    let mut notes = String::new();
    for point in &block.points {
        let status = match &point.status {
            Status::Passed if point.exhaustive => "passed, exhaustive".into(),
            Status::Passed => "passed".into(),
            Status::Failed(why) => format!("FAILED: {why}"),
        };
        let total = &point.total;
        table.add_row([
            point.id.clone(),
            format!("{:?}", point.stage),
            status,
            grouped(total.cases),
            grouped(total.compared),
            grouped(total.mismatches),
            grouped(total.cycles),
            format!("{:.1} s", total.seconds),
        ]);
        if let Some((case, ratio)) = worst(&point.details, "error_to_bound") {
            let label = case.label.as_deref().unwrap_or("?");
            let _ = write!(notes, "  {}: largest error/bound {ratio:.3} ({label})", point.id);
            let snr = point.details.iter().filter_map(|d| d.measures.iter().find(|m| m.name == "snr_db"));
            let (low, high) = snr.fold((f64::MAX, f64::MIN), |(l, h), m| (l.min(m.value), h.max(m.value)));
            let _ = if low <= high { writeln!(notes, ", SNR {low:.1} to {high:.1} dB") } else { writeln!(notes) };
        }
    }
    for group in &block.coverage {
        let _ =
            writeln!(notes, "  coverage {}: {:.1} % ({} of {} bins)", group.id, group.percent, group.hit, group.bins);
    }
    let passed = block.points.iter().filter(|p| p.status == Status::Passed).count();
    format!(
        "{} — {}: {passed} of {} points passed\n{}{notes}\n",
        block.block,
        block.title,
        block.points.len(),
        shown(&table)
    )
}

/// The named cases of the points that ask for it, a line each; cases of one name are added up.
fn case_list(block: &BlockResult) -> String {
    let mut out = String::new();
    for point in block.points.iter().filter(|p| p.list) {
        let mut lines: Vec<(&str, u64, u64)> = Vec::new();
        for detail in &point.details {
            let label = detail.label.as_deref().unwrap_or("?");
            match lines.iter_mut().find(|(known, ..)| *known == label) {
                Some((_, cases, mismatches)) => {
                    *cases += detail.cases;
                    *mismatches += detail.mismatches;
                }
                None => lines.push((label, detail.cases, detail.mismatches)),
            }
        }
        let how = if point.exhaustive { " exhaustive" } else { "" };
        let _ = writeln!(out, "{}:", point.id);
        for (label, cases, mismatches) in lines {
            let (cases, mismatches) = (grouped(cases), grouped(mismatches));
            let _ = writeln!(out, "  {label:<44} {cases:>12} cases{how}, {mismatches} mismatches");
        }
        out.push('\n');
    }
    out
}

fn status(point: &PointResult) -> (&'static str, Option<&str>) {
    match &point.status {
        Status::Passed => ("passed", None),
        Status::Failed(why) => ("failed", Some(why)),
    }
}

fn point_json(point: &PointResult) -> Value {
    let (status, reason) = status(point);
    let details: Vec<Value> = point
        .details
        .iter()
        .map(|d| {
            let measures: serde_json::Map<_, _> = d.measures.iter().map(|m| (m.name.clone(), m.value.into())).collect();
            object!({
                "name": d.label, "compared": d.compared, "mismatches": d.mismatches,
                "cycles": d.cycles, "seconds": d.seconds, "measures": measures,
            })
        })
        .collect();
    object!({
        "id": point.id, "stage": point.stage, "shows": point.shows, "status": status, "reason": reason,
        "exhaustive": point.exhaustive, "cases": point.total.cases, "compared": point.total.compared,
        "mismatches": point.total.mismatches, "cycles": point.total.cycles, "seconds": point.total.seconds,
        "details": details, "failures": point.failures,
    })
}

/// The run as JSON; docs/verify.md describes the fields.
pub fn json(run: &Run) -> Value {
    let (passed, failed) = run.tally();
    let blocks: serde_json::Map<_, _> = run
        .blocks
        .iter()
        .map(|b| {
            let points: Vec<Value> = b.points.iter().map(point_json).collect();
            let coverage: &[GroupReport] = &b.coverage;
            (b.block.clone(), object!({ "title": b.title, "points": points, "coverage": coverage }))
        })
        .collect();
    object!({
        "version": JSON_VERSION, "seed": run.seed, "passed": passed, "failed": failed, "ok": run.passed(),
        "seconds": run.seconds, "faults": run.faults, "blocks": blocks,
    })
}

/// Escapes text for XML; characters that XML 1.0 cannot hold become U+FFFD.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\n' => out += "&#10;",
            c if c.is_control() && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The run as JUnit XML: a suite a block, a test case a point, the bench's own faults as a suite of their own.
pub fn junit(run: &Run) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (passed, failed) = run.tally();
    let faults = run.faults.len();
    let (tests, failures) = (passed + failed + faults, failed + faults);
    let _ = writeln!(out, "<testsuites tests=\"{tests}\" failures=\"{failures}\" time=\"{:.3}\">", run.seconds);
    for block in &run.blocks {
        let failed = block.points.iter().filter(|p| p.status != Status::Passed).count();
        let name = xml(&block.block);
        let _ = writeln!(out, "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\">", block.points.len());
        for point in &block.points {
            let id = xml(&point.id);
            let _ = write!(out, "    <testcase classname=\"{name}\" name=\"{id}\" time=\"{:.3}\"", point.total.seconds);
            let Status::Failed(why) = &point.status else {
                out += "/>\n";
                continue;
            };
            let mut text = String::new();
            for failure in &point.failures {
                let _ = writeln!(text, "{} case {}: {}", failure.test, failure.case, failure.messages.join("; "));
                let _ = writeln!(text, "replay: {}", failure.replay);
            }
            let _ =
                writeln!(out, ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>", xml(why), xml(&text));
        }
        out += "  </testsuite>\n";
    }
    if faults > 0 {
        let _ = writeln!(out, "  <testsuite name=\"bench\" tests=\"{faults}\" failures=\"{faults}\">");
        for (i, fault) in run.faults.iter().enumerate() {
            let text = xml(fault);
            let _ = writeln!(
                out,
                "    <testcase classname=\"bench\" name=\"fault {i}\"><failure message=\"{text}\"/></testcase>"
            );
        }
        out += "  </testsuite>\n";
    }
    out + "</testsuites>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_markup() {
        assert_eq!((grouped(7), grouped(1234), grouped(12_345_678)), ("7".into(), "1,234".into(), "12,345,678".into()));
        assert_eq!(xml("a<b>&\"\u{1}"), "a&lt;b&gt;&amp;&quot;\u{fffd}");
    }
}
