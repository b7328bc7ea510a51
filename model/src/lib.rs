#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod algebra;
pub mod array;
pub mod beamforming;
pub mod channel;
pub mod clocks;
pub mod constant_velocity;
pub mod echo;
pub mod fisher;
pub mod geometry;
pub mod panel;
pub mod prior;
pub mod random;
pub mod scenario;
pub mod score;
pub mod system;
pub mod units;
pub mod waveform;

pub use algebra::{CMatrix, CVector};
pub use clocks::ClockOffsets;
pub use constant_velocity::constant_velocity_crb_m2;
pub use echo::{EchoSource, Movement, TrueTarget};
pub use fisher::{Gain, Information, Scheme, joint_crb_m2};
pub use geometry::{Orientation, PlanePoint, Point, Pose};
pub use panel::{Aperture, Carrier, ElementGrid, Wavefront};
pub use prior::CrossSectionPrior;
pub use scenario::Scenario;
pub use score::Score;
pub use system::{RankCase, System, SystemParts};

/// Largest number of IRSs of a site: the limit of scenarios, sites from the wire, the ring generator, the locator and
/// the fusion center (which uses one bit per IRS).
pub const MOST_IRS: usize = 32;

/// Largest number of targets of a scenario.
pub const MOST_TARGETS: usize = 16;
