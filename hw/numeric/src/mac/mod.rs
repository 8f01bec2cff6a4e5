//! The float MAC as hardware: c + a × b with one rounding, in steps with pipeline registers between them.

mod registers;
mod steps;

use rtl::{Module, Visitor};

use crate::error::NumericError;
use crate::format::{FloatFormat, Specials};
use registers::Registers;
pub use steps::MacResult;

/// What a MAC is built for: the operands' formats and the depth of the pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacConfig {
    a: FloatFormat,
    b: FloatFormat,
    stages: usize,
}

impl MacConfig {
    /// The deepest pipeline: stages beyond the five steps only delay.
    pub const MAX_STAGES: usize = 16;

    /// Formats of the two factors, and `stages` registers from operands to result, 1..=16. With 4, the boundaries lie
    /// after unpack, align and add; normalise and round share the last stage.
    ///
    /// # Errors
    /// `NotAnOperand` for E8M0, `Stages` for a depth out of range.
    pub fn new(a: FloatFormat, b: FloatFormat, stages: usize) -> Result<MacConfig, NumericError> {
        for format in [a, b] {
            if format.specials() == Specials::Scale {
                return Err(NumericError::NotAnOperand { format: format.to_string() });
            }
        }
        if !(1..=MacConfig::MAX_STAGES).contains(&stages) {
            return Err(NumericError::Stages { stages, max: MacConfig::MAX_STAGES });
        }
        Ok(MacConfig { a, b, stages })
    }

    /// Registers from operands to result: the latency in cycles.
    pub const fn stages(&self) -> usize {
        self.stages
    }

    /// P, the bits of an exact product of significands.
    const fn product_bits(&self) -> u32 {
        self.a.precision() + self.b.precision()
    }

    /// All five steps at once, no registers between them: what the pipeline gives, `stages` enabled edges later.
    pub fn compute(&self, a: u32, b: u32, c: u32) -> MacResult {
        let p_bits = self.product_bits();
        let unpacked = steps::unpack(self.a, a, self.b, b, c);
        let summed = steps::add(&steps::align(&unpacked, p_bits));
        steps::round(&steps::normalise(&summed, p_bits))
    }
}

/// One cycle's inputs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MacIn {
    /// Clock enable of every register: 0 stalls the whole pipeline.
    pub enable: bool,
    /// There are operands in this cycle; without them the addend passes through untouched (a NaN becomes canonical).
    pub valid: bool,
    /// Code of the first factor.
    pub a: u32,
    /// Code of the second factor.
    pub b: u32,
    /// The addend, FP32.
    pub c: u32,
}

/// What leaves the last register.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MacOut {
    /// The result belongs to operands that were valid.
    pub valid: bool,
    /// Result and flags.
    pub result: MacResult,
}

/// A pipelined MAC of `stages` registers: one operation an enabled cycle, the result `stages` enabled edges later.
///
/// ```
/// use numeric::{FloatFormat, Mac, MacConfig, MacIn};
/// use rtl::Module;
///
/// let bf16 = FloatFormat::BF16;
/// let mut mac = Mac::new(MacConfig::new(bf16, bf16, 4)?);
/// let operands = MacIn { enable: true, valid: true, a: 0x3fc0, b: 0x4000, c: 1f32.to_bits() }; // 1.5 × 2 + 1
/// mac.clock(&operands);
/// for _ in 1..4 {
///     assert!(!mac.out().valid);
///     mac.clock(&MacIn { enable: true, ..MacIn::default() });
/// }
/// assert_eq!((mac.out().valid, mac.out().result.value), (true, 4f32.to_bits()));
/// # Ok::<(), numeric::NumericError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mac {
    config: MacConfig,
    /// Register s is written by stage s; the last one drives the output.
    stages: Vec<Registers>,
}

impl Mac {
    /// An idle MAC.
    pub fn new(config: MacConfig) -> Mac {
        let stages = (0..config.stages).map(|s| Registers::after(last_step(s, config.stages))).collect();
        Mac { config, stages }
    }
}

/// The step (1..=5) whose output register `stage` of `stages` holds. Up to 5 stages the steps are shared out so that
/// the longest ones stand alone; the stages of a deeper pipeline follow the last step.
const fn last_step(stage: usize, stages: usize) -> usize {
    const SHARES: [&[usize]; 5] = [&[5], &[2, 5], &[1, 3, 5], &[1, 2, 3, 5], &[1, 2, 3, 4, 5]];
    if stages > 5 {
        return if stage < 5 { stage + 1 } else { 5 };
    }
    SHARES[stages - 1][stage]
}

impl Module for Mac {
    type In<'a> = MacIn;
    type Out<'a> = MacOut;

    fn out(&self) -> MacOut {
        self.stages.last().map_or_else(MacOut::default, Registers::out)
    }

