//! Choosing the machine's instructions at run time.

/// A loop that profits from wide vectors and fused multiply-add. Mark `run` and all that it calls in its loop
/// `#[inline(always)]`, so that it is compiled with the instructions chosen.
pub trait Kernel {
    /// What it gives back.
    type Out;
    /// Does the work. `FMA`: `f32::mul_add` is one instruction here; where it is not, use
    /// [`fma_portable`](super::fma_portable).
    fn run<const FMA: bool>(self) -> Self::Out;
}

/// Runs a kernel with AVX-512 or AVX2 and FMA where the machine has them, else with the baseline's instructions.
pub fn dispatch<K: Kernel>(kernel: K) -> K::Out {
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx2") && has!("fma") {
            // SAFETY: `widest` is an ordinary function but for the instructions that it is compiled for, and all of
            // them have just been found on this machine.
            #[allow(unsafe_code)]
            return unsafe { widest(kernel) };
        }
        if has!("avx2") && has!("fma") {
            // SAFETY: as above, for `wide`.
            #[allow(unsafe_code)]
            return unsafe { wide(kernel) };
        }
    }
    kernel.run::<false>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma")]
fn widest<K: Kernel>(kernel: K) -> K::Out {
    kernel.run::<true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn wide<K: Kernel>(kernel: K) -> K::Out {
    kernel.run::<true>()
}
