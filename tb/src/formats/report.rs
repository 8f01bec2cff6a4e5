//! The figures of formats as a table and as a picture.

use super::{Figures, Row, Text};
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use std::fmt::Write;

fn top1(figures: &Figures) -> String {
    let error = figures.top1_error.map_or_else(String::new, |error| format!(" ± {error:.1}"));
    format!("{:.1}{error}", figures.top1)
}

/// A line a format.
pub fn table(rows: &[Row], texts: &[Text]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let per_text = texts.iter().map(|t| format!("KL {}", t.name));
    let head = ["format".to_string(), "mean KL".into()].into_iter().chain(per_text);
    table.set_header(head.chain(
        ["worst KL", "top-1 %", "perplexity", "operands alone: KL", "operands alone: top-1 %"].map(String::from),
    ));
    for Row { format, npu, kl_by_text, operands_alone, .. } in rows {
        let alone = |f: &dyn Fn(&Figures) -> String| operands_alone.as_ref().map_or_else(|| "-".into(), f);
        let kls = kl_by_text.iter().map(|kl| format!("{kl:.5}"));
        let line = [format.clone(), format!("{:.5}", npu.kl)].into_iter().chain(kls).chain([
            format!("{:.3}", npu.worst_kl),
            top1(npu),
            format!("{:+.2} %", npu.perplexity),
            alone(&|f| format!("{:.5}", f.kl)),
            alone(&top1),
        ]);
        table.add_row(line);
    }
    table
}

/// A bar a format: mean KL on a logarithmic axis, the texts as dots, the operands alone as a stroke.
pub fn svg(rows: &[Row], model: &str) -> String {
    const LEFT: f64 = 130.0;
    const WIDTH: f64 = 720.0;
    const ROW: f64 = 26.0;
    const TOP: f64 = 52.0;
    let height = TOP + ROW * rows.len() as f64 + 30.0;
    let x = |kl: f64| LEFT + (kl.clamp(1e-5, 1.0).log10() + 5.0) / 5.0 * (WIDTH - LEFT - 60.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"18\">{model}: mean KL to the f32 reference, nats</text>\n\
         <text x=\"8\" y=\"36\" fill=\"#555\">bar: the NPU; dots: its single texts; stroke: the operands rounded, all else in f32</text>\n"
    );
    // Writing to a string does not fail.
    for power in -5..=0 {
        let at = x(10f64.powi(power));
        let bottom = height - 26.0;
        let _ = writeln!(out, "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>");
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{}\">1e{power}</text>", at - 10.0, height - 10.0);
    }
    for (i, r) in rows.iter().enumerate() {
        let y = TOP + ROW * i as f64;
        let _ = writeln!(out, "<text x=\"8\" y=\"{:.1}\">{}</text>", y + 17.0, r.format);
        let width = x(r.npu.kl) - LEFT;
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"#9ec5fe\"/>",
            y + 5.0
        );
        for kl in &r.kl_by_text {
            let _ = writeln!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#0a58ca\"/>", x(*kl), y + 12.0);
        }
        let dots = r.kl_by_text.iter().chain([&r.npu.kl]).copied();
        let alone = r.operands_alone.as_ref().map(|f| f.kl);
        if let Some(kl) = alone {
            let (at, from, to) = (x(kl), y + 2.0, y + 22.0);
            let _ = writeln!(
                out,
                "<line x1=\"{at:.1}\" y1=\"{from:.1}\" x2=\"{at:.1}\" y2=\"{to:.1}\" stroke=\"#b02a37\" stroke-width=\"2\"/>"
            );
        }
        let right = dots.chain(alone).map(x).fold(LEFT, f64::max);
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{:.5}</text>", right + 10.0, y + 17.0, r.npu.kl);
    }
    out + "</svg>\n"
}
