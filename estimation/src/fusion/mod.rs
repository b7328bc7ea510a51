//! From the reports of the nodes about one frame to a fix.
//!
//! There are two methods. *Three-stage* is the chain of Sections IV-B to V: the joint angles of all K^2 paths, then a
//! coherent refinement of every delay with the angles (which the paper does not do; it needs the derivative of the block and
//! no raw data), then the locator with its fourth stage. *Direct* maximises the likelihood of the position itself
//! ([`crate::direct`]). *Auto* runs the three-stage method, and the direct one where the first is not safe: a path too weak
//! for a delay of its own, an ambiguous or contradictory fix, or none. Where the direct method finds that noise alone
//! explains the data, there is no target and no fix.
//!
//! Both find one target. With [`FusionSettings::max_targets`] above one the direct method finds all targets of a frame from spectra
//! ([`Fuser::fuse_targets`]); the chain of the paper has no counterpart, because a block holds the echoes about one delay.
//!
//! Every frame is solved from a cold start: a fix depends only on its frames, not on the order of their arrival or on the
//! number of threads. Any path may be missing, and paths may deliver different payloads. Most of the cost is the joint
//! solve; the direct method takes a fraction of it.

mod estimator;
mod frame;
mod fuser;
mod three_stage;

use model::Point;
use nalgebra::DMatrix;

use crate::angles::{AngleError, AngleSettings};
use crate::delay::DelayError;
use crate::direct::{AlternativePosition, ClockUpdate, Combination, DirectSettings, Missed, TooLarge};
use crate::location::{Caution, Fix, LocateSettings, MeasurementError, Measurements, Unobservable};

pub use estimator::Estimator;
pub use frame::{FrameBlocks, NodeReport, PathBlock, Payload, PayloadKind};
pub use fuser::Fuser;

/// Which method makes a fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The method of the paper, with polished angles, refined delays and a fourth stage.
    ThreeStage,
    /// Direct position determination.
    Direct,
    /// Three-stage where that is safe, otherwise direct.
    #[default]
    Auto,
}

/// Method that made a fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixMethod {
    /// [`Method::ThreeStage`].
    ThreeStage,
    /// [`Method::Direct`] on one frame.
    Direct,
    /// [`Method::Direct`] on several frames.
    DirectFrames,
    /// [`Method::Direct`] on one frame with several targets.
    DirectTargets,
    /// The method of another [`Estimator`], by name.
    Other(&'static str),
}

impl FixMethod {
    /// Name in logs and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::ThreeStage => "three-stage",
            Self::Direct => "direct",
            Self::DirectFrames => "direct-frames",
            Self::DirectTargets => "direct-targets",
            Self::Other(name) => name,
        }
    }
}

/// Settings of the direct method over several frames: the current frame and those before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchSettings {
    /// Frames per batch; 1 locates from single frames.
    pub frames: usize,
    /// How the likelihoods of the frames are combined.
    pub combination: Combination,
    /// Largest speed that is searched, metres per frame.
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
    /// Which method makes a fix.
    pub method: Method,
    /// Used by the three-stage method.
    pub angles: AngleSettings,
    /// Used by the three-stage method; the coverage area defaults to that of the system.
    pub locate: LocateSettings,
    /// Used by the direct method.
    pub direct: DirectSettings,
    /// Used by the direct method over several frames.
    pub batch: BatchSettings,
    /// Largest number of targets of a frame. Default: 1. More than one needs spectra and the direct method.
    pub max_targets: usize,
    /// The three-stage method is safe where every path has at least this SNR, as a power ratio. Default: 25 (14 dB), where
    /// one delay in ten thousand is a gross error.
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
            max_targets: 1,
            safe_snr: 25.0,
        }
    }
}

/// Why there is no fuser for a system.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum FuserError {
    #[error(transparent)]
    System(#[from] DelayError),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error(
        "the three-stage method holds for plane waves at line arrays in the plane of the targets, and {0}: use the direct method"
    )]
    ThreeStage(&'static str),
    #[error("the three-stage method locates one target: use the direct method for several")]
    OneTarget,
}

/// Why a frame gives no fix.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum FusionError {
    #[error(transparent)]
    Angles(#[from] AngleError),
    #[error(transparent)]
    Measurements(#[from] MeasurementError),
    #[error(transparent)]
    Unobservable(#[from] Unobservable),
    #[error(transparent)]
    Missed(#[from] Missed),
    #[error("a fix from several frames needs clocks that are trusted (clocks.prior_ns = 0)")]
    UnknownClocks,
    #[error("{0}")]
    Other(String),
}

/// A fix by the three-stage method.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreeStageFix {
    /// The fix with the results of its stages.
    pub fix: Fix,
    /// Delays and bearings from which it was located.
    pub measurements: Measurements,
}

/// A fix from one frame or several.
#[derive(Debug, Clone, PartialEq)]
pub struct FusedFix {
    /// Method that made the fix.
    pub method: FixMethod,
    /// Position of the target, metres.
    pub position_m: Point,
    /// Covariance of the error of the position, over its free coordinates: x and y, and the height unless the coverage area is
    /// flat.
    pub covariance_m2: DMatrix<f64>,
    /// Velocity, metres per frame; only of fixes from several frames.
    pub velocity_m_per_frame: Option<Point>,
    /// Radius that contains the error even with one undetected fault; none where there is no such radius.
    pub protection_level_m: Option<f64>,
    /// Descriptions of the excluded faults.
    pub excluded: Vec<String>,
    /// Why the fix is degraded or doubtful; empty for a nominal one.
    pub cautions: Vec<Caution>,
    /// Other possible positions, most probable first; only of direct fixes.
    pub alternatives: Vec<AlternativePosition>,
    /// Result of the three-stage method, also where the direct one made the fix.
    pub three_stage: Option<ThreeStageFix>,
    /// What the frame says about the clocks; none where they are trusted.
    pub clocks: Option<ClockUpdate>,
    /// Probability that noise alone looks like this target; none where the method has no such test.
    pub false_alarm_probability: Option<f64>,
    /// Covariance of the free coordinates of all targets of the frame, in the order of their fixes; only of the first of several.
    pub joint_covariance_m2: Option<DMatrix<f64>>,
}

impl FusedFix {
    /// A nominal fix with nothing but a position and its covariance.
    pub fn new(method: FixMethod, position_m: Point, covariance_m2: DMatrix<f64>) -> Self {
        Self {
            method,
            position_m,
            covariance_m2,
            velocity_m_per_frame: None,
            protection_level_m: None,
            excluded: Vec::new(),
            cautions: Vec::new(),
            alternatives: Vec::new(),
            three_stage: None,
            clocks: None,
            false_alarm_probability: None,
            joint_covariance_m2: None,
        }
    }
}
