use crate::{Config, Datapath};
use numeric::{Flags, FloatFormat, Mac, MacConfig, MacIn, Mode, convert};
use rtl::{Format, Module, Visitor};

/// An operand code as registers hold it: INT8 sign-extended, two bytes of a pair, or the bits of a float, sign-extended from its width.
pub type Code = i16;

/// The processing element, weight-stationary. Drawn for INT8 × INT8 → INT32:
///
/// ```text
///                psum_in (32)
///                    │
///   act_in (8) ──►[act_q]──► act_out        psum_q ← psum_in + act_in · weight, where valid_in
///   valid, swap ─►[..._q]──►                weight ← shadow_q on the edge that swap arrives
///   weight_in (8)►[shadow_q]► weight_out    shadow_q ← weight_in while load arrives and keep is high
///   load ────────►[load_q]──►
///                    │
///                [psum_q] (32)
///                    ▼
/// ```
///
/// Latency: one edge in every direction. On the edge of a swap the product already uses the new weight, and the value
/// swapped in is the shadow as it was before that edge, so the next tile's load may begin on it.
///
/// With INT4 weights the multiplier is a pair of them and the adder has three inputs. With floats the adder is a fused
/// multiply-add of L stages ([`numeric::Mac`]) whose last register is the partial sum; L edges from operands to sum.
#[derive(Clone, Debug)]
pub struct Pe {
    datapath: Datapath,
    /// Active weight, a [`Code`].
    weight: Code,
    /// The next tile's weight; also the link of the weight chain.
    shadow: Code,
    /// Activation on its way east, a [`Code`].
    act: Code,
    /// The activation counts.
    valid: bool,
    /// First activation of a tile.
    swap: bool,
    /// The neighbour to the east may shift on the next edge.
    load: bool,
    sum: Sum,
}

/// The partial sum on its way south.
#[derive(Clone, Debug)]
enum Sum {
    /// INT32.
    Int(i32),
    /// FP32, at the end of the multiply-accumulate's own registers.
    Float(Box<Mac>),
}

/// Wires into a [`Pe`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PeIn {
    /// Clock enable; low freezes every register.
    pub enable: bool,
    /// Activation from the west.
    pub act: Code,
    /// The activation counts; a PE that is not valid passes the partial sum through untouched.
    pub valid: bool,
    /// Take the shadow weight with this activation.
    pub swap: bool,
    /// Weight from the west.
    pub weight: Code,
    /// From the western neighbour: it shifted on the last edge.
    pub load: bool,
    /// Row-wide: the load that is under way goes on. Low on the first edge of a load and between loads; tied high on column 0.
    pub keep: bool,
    /// Partial sum from the north: INT32, or the bits of an FP32.
    pub psum: i32,
}

/// Wires out of a [`Pe`]: its registers.
#[derive(Clone, Copy, Debug)]
pub struct PeOut {
    /// Activation to the east.
    pub act: Code,
    /// Valid to the east.
    pub valid: bool,
    /// Swap to the east.
    pub swap: bool,
    /// Weight to the east.
    pub weight: Code,
    /// Load to the east.
    pub load: bool,
    /// Partial sum to the south.
    pub psum: i32,
}

/// Both products of a pair of values, lower byte first.
pub(crate) fn pair_product(a: Code, w: Code) -> i32 {
    let [a0, a1] = a.to_le_bytes().map(|byte| i32::from(byte as i8));
    let [w0, w1] = w.to_le_bytes().map(|byte| i32::from(byte as i8));
    a0 * w0 + a1 * w1
}

/// How a viewer should read codes of an activation or weight register.
pub(crate) fn code_format(datapath: Datapath, of_act: bool) -> Format {
    fn real(format: FloatFormat, code: u64) -> f64 {
        let value = convert(format.into(), FloatFormat::FP32.into(), code as u32, Mode::IEEE, &mut Flags::default());
        f64::from(f32::from_bits(value))
    }
    match datapath {
        Datapath::Int8 => Format::Signed,
        Datapath::Int4 => Format::Hex,
        Datapath::Float { act, weight } => match if of_act { act } else { weight } {
            FloatFormat::BF16 => Format::Real(|code| real(FloatFormat::BF16, code)),
            FloatFormat::FP16 => Format::Real(|code| real(FloatFormat::FP16, code)),
            FloatFormat::E4M3 => Format::Real(|code| real(FloatFormat::E4M3, code)),
            FloatFormat::E5M2 => Format::Real(|code| real(FloatFormat::E5M2, code)),
            _ => Format::Hex,
        },
    }
}

impl Pe {
    /// An element of the configuration's datapath, reset.
    pub fn new(config: Config) -> Self {
        let sum = mac_config(config).map_or(Sum::Int(0), |mac| Sum::Float(Box::new(Mac::new(mac))));
        let datapath = config.datapath;
        Self { datapath, weight: 0, shadow: 0, act: 0, valid: false, swap: false, load: false, sum }
    }
}

/// The multiply-accumulate of a float datapath.
pub(crate) fn mac_config(config: Config) -> Option<MacConfig> {
    match config.datapath {
        Datapath::Float { act, weight } => MacConfig::new(act, weight, config.mac_stages).ok(),
        Datapath::Int8 | Datapath::Int4 => None,
    }
}

