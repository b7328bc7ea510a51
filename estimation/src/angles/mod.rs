//! Joint angle estimation (Section IV): one convex problem over all K^2 blocks, then a polish on the raw ones.
//!
//! [`estimate::AngleEstimator`] is the whole chain; [`admm::JointSolver`] the solver of [`problem::JointProblem`];
//! [`likelihood::JointLikelihood`] the polish; [`departure`] Algorithm 2.

pub mod admm;
pub mod departure;
pub mod estimate;
pub mod extraction;
pub mod likelihood;
pub mod literal;
pub mod problem;

pub use estimate::{AngleError, AngleEstimate, AngleEstimator, AngleSettings, Extraction, IrsAngle};
