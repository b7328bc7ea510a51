//! Projection of many small Hermitian matrices onto the cone of positive semidefinite ones.
//!
//! `P(A) = sum of lambda_i v_i v_i^H over lambda_i > 0`, the nearest positive semidefinite matrix in
//! the Frobenius norm: the step that takes nearly all the time of an ADMM solver for atomic norm
//! minimisation, which projects one block of order `n = M + N` per pair of surfaces.
//!
//! # Method
//!
//! [`LANES`] matrices of one order are processed in lock-step, one per lane of a vector register:
//!
//! 1. scale by a power of two to entries near one;
//! 2. Householder reduction to a real tridiagonal `T = Q^H A Q` (LAPACK `zhetd2`; Golub and Van Loan,
//!    Matrix Computations, 8.3.1), one pass over the matrix per reflector;
//! 3. implicit QL with Wilkinson's shift and real rotations (Bowdler, Martin, Reinsch and Wilkinson
//!    1968), each lane on its own unreduced block;
//! 4. of the positive and the negative eigenvalues the fewer, per lane: their `k <= n / 2` vectors,
//!    times the roots of their magnitudes and transformed back, are the columns of `Y`;
//! 5. `P = Y Y^H` from the positive side, `P = A + Y Y^H` from the negative side.
//!
//! So a semidefinite matrix comes back unchanged to the last bit, or as zero. Errors are a few units
//! of rounding times the norm of `A`: the projection is nonexpansive, hence well conditioned even for close
//! eigenvalues.
//!
//! # Cost
//!
//! Real operations per matrix: `16/3 n^3` for the reduction, near `7 n^3` for QL (2.3 sweeps per
//! eigenvalue), `8 n^2 k` for the back-transformation and `4 n^2 k` for the product; with `k = n / 2` about
//! `18 n^3`, 0.15 million at `n = 20`. Microseconds per projection on one core of an AMD EPYC, random matrices,
//! fastest samples of one run of `benches/psd.rs`, single and double precision:
//!
//! | n  | AVX-512      | AVX2         | baseline    | nalgebra 0.35, double |
//! |----|--------------|--------------|-------------|-----------------------|
//! |  8 |  0.21,  0.43 |  0.27,  1.1  | 0.70,   1.7 |                   4.8 |
//! | 20 |  1.9,   4.1  |  2.3,   7.4  |  6.4,  16   |                  51   |
//! | 40 | 12,    28    | 15,    47    | 42,   103   |                 324   |
//!
//! At `n = 20` in single precision that is 80 Gflop/s with AVX-512. QL takes half of the time, bound by the latency from one rotation
//! to the next; the reduction takes a quarter. In single precision QL needs fewer sweeps, since couplings are negligible earlier.
//!
//! # Reproducibility
//!
//! No operation mixes lanes: a matrix gives the same bits whatever its neighbours, its place in the
//! batch and the number of threads. Instruction sets differ in the last bits, as only some fuse
//! products with sums.

mod compose;
mod dispatch;
mod lanes;
mod project;
mod ql;
pub(crate) mod register;
mod tridiagonal;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use dispatch::{Kernel, dispatch};
pub use lanes::{ComplexLanes, LANES, Lanes, Scalar, triangle_index};
pub use project::{GroupSpectrum, Instructions, PsdProjector};
