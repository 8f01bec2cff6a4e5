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

/// Runs a kernel with AVX2 and FMA where the machine has them, else with the baseline's instructions.
pub fn dispatch<K: Kernel>(kernel: K) -> K::Out {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the two features that `wide` is compiled for have just been found on this machine; nothing else
        // about it is unsafe.
        #[allow(unsafe_code)]
        return unsafe { wide(kernel) };
    }
    kernel.run::<false>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn wide<K: Kernel>(kernel: K) -> K::Out {
    kernel.run::<true>()
}
