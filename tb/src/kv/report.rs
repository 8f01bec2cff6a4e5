use super::{Row, Text};
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use std::fmt::Write;

/// The figures as a table.
pub fn table(rows: &[Row], texts: &[Text]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let per_text = texts.iter().map(|t| format!("KL {}", t.name));
    let head = ["cache", "bits: tiles", "+ raw tokens", "+ tables", "ratio", "mean KL"].map(String::from);
    table.set_header(head.into_iter().chain(per_text).chain(["top-1 %".into(), "ΔPPL %".into()]));
    for r in rows {
        let fixed = [
            r.name.clone(),
            format!("{:.3}", r.tile_bits),
            format!("{:.3}", r.bits),
            format!("{:.3}", r.all_bits),
            format!("{:.3}", r.ratio),
            format!("{:.5}", r.kl),
        ];
        let kls = r.kls.iter().map(|kl| format!("{kl:.5}"));
        table.add_row(fixed.into_iter().chain(kls).chain([format!("{:.1}", r.top1), format!("{:+.2}", r.perplexity)]));
    }
    table.to_string()
}

/// Bits at which `ours` come to the divergence `kl`: between the two settings on either side, straight in the logarithm of the divergence.
fn bits_at(ours: &[&Row], kl: f64) -> Option<f64> {
    let mut points: Vec<(f64, f64)> = ours.iter().filter(|r| r.kl > 0.0).map(|r| (r.kl.ln(), r.bits)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let pair = points.windows(2).find(|w| w[0].0 <= kl.ln() && kl.ln() <= w[1].0 && w[0].0 < w[1].0)?;
    let share = (kl.ln() - pair[0].0) / (pair[1].0 - pair[0].0);
    Some(pair[0].1 + share * (pair[1].1 - pair[0].1))
}

/// Each peer beside the entropy-coded settings at the peer's own divergence, as a table; empty where there is nothing to compare.
pub fn equal_divergence(rows: &[Row]) -> String {
    let ours: Vec<&Row> = rows.iter().filter(|r| r.entropy_coded).collect();
    let peers = rows.iter().filter(|r| golden::kv::peers::NAMES.contains(&r.name.as_str()));
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "peer",
        "its KL",
        "its bits",
        "bits of the entropy-coded mode at that KL",
        "ratio against the peer's",
    ]);
    for peer in peers {
        if let Some(bits) = bits_at(&ours, peer.kl) {
            let figures = [format!("{:.5}", peer.kl), format!("{:.3}", peer.bits), format!("{bits:.3}")];
            table.add_row([peer.name.clone()].into_iter().chain(figures).chain([format!("{:.2}", peer.bits / bits)]));
        }
    }
    if table.row_count() == 0 { String::new() } else { table.to_string() }
}

/// Bits against KL, both axes logarithmic, as an SVG picture. Settings without loss have no place on it.
pub fn svg(rows: &[Row]) -> String {
    const WIDTH: f64 = 720.0;
    const HEIGHT: f64 = 480.0;
    const MARGIN: f64 = 56.0;
    let shown: Vec<_> = rows.iter().filter(|r| r.kl > 0.0).collect();
    let (bits, kls) = ([1.5f64, 16.0].map(f64::log2), [1e-5f64, 1.0].map(f64::log10));
    let x = |b: f64| MARGIN + (b.log2() - bits[0]) / (bits[1] - bits[0]) * (WIDTH - 2.0 * MARGIN);
    let y = |kl: f64| HEIGHT - MARGIN - (kl.log10() - kls[0]) / (kls[1] - kls[0]) * (HEIGHT - 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut line = |from: (f64, f64), to: (f64, f64), label: String, at: (f64, f64)| {
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>\n<text x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            from.0, from.1, to.0, to.1, at.0, at.1
        );
    };
    for b in [2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0] {
        line((x(b), MARGIN), (x(b), HEIGHT - MARGIN), format!("{b}"), (x(b) - 4.0, HEIGHT - MARGIN + 16.0));
    }
    for power in -5..=0 {
        let kl = 10f64.powi(power);
        line((MARGIN, y(kl)), (WIDTH - MARGIN, y(kl)), format!("1e{power}"), (16.0, y(kl) + 4.0));
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\">bits a value, every byte</text>\n<text x=\"16\" y=\"28\">KL, nats</text>",
        WIDTH / 2.0 - 60.0,
        HEIGHT - 16.0
    );
    for r in shown {
        let ours = !golden::kv::peers::NAMES.contains(&r.name.as_str());
        let colour = if ours { "#0a58ca" } else { "#b02a37" };
        let (cx, cy) = (x(r.bits.clamp(1.5, 16.0)), y(r.kl.clamp(1e-5, 1.0)));
        let _ = writeln!(
            svg,
            "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4\" fill=\"{colour}\"/>\n<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            cx + 7.0,
            cy + 4.0,
            r.name
        );
    }
    svg + "</svg>\n"
}
