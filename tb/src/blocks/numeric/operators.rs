//! Products, sums, fused multiply-add and integer accumulation.

use super::reference::{self, Reference};
use super::{hex, stimulus};
use crate::verify::Case;
use numeric::fast::{canonical, fma_portable, fma_slice};
use numeric::{
    Flags, FloatFormat, Format, IntFormat, MacConfig, Mode, Unpacked, add, convert, fma, int_mac, int_mac_pair, mul,
    product,
};
use rand::RngExt;
use std::collections::BTreeSet;

const FP32: FloatFormat = FloatFormat::FP32;

/// The float formats that a MAC takes.
pub(super) const OPERANDS: [(&str, FloatFormat); 8] = [
    ("e2m1", FloatFormat::E2M1),
    ("e2m3", FloatFormat::E2M3),
    ("e3m2", FloatFormat::E3M2),
    ("e4m3", FloatFormat::E4M3),
    ("e5m2", FloatFormat::E5M2),
    ("bf16", FloatFormat::BF16),
    ("fp16", FloatFormat::FP16),
    ("fp32", FloatFormat::FP32),
];

/// What became of fused multiply-adds: class of the result, worst flag.
#[derive(Default)]
struct Seen(BTreeSet<(&'static str, &'static str)>);

impl Seen {
    fn add(&mut self, value: u32, flags: Flags) {
        let result = match value & 0x7fff_ffff {
            0 => "zero",
            1..0x0080_0000 => "subnormal",
            0x0080_0000..0x7f80_0000 => "normal",
            0x7f80_0000 => "infinity",
            _ => "nan",
        };
        let raised = [Flags::INVALID, Flags::OVERFLOW, Flags::UNDERFLOW, Flags::INEXACT];
        let names = ["invalid", "overflow", "underflow", "inexact"];
        let worst = raised.iter().position(|f| flags.contains(*f)).map_or("none", |i| names[i]);
        self.0.insert((result, worst));
    }

    fn cover(&self, case: &mut Case) {
        for (result, worst) in &self.0 {
            case.cover("fma", &[("result", result), ("raised", worst)]);
        }
    }
}

/// One multiply-add by the core, by the hardware steps and by the host form without an FMA instruction, against the
/// host's own fused multiply-add (the instruction, or libm's `fmaf`).
struct FourWays {
    formats: (FloatFormat, FloatFormat),
    mac: MacConfig,
    seen: Seen,
}

impl FourWays {
    fn new(a: FloatFormat, b: FloatFormat) -> anyhow::Result<FourWays> {
        Ok(FourWays { formats: (a, b), mac: MacConfig::new(a, b, 4)?, seen: Seen::default() })
    }

    fn check(&mut self, case: &mut Case, (a, x): (u32, f32), (b, y): (u32, f32), c: u32) -> u32 {
        let z = f32::from_bits(c);
        let host = canonical(x.mul_add(y, z)).to_bits();
        let mut flags = Flags::NONE;
        let core = fma(self.formats.0, a, self.formats.1, b, c, &mut flags);
        let steps = self.mac.compute(a, b, c);
        let portable = canonical(fma_portable(x, y, z)).to_bits();
        if (core, steps.value, portable) != (host, host, host) || steps.flags != flags {
            case.differed(format_args!(
                "{} {a:#x} × {} {b:#x} + {c:#010x}: host {host:#010x}, core {core:#010x} ({flags}), \
                 steps {:#010x} ({}), portable {portable:#010x}",
                self.formats.0, self.formats.1, steps.value, steps.flags
            ));
        }
        self.seen.add(core, flags);
        host
    }
}

fn value_of(format: FloatFormat, code: u32) -> f32 {
    f32::from_bits(convert(format.into(), FP32.into(), code, Mode::IEEE, &mut Flags::default()))
}

