//! Normal laws of positions and of states, and how a law of the position conditions that of the state.
//!
//! A state is [position; velocity], of D coordinates each. An observation that depends on the position alone turns the
//! predicted law (p, P_pp) of the position into a posterior (m, C). The velocity is then known through its regression on
//! the position, which the observation does not change:
//!
//! `x+ = x + G (m - p)`, `P+ = P - G (P_pp - C) G^T`, `G = P_xp P_pp^-1`.
//!
//! If (m, C) is the update of a Kalman filter, these are its equations; if it is the moment match of another posterior,
//! they are the moments of the state under it exactly, because the state given the position is still normal. Cost: one
//! factorisation of order D.

use nalgebra::{DMatrix, DVector};

use crate::error::{TrackingError, probability};

/// Positions have at most this many coordinates.
pub const MAX_DIMENSION: usize = 3;
/// Largest magnitude of a coordinate of a position, metres.
pub(crate) const MAX_COORDINATE_M: f64 = 1e8;
/// Smallest and largest deviation of a law along an axis, metres.
const DEVIATIONS_M: (f64, f64) = (1e-9, 1e9);
/// Smallest pivot of a matrix of correlations.
const MIN_PIVOT: f64 = 1e-13;

/// Normal law of a position.
#[derive(Debug, Clone, PartialEq)]
pub struct PositionLaw {
    mean_m: DVector<f64>,
    covariance_m2: DMatrix<f64>,
}

impl PositionLaw {
    /// The law of this mean and covariance: 1 to 3 coordinates within 1e8 m, a symmetric positive definite covariance
    /// with deviations from 1e-9 to 1e9 m.
    pub fn new(mean_m: DVector<f64>, covariance_m2: DMatrix<f64>) -> Result<Self, TrackingError> {
        let what = "law of a position";
        if mean_m.is_empty() || mean_m.len() > MAX_DIMENSION {
            return Err(TrackingError::Dimension { what, found: mean_m.len(), expected: "1 to 3".into() });
        }
        check_mean(what, &mean_m)?;
        check_covariance(what, &covariance_m2, mean_m.len(), DEVIATIONS_M)?;
        let covariance_m2 = (&covariance_m2 + covariance_m2.transpose()) / 2.0;
        Ok(Self { mean_m, covariance_m2 })
    }

    /// The law of these coordinates with the same deviation along every axis.
    pub fn isotropic(mean_m: &[f64], deviation_m: f64) -> Result<Self, TrackingError> {
        let covariance_m2 = DMatrix::identity(mean_m.len(), mean_m.len()) * deviation_m.powi(2);
        Self::new(DVector::from_column_slice(mean_m), covariance_m2)
    }

    /// Mean.
    pub fn mean_m(&self) -> &DVector<f64> {
        &self.mean_m
    }

    /// Covariance.
    pub fn covariance_m2(&self) -> &DMatrix<f64> {
        &self.covariance_m2
    }

    /// Number of coordinates.
    pub fn dimension(&self) -> usize {
        self.mean_m.len()
    }
}

/// A track as it is predicted to the time of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// Law of its position.
    pub law: PositionLaw,
    /// Probability that it exists.
    pub existence: f64,
}

impl Predicted {
    /// A track with this law and this probability of existence.
    pub fn new(law: PositionLaw, existence: f64) -> Result<Self, TrackingError> {
        probability("an existence", existence)?;
        Ok(Self { law, existence })
    }
}

/// Normal law of a state, [position; velocity].
#[derive(Debug, Clone, PartialEq)]
pub struct StateLaw {
    mean: DVector<f64>,
    covariance: DMatrix<f64>,
}

