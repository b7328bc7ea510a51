//! Numbers of several matrices side by side, in memory.

/// How many matrices are processed side by side: one AVX-512 register of `f64`.
pub const LANES: usize = 8;

/// One real number of each of [`LANES`] matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Lanes(pub [f64; LANES]);

/// One complex number of each of [`LANES`] matrices, real and imaginary parts apart.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct ComplexLanes {
    /// Real parts.
    pub re: Lanes,
    /// Imaginary parts.
    pub im: Lanes,
}

impl Lanes {
    /// Zero in every lane.
    pub const ZERO: Self = Self([0.0; LANES]);
}

impl ComplexLanes {
    /// Zero in every lane.
    pub const ZERO: Self = Self { re: Lanes::ZERO, im: Lanes::ZERO };
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
