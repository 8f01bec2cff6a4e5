//! The fast conversions and the fast MAC against plain host-float loops over as many values.
//!
//! A conversion's peer is the loop y = x · a + b over f32, as the compiler makes it for the baseline machine; a second
//! row gives the peer the instructions that the conversion chose at run time. The MAC's peer is
//! acc = mul_add(x, w, acc), with FMA instructions where the machine has them.

use numeric::fast::{
    DecodeTable, Encoder, Kernel, decode_bf16_slice, decode_fp16_slice, dispatch, fma_portable, fma_slice,
};
use numeric::{Flags, FloatFormat, Mode};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::hint::black_box;
use tb::ratio::{PAIRS, Ratio, Side, Target, compare};

/// Values in a slice: 256 KiB of f32, as much as a second-level cache holds.
const N: usize = 1 << 16;
/// Passes over the slice in one timed run: few, so that a busy machine seldom interrupts one.
const PASSES: usize = 2;

/// y = x · a + b.
struct Scale<'a>(&'a [f32], &'a mut [f32]);

impl Scale<'_> {
    #[inline(always)]
    fn plain(self) {
        for (y, x) in self.1.iter_mut().zip(self.0) {
            *y = *x * 1.0625 + 0.5;
        }
    }
}

impl Kernel for Scale<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        self.plain();
    }
}

/// acc = x · w + acc.
struct Mac<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

impl Kernel for Mac<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((acc, x), w) in self.2.iter_mut().zip(self.0).zip(self.1) {
            *acc = if FMA { x.mul_add(*w, *acc) } else { *x * *w + *acc };
        }
    }
}

fn row(name: &str, unit: &'static str, ours: Side<'_>, peer: Side<'_>, target: Target) {
    println!("{}", compare(name, unit, ours, peer, 60 * PAIRS + 1, target));
}

/// A run of `pass` over the slice, again and again.
fn passes(mut pass: impl FnMut()) -> f64 {
    for _ in 0..PASSES {
        pass();
    }
    (N * PASSES) as f64
}

fn main() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let values: Vec<f32> = (0..N).map(|_| rng.random_range(-2.0..2.0f32).powi(5)).collect();
    let weights: Vec<f32> = (0..N).map(|_| rng.random_range(-1.0..1.0f32)).collect();
    let bytes: Vec<u8> = (0..N).map(|_| rng.random()).collect();
    let words = |format| {
        let mut words = vec![0u16; N];
        let encoder = Encoder::new(format, Mode::IEEE);
        encoder.encode_slice(&values, &mut words, &mut Flags::default()).expect("slices of one length");
        words
    };
    println!("{}", Ratio::header());

    let mut out = vec![0f32; N];
    let mut plain = || {
        passes(|| {
            Scale(black_box(&values), black_box(&mut out)).plain();
        })
    };
    let mut wide_out = vec![0f32; N];
    let mut wide = || {
        passes(|| {
            dispatch(Scale(black_box(&values), black_box(&mut wide_out)));
        })
    };
    // Within three times the plain loop's time.
    let target = Target::AtLeast(0.334);

    let ffp8 = FloatFormat::ffp8(true, 2, 1).expect("a bias in range");
    let formats = [
        ("e2m1", FloatFormat::E2M1),
        ("e2m3", FloatFormat::E2M3),
        ("e4m3", FloatFormat::E4M3),
        ("e5m2", FloatFormat::E5M2),
        ("ffp8:1,2,5,1", ffp8),
        ("bf16", FloatFormat::BF16),
        ("fp16", FloatFormat::FP16),
    ];
    for (name, format) in formats {
        let encoder = Encoder::new(format, Mode::default_of(format.into()));
        let mut flags = Flags::NONE;
        let (mut narrow, mut wider) = (vec![0u8; N], vec![0u16; N]);
        let mut encode = || {
            passes(|| {
                let done = if format.width() <= 8 {
                    encoder.encode_slice(black_box(&values), black_box(&mut narrow), &mut flags)
                } else {
                    encoder.encode_slice(black_box(&values), black_box(&mut wider), &mut flags)
                };
                done.expect("slices of one length");
            })
        };
        row(&format!("fp32 → {name}, with flags"), "values", ("encode", &mut encode), ("x·a + b", &mut plain), target);
        if name == "e4m3" {
            row(
                "the same, peer with the same instructions",
                "values",
                ("encode", &mut encode),
                ("x·a + b", &mut wide),
                Target::None,
            );
        }
    }

    let mut decoded = vec![0f32; N];
    let table = DecodeTable::new(FloatFormat::E4M3);
    let mut decode = || passes(|| table.decode_slice(black_box(&bytes), black_box(&mut decoded)).expect("one length"));
    row("e4m3 → fp32", "values", ("table", &mut decode), ("x·a + b", &mut plain), target);
    for (name, function) in [("bf16", decode_bf16_slice as fn(&[u16], &mut [f32]) -> _), ("fp16", decode_fp16_slice)] {
        let words = words(if name == "bf16" { FloatFormat::BF16 } else { FloatFormat::FP16 });
        let mut decode = || passes(|| function(black_box(&words), black_box(&mut decoded)).expect("one length"));
        row(&format!("{name} → fp32"), "values", ("decode", &mut decode), ("x·a + b", &mut plain), target);
    }

    let (mut acc, mut peer_acc, mut portable_acc) = (vec![0f32; N], vec![0f32; N], vec![0f32; N]);
    let mut ours = || passes(|| fma_slice(black_box(&values), black_box(&weights), black_box(&mut acc)));
    let mut peer = || passes(|| dispatch(Mac(black_box(&values), black_box(&weights), black_box(&mut peer_acc))));
    row("MAC", "MACs", ("fma_slice", &mut ours), ("mul_add loop", &mut peer), Target::AtLeast(0.667));
    let mut portable = || {
        passes(|| {
            for ((acc, x), w) in portable_acc.iter_mut().zip(black_box(&values)).zip(black_box(&weights)) {
                *acc = fma_portable(*x, *w, *acc);
            }
        })
    };
    row("MAC without FMA instructions", "MACs", ("portable", &mut portable), ("mul_add loop", &mut peer), Target::None);
}
