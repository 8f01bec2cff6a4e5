//! The table drawn: time per token against context, roofline, use of the array.

use super::style::{Style, styles};
use super::table::{Line, places};
use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// Pixels of the picture, without the legend at its right.
const WIDTH: u32 = 680;
const HEIGHT: u32 = 520;
/// Half the length of the piece of line at a mark.
const PIECE: i32 = 18;

/// A design: a series of each plot.
struct Design<'a> {
    /// What the legend says.
    name: String,
    /// Stands at its marks, where styles alone would not tell all designs apart.
    number: Option<usize>,
    style: Style,
    /// Pixels of its line and radius of its marks. Later ones are finer: one that lies on another leaves it visible.
    width: u32,
    radius: f64,
    /// By context.
    lines: Vec<&'a Line>,
}

/// The designs of a table, in its order.
fn designs(lines: &[Line]) -> Vec<Design<'_>> {
    let places = places(lines);
    let mut groups: Vec<(Vec<String>, Vec<&Line>)> = Vec::new();
    for line in lines {
        let place = places(line);
        match groups.iter_mut().find(|(other, _)| *other == place) {
            Some((_, lines)) => lines.push(line),
            None => groups.push((place, vec![line])),
        }
    }
    let styles = styles(&groups.iter().map(|(place, _)| place.clone()).collect::<Vec<_>>());
    let numbered = styles.iter().enumerate().any(|(i, style)| styles[..i].contains(style));
    let last = groups.len().saturating_sub(1).max(1) as f64;
    let design = |(i, ((place, mut lines), style)): (usize, ((Vec<String>, Vec<_>), Style))| {
        lines.sort_by(|a: &&Line, b: &&Line| a.number("context").total_cmp(&b.number("context")));
        let (number, left) = (numbered.then_some(i + 1), 1.0 - i as f64 / last);
        let name = number.map_or_else(String::new, |n| format!("{n}: ")) + &place.join(", ");
        Design { name, number, style, width: 2 + (2.5 * left) as u32, radius: 4.0 + 3.0 * left, lines }
    };
    groups.into_iter().zip(styles).enumerate().map(design).collect()
}

/// Name and SVG text of each plot.
///
/// # Errors
/// No line to draw.
pub fn plots(lines: &[Line]) -> anyhow::Result<Vec<(&'static str, String)>> {
    if lines.is_empty() {
        return Err(anyhow!("the table is empty: nothing to draw"));
    }
    let designs = designs(lines);
    Ok(vec![
        ("tpot.svg", curves("Time per output token", "ms", &designs, |line| line.number("tpot_ms"))?),
        (
            "utilisation.svg",
            curves("Use of the array in decode", "%", &designs, |line| 100.0 * line.number("decode_utilisation"))?,
        ),
        ("roofline.svg", roofline(lines, &designs)?),
    ])
}

fn range(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let (low, high) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
    low * 0.9..high * 1.1 + f64::MIN_POSITIVE
}

/// A figure at an axis: without the zeros behind its point.
fn tick(value: f64) -> String {
    // Two more digits than a power of ten has: the steps between ticks are no finer.
    let digits = (1.0 - value.abs().max(1e-9).log10()).ceil().max(0.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// What lies in a plot.
struct Plot<'a> {
    designs: &'a [Design<'a>],
    /// Lines that are black.
    bounds: Vec<Vec<(f64, f64)>>,
    /// Words that end above and left of a point.
    words: Vec<(String, (f64, f64))>,
    series: Vec<Series>,
    /// Lines of the legend below the designs.
    notes: &'static [&'static str],
}

/// Points of a design.
struct Series {
    /// Index of the design.
    design: usize,
    points: Vec<(f64, f64)>,
    /// A line joins them; else each has a piece of it.
    path: Path,
}

#[derive(Clone, Copy, PartialEq)]
enum Path {
    Joined,
    Level,
    Upright,
}

