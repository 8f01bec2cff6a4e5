//! The table drawn: time per token against context, roofline, use of the array.

use super::table::{Line, names};
use anyhow::anyhow;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

/// Pixels: of the picture, and of the legend at its right.
const WIDTH: u32 = 1000;
const HEIGHT: u32 = 520;
const LEGEND: u32 = 320;

/// Okabe and Ito's palette, which colour-blind readers can tell apart.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

type Series = BTreeMap<String, Vec<(f64, f64)>>;

/// Name and SVG text of each plot.
///
/// # Errors
/// No line to draw.
pub fn plots(lines: &[Line]) -> anyhow::Result<Vec<(&'static str, String)>> {
    if lines.is_empty() {
        return Err(anyhow!("the table is empty: nothing to draw"));
    }
    let name = names(lines);
    let series = |x: &dyn Fn(&Line) -> f64, y: &dyn Fn(&Line) -> f64| {
        let mut series = Series::new();
        for line in lines {
            series.entry(name(line)).or_default().push((x(line), y(line)));
        }
        series.values_mut().for_each(|points| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        series
    };
    let context = |line: &Line| line.number("context");
    let tpot = series(&context, &|line| line.number("tpot_ms"));
    let used = series(&context, &|line| 100.0 * line.number("decode_utilisation"));
    Ok(vec![
        ("tpot.svg", curves("Time per output token", ["tokens held", "ms"], &tpot)?),
        ("utilisation.svg", curves("Use of the array in decode", ["tokens held", "%"], &used)?),
        ("roofline.svg", roofline(lines, &name)?),
    ])
}

fn range(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let (low, high) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
    low * 0.9..high * 1.1 + f64::MIN_POSITIVE
}

fn color(i: usize) -> RGBColor {
    COLORS[i % COLORS.len()]
}

fn curves(title: &str, [x, y]: [&str; 2], series: &Series) -> anyhow::Result<String> {
    let points = || series.values().flatten();
    let (xs, ys) = (range(points().map(|p| p.0)), range(points().map(|p| p.1)));
    draw(title, [x, y], xs, 0.0..ys.end, series, &[])
}

/// A figure at an axis: without the zeros behind its point.
fn tick(value: f64) -> String {
    // Two more digits than a power of ten has: the steps between ticks are no finer.
    let digits = (1.0 - value.abs().max(1e-9).log10()).ceil().max(0.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// A marker of series `i`: colours repeat after seven, shapes then change.
fn marker<'a>(i: usize, at: (i32, i32)) -> DynElement<'static, SVGBackend<'a>, (i32, i32)> {
    let style = color(i).filled();
    match i / COLORS.len() % 3 {
        0 => Circle::new(at, 4, style).into_dyn(),
        1 => TriangleMarker::new(at, 6, style).into_dyn(),
        _ => Cross::new(at, 4, color(i).stroke_width(2)).into_dyn(),
    }
}

fn draw<X, Y>(
    title: &str,
    [x, y]: [&str; 2],
    xs: X,
    ys: Y,
    series: &Series,
    bounds: &[Vec<(f64, f64)>],
) -> anyhow::Result<String>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    fn failed(e: impl std::fmt::Display) -> anyhow::Error {
        anyhow!("the plot cannot be drawn: {e}")
    }
    let mut svg = String::new();
    let rows = 24 * series.len() as u32 + 80;
    let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT.max(rows))).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let (left, right) = area.split_horizontally(WIDTH - LEGEND);
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
    for bound in bounds {
        chart.draw_series(LineSeries::new(bound.iter().copied(), BLACK.mix(0.5).stroke_width(2))).map_err(failed)?;
    }
    for (i, (name, points)) in series.iter().enumerate() {
        if bounds.is_empty() {
            let line = LineSeries::new(points.iter().copied(), color(i).stroke_width(2));
            chart.draw_series(line).map_err(failed)?;
        }
        for point in points {
            left.draw(&marker(i, chart.backend_coord(point))).map_err(failed)?;
        }
        let row = 60 + 24 * i as i32;
        right.draw(&marker(i, (14, row))).map_err(failed)?;
        right.draw(&Text::new(name.clone(), (28, row - 7), ("sans-serif", 14).into_font())).map_err(failed)?;
    }
    area.present().map_err(failed)?;
    drop((chart, left, right, area));
    Ok(svg)
}

/// Multiply-accumulates a cycle against multiply-accumulates a DRAM byte, under what each machine's array and memory allow.
fn roofline(lines: &[Line], name: &impl Fn(&Line) -> String) -> anyhow::Result<String> {
    let mut series = Series::new();
    for line in lines {
        let figure = |phase: &str, cycles: &str| {
            let (macs, bytes) = (format!("{phase}_macs"), format!("{phase}_dram_bytes"));
            (line.number(&macs) / line.number(&bytes), line.number(&macs) / line.number(cycles))
        };
        series.entry(format!("prefill, {}", name(line))).or_default().push(figure("prefill", "ttft_cycles"));
        series.entry(format!("decode, {}", name(line))).or_default().push(figure("decode", "tpot_cycles"));
    }
    let machine = |line: &Line| (line.number("peak_macs_per_cycle"), line.number("dram_bytes_per_cycle"));
    let mut machines: Vec<(f64, f64)> = lines.iter().map(machine).collect();
    machines.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    machines.dedup();
    let ridges = machines.iter().map(|(peak, width)| peak / width);
    let points = || series.values().flatten();
    let (xs, ys) = (range(points().map(|p| p.0).chain(ridges.clone())), range(points().map(|p| p.1)));
    let (left, right) = (xs.start * 0.5, xs.end * 2.0);
    let bound = |(peak, width): &(f64, f64)| vec![(left, left * width), (peak / width, *peak), (right, *peak)];
    let bounds: Vec<_> = machines.iter().map(bound).collect();
    let top = machines.iter().fold(ys.end, |top, (peak, _)| top.max(*peak));
    let (xs, ys) = ((left..right).log_scale(), (ys.start * 0.5..top * 1.5).log_scale());
    draw("Roofline", ["MACs per DRAM byte", "MACs per cycle"], xs, ys, &series, &bounds)
}
