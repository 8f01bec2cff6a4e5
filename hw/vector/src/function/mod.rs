//! The elementary functions as chains of named steps. A step is one FP32 operation of a lane (add, multiply, fused multiply-add, each
//! rounded once to nearest even) with the wiring around it: table look-ups, exponent fields and selections cost none of their own.
//!
//! The chains are the specification of the bits. The clocked lanes take one step every [`STEP_EDGES`](crate::STEP_EDGES); the slice
//! forms run the same steps one after the other, many values at a time.

mod exp;
mod reciprocal;
mod root;
mod sigmoid;
mod sine;
mod tables;

pub(crate) use exp::EXP;
pub(crate) use reciprocal::RECIPROCAL;
pub(crate) use root::ROOT;
pub(crate) use sigmoid::{SIGMOID, SILU};
pub(crate) use sine::{ANGLE, PRODUCT_ANGLE, SINE_COSINE};

pub(crate) use exp::exp;
pub(crate) use reciprocal::reciprocal;
pub(crate) use root::root;
pub(crate) use sigmoid::{sigmoid, silu};
pub(crate) use sine::{product_angle, sine_cosine};

use sine::{cosine, value_angle};

/// The registers that a value takes along from step to step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Lane {
    /// The first operand, FP32.
    pub(crate) x: f32,
    /// The second operand: the B port's value, or what a pass brings beside its own. FP32.
    pub(crate) y: f32,
    /// What the whole row or group shares: a scale, a maximum, a position. FP32.
    pub(crate) s: f32,
    /// The accumulator of the chain; every chain leaves its result here. FP32.
    pub(crate) a: f32,
    /// Temporaries, FP32.
    pub(crate) b: f32,
    pub(crate) c: f32,
    pub(crate) d: f32,
    /// An integer beside them: an exponent, a table index.
    pub(crate) k: i32,
    /// The value counts; of RoPE, it is the first of its pair.
    pub(crate) on: bool,
}

/// One step of a lane, in the form that needs no FMA instruction.
pub(crate) type Step = fn(&mut Lane);

/// A chain: the list of its steps for the clocked lanes, and the same steps in one function.
macro_rules! chain {
    ($(#[$meta:meta])* $name:ident, $list:ident = [$($step:ident),+ $(,)?]) => {
        $(#[$meta])*
        #[inline(always)]
        pub(crate) fn $name<const FMA: bool>(l: &mut Lane) {
            $($step::<FMA>(l);)+
        }
        $(#[$meta])*
        pub(crate) const $list: &[$crate::function::Step] = &[$($step::<false>),+];
    };
}
pub(crate) use chain;

/// 1.5 · 2^23: a number below 2^22 in magnitude that is added to it loses its fraction, rounded to nearest even.
pub(crate) const MAGIC: f32 = 12_582_912.0;

/// 2^e, −126 ≤ e ≤ 127: an exponent field, no arithmetic.
#[inline(always)]
pub(crate) fn power(e: i32) -> f32 {
    f32::from_bits(((e + 127) as u32) << 23)
}

/// An elementary function of one value, the result in FP32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// e^x.
    Exp,
    /// 1/x.
    Reciprocal,
    /// 1/√x.
    Rsqrt,
    /// sin x, |x| ≤ 262,144; NaN beyond.
    Sin,
    /// cos x, |x| ≤ 262,144; NaN beyond.
    Cos,
    /// 1/(1 + e^−x).
    Sigmoid,
    /// x/(1 + e^−x).
    Silu,
}

impl Function {
    /// All of them.
    pub const ALL: [Function; 7] = [
        Function::Exp,
        Function::Reciprocal,
        Function::Rsqrt,
        Function::Sin,
        Function::Cos,
        Function::Sigmoid,
        Function::Silu,
    ];

    /// Its name in commands and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Function::Exp => "exp",
            Function::Reciprocal => "reciprocal",
            Function::Rsqrt => "rsqrt",
            Function::Sin => "sin",
            Function::Cos => "cos",
            Function::Sigmoid => "sigmoid",
            Function::Silu => "silu",
        }
    }

    /// The steps of its chain.
    pub(crate) fn steps(self) -> Vec<Step> {
        let sine = |last: &[Step]| [ANGLE, SINE_COSINE, last].concat();
        match self {
            Function::Exp => EXP.to_vec(),
            Function::Reciprocal => RECIPROCAL.to_vec(),
            Function::Rsqrt => ROOT.to_vec(),
            Function::Sin => sine(&[]),
            Function::Cos => sine(sine::COSINE),
            Function::Sigmoid => SIGMOID.to_vec(),
            Function::Silu => SILU.to_vec(),
        }
    }

    /// Its value, by all steps of the chain. A NaN is 0x7FC00000.
    #[inline(always)]
    pub(crate) fn value<const FMA: bool>(self, x: f32) -> f32 {
        let mut l = Lane { x, a: x, ..Lane::default() };
        match self {
            Function::Exp => exp::<FMA>(&mut l),
            Function::Reciprocal => reciprocal::<FMA>(&mut l),
            Function::Rsqrt => root::<FMA>(&mut l),
            Function::Sin | Function::Cos => {
                value_angle::<FMA>(&mut l);
                sine_cosine::<FMA>(&mut l);
                if self == Function::Cos {
                    cosine::<FMA>(&mut l);
                }
            }
            Function::Sigmoid => sigmoid::<FMA>(&mut l),
            Function::Silu => silu::<FMA>(&mut l),
        }
        numeric::fast::canonical(l.a)
    }
}
