//! MUSIC, root-MUSIC, ESPRIT and Capon from the covariance of the snapshots.

use model::{CMatrix, CVector};
use nalgebra::SymmetricEigen;
use nalgebra::linalg::{Cholesky, Schur};
use num_complex::Complex64;

use super::{Array, BaselineError, Snapshots};
use crate::harmonic::HarmonicSeries;

/// Iterations of a decomposition before it counts as failed.
const MAX_ITERATIONS: usize = 10_000;

/// Unit vector that spans the signal subspace.
pub(super) fn principal_vector(covariance: &CMatrix, l: usize) -> Result<CVector, BaselineError> {
    let eigen = SymmetricEigen::try_new(covariance.clone(), f64::EPSILON, MAX_ITERATIONS)
        .ok_or(BaselineError::NotComputable { l, what: "the eigenvalue decomposition" })?;
    Ok(eigen.eigenvectors.column(eigen.eigenvalues.imax()).into_owned())
}

/// sin(theta) of the root of `a^H (I - u u^H) a` as a polynomial in `z = exp(j 2 pi s sin theta)`. Roots
/// come in pairs mirrored at the unit circle; of those inside and in the visible region, the nearest to the
/// circle is taken.
pub(super) fn root_music(covariance: &CMatrix, array: &Array) -> Result<f64, BaselineError> {
    let fail = |what| BaselineError::NotComputable { l: array.l, what };
    let signal = principal_vector(covariance, array.l)?;
    let noise = CMatrix::identity(array.sensors, array.sensors) - &signal * signal.adjoint();
    let series = HarmonicSeries::of_hermitian(&noise, array.step_rad);
    // Coefficients of z^0 .. z^(2M-2): g_-(M-1) .. g_(M-1), g_-d = g_d^*.
    let lags = series.lags();
    let mirrored = lags.iter().skip(1).rev().map(Complex64::conj);
    let coefficients: Vec<Complex64> = mirrored.chain(lags.iter().copied()).collect();
    let roots = polynomial_roots(&coefficients).ok_or(fail("the roots of the null spectrum"))?;
    roots
        .into_iter()
        .filter(|root| root.norm() <= 1.0 + 1e-6)
        .map(|root| (root.norm(), root.arg() / array.step_rad))
        .filter(|(_, sine)| sine.abs() <= 1.0)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, sine)| sine)
        .ok_or(fail("the roots of the null spectrum"))
}

/// Roots of a polynomial with ascending coefficients, the eigenvalues of its companion matrix.
fn polynomial_roots(coefficients: &[Complex64]) -> Option<Vec<Complex64>> {
    let largest = coefficients.iter().map(|c| c.norm()).fold(0.0, f64::max);
    let degree = coefficients.iter().rposition(|c| c.norm() > largest * 1e-14)?;
    let lead = coefficients[degree];
    let companion = CMatrix::from_fn(degree, degree, |i, j| {
        if i == 0 {
            -coefficients[degree - 1 - j] / lead
        } else if i == j + 1 {
            Complex64::ONE
        } else {
            Complex64::ZERO
        }
    });
    if degree == 0 {
        return None;
    }
    let (_, triangular) = Schur::try_new(companion, f64::EPSILON, MAX_ITERATIONS)?.unpack();
    Some(triangular.diagonal().iter().copied().collect())
}

/// sin(theta) from the phase that takes the first M - 1 sensors of the signal subspace to the last M - 1.
pub(super) fn esprit(covariance: &CMatrix, array: &Array) -> Result<f64, BaselineError> {
    let signal = principal_vector(covariance, array.l)?;
    let overlap = array.sensors - 1;
    let turn = signal.rows(0, overlap).dotc(&signal.rows(1, overlap));
    if turn.norm() < f64::EPSILON {
        return Err(BaselineError::NotComputable { l: array.l, what: "the phase between subarrays" });
    }
    Ok(turn.arg() / array.step_rad)
}

/// sin(theta) at which `a^H (C + sigma^2 I)^-1 a` is lowest.
pub(super) fn capon(snapshots: &Snapshots, array: &Array) -> Result<f64, BaselineError> {
    let fail = BaselineError::NotComputable { l: array.l, what: "the inverse of the covariance" };
    // Loading below the rounding of the covariance would leave it singular.
    let loading = snapshots.noise_variance.max(1e-12 * snapshots.covariance.trace().re);
    let identity = CMatrix::identity(array.sensors, array.sensors);
    let loaded = &snapshots.covariance + identity.scale(loading);
    let inverse = Cholesky::new(loaded).ok_or(fail.clone())?.inverse();
    if inverse.iter().any(|v| !v.is_finite()) {
        return Err(fail);
    }
    Ok(array.maximum(&-inverse))
}
