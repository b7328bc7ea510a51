#![doc = include_str!("../README.md")]

pub mod algebra;
pub mod array;
pub mod beamforming;
pub mod channel;
pub mod constant_velocity;
pub mod echo;
pub mod fisher;
pub mod geometry;
pub mod prior;
pub mod random;
pub mod scenario;
pub mod system;
pub mod units;
pub mod waveform;

pub use algebra::{CMatrix, CVector};
pub use constant_velocity::constant_velocity_crb_m2;
pub use echo::EchoSource;
pub use fisher::{Gain, Information, Scheme};
pub use geometry::{Point, Pose};
pub use prior::CrossSectionPrior;
pub use scenario::Scenario;
pub use system::{RankCase, System};

/// Most IRSs of a site. Scenarios, sites from the wire, the ring generator, the locator and the fusion center's
/// bookkeeping (one bit per IRS) all keep to this one limit.
pub const MOST_IRS: usize = 32;
