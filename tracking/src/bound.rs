//! The posterior Cramer-Rao bound of a target that moves by the motion model.
//!
//! Tichavsky, Muravchik and Nehorai, Posterior Cramer-Rao bounds for discrete-time nonlinear filtering, IEEE Trans. Signal
//! Process. 46(5), 1998, eq. 21. The motion is linear and normal, so that the recursion of the information J is, with H the
//! choice of the position and I the Fisher information of a frame about it (its mean over the places where the target may be),
//!
//! `J+ = (Q + F J^-1 F^T)^-1 + H^T I H`.
//!
//! It is computed for the bound itself, `B = J^-1`: `B+ = B - B H^T (1 + I B_pp)^-1 I H B` after the prediction, which also
//! holds for a frame with singular or no information. With detection probability P_D and independent misses, the information
//! P_D I gives a bound (information reduction is tighter, enumeration exact); cost: products of matrices of order 2 D.

use nalgebra::DMatrix;

use crate::error::{TrackingError, require};
use crate::law::check_covariance;
use crate::motion::MotionModel;

/// Bound of the covariance of a state after every frame.
#[derive(Debug, Clone, PartialEq)]
pub struct PosteriorBound {
    motion: MotionModel,
    bound: DMatrix<f64>,
}

impl PosteriorBound {
    /// The bound before the first frame: the covariance of the state, [position; velocity], that is known then.
    pub fn new(motion: MotionModel, initial: DMatrix<f64>) -> Result<Self, TrackingError> {
        motion.validate()?;
        let size = initial.nrows();
        if size == 0 || !size.is_multiple_of(2) {
            let what = "bound of a state";
            return Err(TrackingError::Dimension { what, found: size, expected: "an even number of".into() });
        }
        check_covariance("bound of a state", &initial, size, (1e-9, 1e9))?;
        Ok(Self { motion, bound: initial })
    }

    /// The bound a step later, after a frame with this information about the position (per square metre).
    pub fn step(&mut self, step_s: f64, information: &DMatrix<f64>) -> Result<&DMatrix<f64>, TrackingError> {
        let d = self.bound.nrows() / 2;
        require((0.0..=1e6).contains(&step_s), "step_s", step_s, "between 0 and 1e6")?;
        if information.shape() != (d, d) {
            let (what, found) = ("information about a position", information.nrows());
            return Err(TrackingError::Dimension { what, found, expected: d.to_string() });
        }
        if !information.iter().all(|value| value.is_finite()) {
            return Err(TrackingError::Covariance { what: "information about a position" });
        }
        let transition = self.motion.transition(d, step_s);
        let predicted = &transition * &self.bound * transition.transpose() + self.motion.noise(d, step_s);
        let position = predicted.view((0, 0), (d, d)).into_owned();
        let system = DMatrix::identity(d, d) + information * &position;
        let refused = TrackingError::Covariance { what: "information about a position" };
        let gain = system.lu().solve(&(information * predicted.rows(0, d))).ok_or(refused.clone())?;
        let bound = &predicted - predicted.columns(0, d) * gain;
        let bound = (&bound + bound.transpose()) / 2.0;
        check_covariance("bound of a state", &bound, 2 * d, (0.0, 1e12)).map_err(|_| refused)?;
        self.bound = bound;
        Ok(&self.bound)
    }

    /// The bound of the covariance of the state.
    pub fn bound(&self) -> &DMatrix<f64> {
        &self.bound
    }

    /// The bound of the root mean square error of the position, metres.
    pub fn position_m(&self) -> f64 {
        let d = self.bound.nrows() / 2;
        (0..d).map(|axis| self.bound[(axis, axis)]).sum::<f64>().sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steady state along one axis in closed form.
    ///
    /// The second difference of the measured position is a moving average of order 2, with autocovariances
    /// `6 R + 2 g / 3`, `-4 R + g / 6` and `R`, g = q T^3; its spectral factor is `1 + (alpha + beta - 2) z^-1 + (1 - alpha) z^-2`
    /// with variance `R / (1 - alpha)`, alpha and beta / T the gains of the filter. At z = 1 and z = -1:
    /// `beta^2 = l s^2` and `2 + 2 s^2 - beta = s sqrt(16 + l / 3)` with `l = g / R`, `s^2 = 1 - alpha`, a quadratic equation in s.
    fn steady_state(q: f64, step_s: f64, variance: f64) -> [f64; 3] {
        let l = q * step_s.powi(3) / variance;
        let k = l.sqrt() + (16.0 + l / 3.0).sqrt();
        let s = (k - (k * k - 16.0).sqrt()) / 4.0;
        let (alpha, beta) = (1.0 - s * s, l.sqrt() * s);
        let (position, cross) = (alpha * variance, beta * variance / step_s);
        let predicted = alpha * variance / (1.0 - alpha);
        let velocity =
            (predicted - position - 2.0 * step_s * cross - q * step_s.powi(3) / 3.0) / step_s.powi(2);
        [position, cross, velocity]
    }

    #[test]
    fn the_steady_state_is_that_of_the_riccati_equation() {
        for (q, step_s, deviation_m) in [(0.3, 0.05, 0.1), (0.3, 1.0, 0.1), (2.0, 0.5, 3.0)] {
            let motion = MotionModel { acceleration_m2_s3: q, ..MotionModel::default() };
            let variance = f64::powi(deviation_m, 2);
            let information = DMatrix::identity(2, 2) / variance;
            let mut bound = PosteriorBound::new(motion, DMatrix::identity(4, 4)).unwrap();
            for _ in 0..2000 {
                bound.step(step_s, &information).unwrap();
            }
            let expected = steady_state(q, step_s, variance);
            let found = bound.bound();
            for (value, expected) in [found[(0, 0)], found[(1, 3)], found[(2, 2)]].iter().zip(expected) {
                assert!((value / expected - 1.0).abs() < 1e-8, "{value} {expected}");
            }
            assert!((bound.position_m() - (2.0 * expected[0]).sqrt()).abs() < 1e-8);
        }
    }

    #[test]
    fn information_may_be_singular_or_none() {
        let mut bound = PosteriorBound::new(MotionModel::default(), DMatrix::identity(4, 4)).unwrap();
        let motion = MotionModel::default();
        let transition = motion.transition(2, 0.5);
        let expected = &transition * transition.transpose() + motion.noise(2, 0.5);
        bound.step(0.5, &DMatrix::zeros(2, 2)).unwrap();
        assert!((bound.bound() - &expected).norm() < 1e-12);
        // Information along the first axis alone leaves the second one as it is.
        let mut along = DMatrix::zeros(2, 2);
        along[(0, 0)] = 100.0;
        let before = bound.bound().clone();
        let after = bound.step(0.0, &along).unwrap();
        assert!((after[(0, 0)] - 1.0 / (1.0 / before[(0, 0)] + 100.0)).abs() < 1e-12);
        assert!((after[(1, 1)] - before[(1, 1)]).abs() < 1e-12);
        assert!(bound.step(0.1, &DMatrix::from_element(2, 2, f64::NAN)).is_err());
        assert!(bound.step(f64::NAN, &along).is_err());
        assert!(bound.step(0.1, &(-DMatrix::identity(2, 2) * 1e6)).is_err());
    }
}
