use crate::{
    ADDRESS_BITS, Descriptor, Element, Field, INDEX_ENTRIES, Plan, Refusal, Region, Remap, Side, SidePlan, WIRE_ALIGN,
    WIRE_BYTES,
};
use rtl::{Format, Visitor};

/// Byte addresses `[lo, hi)`; empty if `lo >= hi`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte, 49 bits.
    pub lo: u64,
    /// Past the last byte, 49 bits.
    pub hi: u64,
}

impl Span {
    /// Whether two spans share a byte.
    pub fn meets(self, other: Self) -> bool {
        self.lo < self.hi && other.lo < other.hi && self.lo < other.hi && other.lo < self.hi
    }

    pub(crate) fn visit(&mut self, name: impl Into<rtl::Name>, v: &mut impl Visitor) {
        v.scope(name, |v| {
            v.reg("lo_q", 49, Format::Hex, &mut self.lo);
            v.reg("hi_q", 49, Format::Hex, &mut self.hi);
        });
    }
}

/// What the front end holds descriptors against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Region registers.
    pub regions: [Region; crate::REGIONS],
    /// Most bytes that one job may write, 32 bits: the watchdog against jobs that never end.
    pub job_bytes: u32,
}

/// An index list to be fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListPlan {
    /// The list is used.
    pub valid: bool,
    /// Where it lies.
    pub span: Span,
    /// Every index must be below, 32 bits.
    pub bound: u32,
}

/// A job that passed the checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// For the mid end; `None` when a count is zero.
    pub plan: Option<Plan>,
    /// What it may read (empty when everything is filled).
    pub source: Span,
    /// What it may write.
    pub destination: Span,
    /// Index lists, source and destination.
    pub lists: [ListPlan; 2],
}

/// The descriptor checker: one dimension a cycle (two multipliers a side), then the verdict.
///
/// It adds up the lowest and the highest offset that the loop nest can reach, so that no address needs a check later on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checker {
    /// Dimension to do next, 2 bits; 3 when done.
    pub step: u8,
    /// Lowest reachable offset of each side in its units: signed, 83 bits.
    lo: [i128; 2],
    /// Highest, 83 bits.
    hi: [i128; 2],
    /// Product of the counts so far, 96 bits.
    elements: u128,
}

impl Checker {
    /// A checker at its first dimension.
    pub fn new(d: &Descriptor) -> Self {
        let base = [i128::from(d.source.offset), i128::from(d.destination.offset)];
        Self { step: 0, lo: base, hi: base, elements: 1 }
    }

    /// One cycle: dimension `step`.
    pub fn advance(&mut self, d: &Descriptor) {
        let dim = usize::from(self.step);
        for (s, side) in [&d.source, &d.destination].into_iter().enumerate() {
            let (first, last) = match side.index.filter(|x| usize::from(x.dimension) == dim) {
                Some(index) => (0, i128::from(index.bound) - 1),
                None => match d.window.filter(|_| s == 0) {
                    Some(w) => (i128::from(w.lo[dim]), i128::from(w.hi[dim]) - 1),
                    None => (0, i128::from(d.counts[dim]) - 1),
                },
            };
            let stride = i128::from(clip(side.strides[dim]));
            let ends = [stride * first, stride * last];
            self.lo[s] += ends[0].min(ends[1]);
            self.hi[s] += ends[0].max(ends[1]);
        }
        self.elements *= u128::from(d.counts[dim]);
        self.step += 1;
    }

