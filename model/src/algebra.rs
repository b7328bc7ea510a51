//! Aliases of complex matrices and vectors.

use nalgebra::{DMatrix, DVector};
use num_complex::Complex64;

/// Dense complex matrix.
pub type CMatrix = DMatrix<Complex64>;
/// Dense complex column vector.
pub type CVector = DVector<Complex64>;

/// `exp(j phase)`.
pub fn unit_phasor(phase_rad: f64) -> Complex64 {
    let (sin, cos) = phase_rad.sin_cos();
    Complex64::new(cos, sin)
}
