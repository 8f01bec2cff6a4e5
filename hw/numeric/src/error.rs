//! What can be wrong with a request.

use thiserror::Error;

/// Why a format, a code or a size was refused.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum NumericError {
    /// The name is none of a format's.
    #[error("no number format is called `{name}`; known are {known}")]
    UnknownFormat {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// `ffp8:…` does not hold sign, exponent, fraction and bias.
    #[error(
        "`{text}` names no flexible format: write ffp8:s,e,f,bias, or ffp8:s-e-f, with s 0 or 1, e 0 to 7 and s + e + f = 8"
    )]
    Ffp8Syntax {
        /// What was asked for.
        text: String,
    },
    /// The bias puts some code beyond what FP32 holds exactly.
    #[error("ffp8 with e = {exp_bits}, f = {frac_bits}: bias {bias} leaves FP32's range; use {min} to {max}")]
    Ffp8Bias {
        /// Exponent bits.
        exp_bits: u32,
        /// Fraction bits.
        frac_bits: u32,
        /// The bias that was asked for.
        bias: i32,
        /// The least bias for which every code is exact in FP32.
        min: i32,
        /// The greatest such bias.
        max: i32,
    },
    /// The code has more bits than the format.
    #[error("{code:#x} is no code of {format}: it has {width} bits, so codes end at {max:#x}")]
    CodeTooWide {
        /// The code.
        code: u64,
        /// The format's name.
        format: String,
        /// Its width in bits.
        width: u32,
        /// Its last code.
        max: u32,
    },
    /// A MAC takes floats with a sign, an exponent and zero, so E8M0 and the integers are refused.
    #[error("{format} cannot be an operand of the float MAC; use a float format other than e8m0")]
    NotAnOperand {
        /// The format's name.
        format: String,
    },
    /// The MAC's pipeline depth is outside its range.
    #[error("a MAC pipeline of {stages} stages cannot be built; use 1 to {max}")]
    Stages {
        /// The depth that was asked for.
        stages: usize,
        /// The deepest there is.
        max: usize,
    },
    /// Two slices that must have the same length have not.
    #[error("{what}: {got} elements where {want} were needed")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length it must have.
        want: usize,
    },
    /// A fixed-point multiplier or shift is outside the rule's range.
    #[error("fixed-point scale {what} = {got} is out of range; use {min} to {max}")]
    FixedScale {
        /// Which field.
        what: &'static str,
        /// What was asked for.
        got: i64,
        /// Its least value.
        min: i64,
        /// Its greatest value.
        max: i64,
    },
    /// A scale that the fixed-point form cannot hold.
    #[error("scale {scale} has no fixed-point form; use a finite one, zero or positive, below 2^30")]
    ScaleRange {
        /// The scale.
        scale: f32,
    },
    /// No value is finite, so no format can be chosen.
    #[error("the tensor holds no finite value to choose a format from; give at least one")]
    NothingToChooseFrom,
}