    /// The verdict, after all three dimensions.
    ///
    /// # Errors
    /// The first field that is wrong, in the order that docs/dma.md lists.
    pub fn verdict(&self, d: &Descriptor, limits: &Limits) -> Result<Checked, Refusal> {
        numbers(d)?;
        let permit = |field: Field, region: u8, ok: fn(&Region) -> bool| {
            let value = u64::from(region);
            limits.regions.get(usize::from(region)).filter(|r| ok(r)).ok_or(Refusal { field, value })
        };
        let empty = d.window.is_some_and(|w| (0..3).any(|k| w.lo[k] >= w.hi[k]));
        let closed = Region::default();
        let source = if empty { &closed } else { permit(Field::region(0), d.source.region, |r| r.read)? };
        let destination = permit(Field::region(1), d.destination.region, |r| r.write)?;
        let mut lists = [ListPlan::default(); 2];
        for (s, side) in [&d.source, &d.destination].into_iter().enumerate() {
            if let Some(index) = &side.index {
                let region = permit(Field::index_region(s), index.region, |r| r.read)?;
                let entries = d.counts[usize::from(index.dimension)];
                let bytes = u64::from(entries) * if d.wide_index { 4 } else { 2 };
                if index.offset > region.bytes() || bytes > region.bytes() - index.offset {
                    return Err(Refusal { field: Field::index_offset(s), value: index.offset });
                }
                if index.bound == 0 {
                    return Err(Refusal { field: Field::index_bound(s), value: 0 });
                }
                let lo = region.base + index.offset;
                lists[s] = ListPlan { valid: true, span: Span { lo, hi: lo + bytes }, bound: index.bound };
            }
        }
        if self.elements == 0 {
            return Ok(Checked { lists: Default::default(), ..Default::default() });
        }
        let nibbles = self.elements * u128::from(d.element.nibbles());
        if self.elements > u128::from(u32::MAX) || nibbles.div_ceil(2) > u128::from(limits.job_bytes) {
            return Err(Refusal { field: Field::count(0), value: u64::from(d.counts[0]) });
        }
        let source_span = if empty { Span::default() } else { self.span(0, d, source)? };
        let destination_span = self.span(1, d, destination)?;
        let plan = Plan::new(d, source.base, destination.base, source_span.meets(destination_span));
        Ok(Checked { plan: Some(plan), source: source_span, destination: destination_span, lists })
    }

    /// The bytes that a side can reach, held against its region.
    fn span(&self, s: usize, d: &Descriptor, region: &Region) -> Result<Span, Refusal> {
        let unit = i128::from(2 / d.element.unit());
        let (lo, last) = (self.lo[s], self.hi[s] + i128::from(d.element.step()) - 1);
        let (first, last) = (lo.div_euclid(unit), last.div_euclid(unit));
        let refuse = |value: i128| Refusal { field: Field::offset(s), value: value as u64 };
        if first < 0 {
            return Err(refuse(first));
        }
        if last >= i128::from(region.bytes()) {
            return Err(refuse(last));
        }
        Ok(Span { lo: region.base + first as u64, hi: region.base + last as u64 + 1 })
    }

    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        v.reg("step_q", 2, Format::Unsigned, &mut self.step);
        for s in 0..2 {
            wide(("lo_q", s), &mut self.lo[s], v);
            wide(("hi_q", s), &mut self.hi[s], v);
        }
        let mut elements = self.elements as i128;
        wide(("elements_q", 0), &mut elements, v);
        self.elements = elements as u128;
    }
}

