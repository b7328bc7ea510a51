//! From what the nodes report of one frame to a fix, free of sockets and clocks.
//!
//! Two methods. *Three-stage* is the chain of Sections IV-B to V: [`Fuser::angles`] solves all K^2 paths
//! jointly, then every path's delay is refined coherently with the angles (which the paper does not do; it
//! needs the block's derivative and no raw data), then the locator with its fourth stage. *Direct* maximises
//! the likelihood of the position itself ([`crate::direct`]). *Auto* runs the three-stage chain and goes on
//! to the direct one where the first is not safe: a path too weak for a delay of its own, an ambiguous or
//! contradictory fix, or none. Where the direct one then finds that noise alone looks like this, there is
//! no target and no fix.
//!
//! Every frame is solved from a cold start: a fix depends on the frames that it is given alone, in whatever
//! order they came and on however many threads. Any path may be missing, and paths may deliver different
//! payloads. Cost: the joint solve; the direct method takes a fraction of it.

mod frame;
mod fuser;
mod three_stage;

use model::Point;
use nalgebra::Matrix2;

use crate::angles::{AngleError, AngleSettings};
use crate::delay::DelayError;
use crate::direct::{Alternative, Combination, DirectFix, DirectSettings, Missed, TooLarge};
use crate::location::{Caution, Fix, LocateSettings, MeasurementError, Measurements, Unobservable};

pub use frame::{FrameBlocks, NodeReport, PathBlock, Payload, PayloadKind};
pub use fuser::{AngleStep, Fuser, Prepared};

/// How a frame is turned into a fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The paper's chain, polished.
    ThreeStage,
    /// Direct position determination.
    Direct,
    /// Three-stage where that is safe, direct elsewhere.
    #[default]
    Auto,
}

/// How a fix was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixMethod {
    /// By the three-stage chain.
    ThreeStage,
    /// Directly, from one frame.
    Direct,
    /// Directly, from several frames.
    DirectFrames,
}

impl FixMethod {
    /// Its name in logs and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::ThreeStage => "three-stage",
            Self::Direct => "direct",
            Self::DirectFrames => "direct-frames",
        }
    }
}

/// The direct method over several frames: the frame in question and those before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchSettings {
    /// Frames of a batch; 1 locates from single frames.
    pub frames: usize,
    /// How frames add up.
    pub combination: Combination,
    /// Fastest target that is searched for, metres per frame.
    pub most_speed_m_per_frame: f64,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self { frames: 1, combination: Combination::default(), most_speed_m_per_frame: 0.5 }
    }
}

/// Settings of a [`Fuser`].
#[derive(Debug, Clone, PartialEq)]
pub struct FusionSettings {
    /// How a frame is turned into a fix.
    pub method: Method,
    /// Of the joint angle estimator.
    pub angles: AngleSettings,
    /// Of the locator; without a coverage area the system's is taken.
    pub locate: LocateSettings,
    /// Of the direct method.
    pub direct: DirectSettings,
    /// Of the direct method over several frames.
    pub batch: BatchSettings,
    /// The three-stage chain is safe where no path has less SNR than this. Default: 25 (14 dB), where one
    /// delay in ten thousand is a gross error.
    pub safe_snr: f64,
}

impl Default for FusionSettings {
    fn default() -> Self {
        Self {
            method: Method::default(),
            angles: AngleSettings::default(),
            locate: LocateSettings::default(),
            direct: DirectSettings::default(),
            batch: BatchSettings::default(),
            safe_snr: 25.0,
        }
    }
}

/// Why a system cannot be fused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FuserError {
    /// Its parts do not fit.
    #[error(transparent)]
    System(#[from] DelayError),
    /// Its coverage area is too large for the direct method.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Why a frame gives no fix.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FusionError {
    /// The angles cannot be estimated.
    #[error(transparent)]
    Angles(#[from] AngleError),
    /// The measurements are unusable.
    #[error(transparent)]
    Measurements(#[from] MeasurementError),
    /// The position is not observable from what came.
    #[error(transparent)]
    Unobservable(#[from] Unobservable),
    /// The direct method finds none.
    #[error(transparent)]
    Missed(#[from] Missed),
}

/// What the three-stage chain found.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreeStageFix {
    /// Position, covariance, stages, faults.
    pub fix: Fix,
    /// Delays and bearings that it was located from.
    pub measurements: Measurements,
}

/// A fix with what is behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct FusedFix {
    /// How it was made.
    pub method: FixMethod,
    /// Where the target is.
    pub position_m: Point,
    /// Covariance of that.
    pub covariance_m2: Matrix2<f64>,
    /// Velocity, where several frames tell, metres per frame.
    pub velocity_m_per_frame: Option<Point>,
    /// Radius that holds the error even if one fault went unnoticed, where there is one.
    pub protection_level_m: Option<f64>,
    /// What was left out, in words.
    pub excluded: Vec<String>,
    /// Why the fix is degraded or doubtful; empty for a nominal one.
    pub cautions: Vec<Caution>,
    /// Where else the target may be, likeliest first; of direct fixes.
    pub alternatives: Vec<Alternative>,
    /// The three-stage chain's answer, also where it was not taken.
    pub three_stage: Option<ThreeStageFix>,
    /// The direct method's answer, where it was asked.
    pub direct: Option<DirectFix>,
}
