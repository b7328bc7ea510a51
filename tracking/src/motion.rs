//! How targets move, appear and disappear: nearly constant velocity.
//!
//! Along every axis the acceleration is white noise of density q (Bar-Shalom, Li and Kirubarajan, Estimation with
//! Applications to Tracking and Navigation, 2001, Section 6.2.2). Over a step of t seconds, exactly,
//!
//! `F = [1 t; 0 1]`, `Q = q [t^3/3 t^2/2; t^2/2 t]`,
//!
//! so that two steps of t/2 are one step of t. A target survives a step with probability `s^t`, s per second. A new target
//! is known by its position; its velocity has mean zero and the same deviation along every axis.

use nalgebra::{DMatrix, DVector};

use crate::error::{TrackingError, require};
use crate::law::{PositionLaw, StateLaw};

/// Longest step of time, seconds.
const MAX_STEP_S: f64 = 1e6;

/// Motion of targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MotionModel {
    /// Density of the white acceleration along every axis. Default: 0.3, a person who walks: the velocity changes by
    /// 0.55 m/s within a second.
    pub acceleration_m2_s3: f64,
    /// Probability that a target is still there after one second. Default: 0.99.
    pub survival_per_s: f64,
    /// Deviation of the velocity of a new target along every axis. Default: 1.5 m/s.
    pub birth_speed_m_s: f64,
}

impl Default for MotionModel {
    fn default() -> Self {
        Self { acceleration_m2_s3: 0.3, survival_per_s: 0.99, birth_speed_m_s: 1.5 }
    }
}

impl MotionModel {
    /// Refuses what is out of range.
    pub fn validate(&self) -> Result<(), TrackingError> {
        let in_range = |value: f64, low: f64, high: f64| (low..=high).contains(&value);
        let q = self.acceleration_m2_s3;
        require(in_range(q, 1e-9, 1e6), "acceleration_m2_s3", q, "between 1e-9 and 1e6")?;
        let survival = self.survival_per_s;
        require(in_range(survival, 1e-9, 1.0), "survival_per_s", survival, "between 1e-9 and 1")?;
        let speed = self.birth_speed_m_s;
        require(in_range(speed, 1e-6, 1e4), "birth_speed_m_s", speed, "between 1e-6 and 1e4")
    }

    /// The transition F of a state with D coordinates of position over a step.
    pub fn transition(&self, dimension: usize, step_s: f64) -> DMatrix<f64> {
        let mut transition = DMatrix::identity(2 * dimension, 2 * dimension);
        for axis in 0..dimension {
            transition[(axis, dimension + axis)] = step_s;
        }
        transition
    }

    /// The covariance Q that a step adds.
    pub fn noise(&self, dimension: usize, step_s: f64) -> DMatrix<f64> {
        let q = self.acceleration_m2_s3;
        let mut noise = DMatrix::zeros(2 * dimension, 2 * dimension);
        for axis in 0..dimension {
            let velocity = dimension + axis;
            noise[(axis, axis)] = q * step_s.powi(3) / 3.0;
            noise[(axis, velocity)] = q * step_s.powi(2) / 2.0;
            noise[(velocity, axis)] = noise[(axis, velocity)];
            noise[(velocity, velocity)] = q * step_s;
        }
        noise
    }

    /// The law of a state after a step of zero to 1e6 seconds.
    pub fn predict(&self, law: &StateLaw, step_s: f64) -> Result<StateLaw, TrackingError> {
        if !(0.0..=MAX_STEP_S).contains(&step_s) {
            return Err(TrackingError::Time { time_s: step_s });
        }
        let transition = self.transition(law.dimension(), step_s);
        let covariance = &transition * law.covariance() * transition.transpose();
        StateLaw::new(transition * law.mean(), covariance + self.noise(law.dimension(), step_s))
    }

    /// Probability that a target survives a step.
    pub fn survival(&self, step_s: f64) -> f64 {
        self.survival_per_s.powf(step_s)
    }

    /// The law of the state of a new target that is found at this position.
    pub fn birth(&self, position: &PositionLaw) -> Result<StateLaw, TrackingError> {
        let d = position.dimension();
        let mut mean = DVector::zeros(2 * d);
        mean.rows_mut(0, d).copy_from(position.mean_m());
        let mut covariance = DMatrix::identity(2 * d, 2 * d) * self.birth_speed_m_s.powi(2);
        covariance.view_mut((0, 0), (d, d)).copy_from(position.covariance_m2());
        StateLaw::new(mean, covariance)
    }
}