    fn clock(&mut self, i: &MacIn) {
        if !i.enable {
            return;
        }
        let p_bits = self.config.product_bits();
        // From the output back, so that each register still sees the old value of the one before it.
        for s in (1..self.stages.len()).rev() {
            self.stages[s] = self.stages[s - 1].advance(last_step(s, self.config.stages), p_bits);
        }
        let unpacked = match i.valid {
            true => steps::unpack(self.config.a, i.a, self.config.b, i.b, i.c),
            false => steps::pass(i.c),
        };
        self.stages[0] = Registers::unpacked(i.valid, unpacked).advance(last_step(0, self.config.stages), p_bits);
    }

    fn reset(&mut self) {
        *self = Mac::new(self.config);
    }

    fn visit(&mut self, v: &mut impl Visitor) {
        let p_bits = self.config.product_bits();
        for (s, registers) in self.stages.iter_mut().enumerate() {
            v.scope(("stage", s), |v| registers.visit(p_bits, v));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtl::Image;

    /// Runs all operands through, stalling where `enable` says so; returns the valid results in order.
    fn run(config: MacConfig, operands: &[(u32, u32, u32)], mut enable: impl FnMut(usize) -> bool) -> Vec<MacResult> {
        let mut mac = Mac::new(config);
        let mut waiting = operands.iter();
        let mut next = waiting.next();
        let mut results = Vec::new();
        for cycle in 0.. {
            let enable = enable(cycle);
            if enable && mac.out().valid {
                results.push(mac.out().result);
            }
            let (a, b, c) = next.copied().unwrap_or_default();
            mac.clock(&MacIn { enable, valid: next.is_some(), a, b, c });
            if enable {
                next = waiting.next();
            }
            if results.len() == operands.len() || cycle > 100 * operands.len() {
                break;
            }
        }
        results
    }

    #[test]
    fn stalls_change_the_time_and_never_a_bit() {
        let operands: Vec<(u32, u32, u32)> =
            (0..500u32).map(|i| ((i * 131) & 0xffff, (i * 7919) & 0xffff, i.wrapping_mul(0x9e37_79b9))).collect();
        for stages in 1..=MacConfig::MAX_STAGES {
            let config = MacConfig::new(FloatFormat::FP16, FloatFormat::BF16, stages).unwrap();
            let want: Vec<MacResult> = operands.iter().map(|&(a, b, c)| config.compute(a, b, c)).collect();
            assert_eq!(run(config, &operands, |_| true), want, "{stages} stages");
            assert_eq!(
                run(config, &operands, |cycle| ((cycle * 2654435761) >> 7) & 3 == 0),
                want,
                "{stages} stages, stalled"
            );
        }
    }

    #[test]
    fn a_result_stands_as_many_edges_later_as_there_are_stages() {
        for stages in 1..=MacConfig::MAX_STAGES {
            let config = MacConfig::new(FloatFormat::BF16, FloatFormat::BF16, stages).unwrap();
            let mut mac = Mac::new(config);
            let edges = (0..100).find(|&edge| {
                mac.clock(&MacIn { enable: true, valid: edge == 0, a: 0x3f80, b: 0x3f80, c: 0 });
                mac.out().valid
            });
            assert_eq!((edges, config.stages()), (Some(stages - 1), stages));
        }
    }

    #[test]
    fn without_operands_the_addend_passes_through() {
        let config = MacConfig::new(FloatFormat::BF16, FloatFormat::BF16, 4).unwrap();
        for c in [0, 1 << 31, 1, 0x8000_0001, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0xc234_5678] {
            let mut mac = Mac::new(config);
            for _ in 0..4 {
                mac.clock(&MacIn { enable: true, valid: false, a: 0x7f80, b: 0, c });
            }
            let result = MacResult { value: c, flags: crate::Flags::NONE };
            assert_eq!(mac.out(), MacOut { valid: false, result }, "{c:#x}");
        }
    }

    #[test]
    fn reset_in_the_middle_leaves_the_state_of_a_new_mac() {
        for stages in 1..=6 {
            let config = MacConfig::new(FloatFormat::FP32, FloatFormat::FP32, stages).unwrap();
            let mut mac = Mac::new(config);
            let fresh = Image::of(&mut mac);
            for i in 0..3 {
                mac.clock(&MacIn { enable: true, valid: true, a: !i, b: 0x3f80_0001 + i, c: 0x4000_0000 });
            }
            assert!(!fresh.differences(&Image::of(&mut mac)).is_empty());
            mac.reset();
            assert!(fresh.differences(&Image::of(&mut mac)).is_empty());
        }
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        let bf16 = FloatFormat::BF16;
        assert!(matches!(MacConfig::new(bf16, bf16, 0), Err(NumericError::Stages { stages: 0, max: 16 })));
        assert!(matches!(MacConfig::new(bf16, bf16, 17), Err(NumericError::Stages { .. })));
        assert!(matches!(MacConfig::new(FloatFormat::E8M0, bf16, 4), Err(NumericError::NotAnOperand { .. })));
    }
}
