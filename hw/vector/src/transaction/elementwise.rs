use super::reduce::map;
use crate::VectorError;
use crate::error::same;
use crate::function::Function;
use numeric::fast::{Kernel, canonical, dispatch};

struct Apply<'a> {
    function: Function,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Apply<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self { function, x, out } = self;
        macro_rules! each {
            ($($f:ident),+) => {
                match function {
                    $(Function::$f => map(x, x, out, |x, _| Function::$f.value::<FMA>(x)),)+
                }
            };
        }
        each!(Exp, Reciprocal, Rsqrt, Sin, Cos, Sigmoid, Silu);
    }
}

/// f(x) of every value.
///
/// # Errors
/// If the slices differ in length.
pub fn function(function: Function, x: &[f32], out: &mut [f32]) -> Result<(), VectorError> {
    same("out", out.len(), x.len())?;
    dispatch(Apply { function, x, out });
    Ok(())
}

/// x·σ(x) of every value.
///
/// # Errors
/// If the slices differ in length.
pub fn silu(x: &[f32], out: &mut [f32]) -> Result<(), VectorError> {
    function(Function::Silu, x, out)
}

struct Binary<'a, F> {
    x: &'a [f32],
    y: &'a [f32],
    out: &'a mut [f32],
    f: F,
}

impl<F: Fn(f32, f32) -> f32> Kernel for Binary<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((out, x), y) in self.out.iter_mut().zip(self.x).zip(self.y) {
            *out = canonical((self.f)(*x, *y));
        }
    }
}

fn binary(x: &[f32], y: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) -> Result<(), VectorError> {
    same("y", y.len(), x.len())?;
    same("out", out.len(), x.len())?;
    dispatch(Binary { x, y, out, f });
    Ok(())
}

/// x + y: the residual.
///
/// # Errors
/// If the slices differ in length.
pub fn add(x: &[f32], y: &[f32], out: &mut [f32]) -> Result<(), VectorError> {
    binary(x, y, out, |x, y| x + y)
}

/// x · y.
///
/// # Errors
/// If the slices differ in length.
pub fn multiply(x: &[f32], y: &[f32], out: &mut [f32]) -> Result<(), VectorError> {
    binary(x, y, out, |x, y| x * y)
}

/// x · factor.
///
/// # Errors
/// If the slices differ in length.
pub fn scale(x: &[f32], factor: f32, out: &mut [f32]) -> Result<(), VectorError> {
    binary(x, x, out, |x, _| x * factor)
}

struct SwiGlu<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for SwiGlu<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        map(self.gate, self.up, self.out, |gate, up| canonical(Function::Silu.value::<FMA>(gate) * up));
    }
}

/// silu(gate) · up.
///
/// # Errors
/// If the slices differ in length.
pub fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) -> Result<(), VectorError> {
    same("up", up.len(), gate.len())?;
    same("out", out.len(), gate.len())?;
    dispatch(SwiGlu { gate, up, out });
    Ok(())
}
