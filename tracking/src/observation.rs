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

/// Existence after data that are `exp(log_bayes_factor)` times as probable with the target as without it.
///
/// `r+ = r L / (1 - r + r L)`, without overflow for any factor; a factor that is not a number changes nothing.
pub fn existence_after(existence: f64, log_bayes_factor: f64) -> f64 {
    if log_bayes_factor.is_nan() || !(0.0..=1.0).contains(&existence) {
        return existence;
    }
    if existence == 0.0 || existence == 1.0 {
        return existence;
    }
    let log_odds = existence.ln() - (-existence).ln_1p() + log_bayes_factor;
    if log_odds >= 0.0 { 1.0 / (1.0 + (-log_odds).exp()) } else { log_odds.exp() / (1.0 + log_odds.exp()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existence_follows_the_bayes_factor() {
        for (existence, factor) in [(0.5, 1.0), (0.1, 30.0), (0.9, 0.02), (1e-6, 1e9), (0.999, 1e-5)] {
            let expected = existence * factor / (1.0 - existence + existence * factor);
            assert!((existence_after(existence, f64::ln(factor)) - expected).abs() < 1e-14);
        }
        assert_eq!(existence_after(0.5, 1e4), 1.0);
        assert_eq!(existence_after(0.5, -1e4), 0.0);
        assert_eq!(existence_after(0.0, f64::INFINITY), 0.0);
        assert_eq!(existence_after(1.0, f64::NEG_INFINITY), 1.0);
        assert_eq!(existence_after(0.3, f64::NAN), 0.3);
    }

    /// A detector with P_D and no clutter but its own misses: the update of a missed track is this one.
    #[test]
    fn a_miss_is_a_factor_of_one_less_the_detection_probability() {
        let expected = (1.0 - 0.9) * 0.7 / (1.0 - 0.9 * 0.7);
        assert!((existence_after(0.7, (1.0_f64 - 0.9).ln()) - expected).abs() < 1e-15);
    }
}
