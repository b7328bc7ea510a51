//! Joint angle estimation (Section IV): one convex problem over all K^2 blocks, then a polish on the raw blocks.
//!
//! [`estimate_angles`] is the whole chain, [`admm::solve`] the solver of [`problem::JointProblem`],
//! [`likelihood::AngleLikelihood`] the polish and [`departure`] Algorithm 2.

pub mod admm;
pub mod departure;
pub mod estimate;
pub mod extraction;
pub mod likelihood;
pub mod literal;
pub mod problem;
mod scan;

use nalgebra::{DMatrix, DVector};

pub use estimate::{
    AngleError, AngleEstimate, AngleEstimator, AngleSettings, Extraction, IrsAngle, estimate_angles,
};

/// Value, gradient and Hessian of a function at a point.
struct QuadraticModel {
    value: f64,
    gradient: DVector<f64>,
    hessian: DMatrix<f64>,
}

impl QuadraticModel {
    fn zeros(size: usize) -> Self {
        Self { value: 0.0, gradient: DVector::zeros(size), hessian: DMatrix::zeros(size, size) }
    }
}