impl Module for Pe {
    type In<'a> = PeIn;
    type Out<'a> = PeOut;

    fn out(&self) -> PeOut {
        let Self { shadow, act, valid, swap, load, .. } = *self;
        let psum = match &self.sum {
            Sum::Int(sum) => *sum,
            Sum::Float(mac) => mac.out().result.value as i32,
        };
        PeOut { act, valid, swap, weight: shadow, load, psum }
    }

    fn clock(&mut self, i: &PeIn) {
        if !i.enable {
            return;
        }
        let weight = if i.swap { self.shadow } else { self.weight };
        match &mut self.sum {
            Sum::Int(sum) => {
                let product = match self.datapath {
                    Datapath::Int4 => pair_product(i.act, weight),
                    _ => i32::from(i.act) * i32::from(weight),
                };
                *sum = if i.valid { i.psum.wrapping_add(product) } else { i.psum };
            }
            Sum::Float(mac) => {
                let (a, b, c) = (i.act as u32, weight as u32, i.psum as u32);
                mac.clock(&MacIn { enable: true, valid: i.valid, a, b, c });
            }
        }
        let shift = i.load && i.keep;
        self.weight = weight;
        if shift {
            self.shadow = i.weight;
        }
        (self.act, self.valid, self.swap, self.load) = (i.act, i.valid, i.swap, shift);
    }

    fn reset(&mut self) {
        (self.weight, self.shadow, self.act) = (0, 0, 0);
        (self.valid, self.swap, self.load) = (false, false, false);
        match &mut self.sum {
            Sum::Int(sum) => *sum = 0,
            Sum::Float(mac) => mac.reset(),
        }
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        let (act, weight) = (code_format(self.datapath, true), code_format(self.datapath, false));
        v.reg("act_q", self.datapath.act_width(), act, &mut self.act);
        v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
        v.reg("swap_q", 1, Format::Unsigned, &mut self.swap);
        v.reg("weight_q", self.datapath.weight_width(), weight, &mut self.weight);
        v.reg("shadow_q", self.datapath.weight_width(), weight, &mut self.shadow);
        v.reg("load_q", 1, Format::Unsigned, &mut self.load);
        match &mut self.sum {
            Sum::Int(sum) => v.reg("psum_q", 32, Format::Signed, sum),
            Sum::Float(mac) => v.scope("mac", |v| mac.visit(v)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> PeIn {
        PeIn { enable: true, ..PeIn::default() }
    }

    fn loaded(weight: Code) -> Pe {
        let mut pe = Pe::new(Config::default());
        pe.clock(&PeIn { weight, load: true, keep: true, ..idle() });
        pe
    }

    #[test]
    fn every_product_of_two_operands() {
        for weight in -128..=127 {
            let mut pe = loaded(weight);
            for act in -128..=127 {
                pe.clock(&PeIn { act, valid: true, swap: act == -128, psum: 1 << 20, ..idle() });
                assert_eq!(pe.out().psum, (1 << 20) + i32::from(act) * i32::from(weight));
            }
        }
    }

    #[test]
    fn swap_takes_the_shadow_as_it_was_before_the_edge() {
        let mut pe = loaded(3);
        pe.clock(&PeIn { act: 2, valid: true, swap: true, weight: 99, load: true, keep: true, ..idle() });
        assert_eq!((pe.out().psum, pe.out().weight), (6, 99));
        pe.clock(&PeIn { act: 2, valid: true, ..idle() });
        assert_eq!(pe.out().psum, 6, "the new shadow waits for its swap");
    }

    #[test]
    fn an_invalid_activation_leaves_the_sum_and_no_enable_leaves_all() {
        let mut pe = loaded(3);
        pe.clock(&PeIn { act: 5, valid: false, swap: true, psum: -7, ..idle() });
        assert_eq!(pe.out().psum, -7);
        let before = format!("{pe:?}");
        pe.clock(&PeIn { enable: false, act: 1, valid: true, swap: true, weight: 1, load: true, keep: true, psum: 9 });
        assert_eq!(format!("{pe:?}"), before);
    }

    #[test]
    fn a_pair_adds_both_products_and_a_float_rounds_once() {
        let mut pe = Pe::new(Config { datapath: Datapath::Int4, ..Config::default() });
        let pair = |low: i8, high: i8| Code::from_le_bytes([low as u8, high as u8]);
        pe.clock(&PeIn { weight: pair(-8, 7), load: true, keep: true, ..idle() });
        pe.clock(&PeIn { act: pair(-128, 127), valid: true, swap: true, psum: 5, ..idle() });
        assert_eq!(pe.out().psum, 5 + 1024 + 889);

        let bf16 = |v: f32| (v.to_bits() >> 16) as Code;
        let mut pe = Pe::new(Config { datapath: Datapath::float(FloatFormat::BF16), ..Config::default() });
        pe.clock(&PeIn { weight: bf16(1.0078125), load: true, keep: true, ..idle() });
        let psum = (-1.0f32).to_bits() as i32;
        pe.clock(&PeIn { act: bf16(1.0078125), valid: true, swap: true, psum, ..idle() });
        for _ in 1..4 {
            pe.clock(&idle());
        }
        assert_eq!(f32::from_bits(pe.out().psum as u32), 1.0078125f32 * 1.0078125 - 1.0);
    }
}