/// Shows a register of more than 64 bits as two.
fn wide((base, i): (&'static str, usize), value: &mut i128, v: &mut impl Visitor) {
    let (mut low, mut high) = (*value as u64, (*value >> 64) as i64);
    v.reg((base, i, 0), 64, Format::Hex, &mut low);
    v.reg((base, i, 1), 32, Format::Hex, &mut high);
    *value = i128::from(high) << 64 | i128::from(low);
}

/// Strides and offsets that do not fit their registers are refused; until the verdict says so the multiplier sees them cut.
fn clip(stride: i64) -> i64 {
    stride.clamp(-(1 << ADDRESS_BITS), 1 << ADDRESS_BITS)
}

/// The checks that need no region.
fn numbers(d: &Descriptor) -> Result<(), Refusal> {
    let refuse = |field: Field, value: u64| Err(Refusal { field, value });
    if d.remap == Remap::Transpose && d.element == Element::Int4 {
        return refuse(Field::REMAP, 1);
    }
    for (s, side) in [&d.source, &d.destination].into_iter().enumerate() {
        if clip(side.offset) != side.offset {
            return refuse(Field::offset(s), side.offset as u64);
        }
        for dim in 0..3 {
            if clip(side.strides[dim]) != side.strides[dim] {
                return refuse(Field::stride(s, dim), side.strides[dim] as u64);
            }
        }
        if let Some(index) = &side.index {
            let dim = usize::from(index.dimension);
            if d.counts[dim] > INDEX_ENTRIES {
                return refuse(Field::count(dim), u64::from(d.counts[dim]));
            }
        }
    }
    if let Some(w) = &d.window {
        for dim in 0..3 {
            if w.hi[dim] > d.counts[dim] {
                return refuse(Field::window_hi(dim), u64::from(w.hi[dim]));
            }
            if w.lo[dim] > w.hi[dim] {
                return refuse(Field::window_lo(dim), u64::from(w.lo[dim]));
            }
        }
    }
    if d.element == Element::Int4 { whole_bytes(d) } else { Ok(()) }
}

/// The port's strobes are bytes: INT4 must reach the destination in whole ones.
fn whole_bytes(d: &Descriptor) -> Result<(), Refusal> {
    let side: &Side = &d.destination;
    if side.offset % 2 != 0 {
        return Err(Refusal { field: Field::offset(1), value: side.offset as u64 });
    }
    for dim in 0..2 {
        if side.strides[dim] % 2 != 0 {
            return Err(Refusal { field: Field::stride(1, dim), value: side.strides[dim] as u64 });
        }
    }
    if side.strides[2] != 1 {
        return Err(Refusal { field: Field::stride(1, 2), value: side.strides[2] as u64 });
    }
    if !d.counts[2].is_multiple_of(2) {
        return Err(Refusal { field: Field::count(2), value: u64::from(d.counts[2]) });
    }
    match &side.index {
        Some(index) if index.dimension == 2 => Err(Refusal { field: Field::index_dimension(1), value: 2 }),
        _ => Ok(()),
    }
}

impl Limits {
    /// Whether a descriptor may be fetched from `address`.
    pub fn link_ok(&self, address: u64) -> bool {
        let end = address.checked_add(WIRE_BYTES as u64);
        address.is_multiple_of(WIRE_ALIGN)
            && end.is_some_and(|end| self.regions.iter().any(|r| r.read && address >= r.base && end <= r.limit))
    }
}

impl Plan {
    /// Loops of a checked descriptor. `source` and `destination` are the bases of their regions.
    fn new(d: &Descriptor, source: u64, destination: u64, ordered: bool) -> Self {
        let tiled = d.remap == Remap::Transpose;
        let window = d.window.unwrap_or_default();
        let order = |tiled: bool| if tiled { [0, 2, 1] } else { [0, 1, 2] };
        let joined = d.window.is_none() && !tiled;
        Self {
            element: d.element.nibbles() as u8,
            tile: d.element.tile() as u8,
            tiled,
            ordered,
            wide_index: d.wide_index,
            windowed: d.window.is_some(),
            lo: window.lo,
            hi: window.hi,
            fill: window.fill,
            read: SidePlan::new(d, &d.source, source, order(false), joined),
            write: SidePlan::new(d, &d.destination, destination, order(tiled), !tiled),
        }
    }
}

impl SidePlan {
    /// `order` says which dimension is the outer loop, the row and the inner one; `join` lets contiguous loops become one.
    fn new(d: &Descriptor, side: &Side, region: u64, order: [usize; 3], join: bool) -> Self {
        let unit = i64::from(d.element.unit());
        let step = i64::from(d.element.nibbles());
        let index = side.index.unwrap_or_default();
        let indexed = side.index.and_then(|x| order.iter().position(|&o| o == usize::from(x.dimension)));
        let mut counts = order.map(|o| d.counts[o]);
        let mut strides = order.map(|o| side.strides[o] * unit);
        let index_stride = indexed.map_or(0, |_| side.strides[usize::from(index.dimension)] * unit);
        if let Some(dim) = indexed {
            strides[dim] = 0;
        }
        let run = indexed != Some(2) && (strides[2] == step || counts[2] == 1);
        if join && run {
            // A row that begins where the one before it ends is no row of its own.
            for dim in [1, 0] {
                let next = i64::from(counts[2]) * step;
                if indexed == Some(dim) || (strides[dim] != next && counts[dim] != 1) {
                    break;
                }
                counts[2] *= counts[dim];
                counts[dim] = 1;
            }
        }
        Self {
            base: 2 * region as i64 + side.offset * unit,
            counts,
            strides,
            indexed: indexed.is_some(),
            index_dim: indexed.unwrap_or(0) as u8,
            index_stride,
            run,
        }
    }
}

impl Checked {
    pub(crate) fn visit(&mut self, v: &mut impl Visitor) {
        let (mut moves, mut plan) = (self.plan.is_some(), self.plan.unwrap_or_default());
        v.reg("plan_valid_q", 1, Format::Unsigned, &mut moves);
        rtl::Payload::visit(&mut plan, "plan".into(), v);
        self.plan = moves.then_some(plan);
        self.source.visit("source", v);
        self.destination.visit("destination", v);
        for (s, list) in self.lists.iter_mut().enumerate() {
            v.scope(("list", s), |v| {
                v.reg("valid_q", 1, Format::Unsigned, &mut list.valid);
                list.span.visit("span", v);
                v.reg("bound_q", 32, Format::Unsigned, &mut list.bound);
            });
        }
    }
}
