//! One pipeline register of the MAC: a valid bit and whatever the step before it leaves behind.

use rtl::{Format, Visitor};

use super::MacOut;
use super::steps::{self, Align, Bypass, MacResult, Normal, Sum, Unpack};
use crate::flags::Flags;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Registers {
    valid: bool,
    held: Held,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Unpack(Unpack),
    Align(Align),
    Sum(Sum),
    Normal(Normal),
    Result(MacResult),
}

impl Registers {
    /// The reset value of a register after step 1..=5.
    pub(super) fn after(step: usize) -> Registers {
        let held = match step {
            1 => Held::Unpack(Unpack::default()),
            2 => Held::Align(Align::default()),
            3 => Held::Sum(Sum::default()),
            // So that what reset leaves behind rounds to zero.
            4 => Held::Normal(Normal { exp: steps::EMIN, ..Normal::default() }),
            _ => Held::Result(MacResult::default()),
        };
        Registers { valid: false, held }
    }

    pub(super) fn unpacked(valid: bool, unpacked: Unpack) -> Registers {
        Registers { valid, held: Held::Unpack(unpacked) }
    }

    /// What reaches the register after `step`, through the steps between.
    pub(super) fn advance(&self, step: usize, p_bits: u32) -> Registers {
        let mut held = self.held;
        while held.step() < step {
            held = held.next(p_bits);
        }
        Registers { valid: self.valid, held }
    }

    pub(super) fn out(&self) -> MacOut {
        match self.held {
            Held::Result(result) => MacOut { valid: self.valid, result },
            _ => MacOut::default(),
        }
    }

    pub(super) fn visit(&mut self, p_bits: u32, v: &mut impl Visitor) {
        v.reg("valid_q", 1, Format::Unsigned, &mut self.valid);
        let window = steps::window(p_bits);
        match &mut self.held {
            Held::Unpack(r) => {
                v.reg("p_sign_q", 1, Format::Unsigned, &mut r.p_sign);
                v.reg("p_exp_q", 11, Format::Signed, &mut r.p_exp);
                v.reg("p_sig_q", p_bits, Format::Hex, &mut r.p_sig);
                v.reg("c_sign_q", 1, Format::Unsigned, &mut r.c_sign);
                v.reg("c_exp_q", 11, Format::Signed, &mut r.c_exp);
                v.reg("c_sig_q", 24, Format::Hex, &mut r.c_sig);
                exceptions(&mut r.bypass, &mut r.invalid, v);
            }
            Held::Align(r) => {
                v.reg("hi_sign_q", 1, Format::Unsigned, &mut r.hi_sign);
                v.reg("subtract_q", 1, Format::Unsigned, &mut r.subtract);
                v.reg("exp_q", 11, Format::Signed, &mut r.exp);
                wide(["hi_high_q", "hi_low_q"], window, &mut r.hi, v);
                wide(["lo_high_q", "lo_low_q"], window, &mut r.lo, v);
                v.reg("sticky_q", 1, Format::Unsigned, &mut r.sticky);
                exceptions(&mut r.bypass, &mut r.invalid, v);
            }
            Held::Sum(r) => {
                v.reg("sign_q", 1, Format::Unsigned, &mut r.sign);
                v.reg("exp_q", 11, Format::Signed, &mut r.exp);
                wide(["sum_high_q", "sum_low_q"], window + 2, &mut r.sum, v);
                exceptions(&mut r.bypass, &mut r.invalid, v);
            }
            Held::Normal(r) => {
                v.reg("sign_q", 1, Format::Unsigned, &mut r.sign);
                v.reg("exp_q", 11, Format::Signed, &mut r.exp);
                v.reg("sig_q", 24, Format::Hex, &mut r.sig);
                v.reg("guard_q", 1, Format::Unsigned, &mut r.guard);
                v.reg("sticky_q", 1, Format::Unsigned, &mut r.sticky);
                v.reg("tiny_q", 1, Format::Unsigned, &mut r.tiny);
                exceptions(&mut r.bypass, &mut r.invalid, v);
            }
            Held::Result(r) => {
                v.reg("result_q", 32, Format::Real(|code| f32::from_bits(code as u32) as f64), &mut r.value);
                let mut flags = r.flags.bits();
                v.reg("flags_q", 5, Format::Hex, &mut flags);
                r.flags = Flags::from_bits(flags);
            }
        }
    }
}

impl Held {
    /// The step that wrote it, 1..=5.
    const fn step(&self) -> usize {
        match self {
            Held::Unpack(_) => 1,
            Held::Align(_) => 2,
            Held::Sum(_) => 3,
            Held::Normal(_) => 4,
            Held::Result(_) => 5,
        }
    }

    fn next(&self, p_bits: u32) -> Held {
        match self {
            Held::Unpack(r) => Held::Align(steps::align(r, p_bits)),
            Held::Align(r) => Held::Sum(steps::add(r)),
            Held::Sum(r) => Held::Normal(steps::normalise(r, p_bits)),
            Held::Normal(r) => Held::Result(steps::round(r)),
            Held::Result(r) => Held::Result(*r),
        }
    }
}

fn exceptions(bypass: &mut Bypass, invalid: &mut bool, v: &mut impl Visitor) {
    let mut code = *bypass as u8;
    v.reg("bypass_q", 2, Format::Enum(Bypass::NAMES), &mut code);
    *bypass = match code {
        0 => Bypass::No,
        1 => Bypass::Nan,
        2 => Bypass::PlusInfinity,
        _ => Bypass::MinusInfinity,
    };
    v.reg("invalid_q", 1, Format::Unsigned, invalid);
}

/// A register of more than 64 bits is shown as two; a narrower one as its low part alone.
fn wide(names: [&'static str; 2], width: u32, value: &mut u128, v: &mut impl Visitor) {
    let (mut high, mut low) = ((*value >> 64) as u64, *value as u64);
    if width > 64 {
        v.reg(names[0], width - 64, Format::Hex, &mut high);
    }
    v.reg(names[1], width.min(64), Format::Hex, &mut low);
    *value = (high as u128) << 64 | low as u128;
}
