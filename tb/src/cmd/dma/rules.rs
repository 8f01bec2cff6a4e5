//! The rule that a refused field of a descriptor broke, in words.

use dma::{Config, Descriptor, Element, Field, INDEX_ENTRIES, Refusal, Region};

/// Addresses, offsets and strides reach so far.
const REACH: &str = "from -2^48 to 2^48";

/// What `refusal` of `d` asks for; nothing, if its field has no rule of numbers.
pub(super) fn broken(d: &Descriptor, regions: &[Region], config: &Config, refusal: Refusal) -> Option<String> {
    let Refusal { field, value } = refusal;
    let nibbles = d.element == Element::Int4;
    let sides = [&d.source, &d.destination];
    // The last one holds the descriptors.
    let given = regions.len().saturating_sub(1);
    let size = |region: u8| regions.get(usize::from(region)).map_or(0, Region::bytes);
    if field == Field::REMAP {
        return Some("elements of int4 cannot be transposed".into());
    }
    for (s, side) in sides.into_iter().enumerate() {
        let access = if s == 0 { "read: access r or rw" } else { "written: access w or rw" };
        if field == Field::region(s) {
            return Some(format!("must be one of the {given} regions, and one that may be {access}"));
        }
        if field == Field::offset(s) {
            let own = value == side.offset as u64;
            return Some(match () {
                () if own && nibbles && s == 1 && side.offset % 2 != 0 => {
                    "must be even: int4 is written in whole bytes".into()
                }
                () if own && side.offset.unsigned_abs() > 1 << 48 => format!("must be {REACH}"),
                () => format!(
                    "the job would touch byte {} of region {}, which has {}",
                    value as i64,
                    side.region,
                    size(side.region)
                ),
            });
        }
        for dim in 0..3 {
            if field == Field::stride(s, dim) {
                return Some(match dim {
                    _ if side.strides[dim].unsigned_abs() > 1 << 48 => format!("must be {REACH}"),
                    2 => "must be 1: int4 is written in whole bytes".into(),
                    _ => "must be even: int4 is written in whole bytes".into(),
                });
            }
        }
        let Some(index) = &side.index else { continue };
        if field == Field::index_region(s) {
            return Some(format!("must be one of the {given} regions, and one that may be read: access r or rw"));
        }
        if field == Field::index_offset(s) {
            let entries = d.counts.get(usize::from(index.dimension)).copied().unwrap_or(0);
            let bytes = u64::from(entries) * if d.wide_index { 4 } else { 2 };
            let region = index.region;
            return Some(format!(
                "a list of {bytes} bytes must end within region {region}, which has {}",
                size(region)
            ));
        }
        if field == Field::index_bound(s) {
            return Some("must be 1 at least".into());
        }
        if field == Field::index_dimension(s) {
            return Some("must be 0 or 1: int4 is written in whole bytes".into());
        }
    }
    for dim in 0..3 {
        if field == Field::count(dim) {
            let listed = |side: &&dma::Side| side.index.is_some_and(|index| usize::from(index.dimension) == dim);
            return Some(match dim {
                _ if d.counts[dim] > INDEX_ENTRIES && sides.iter().any(listed) => {
                    format!("must be at most {INDEX_ENTRIES}, the entries of an index list")
                }
                2 => "must be even: int4 is written in whole bytes".into(),
                _ => format!(
                    "a job may have 2^32 - 1 elements and write {} bytes (job_bytes): counts are {:?}",
                    config.job_bytes, d.counts
                ),
            });
        }
        if field == Field::window_hi(dim) {
            return Some(format!("must be at most counts[{dim}] = {}", d.counts[dim]));
        }
        if field == Field::window_lo(dim) {
            return d.window.map(|w| format!("must be at most window.hi[{dim}] = {}", w.hi[dim]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use dma::{Checker, IndexList, Limits, REGIONS, Remap, Side, Window};

    /// A job that is taken: 4 rows of 8 elements.
    fn good(element: Element) -> Descriptor {
        let side = |region| Side { region, strides: [0, 64, 1], ..Side::default() };
        Descriptor { element, counts: [1, 4, 8], source: side(0), destination: side(1), ..Descriptor::default() }
    }

    fn check(d: &Descriptor, limits: &Limits) -> Result<(), Refusal> {
        let mut checker = Checker::new(d);
        (0..3).for_each(|_| checker.advance(d));
        checker.verdict(d, limits).map(drop)
    }

    #[test]
    fn every_refusal_of_numbers_says_what_would_do() {
        let list = |dimension, region, offset, bound| Some(IndexList { region, offset, dimension, bound });
        let window = |lo, hi| Some(Window { lo, hi, ..Window::default() });
        type Change = Box<dyn Fn(&mut Descriptor)>;
        let cases: Vec<(Element, Change, &str, &str)> = vec![
            (Element::Int4, Box::new(|d| d.counts[2] = 7), "counts[2]", "must be even"),
            (Element::Int4, Box::new(|d| d.destination.offset = 1), "destination.offset", "must be even"),
            (Element::Int4, Box::new(|d| d.destination.strides[1] = 33), "destination.strides[1]", "must be even"),
            (Element::Int4, Box::new(|d| d.destination.strides[2] = 2), "destination.strides[2]", "must be 1"),
            (Element::Int4, Box::new(|d| d.remap = Remap::Transpose), "remap", "cannot be transposed"),
            (
                Element::Int4,
                Box::new(move |d| d.destination.index = list(2, 0, 0, 8)),
                "destination.index.dimension",
                "must be 0 or 1",
            ),
            (
                Element::B1,
                Box::new(|d| d.source.region = 9),
                "source.region",
                "one of the 2 regions, and one that may be read",
            ),
            (Element::B1, Box::new(|d| d.destination.region = 0), "destination.region", "one that may be written"),
            (
                Element::B1,
                Box::new(|d| d.source.offset = 4000),
                "source.offset",
                "byte 4199 of region 0, which has 4096",
            ),
            (Element::B1, Box::new(|d| d.source.offset = -3), "source.offset", "byte -3 of region 0"),
            (Element::B1, Box::new(|d| d.source.offset = i64::MAX), "source.offset", "from -2^48 to 2^48"),
            (Element::B1, Box::new(|d| d.source.strides[0] = i64::MIN), "source.strides[0]", "from -2^48 to 2^48"),
            (Element::B1, Box::new(|d| d.counts = [1 << 20; 3]), "counts[0]", "write 4096 bytes (job_bytes)"),
            (
                Element::B1,
                Box::new(move |d| (d.counts[1], d.source.index) = (4097, list(1, 0, 0, 8))),
                "counts[1]",
                "at most 4096, the entries",
            ),
            (
                Element::B1,
                Box::new(move |d| d.source.index = list(1, 7, 0, 8)),
                "source.index.region",
                "one of the 2 regions",
            ),
            (
                Element::B1,
                Box::new(move |d| d.source.index = list(1, 0, 4090, 8)),
                "source.index.offset",
                "a list of 8 bytes must end within region 0, which has 4096",
            ),
            (
                Element::B1,
                Box::new(move |d| d.source.index = list(1, 0, 0, 0)),
                "source.index.bound",
                "must be 1 at least",
            ),
            (
                Element::B1,
                Box::new(move |d| d.window = window([0; 3], [1, 5, 8])),
                "window.hi[1]",
                "at most counts[1] = 4",
            ),
            (
                Element::B1,
                Box::new(move |d| d.window = window([0, 3, 0], [1, 2, 8])),
                "window.lo[1]",
                "at most window.hi[1] = 2",
            ),
        ];
        let regions = [Region::read_only(0, 4096), Region::read_write(4096, 4096), Region::read_only(8192, 512)];
        let mut limits = Limits { regions: [Region::default(); REGIONS], job_bytes: 4096 };
        limits.regions[..3].copy_from_slice(&regions);
        let config = Config { job_bytes: 4096, ..Config::default() };
        for element in [Element::Int4, Element::B1] {
            assert!(check(&good(element), &limits).is_ok());
        }
        for (element, change, field, says) in cases {
            let mut d = good(element);
            change(&mut d);
            let refusal = check(&d, &limits).expect_err(field);
            assert_eq!(refusal.field.name(), field);
            let rule = broken(&d, &regions, &config, refusal).unwrap_or_default();
            assert!(rule.contains(says), "{field}: {rule}");
        }
    }
}
