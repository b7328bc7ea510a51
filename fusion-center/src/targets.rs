//! Several targets of a frame, tracks, and the truth about them, as fixes state them.

use estimation::fusion::FusedFix;
use estimation::location::Caution;
use model::Point;
use serde::{Deserialize, Serialize};
use tracking::Track;

use crate::place::{Axes, FixPlace, upper_triangle};

/// One of the targets of a frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FixTarget {
    pub position_m: FixPlace,
    /// Covariance of the position error over the axes of the fix, as its upper triangle.
    pub covariance_m2: Vec<f64>,
    /// Probability that noise alone looks like this target; none where the method has no such test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub false_alarm_probability: Option<f64>,
    /// Whether there may be two targets here that cannot be told apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unresolved: bool,
}

impl FixTarget {
    pub fn new(fix: &FusedFix, axes: Axes) -> Self {
        Self {
            position_m: FixPlace::new(fix.position_m, axes),
            covariance_m2: upper_triangle(&fix.covariance_m2),
            false_alarm_probability: fix.false_alarm_probability,
            unresolved: fix.cautions.contains(&Caution::Unresolved),
        }
    }
}

/// A target that is followed over several frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FixTrack {
    /// The same in all frames of a run, never used again.
    pub identity: u64,
    pub position_m: FixPlace,
    pub velocity_m_s: FixPlace,
    /// Covariance of position and velocity over the axes of the site, as its upper triangle.
    pub covariance: Vec<f64>,
    /// Probability that the target exists.
    pub existence: f64,
    /// Whether the frame does not show it, so that it is predicted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub coasting: bool,
    /// The other track that the frame shows in the same place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_with: Option<u64>,
    /// Whether it may have changed places with another track.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubtful_identity: bool,
    /// Time since the first frame that showed it.
    pub age_s: f64,
}

impl FixTrack {
    /// A track at the time of a frame in a site of these axes; flat ones have this height.
    pub fn new(track: &Track, time_s: f64, axes: Axes, height_m: f64) -> Self {
        let point = |of: &[f64], height: f64| match of {
            [x, y] => Point::new(*x, *y, height),
            [x, y, z] => Point::new(*x, *y, *z),
            _ => Point::zeros(),
        };
        Self {
            identity: track.id,
            position_m: FixPlace::new(point(track.position_m().as_slice(), height_m), axes),
            velocity_m_s: FixPlace::new(point(track.velocity_m_s().as_slice(), 0.0), axes),
            covariance: upper_triangle(&track.covariance),
            existence: track.existence,
            coasting: track.coasting,
            merged_with: track.merged_with,
            doubtful_identity: track.doubtful_identity,
            age_s: (time_s - track.born_s).max(0.0),
        }
    }
}

/// One of several true targets, and what was found of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedTarget {
    pub identity: u64,
    pub position_m: FixPlace,
    /// Rms error that the exact joint bound of all targets allows with the paths that were received.
    pub bound_rms_m: Option<f64>,
    /// Index of its fix among the targets of the fix; none if it was missed.
    pub fix: Option<usize>,
    /// Distance between this fix and the target.
    pub error_m: Option<f64>,
    /// Normalised squared error of this fix.
    pub nees: Option<f64>,
    /// Identity of its track; none if it has none.
    pub track: Option<u64>,
}
