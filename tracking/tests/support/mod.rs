//! Random scenes with fixed seeds.
#![allow(dead_code)]

use hyloc_tracking::{DetectionModel, Detections, MotionModel, PositionLaw};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Poisson, StandardNormal};

pub fn seeded(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

pub fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// A normal vector of this covariance.
pub fn normal_vector(rng: &mut ChaCha8Rng, covariance: &DMatrix<f64>) -> DVector<f64> {
    let factor = covariance.clone().cholesky().expect("positive definite").l();
    factor * DVector::from_fn(covariance.nrows(), |_, _| normal(rng))
}

/// A random covariance with deviations of about `scale`.
pub fn covariance(rng: &mut ChaCha8Rng, size: usize, scale: f64) -> DMatrix<f64> {
    let root = DMatrix::from_fn(size, size, |_, _| normal(rng));
    (&root * root.transpose() + DMatrix::identity(size, size) * 0.2) * scale.powi(2)
}

/// The state one step later.
pub fn walk(rng: &mut ChaCha8Rng, motion: &MotionModel, state: &DVector<f64>, step_s: f64) -> DVector<f64> {
    let d = state.len() / 2;
    motion.transition(d, step_s) * state + normal_vector(rng, &motion.noise(d, step_s))
}

/// A plane square of this half width with detections of known statistics.
pub struct Hall {
    pub half_m: f64,
    pub deviation_m: f64,
    pub model: DetectionModel,
}

impl Hall {
    /// Mean number of false detections in a frame.
    pub fn clutter_per_frame(&self) -> f64 {
        self.model.clutter_density * (2.0 * self.half_m).powi(2)
    }

    /// Positions that are detected when targets are at these places.
    pub fn detect(&self, rng: &mut ChaCha8Rng, targets_m: &[DVector<f64>]) -> Vec<PositionLaw> {
        let mut found = Vec::new();
        for target_m in targets_m {
            if rng.random::<f64>() < self.model.detection_probability {
                let noisy = target_m.map(|coordinate| coordinate + self.deviation_m * normal(rng));
                found.push(PositionLaw::isotropic(noisy.as_slice(), self.deviation_m).unwrap());
            }
        }
        if self.clutter_per_frame() > 0.0 {
            let count: f64 = Poisson::new(self.clutter_per_frame()).unwrap().sample(rng);
            for _ in 0..count as usize {
                let place = [0; 2].map(|_| self.half_m * (2.0 * rng.random::<f64>() - 1.0));
                found.push(PositionLaw::isotropic(&place, self.deviation_m).unwrap());
            }
        }
        // The order must not tell which detection is whose.
        for index in (1..found.len()).rev() {
            found.swap(index, rng.random_range(0..=index));
        }
        found
    }

    pub fn frame(&self, rng: &mut ChaCha8Rng, targets_m: &[DVector<f64>]) -> Detections {
        Detections::new(self.detect(rng, targets_m), self.model).unwrap()
    }
}
