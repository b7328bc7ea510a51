#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod assignment;
pub(crate) mod association;
pub mod bound;
mod cluster;
pub mod detections;
mod error;
pub mod gospa;
pub mod law;
pub mod motion;
pub mod nees;
pub mod observation;
pub mod scores;
pub mod track;
pub mod tracker;

pub use bound::PosteriorBound;
pub use detections::{DetectionModel, Detections};
pub use error::TrackingError;
pub use gospa::{Gospa, GospaSettings, gospa};
pub use law::{PositionLaw, Predicted, StateLaw};
pub use motion::MotionModel;
pub use nees::{nees, nees_band};
pub use observation::{Birth, FrameUpdate, Observation, Updated, existence_after};
pub use scores::{RunScore, TargetHistory};
pub use track::{EndCause, EndedTrack, FrameChanges, Track, TrackStatus};
pub use tracker::{Tracker, TrackerSettings};
