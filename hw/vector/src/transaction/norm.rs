use super::reduce::{fold, tree, with_partials};
use crate::error::{rows, same};
use crate::function::{Lane, root};
use crate::{Config, VectorError, command, steps};
use numeric::fast::{Kernel, canonical, dispatch, fma};

/// x / √(mean x² + ε) · weight over rows of `weight.len()` values.
///
/// The sum of squares has the order of [`Config::lanes`]; then v = fma(sum, fl(1/len), ε), r = rsqrt(v), and (x·r)·weight with two
/// roundings.
///
/// # Errors
/// If the operands are not rows of one length, or ε is negative or no number.
pub fn rms_norm(config: &Config, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) -> Result<(), VectorError> {
    let config = config.checked()?;
    rows(x.len(), weight.len())?;
    same("out", out.len(), x.len())?;
    command::check_epsilon(epsilon)?;
    with_partials!(config, run(x, weight, epsilon, out));
    Ok(())
}

/// FP32 nearest to 1/len, which the host writes beside a command.
pub(crate) fn per_value(len: usize) -> f32 {
    (1.0 / len as f64) as f32
}

fn run<const P: usize>(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    dispatch(RmsNorm::<P> { x, weight, epsilon, out });
}

struct RmsNorm<'a, const P: usize> {
    x: &'a [f32],
    weight: &'a [f32],
    epsilon: f32,
    out: &'a mut [f32],
}

impl<const P: usize> Kernel for RmsNorm<'_, P> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let len = self.weight.len();
        for (x, out) in self.x.chunks_exact(len).zip(self.out.chunks_exact_mut(len)) {
            let squares = fold(x, [0f32; P], |sum, x| fma::<FMA>(x, x, sum));
            let a = tree(squares, |a, b| a + b);
            let mut l = Lane { a, s: per_value(len), y: self.epsilon, ..Lane::default() };
            steps::mean::<FMA>(&mut l);
            root::<FMA>(&mut l);
            for ((out, x), w) in out.iter_mut().zip(x).zip(self.weight) {
                *out = canonical(x * l.a * w);
            }
        }
    }
}
