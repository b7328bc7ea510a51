//! Numbers of several matrices side by side, in memory.

use std::fmt::Debug;

use num_complex::Complex64;

use super::register::{Portable, Register};
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx2, Avx512};

/// How many matrices are processed side by side: one AVX-512 register of `f32`, two of `f64`.
pub const LANES: usize = 16;

/// The precision of a computation: `f32` or `f64`, with the registers that hold its numbers.
pub trait Scalar: Copy + Debug + Default + PartialEq + Into<f64> + Send + Sync + 'static {
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Distance from one to the next larger number.
    const EPSILON: f64;
    /// A squared length below this counts as zero; its square root can be inverted.
    const TINY: f64;
    /// A squared length below this, of a matrix scaled to entries near 1, counts as zero; its square can be inverted.
    const NEGLIGIBLE_SQUARE: f64;

    /// Registers for every machine.
    type Portable: Register<Scalar = Self>;
    /// Registers of AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    type Avx2: Register<Scalar = Self>;
    /// Registers of AVX-512.
    #[cfg(target_arch = "x86_64")]
    type Avx512: Register<Scalar = Self>;

    /// The nearest number of this precision.
    fn rounded(value: f64) -> Self;

    /// The power of two that brings a positive number to between one and two, as far as its inverse is a normal number.
    fn inverse_power_of_two(self) -> Self;
}

impl Scalar for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const EPSILON: f64 = f64::EPSILON;
    const TINY: f64 = 1e-280;
    const NEGLIGIBLE_SQUARE: f64 = 1e-60;

    type Portable = Portable<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx2 = Avx2<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = Avx512<Self>;

    fn rounded(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn inverse_power_of_two(self) -> Self {
        let exponent = (self.to_bits() >> 52).clamp(1, 2045);
        Self::from_bits((2046 - exponent) << 52)
    }
}

impl Scalar for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const EPSILON: f64 = f32::EPSILON as f64;
    const TINY: f64 = 1e-32;
    const NEGLIGIBLE_SQUARE: f64 = 1e-16;

    type Portable = Portable<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx2 = Avx2<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = Avx512<Self>;

    fn rounded(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn inverse_power_of_two(self) -> Self {
        let exponent = (self.to_bits() >> 23).clamp(1, 253);
        Self::from_bits((254 - exponent) << 23)
    }
}

/// One real number of each of [`LANES`] matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Lanes<T>(pub [T; LANES]);

/// One complex number of each of [`LANES`] matrices, real and imaginary parts apart.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct ComplexLanes<T> {
    /// Real parts.
    pub re: Lanes<T>,
    /// Imaginary parts.
    pub im: Lanes<T>,
}

impl<T: Scalar> Lanes<T> {
    /// Zero in every lane.
    pub const ZERO: Self = Self([T::ZERO; LANES]);
}

impl<T: Scalar> ComplexLanes<T> {
    /// Zero in every lane.
    pub const ZERO: Self = Self { re: Lanes::ZERO, im: Lanes::ZERO };
}

impl ComplexLanes<f32> {
    /// Vectors of one length side by side: the entries of the first [`LANES`], then those of the next; lanes past the last are
    /// zero.
    pub(crate) fn of_vectors<'a>(vectors: impl IntoIterator<Item = &'a [Complex64]>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (i, vector) in vectors.into_iter().enumerate() {
            if i % LANES == 0 {
                all.resize(all.len() + vector.len(), Self::ZERO);
            }
            let start = all.len() - vector.len();
            for (entry, value) in all[start..].iter_mut().zip(vector) {
                (entry.re.0[i % LANES], entry.im.0[i % LANES]) = (value.re as f32, value.im as f32);
            }
        }
        all
    }
}

/// Place of entry `(row, column)`, `column <= row`, in a group of [`LANES`] Hermitian matrices.
///
/// A group holds the lower triangles, row by row; an element holds the real parts of the matrices and then their
/// imaginary parts. The imaginary parts of the diagonal are stored too and must be zero. A group of order `n` has
/// `triangle_index(n, 0)` elements.
#[inline(always)]
pub const fn triangle_index(row: usize, column: usize) -> usize {
    row * (row + 1) / 2 + column
}
