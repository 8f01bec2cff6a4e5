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

/// The peers that [`equal_divergence`] has no row for, and what reaches them; empty where there is none.
pub fn beyond(rows: &[Row]) -> String {
    let ours: Vec<&Row> = rows.iter().filter(|r| r.entropy_coded && r.kl > 0.0).collect();
    let least = ours.iter().map(|r| r.kl).fold(f64::INFINITY, f64::min);
    let most = ours.iter().map(|r| r.kl).fold(0.0, f64::max);
    let peers = rows.iter().filter(|r| golden::kv::peers::NAMES.contains(&r.name.as_str()));
    let outside = peers.filter(|r| !ours.is_empty() && bits_at(&ours, r.kl).is_none());
    let said = outside.map(|r| match r.kl {
        kl if kl < least => format!("{} (KL {kl:.5}, below {least:.5})", r.name),
        kl => format!("{} (KL {kl:.5}, above {most:.5})", r.name),
    });
    let said: Vec<String> = said.collect();
    if said.is_empty() {
        return String::new();
    }
    format!(
        "Without such a row, for no entropy-coded setting measured here goes so far: {}. --qp N adds settings: a larger N has a larger KL, up to 63; the least is \
         that of N = 0, near-lossless.",
        said.join(", ")
    )
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 560.0;
const MARGIN: f64 = 56.0;

/// A rectangle of the picture: left, top, right, bottom.
#[derive(Clone, Copy)]
struct Rect([f64; 4]);

impl Rect {
    fn around((x, y): (f64, f64), reach: f64) -> Self {
        Self([x - reach, y - reach, x + reach, y + reach])
    }

    fn meets(self, other: Self) -> bool {
        let (Self(a), Self(b)) = (self, other);
        a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
    }
}

/// Where a label of `letters` characters stands near a point: the nearest place that nothing has taken; at its right if there is none.
fn label_at((x, y): (f64, f64), letters: usize, taken: &[Rect]) -> Rect {
    let (width, height) = (5.9 * letters as f64, 12.0);
    let place = |(dx, dy): (f64, f64)| {
        let left = x - width / 2.0 + dx * (width / 2.0 + 7.0);
        Rect([left, y + dy - height / 2.0, left + width, y + dy + height / 2.0])
    };
    let frame = |Rect(r): &Rect| r[0] > MARGIN && r[1] > MARGIN && r[2] < WIDTH - 2.0 && r[3] < HEIGHT - MARGIN;
    let rings = (0..20).flat_map(|ring| {
        let far = f64::from(ring) * 7.0;
        let sides = [(1.0, -far), (1.0, far), (-1.0, -far), (-1.0, far)];
        sides.into_iter().chain([(0.0, -12.0 - far), (0.0, 12.0 + far)])
    });
    let free = |r: &Rect| frame(r) && !taken.iter().any(|other| other.meets(*r));
    rings.map(place).find(free).unwrap_or_else(|| place((1.0, 0.0)))
}

/// A circle for ours, a square for a peer, by its colour.
fn shape(ours: bool, (x, y): (f64, f64)) -> String {
    match ours {
        true => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{OURS}\"/>\n"),
        false => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" fill=\"white\" stroke=\"{PEERS}\" stroke-width=\"2\"/>\n",
            x - 4.0,
            y - 4.0
        ),
    }
}

const OURS: &str = "#0a58ca";
const PEERS: &str = "#b02a37";

/// Bits against KL, both axes logarithmic, as an SVG picture. Settings without loss have no place on it.
pub fn svg(rows: &[Row]) -> String {
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
    for (at, ours, text) in [(WIDTH - 330.0, true, "modes of this cache"), (WIDTH - 190.0, false, "other codecs")] {
        let _ = writeln!(svg, "{}<text x=\"{:.1}\" y=\"32\">{text}</text>", shape(ours, (at, 28.0)), at + 10.0);
    }
    let ours = |r: &Row| !golden::kv::peers::NAMES.contains(&r.name.as_str());
    let shown: Vec<(&Row, (f64, f64))> = rows
        .iter()
        .filter(|r| r.kl > 0.0)
        .map(|r| (r, (x(r.bits.clamp(1.5, 16.0)), y(r.kl.clamp(1e-5, 1.0)))))
        .collect();
    // No label may lie on a mark, or on a label that stands.
    let mut taken: Vec<Rect> = shown.iter().map(|(_, at)| Rect::around(*at, 5.0)).collect();
    for (r, at) in shown {
        let label = label_at(at, r.name.chars().count(), &taken);
        taken.push(label);
        let Rect([left, top, right, bottom]) = label;
        let middle = (top + bottom) / 2.0;
        // A label that is not beside its mark is tied to it.
        if (middle - at.1).abs() > 13.0 {
            let end = if left > at.0 { left } else { right.min(at.0) };
            let _ = writeln!(
                svg,
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{end:.1}\" y2=\"{middle:.1}\" stroke=\"#999\" stroke-width=\"0.7\"/>",
                at.0, at.1
            );
        }
        let colour = if ours(r) { OURS } else { PEERS };
        let (anchor, x) = if right < at.0 { ("end", right) } else { ("start", left) };
        let _ = writeln!(
            svg,
            "{}<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{}</text>",
            shape(ours(r), at),
            middle + 4.0,
            r.name
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, entropy_coded: bool, bits: f64, kl: f64) -> Row {
        Row {
            name: name.into(),
            entropy_coded,
            tile_bits: bits,
            bits,
            all_bits: bits,
            ratio: 16.0 / bits,
            kls: vec![kl],
            kl,
            top1: 100.0,
            perplexity: 0.0,
        }
    }

    #[test]
    fn peers_beyond_the_settings_are_named() {
        let rows = [
            row("standard", true, 4.0, 0.003),
            row("low", true, 3.0, 0.02),
            row("q8_0", false, 8.6, 0.0002),
            row("kivi4", false, 4.6, 0.005),
            row("kivi2", false, 3.1, 0.16),
        ];
        let (table, text) = (equal_divergence(&rows), beyond(&rows));
        assert!(table.contains("kivi4") && !table.contains("q8_0") && !table.contains("kivi2"), "{table}");
        assert!(text.contains("q8_0 (KL 0.00020, below 0.00300), kivi2 (KL 0.16000, above 0.02000)"), "{text}");
        assert!(!text.contains("kivi4") && text.contains("--qp N"), "{text}");
        assert_eq!(beyond(&rows[..2]), "");
    }

    #[test]
    fn labels_of_points_that_lie_together_do_not_overlap() {
        let at = |i: usize| (300.0 + 3.0 * (i % 4) as f64, 200.0 + 4.0 * (i / 4) as f64);
        let mut taken: Vec<Rect> = (0..12).map(|i| Rect::around(at(i), 5.0)).collect();
        for i in 0..12 {
            let label = label_at(at(i), 12, &taken);
            assert!(!taken.iter().any(|other| other.meets(label)), "label {i}");
            taken.push(label);
        }
    }

    #[test]
    fn the_picture_tells_ours_and_peers_apart_by_shape() {
        let picture = svg(&[row("standard", true, 4.0, 0.003), row("kivi4", false, 4.6, 0.005)]);
        // One of each as a mark and one in the legend; the ground is a rectangle too.
        assert_eq!((picture.matches("<circle").count(), picture.matches("<rect").count()), (2, 3));
        assert!(picture.contains(">modes of this cache<") && picture.contains(">other codecs<"));
    }
}
