//! What can be wrong with settings, laws, detections and frames.

use thiserror::Error;

/// Why an input was refused.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TrackingError {
    /// A setting is outside its range.
    #[error("{name} is {value}; it must be {rule}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        rule: &'static str,
    },
    /// A vector or a matrix has the wrong size.
    #[error("{what}: {found} coordinates; {expected} are expected")]
    Dimension {
        /// What has the wrong size.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The size that is expected.
        expected: String,
    },
    /// A mean is not finite or too large.
    #[error("{what}: coordinate {value} is not finite or beyond {limit}")]
    Mean {
        /// What the mean belongs to.
        what: &'static str,
        /// The coordinate.
        value: f64,
        /// The largest magnitude that is accepted.
        limit: f64,
    },
    /// A covariance is not one.
    #[error("{what}: the covariance is not finite, symmetric and positive definite with deviations in range")]
    Covariance {
        /// What the covariance belongs to.
        what: &'static str,
    },
    /// A probability is outside 0 to 1.
    #[error("{what} is {value}; a probability is between 0 and 1")]
    Probability {
        /// What the probability is of.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// There is more than the limits of the crate allow.
    #[error("{count} {what}; at most {limit} are accepted")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many are accepted.
        limit: usize,
    },
    /// A frame is not later than the one before it.
    #[error(
        "the frame at {time_s} s is not after the last one at {last_s} s; pass frames in the order of time"
    )]
    OutOfOrder {
        /// Time of the frame.
        time_s: f64,
        /// Time of the frame before it.
        last_s: f64,
    },
    /// A time is not finite, or not positive where it is a step.
    #[error("a time of {time_s} s is not finite or not in range")]
    Time {
        /// The time.
        time_s: f64,
    },
    /// An observation answered for another number of tracks than were predicted.
    #[error("the observation answered for {found} tracks; {expected} were predicted")]
    Answer {
        /// Tracks in the answer.
        found: usize,
        /// Tracks that were predicted.
        expected: usize,
    },
    /// Track `track` was said to be merged with itself or with one that does not exist.
    #[error(
        "the observation says that track {track} is merged with track {partner}, which is not another track"
    )]
    Partner {
        /// Index of the track.
        track: usize,
        /// Index of its partner.
        partner: usize,
    },
}

/// Refuses a setting that does not satisfy its rule.
pub(crate) fn require(
    holds: bool,
    name: &'static str,
    value: f64,
    rule: &'static str,
) -> Result<(), TrackingError> {
    if holds { Ok(()) } else { Err(TrackingError::Setting { name, value, rule }) }
}

/// Refuses a number that is no probability.
pub(crate) fn probability(what: &'static str, value: f64) -> Result<(), TrackingError> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(TrackingError::Probability { what, value }) }
}
