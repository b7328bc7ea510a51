//! One source, several instruction sets: runs a kernel with the best registers of the machine.

use super::lanes::Scalar;
use super::project::Instructions;
use super::register::Register;

/// A computation written over [`Register`]. `run` must be `#[inline(always)]`, so that it is compiled anew
/// for each instruction set.
pub(crate) trait Kernel<T: Scalar> {
    /// Result of the computation.
    type Output;

    /// Runs with registers `R`.
    fn run<R: Register<Scalar = T>>(self) -> Self::Output;
}

/// Runs `kernel` with the given instructions, which must be available.
pub(crate) fn dispatch<T: Scalar, K: Kernel<T>>(instructions: Instructions, kernel: K) -> K::Output {
    match instructions {
        Instructions::Baseline => kernel.run::<T::Portable>(),
        // SAFETY: the value exists only where the instructions were found on this machine.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { run_avx2(kernel) },
        // SAFETY: the value exists only where the instructions were found on this machine.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { run_avx512(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        Instructions::Avx2 | Instructions::Avx512 => unreachable!("only found where they exist"),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<T: Scalar, K: Kernel<T>>(kernel: K) -> K::Output {
    kernel.run::<T::Avx2>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn run_avx512<T: Scalar, K: Kernel<T>>(kernel: K) -> K::Output {
    kernel.run::<T::Avx512>()
}
