//! What a series looks like: colour, dash and shape of its mark each follow an axis of the grid, and the three together are read without colour too.

use plotters::element::{DashedPathElement, DynElement, IntoDynElement};
use plotters::prelude::*;

/// Okabe and Ito's palette, which colour-blind readers can tell apart; neighbours differ in lightness too.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];

/// Pixels drawn and left out; all drawn first.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((9, 5)), Some((2, 4)), Some((20, 6))];

/// Corners of a mark, as radius (of the mark's own) and angle in degrees from the top.
const SHAPES: [&[(f64, f64)]; 6] = [
    &[],
    &[(1.2, 45.0), (1.2, 135.0), (1.2, 225.0), (1.2, 315.0)],
    &[(1.3, 0.0), (1.3, 120.0), (1.3, 240.0)],
    &[(1.4, 0.0), (1.0, 90.0), (1.4, 180.0), (1.0, 270.0)],
    &[(1.3, 60.0), (1.3, 180.0), (1.3, 300.0)],
    &[(1.6, 0.0), (0.5, 45.0), (1.6, 90.0), (0.5, 135.0), (1.6, 180.0), (0.5, 225.0), (1.6, 270.0), (0.5, 315.0)],
];

/// Something to draw at pixels.
pub(super) type Element<'a> = DynElement<'static, SVGBackend<'a>, (i32, i32)>;

/// How a series is drawn: its place in each palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Style {
    colour: usize,
    dash: usize,
    shape: usize,
}

/// Styles of designs, of which each is its cells on the axes that vary. The first axis has the colour, the second the dash, the third the shape; fewer axes
/// share what is left over. An axis that tells no two designs apart that those before it do not (the array of a named machine) takes no part.
pub(super) fn styles(designs: &[Vec<String>]) -> Vec<Style> {
    let rank = |axis: usize| {
        let mut seen = Vec::new();
        let rank = |design: &Vec<String>| {
            seen.iter().position(|cell| *cell == design[axis]).unwrap_or_else(|| {
                seen.push(design[axis].clone());
                seen.len() - 1
            })
        };
        designs.iter().map(rank).collect::<Vec<usize>>()
    };
    let told_apart = |axes: &[Vec<usize>]| {
        let mut tuples: Vec<Vec<usize>> =
            (0..designs.len()).map(|design| axes.iter().map(|ranks| ranks[design]).collect()).collect();
        tuples.sort_unstable();
        tuples.dedup();
        tuples.len()
    };
    let mut axes: Vec<Vec<usize>> = Vec::new();
    for axis in 0..designs.first().map_or(0, Vec::len) {
        let before = told_apart(&axes);
        axes.push(rank(axis));
        if told_apart(&axes) == before {
            axes.pop();
        }
    }
    let [colour, dash, shape] = match axes.len() {
        0 | 1 => [0, 0, 0],
        2 => [0, 1, 1],
        _ => [0, 1, 2],
    };
    let place = |axis: usize, design: usize| axes.get(axis).map_or(0, |ranks| ranks[design]);
    let style = |design| Style {
        colour: place(colour, design) % COLORS.len(),
        dash: place(dash, design) % DASHES.len(),
        shape: place(shape, design) % SHAPES.len(),
    };
    (0..designs.len()).map(style).collect()
}

impl Style {
    fn color(self) -> RGBColor {
        COLORS[self.colour]
    }

    /// A line through pixels, `width` of them wide.
    pub(super) fn line<'a>(self, points: Vec<(i32, i32)>, width: u32) -> Element<'a> {
        let style = self.color().stroke_width(width);
        match DASHES[self.dash] {
            None => PathElement::new(points, style).into_dyn(),
            Some((drawn, left_out)) => DashedPathElement::new(points, drawn, left_out, style).into_dyn(),
        }
    }

    /// The inside and the outline of a mark of `radius` pixels; every second colour's is hollow.
    pub(super) fn mark<'a>(self, at: (i32, i32), radius: f64) -> [Element<'a>; 2] {
        let color = self.color();
        let (inside, outline) = (if self.colour.is_multiple_of(2) { color } else { WHITE }, color.stroke_width(2));
        if SHAPES[self.shape].is_empty() {
            let radius = radius.round() as i32;
            return [Circle::new(at, radius, inside.filled()).into_dyn(), Circle::new(at, radius, outline).into_dyn()];
        }
        let corner = |&(share, degrees): &(f64, f64)| {
            let (sine, cosine) = f64::to_radians(degrees).sin_cos();
            (at.0 + (radius * share * sine).round() as i32, at.1 - (radius * share * cosine).round() as i32)
        };
        let corners: Vec<(i32, i32)> = SHAPES[self.shape].iter().map(corner).collect();
        let closed: Vec<(i32, i32)> = corners.iter().chain(corners.first()).copied().collect();
        [Polygon::new(corners, inside.filled()).into_dyn(), PathElement::new(closed, outline).into_dyn()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every combination of the values of the axes.
    fn grid(axes: &[usize]) -> Vec<Vec<String>> {
        let mut designs = vec![Vec::new()];
        for (axis, &values) in axes.iter().enumerate() {
            let with = |design: &Vec<String>| {
                let design = design.clone();
                (0..values).map(move |v| [design.clone(), vec![format!("{axis}.{v}")]].concat())
            };
            designs = designs.iter().flat_map(with).collect();
        }
        designs
    }

    fn different(styles: &[Style]) -> usize {
        let mut styles = styles.to_vec();
        styles.sort_unstable();
        styles.dedup();
        styles.len()
    }

    #[test]
    fn up_to_three_axes_are_told_apart_and_each_is_seen() {
        for axes in [&[][..], &[1], &[12], &[7, 6], &[2, 2, 3], &[7, 4, 6]] {
            let designs = grid(axes);
            assert_eq!(different(&styles(&designs)), designs.len(), "{axes:?}");
        }
        let (designs, styles) = (grid(&[2, 2, 3]), styles(&grid(&[2, 2, 3])));
        for (a, x) in designs.iter().zip(&styles) {
            for (b, y) in designs.iter().zip(&styles) {
                assert_eq!(
                    (a[0] == b[0], a[1] == b[1], a[2] == b[2]),
                    (x.colour == y.colour, x.dash == y.dash, x.shape == y.shape)
                );
            }
        }
    }

    #[test]
    fn an_axis_that_follows_from_another_takes_no_style() {
        let machines =
            |kv: &str| ["edge", "big"].map(|name| vec![name.to_string(), format!("array of {name}"), kv.into()]);
        let styles = styles(&[machines("raw"), machines("lossless")].concat());
        let numbers = styles.iter().map(|s| (s.colour, s.dash, s.shape)).collect::<Vec<_>>();
        assert_eq!(numbers, [(0, 0, 0), (1, 0, 0), (0, 1, 1), (1, 1, 1)]);
    }

    #[test]
    fn a_fourth_axis_is_beyond_them() {
        let designs = grid(&[2, 2, 2, 2]);
        assert!(different(&styles(&designs)) < designs.len());
    }
}
