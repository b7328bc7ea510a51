//! A position with its covariance compared with the true position.

use nalgebra::Matrix2;

use crate::geometry::Point;

/// The error of one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Distance between the position and the target.
    pub error_m: f64,
    /// Normalised squared error `e^T C^-1 e`, with mean 2 for a consistent covariance; none if C is not positive definite.
    pub nees: Option<f64>,
}

impl Score {
    /// The score of a position with this covariance for a target at `target_m`.
    pub fn new(position_m: Point, covariance_m2: &Matrix2<f64>, target_m: Point) -> Self {
        let error = position_m - target_m;
        let nees = covariance_m2.cholesky().map(|factor| error.dot(&factor.solve(&error)));
        Self { error_m: error.norm(), nees }
    }
}