/// All (a, b) for one addend, over the codes of an 8-bit format; 256 cases are all 2^24 triples.
fn all_triples(case: &mut Case, format: FloatFormat) -> anyhow::Result<()> {
    let c = value_of(format, case.index as u32).to_bits();
    let values: Vec<f32> = (0..=255).map(|code| value_of(format, code)).collect();
    let mut ways = FourWays::new(format, format)?;
    let mut want = Vec::with_capacity(0x1_0000);
    for (a, x) in (0..).zip(&values) {
        for (b, y) in (0..).zip(&values) {
            want.push(ways.check(case, (a, *x), (b, *y), c));
        }
    }
    let a: Vec<f32> = values.iter().flat_map(|x| std::iter::repeat_n(*x, 256)).collect();
    let b: Vec<f32> = values.iter().copied().cycle().take(0x1_0000).collect();
    let mut acc = vec![f32::from_bits(c); 0x1_0000];
    fma_slice(&a, &b, &mut acc);
    if let Some(i) = (0..acc.len()).find(|i| acc[*i].to_bits() != want[*i]) {
        let (got, want) = (hex(acc[i].to_bits() as u64), hex(want[i] as u64));
        case.differed(format_args!("{:#x} × {:#x} + {c:#010x}, fast: expected {want}, got {got}", i >> 8, i & 0xff));
    }
    case.stands_for(0x1_0000);
    case.agreed(0x1_0000);
    ways.seen.cover(case);
    Ok(())
}

/// Test: all 2^24 triples of E4M3.
pub(super) fn fma_e4m3(case: &mut Case) -> anyhow::Result<()> {
    all_triples(case, FloatFormat::E4M3)
}

/// Test: all 2^24 triples of E5M2.
pub(super) fn fma_e5m2(case: &mut Case) -> anyhow::Result<()> {
    all_triples(case, FloatFormat::E5M2)
}

/// An operand of a format: directed at FP32's edges, then brought into the format.
fn operand(case: &mut Case, format: FloatFormat, near: u32) -> u32 {
    match case.rng.random_range(0..3) {
        0 => case.rng.random::<u32>() & format.code_mask(),
        _ => {
            let code = if format == FP32 { near } else { stimulus::fp32(&mut case.rng, near) };
            convert(FP32.into(), format.into(), code, Mode::default_of(format.into()), &mut Flags::default())
        }
    }
}

/// Test: two formats and an FP32 addend, directed and random.
pub(super) fn fma_pairs(case: &mut Case) -> anyhow::Result<()> {
    const TRIPLES: u64 = 10_000;
    let n = case.index % (OPERANDS.len() * OPERANDS.len() + 16);
    let (a_format, b_format) = if n < OPERANDS.len() * OPERANDS.len() {
        (OPERANDS[n / OPERANDS.len()].1, OPERANDS[n % OPERANDS.len()].1)
    } else {
        let (signed, exp_bits) = super::convert::split(n - OPERANDS.len() * OPERANDS.len());
        let range = FloatFormat::ffp8_bias_range(signed, exp_bits);
        let format = FloatFormat::ffp8(signed, exp_bits, case.rng.random_range(range))?;
        (format, if case.rng.random_bool(0.5) { format } else { FloatFormat::BF16 })
    };
    case.label(format!("{a_format} × {b_format} + fp32"));
    let mut ways = FourWays::new(a_format, b_format)?;
    for _ in 0..TRIPLES {
        let (near_a, near_b, near_c) = stimulus::triple(&mut case.rng);
        let a = operand(case, a_format, near_a);
        let b = operand(case, b_format, near_b);
        let (x, y) = (value_of(a_format, a), value_of(b_format, b));
        let c = match case.rng.random_range(0..3) {
            0 => near_c,
            _ => stimulus::fp32(&mut case.rng, (-x * y).to_bits()),
        };
        ways.check(case, (a, x), (b, y), c);
    }
    case.stands_for(TRIPLES);
    case.agreed(TRIPLES);
    ways.seen.cover(case);
    Ok(())
}

/// FP32 triples in a case of [`fma_fp32`].
const FP32_TRIPLES: usize = 10_000;

