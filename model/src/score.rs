//! A position with its covariance compared with the true position.

use nalgebra::{DMatrix, DVector};

use crate::geometry::Point;

/// The error of one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Distance between the position and the target.
    pub error_m: f64,
    /// Normalised squared error `e^T C^-1 e` over the free coordinates, whose mean is their number for a consistent
    /// covariance; none if C is not positive definite.
    pub nees: Option<f64>,
}

impl Score {
    /// The score of a position with this covariance of its first coordinates (x, y, or all three) for a target at `target_m`.
    pub fn new(position_m: Point, covariance_m2: &DMatrix<f64>, target_m: Point) -> Self {
        let error = position_m - target_m;
        let free = DVector::from_iterator(
            covariance_m2.nrows().min(3),
            error.iter().copied().take(covariance_m2.nrows()),
        );
        let nees = covariance_m2.clone().cholesky().map(|factor| free.dot(&factor.solve(&free)));
        Self { error_m: error.norm(), nees }
    }
}
