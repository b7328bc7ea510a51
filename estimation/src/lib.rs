//! From echoes to a position: pure, deterministic estimators.

pub mod angles;
pub mod baselines;
pub mod blocks;
pub mod delay;
pub mod direct;
pub mod fusion;
mod harmonic;
pub mod linalg;
pub mod location;

pub use blocks::{BlockError, Blocks};