/// Test: FP32 × FP32 + FP32, also over slices.
pub(super) fn fma_fp32(case: &mut Case) -> anyhow::Result<()> {
    let mut ways = FourWays::new(FP32, FP32)?;
    let triples: Vec<_> = (0..FP32_TRIPLES).map(|_| stimulus::triple(&mut case.rng)).collect();
    let mut want = Vec::with_capacity(FP32_TRIPLES);
    for &(a, b, c) in &triples {
        want.push(ways.check(case, (a, f32::from_bits(a)), (b, f32::from_bits(b)), c));
    }
    let column = |pick: fn(&(u32, u32, u32)) -> u32| triples.iter().map(|t| f32::from_bits(pick(t))).collect();
    let (a, b, mut acc): (Vec<f32>, Vec<f32>, Vec<f32>) = (column(|t| t.0), column(|t| t.1), column(|t| t.2));
    fma_slice(&a, &b, &mut acc);
    case.equal_slices("fast", &want, &acc.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
    case.stands_for(FP32_TRIPLES as u64);
    case.agreed(FP32_TRIPLES as u64);
    ways.seen.cover(case);
    Ok(())
}

/// Test: FP32 sums and products against the host's, which rounds the same way.
pub(super) fn add_mul_fp32(case: &mut Case) -> anyhow::Result<()> {
    const PAIRS: u64 = 10_000;
    for _ in 0..PAIRS {
        let (a, b, near) = stimulus::triple(&mut case.rng);
        let (x, y) = (f32::from_bits(a), f32::from_bits(b));
        let near_sum = stimulus::fp32(&mut case.rng, a ^ 0x8000_0000);
        for (what, got, want) in [
            ("add", add(FP32, a, near_sum, Mode::IEEE, &mut Flags::default()), x + f32::from_bits(near_sum)),
            ("add", add(FP32, a, near, Mode::IEEE, &mut Flags::default()), x + f32::from_bits(near)),
            ("mul", mul(FP32, a, b, Mode::IEEE, &mut Flags::default()), x * y),
        ] {
            if got != canonical(want).to_bits() {
                case.differed(format_args!(
                    "{what} {a:#010x} with {b:#010x}, {near_sum:#010x}, {near:#010x}: {got:#010x}"
                ));
            }
        }
    }
    case.stands_for(3 * PAIRS);
    case.agreed(3 * PAIRS);
    Ok(())
}

/// Test: every pair of codes of two formats of at most 8 bits: the product is exact, and rounded sums and products of
/// one format are the nearest numbers.
pub(super) fn products(case: &mut Case) -> anyhow::Result<()> {
    let narrow: Vec<_> = OPERANDS.into_iter().filter(|(_, f)| f.width() <= 8).collect();
    let (a_name, a_format) = narrow[case.index / narrow.len()];
    let (b_name, b_format) = narrow[case.index % narrow.len()];
    case.label(format!("{a_name} × {b_name}"));
    let (a_values, b_values) = (reference::values(a_format.into())?, reference::values(b_format.into())?);
    let nearest = Reference::new(a_format.into())?;
    let mut cases = 0;
    for (a, x) in (0..).zip(&a_values) {
        for (b, y) in (0..).zip(&b_values) {
            let want = x.x * y.x; // exact in FP64
            let got = match product(a_format.unpack(a), b_format.unpack(b), &mut Flags::default()) {
                Unpacked::Nan { .. } => f64::NAN,
                Unpacked::Infinite { negative } => {
                    if negative {
                        f64::NEG_INFINITY
                    } else {
                        f64::INFINITY
                    }
                }
                Unpacked::Finite(p) => {
                    let magnitude = p.sig as f64 * 2f64.powi(p.exp);
                    if p.negative { -magnitude } else { magnitude }
                }
            };
            cases += 1;
            if got.to_bits() != want.to_bits() && !(got.is_nan() && want.is_nan()) {
                case.differed(format_args!("{a_name} {a:#x} × {b_name} {b:#x}: expected {want:e}, got {got:e}"));
            }
            if a_format != b_format {
                continue;
            }
            for (what, exact) in [("×", want), ("+", x.x + y.x)] {
                // A NaN made from numbers is not a signalling one: invalid comes from the operation.
                let signaling = x.signaling || y.signaling || exact.is_nan() && !x.x.is_nan() && !y.x.is_nan();
                for mode in [Mode::IEEE, Mode::SATURATE] {
                    let mut flags = Flags::NONE;
                    let operation = if what == "×" { mul } else { add };
                    let got = operation(a_format, a, b, mode, &mut flags);
                    let want = nearest.convert(reference::Value { x: exact, signaling }, mode);
                    if (got, flags) != (want.0, want.1) {
                        case.differed(format_args!(
                            "{a_name} {a:#x} {what} {b:#x}: expected {:#x} ({}), got {got:#x} ({flags})",
                            want.0, want.1
                        ));
                    }
                    cases += 1;
                }
            }
        }
    }
    case.stands_for(cases);
    case.agreed(cases);
    Ok(())
}

/// Test: every pair of integer operands on accumulators around both ends, against the host's checked addition.
pub(super) fn int_accumulate(case: &mut Case) -> anyhow::Result<()> {
    let modes = [
        ("int8 × int8", IntFormat::INT8, IntFormat::INT8),
        ("uint8 × int8", IntFormat::UINT8, IntFormat::INT8),
        ("int4 × int8", IntFormat::INT4, IntFormat::INT8),
        ("uint8 × uint8", IntFormat::UINT8, IntFormat::UINT8),
    ];
    let (name, a_format, b_format) = modes[case.index];
    case.label(format!("{name} + int32"));
    let mut cases = 0;
    for a in 0..=a_format.code_mask() {
        for b in 0..=b_format.code_mask() {
            let (x, y) = (a_format.value(a) as i16, b_format.value(b) as i16);
            let p = i32::from(x) * i32::from(y);
            for acc in [0, i32::MAX, i32::MIN, i32::MAX - p.max(0), i32::MIN - p.min(0), case.rng.random()] {
                let (want, wrapped) = acc.overflowing_add(p);
                let mut overflow = false;
                let got = int_mac(acc, x, y, &mut overflow);
                let mut sticky = true;
                int_mac(acc, x, y, &mut sticky);
                if (got, overflow, sticky) != (want, wrapped, true) {
                    case.differed(format_args!(
                        "{acc} + {x} × {y}: expected {want} ({wrapped}), got {got} ({overflow})"
                    ));
                }
                let (x2, y2) = (case.rng.random_range(-8..8i16), case.rng.random_range(-128..128i16));
                let (want, wrapped) = acc.overflowing_add(p + i32::from(x2) * i32::from(y2));
                let mut overflow = false;
                let got = int_mac_pair(acc, [x, x2], [y, y2], &mut overflow);
                if (got, overflow) != (want, wrapped) {
                    case.differed(format_args!(
                        "{acc} + {x} × {y} + {x2} × {y2}: expected {want} ({wrapped}), got {got}"
                    ));
                }
                cases += 2;
            }
        }
    }
    case.stands_for(cases);
    case.agreed(cases);
    Ok(())
}

/// Test: adding narrow floats is exact in FP64 and rounds once, at random for 16 bits.
pub(super) fn add_mul_16(case: &mut Case) -> anyhow::Result<()> {
    const PAIRS: u64 = 20_000;
    let (name, format) = [("bf16", FloatFormat::BF16), ("fp16", FloatFormat::FP16)][case.index % 2];
    case.label(format!("{name} sums and products"));
    let values = reference::values(Format::Float(format))?;
    let nearest = Reference::new(format.into())?;
    for _ in 0..PAIRS {
        let near = stimulus::fp32(&mut case.rng, 0x3f80_0000);
        let (a, b) = (operand(case, format, near), operand(case, format, near ^ 0x8000_0000));
        let (x, y) = (values[a as usize], values[b as usize]);
        let sum = x.x + y.x;
        // BF16 sums may be too wide for FP64; then the rounded FP64 sum is no reference.
        let exact_sum = sum - x.x == y.x && sum - y.x == x.x || !sum.is_finite();
        for (what, exact) in [("×", x.x * y.x), ("+", sum)] {
            if what == "+" && !exact_sum {
                continue;
            }
            let signaling = x.signaling || y.signaling || exact.is_nan() && !x.x.is_nan() && !y.x.is_nan();
            let mut flags = Flags::NONE;
            let operation = if what == "×" { mul } else { add };
            let got = operation(format, a, b, Mode::IEEE, &mut flags);
            let want = nearest.convert(reference::Value { x: exact, signaling }, Mode::IEEE);
            if (got, flags) != (want.0, want.1) {
                case.differed(format_args!(
                    "{name} {a:#06x} {what} {b:#06x}: expected {:#06x} ({}), got {got:#06x} ({flags})",
                    want.0, want.1
                ));
            }
            case.agreed(1);
        }
    }
    case.stands_for(PAIRS);
    Ok(())
}
