//! What one frame does to predicted tracks: the interface between the tracker and whatever was received.
//!
//! The tracker needs from a frame only the posterior of every predicted track (its position, moment matched, and the
//! probability that it exists) and what no track explains. [`Detections`](crate::Detections) computes this from a list of
//! detections. A likelihood over the signals of the frame (track-before-detect) does as well: the predicted laws are the
//! priors of a joint maximum, existence follows from the Bayes factor of the data with and without the target. The law of
//! the velocity follows in [`StateLaw::condition`](crate::StateLaw::condition), so that an observation never sees it.

use crate::law::{PositionLaw, Predicted};

/// A frame as the tracker sees it.
pub trait Observation {
    /// The tracks after this frame, in the order of `predicted`, and what no track explains.
    ///
    /// It must not depend on anything but the frame and `predicted`, and must answer for every track; the tracker
    /// refuses an answer whose laws have another dimension or whose probabilities are none.
    fn update(&self, predicted: &[Predicted]) -> FrameUpdate;
}

/// What a frame says about all tracks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FrameUpdate {
    /// Every predicted track after the frame.
    pub tracks: Vec<Updated>,
    /// What no track explains.
    pub births: Vec<Birth>,
}

/// A track after a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Updated {
    /// Posterior of its position if it exists, moment matched.
    pub law: PositionLaw,
    /// Probability that it exists.
    pub existence: f64,
    /// Whether the frame shows it; a track that it does not show coasts.
    pub detected: bool,
    /// The other track that is seen in the same place, if the frame shows one target where there are two tracks.
    pub merged_with: Option<usize>,
    /// Whether the frame may show it where another track is and the other way round.
    pub doubtful_identity: bool,
}

impl Updated {
    /// A track about which a frame says nothing.
    pub fn unchanged(predicted: &Predicted) -> Self {
        let law = predicted.law.clone();
        let existence = predicted.existence;
        Self { law, existence, detected: false, merged_with: None, doubtful_identity: false }
    }
}

/// What may be a new target.
#[derive(Debug, Clone, PartialEq)]
pub struct Birth {
    /// Law of its position.
    pub law: PositionLaw,
    /// Probability that it is a target.
    pub existence: f64,
}
