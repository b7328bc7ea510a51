//! Stage 4: maximum likelihood in `(x, y)`, with its covariance.
//!
//! Not in the paper. Gauss-Newton on all delays and bearings at once, damped, from a start
//! near the target (stage 3 in [`super::locate`]). It reaches the bound of the
//! measurements, also where stage 2 is weak or undetermined, and its covariance
//! `(J^T W J)^-1` is consistent: the normalised squared error is chi-square with two degrees of
//! freedom. Cost: `O(K^2)` per step, 3 or 4 steps from stage 3.

use model::geometry::PlanePoint;
use nalgebra::Matrix2;

use super::likelihood::{Likelihood, Minimum};
use super::observability::{Unobservable, check_information};

/// Result of stage 4.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaximumLikelihood {
    /// Position, metres.
    pub position_m: PlanePoint,
    /// Covariance of the error of the position.
    pub covariance_m2: Matrix2<f64>,
    /// Whether the iteration converged.
    pub converged: bool,
}

impl MaximumLikelihood {
    pub(super) fn checked(likelihood: &Likelihood, minimum: &Minimum) -> Result<Self, Unobservable> {
        let information = &minimum.expansion.information;
        check_information(likelihood, minimum.position_m, information)?;
        let factor = information.cholesky().ok_or(Unobservable::NoSolution)?;
        Ok(Self {
            position_m: minimum.position_m,
            covariance_m2: factor.inverse(),
            converged: minimum.converged,
        })
    }
}