/// A figure against tokens held.
fn curves(title: &str, unit: &str, designs: &[Design<'_>], y: impl Fn(&Line) -> f64) -> anyhow::Result<String> {
    let series = |(design, d): (usize, &Design<'_>)| Series {
        design,
        points: d.lines.iter().map(|line| (line.number("context"), y(line))).collect(),
        path: Path::Joined,
    };
    let series: Vec<_> = designs.iter().enumerate().map(series).collect();
    let points = || series.iter().flat_map(|s| &s.points);
    let (xs, ys) = (range(points().map(|p| p.0)), range(points().map(|p| p.1)));
    let plot = Plot { designs, bounds: Vec::new(), words: Vec::new(), series, notes: &[] };
    draw(title, ["tokens held", unit], xs, 0.0..ys.end, &plot)
}

fn failed(e: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the plot cannot be drawn: {e}")
}

fn draw<X, Y>(title: &str, [x, y]: [&str; 2], xs: X, ys: Y, plot: &Plot<'_>) -> anyhow::Result<String>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut svg = String::new();
    let rows = 24 * (plot.designs.len() + plot.notes.len()) as u32 + 90;
    let longest = plot.designs.iter().map(|d| d.name.chars().count()).max().unwrap_or(0).clamp(20, 120);
    let legend = 2 * PIECE as u32 + 40 + 13 * longest as u32 / 2;
    let area = SVGBackend::with_string(&mut svg, (WIDTH + legend, HEIGHT.max(rows))).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let (left, right) = area.split_horizontally(WIDTH);
    let mut chart = ChartBuilder::on(&left)
        .caption(title, ("sans-serif", 22))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(72)
        .build_cartesian_2d(xs, ys)
        .map_err(failed)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(x)
        .y_desc(y)
        .x_label_formatter(&|&value| tick(value))
        .y_label_formatter(&|&value| tick(value))
        .label_style(("sans-serif", 14))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12));
    mesh.draw().map_err(failed)?;
    for bound in &plot.bounds {
        chart.draw_series(LineSeries::new(bound.iter().copied(), BLACK.mix(0.5).stroke_width(2))).map_err(failed)?;
    }
    for (text, point) in &plot.words {
        let (x, y) = chart.backend_coord(point);
        let style = TextStyle::from(("sans-serif", 14).into_font()).pos(Pos::new(HPos::Right, VPos::Bottom));
        left.draw(&Text::new(text.clone(), (x - 8, y - 4), style)).map_err(failed)?;
    }
    for series in &plot.series {
        let design = &plot.designs[series.design];
        let points: Vec<_> = series.points.iter().map(|point| chart.backend_coord(point)).collect();
        if series.path == Path::Joined {
            left.draw(&design.style.line(points.clone(), design.width)).map_err(failed)?;
        }
        for &(x, y) in &points {
            if series.path != Path::Joined {
                let (dx, dy) = if series.path == Path::Level { (PIECE, 0) } else { (0, PIECE) };
                left.draw(&design.style.line(vec![(x - dx, y - dy), (x + dx, y + dy)], 2)).map_err(failed)?;
            }
            mark(&left, design, (x, y))?;
        }
    }
    let words = |text: &str, x: i32, row: usize| {
        let place = (x, 60 + 24 * row as i32 - 7);
        right.draw(&Text::new(text.to_string(), place, ("sans-serif", 14).into_font())).map_err(failed)
    };
    for (i, design) in plot.designs.iter().enumerate() {
        let row = 60 + 24 * i as i32;
        right.draw(&design.style.line(vec![(4, row), (4 + 2 * PIECE, row)], design.width)).map_err(failed)?;
        mark(&right, &Design { number: None, name: String::new(), lines: Vec::new(), ..*design }, (4 + PIECE, row))?;
        words(&design.name, 2 * PIECE + 14, i)?;
    }
    for (i, note) in plot.notes.iter().enumerate() {
        words(note, 4, plot.designs.len() + i)?;
    }
    area.present().map_err(failed)?;
    drop((chart, left, right, area));
    Ok(svg)
}