impl StateLaw {
    /// The law of this mean, metres and metres per second, and this covariance, which is positive definite.
    pub fn new(mean: DVector<f64>, covariance: DMatrix<f64>) -> Result<Self, TrackingError> {
        let what = "law of a state";
        if mean.is_empty() || !mean.len().is_multiple_of(2) || mean.len() > 2 * MAX_DIMENSION {
            return Err(TrackingError::Dimension { what, found: mean.len(), expected: "2, 4 or 6".into() });
        }
        check_mean(what, &mean)?;
        check_covariance(what, &covariance, mean.len(), DEVIATIONS_M)?;
        let covariance = (&covariance + covariance.transpose()) / 2.0;
        Ok(Self { mean, covariance })
    }

    /// Mean: position in metres, then velocity in metres per second.
    pub fn mean(&self) -> &DVector<f64> {
        &self.mean
    }

    /// Covariance of position and velocity.
    pub fn covariance(&self) -> &DMatrix<f64> {
        &self.covariance
    }

    /// Coordinates of the position.
    pub fn dimension(&self) -> usize {
        self.mean.len() / 2
    }

    /// Law of the position alone.
    pub fn position(&self) -> Result<PositionLaw, TrackingError> {
        let d = self.dimension();
        PositionLaw::new(self.mean.rows(0, d).into_owned(), self.covariance.view((0, 0), (d, d)).into_owned())
    }

    /// The law of the state after the position is known by `posterior`, the posterior for this law as the prior.
    pub fn condition(&self, posterior: &PositionLaw) -> Result<Self, TrackingError> {
        let d = self.dimension();
        if posterior.dimension() != d {
            let (what, found) = ("posterior of a position", posterior.dimension());
            return Err(TrackingError::Dimension { what, found, expected: d.to_string() });
        }
        let prior_m2 = self.covariance.view((0, 0), (d, d)).into_owned();
        let factor =
            prior_m2.clone().cholesky().ok_or(TrackingError::Covariance { what: "predicted position" })?;
        // G^T = P_pp^-1 P_px
        let gain = factor.solve(&self.covariance.rows(0, d).into_owned()).transpose();
        let mean = &self.mean + &gain * (posterior.mean_m() - self.mean.rows(0, d));
        let covariance = &self.covariance - &gain * (prior_m2 - posterior.covariance_m2()) * gain.transpose();
        Self::new(mean, covariance)
    }
}

pub(crate) fn check_mean(what: &'static str, mean: &DVector<f64>) -> Result<(), TrackingError> {
    match mean.iter().find(|value| value.is_nan() || value.abs() > MAX_COORDINATE_M) {
        Some(&value) => Err(TrackingError::Mean { what, value, limit: MAX_COORDINATE_M }),
        None => Ok(()),
    }
}

/// Refuses what is not a covariance of this size with deviations in this range.
pub(crate) fn check_covariance(
    what: &'static str,
    covariance: &DMatrix<f64>,
    size: usize,
    deviations: (f64, f64),
) -> Result<(), TrackingError> {
    if covariance.shape() != (size, size) {
        let found = if covariance.nrows() == size { covariance.ncols() } else { covariance.nrows() };
        return Err(TrackingError::Dimension { what, found, expected: size.to_string() });
    }
    let refused = TrackingError::Covariance { what };
    let scale: Vec<f64> = covariance.diagonal().iter().map(|variance| variance.sqrt()).collect();
    if !scale.iter().all(|deviation| (deviations.0..=deviations.1).contains(deviation)) {
        return Err(refused);
    }
    let correlation = DMatrix::from_fn(size, size, |i, j| covariance[(i, j)] / (scale[i] * scale[j]));
    let symmetric = |i: usize, j: usize| (correlation[(i, j)] - correlation[(j, i)]).abs() <= 1e-9;
    if !(0..size).all(|i| (0..i).all(|j| symmetric(i, j))) {
        return Err(refused);
    }
    let pivots = correlation.cholesky().map(|factor| factor.l_dirty().diagonal());
    match pivots {
        Some(pivots) if pivots.iter().all(|pivot| pivot.powi(2) > MIN_PIVOT) => Ok(()),
        _ => Err(refused),
    }
}
