//! The core, the hardware-step MAC and the host forms agree with each other and with the host's own arithmetic, which
//! none of them uses: operands directed at the edges, from a fixed seed. The bench goes much further.

use numeric::fast::{Encoder, canonical, decode_bf16, decode_fp16, fma_portable};
use numeric::{Flags, FloatFormat, Format, MacConfig, Mode, MxFormat, Overflow, Rounding, add, convert, fma, mul};

const FP32: FloatFormat = FloatFormat::FP32;

/// FP32 codes, mostly near something: powers of two, ends of ranges, neighbours of each other.
struct Operands(u64);

impl Operands {
    fn word(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn fp32(&mut self, near: u32) -> u32 {
        let w = self.word();
        let (kind, sign, r) = (w & 7, ((w >> 3) as u32 & 1) << 31, (w >> 8) as u32);
        let few = (r & 7).wrapping_sub(4);
        match kind {
            0 => r,
            1 => sign | (r & 0x7f80_0000).wrapping_add(few),
            2 => sign | near.wrapping_add(few) & 0x7fff_ffff,
            3 => sign | (r & 0x007f_ffff),
            4 => sign | near & 0x7f80_0000 | r & 0x007f_ffff,
            5 => {
                sign | ((near >> 23 & 0xff).wrapping_add(r % 56).wrapping_sub(28) & 0xff) << 23
                    | (w >> 40) as u32 & 0x7f_ffff
            }
            6 => {
                sign | [0, 1, 0x7f_ffff, 0x80_0000, 0x3f80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7fa0_0001][r as usize & 7]
            }
            _ => sign | r & 0x7fff_0000,
        }
    }
}

fn same(ours: u32, host: f32) -> bool {
    ours == canonical(host).to_bits()
}

#[test]
fn fp32_operators_agree_with_the_host() {
    let mut operands = Operands(0x9e37_79b9_7f4a_7c15);
    let mac = MacConfig::new(FP32, FP32, 4).unwrap();
    for _ in 0..300_000 {
        let a = operands.fp32(0x3f80_0000);
        let b = operands.fp32(a);
        let c = operands.fp32((f32::from_bits(a) * f32::from_bits(b)).to_bits());
        let (x, y, z) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
        let mut flags = Flags::NONE;
        assert!(same(add(FP32, a, b, Mode::IEEE, &mut flags), x + y), "{a:08x} + {b:08x}");
        assert!(same(mul(FP32, a, b, Mode::IEEE, &mut flags), x * y), "{a:08x} × {b:08x}");
        let mut flags = Flags::NONE;
        let core = fma(FP32, a, FP32, b, c, &mut flags);
        assert!(same(core, x.mul_add(y, z)), "{a:08x} × {b:08x} + {c:08x}: {core:08x}");
        assert!(same(core, fma_portable(x, y, z)), "{a:08x} × {b:08x} + {c:08x}: {core:08x}, portable");
        let steps = mac.compute(a, b, c);
        assert_eq!((steps.value, steps.flags), (core, flags), "{a:08x} × {b:08x} + {c:08x}");
    }
}

#[test]
fn encoders_agree_with_the_core() {
    let mut formats = vec![
        FloatFormat::E4M3,
        FloatFormat::E5M2,
        FloatFormat::E2M3,
        FloatFormat::E3M2,
        FloatFormat::E2M1,
        FloatFormat::E8M0,
        FloatFormat::BF16,
        FloatFormat::FP16,
        FP32,
    ];
    for signed in [false, true] {
        for exp_bits in 0..=7 {
            let range = FloatFormat::ffp8_bias_range(signed, exp_bits);
            for bias in [*range.start(), -100, 0, 7, (1 << exp_bits) / 2, 100, 127, *range.end()] {
                formats.extend(FloatFormat::ffp8(signed, exp_bits, bias));
            }
        }
    }
    let mut operands = Operands(7);
    for format in formats {
        for rounding in [Rounding::NearestEven, Rounding::TowardZero] {
            for overflow in [Overflow::Saturate, Overflow::Own] {
                let mode = Mode { rounding, overflow };
                let encoder = Encoder::new(format, mode);
                let check = |x: u32| {
                    let (mut fast, mut slow) = (Flags::NONE, Flags::NONE);
                    let code = encoder.encode(f32::from_bits(x), &mut fast);
                    let core = convert(FP32.into(), format.into(), x, mode, &mut slow);
                    assert_eq!((code, fast), (core, slow), "{x:08x} into {format} {mode:?}");
                };
                for code in 0..=format.max_finite().min(0xffff) {
                    let mut flags = Flags::NONE;
                    let value = convert(format.into(), FP32.into(), code, Mode::IEEE, &mut flags);
                    let next = convert(format.into(), FP32.into(), code + 1, Mode::IEEE, &mut flags);
                    let middle = value + (next.wrapping_sub(value) >> 1);
                    for near in [value, middle] {
                        for x in near.saturating_sub(2)..=near + 2 {
                            check(x);
                            check(x ^ 0x8000_0000);
                        }
                    }
                }
                for _ in 0..1000 {
                    check(operands.fp32(format.max_finite()));
                }
            }
        }
    }
}

#[test]
fn sixteen_bit_decoders_agree_with_the_core() {
    for code in 0..=0xffff {
        let core = |format: FloatFormat| convert(format.into(), FP32.into(), code, Mode::IEEE, &mut Flags::default());
        assert_eq!(decode_bf16(code as u16).to_bits(), core(FloatFormat::BF16), "bf16 {code:04x}");
        assert_eq!(decode_fp16(code as u16).to_bits(), core(FloatFormat::FP16), "fp16 {code:04x}");
    }
}

#[test]
fn every_format_is_read_back_from_the_name_that_it_shows() {
    for (name, format) in Format::NAMED {
        assert_eq!((format.to_string().as_str(), name.parse()), (name, Ok(format)));
        if let Format::Float(f) = format {
            assert_eq!(f.to_string(), name);
        }
    }
    let ffp8 = FloatFormat::ffp8(false, 5, -3).unwrap();
    assert_eq!(ffp8.to_string(), "ffp8:0,5,3,-3");
    assert_eq!(ffp8.to_string().parse(), Ok(Format::Float(ffp8)));
    for (short, long) in
        [("ffp8:1-4-3", "ffp8:1,4,3,7"), ("ffp8:0-0-8", "ffp8:0,0,8,-1"), ("FFP8:1-7-0", "ffp8:1,7,0,63")]
    {
        assert_eq!(short.parse::<Format>(), long.parse(), "{short}");
        assert!(short.parse::<Format>().is_ok(), "{short}");
    }
    for wrong in ["ffp8:1,4,3", "ffp8:1-4-3-7", "ffp8:1-4-4", "ffp8:1-8-0", "ffp8:2-3-3", "ffp8:", "ffp8:1--4-3"] {
        assert!(matches!(wrong.parse::<Format>(), Err(numeric::NumericError::Ffp8Syntax { .. })), "{wrong}");
    }
}

#[test]
fn a_stored_block_is_a_scale_and_its_packed_elements() {
    let bytes = MxFormat::ALL.map(|(name, format)| (name, format.block_bytes()));
    let expected =
        [("mxfp8-e4m3", 33), ("mxfp8-e5m2", 33), ("mxfp6-e2m3", 25), ("mxfp6-e3m2", 25), ("mxfp4", 17), ("mxint8", 33)];
    assert_eq!(bytes, expected);
}
