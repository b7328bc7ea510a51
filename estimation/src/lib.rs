#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod angles;
mod ascent;
pub mod baselines;
mod beams;
pub mod blocks;
pub mod clock_filter;
#[cfg(test)]
#[path = "../tests/support/counting.rs"]
mod counting;
pub mod delay;
mod dense;
pub mod direct;
pub mod fusion;
mod harmonic;
mod idle;
pub mod linalg;
pub mod location;
mod planar;
pub mod signals;

pub use blocks::{BlockError, Blocks};
/// The system model, which the estimators take.
pub use model;
pub use signals::ReflectedSignals;