/// A design's mark at a pixel, with its number.
fn mark(area: &DrawingArea<SVGBackend<'_>, Shift>, design: &Design<'_>, at: (i32, i32)) -> anyhow::Result<()> {
    for element in design.style.mark(at, design.radius) {
        area.draw(&element).map_err(failed)?;
    }
    if let Some(number) = design.number {
        let place = (at.0 + 8, at.1 - 16);
        area.draw(&Text::new(number.to_string(), place, ("sans-serif", 12).into_font())).map_err(failed)?;
    }
    Ok(())
}

/// Multiply-accumulates a cycle against multiply-accumulates a DRAM byte, under what each machine's array and memory allow.
fn roofline(lines: &[Line], designs: &[Design<'_>]) -> anyhow::Result<String> {
    let series = |(design, d): (usize, &Design<'_>)| {
        let points = |phase: &str, cycles: &str| {
            let (macs, bytes) = (format!("{phase}_macs"), format!("{phase}_dram_bytes"));
            let point =
                |line: &&Line| (line.number(&macs) / line.number(&bytes), line.number(&macs) / line.number(cycles));
            let mut points: Vec<(f64, f64)> = d.lines.iter().map(point).collect();
            points.dedup();
            points
        };
        [
            Series { design, points: points("prefill", "ttft_cycles"), path: Path::Upright },
            Series { design, points: points("decode", "tpot_cycles"), path: Path::Level },
        ]
    };
    let series: Vec<Series> = designs.iter().enumerate().flat_map(series).collect();
    let machine = |line: &Line| (line.number("peak_macs_per_cycle"), line.number("dram_bytes_per_cycle"));
    let mut machines: Vec<(f64, f64)> = lines.iter().map(machine).collect();
    machines.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    machines.dedup();
    let ridges = machines.iter().map(|(peak, width)| peak / width);
    let points = || series.iter().flat_map(|s| &s.points);
    let (xs, ys) = (range(points().map(|p| p.0).chain(ridges.clone())), range(points().map(|p| p.1)));
    let (left, right, floor) = (xs.start * 0.5, xs.end * 2.0, ys.start * 0.5);
    let start = |width: f64| left.max(floor / width);
    let bound = |&(peak, width): &(f64, f64)| {
        let x = start(width);
        vec![(x, x * width), (peak / width, peak), (right, peak)]
    };
    let bounds: Vec<_> = machines.iter().map(bound).collect();
    let top = machines.iter().fold(ys.end, |top, (peak, _)| top.max(*peak));

    // An array has the level part of its roofs, a memory the rising one.
    let mut words = Vec::new();
    for (peak, width) in &machines {
        let mut arrays: Vec<String> = Vec::new();
        for line in lines.iter().filter(|line| line.number("peak_macs_per_cycle") == *peak) {
            let array = format!("{}x{}", line.text("array_rows"), line.text("array_cols"));
            if !arrays.contains(&array) {
                arrays.push(array);
            }
        }
        words.push((format!("{} array", arrays.join(", ")), (right, *peak)));
        let lowest = machines.iter().filter(|m| m.1 == *width).fold(f64::INFINITY, |low, m| low.min(m.0));
        // Two thirds up the part that every such machine has, in the logarithm.
        let x = start(*width).powf(1.0 / 3.0) * (lowest / width).powf(2.0 / 3.0);
        words.push((format!("{width} B/cycle"), (x, x * width)));
    }
    // An array has several roofs where a format does more in a multiplier.
    words.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.1.total_cmp(&b.1.1)));
    words.dedup();
    let notes = &["", "mark on an upright line: prefill", "mark on a level line: decode"];
    let plot = Plot { designs, bounds, words, series, notes };
    let (xs, ys) = ((left..right).log_scale(), (floor..top * 1.5).log_scale());
    draw("Roofline", ["MACs per DRAM byte", "MACs per cycle"], xs, ys, &plot)
}
