//! A track as it is given out.

use nalgebra::{DMatrix, DVector};

/// How certain it is that a track is a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackStatus {
    /// It may be one.
    Tentative,
    /// It is taken for one.
    Confirmed,
}

/// A target's state over the frames.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// Identity, never used again.
    pub id: u64,
    /// Position in metres, then velocity in metres per second.
    pub state: DVector<f64>,
    /// Covariance of the state.
    pub covariance: DMatrix<f64>,
    /// Probability that it exists.
    pub existence: f64,
    /// Whether it is taken for a target.
    pub status: TrackStatus,
    /// Whether the last frame did not show it, so that it is only predicted.
    pub coasting: bool,
    /// Time of the first frame that showed it.
    pub born_s: f64,
    /// Time of the frame that confirmed it first.
    pub confirmed_s: Option<f64>,
    /// Time of the last frame that showed it.
    pub seen_s: f64,
    /// Whether it may have changed places with another track in the last frame.
    pub doubtful_identity: bool,
    /// Time of the last frame in which it may have changed places with another track.
    pub doubtful_s: Option<f64>,
    /// The other track that the last frame showed in the same place.
    pub merged_with: Option<u64>,
    /// The last track that became a part of this one: frames showed both in the same place, and never apart since.
    pub absorbed: Option<u64>,
}

impl Track {
    /// Position, metres.
    pub fn position_m(&self) -> DVector<f64> {
        self.state.rows(0, self.state.len() / 2).into_owned()
    }

    /// Velocity, metres per second.
    pub fn velocity_m_s(&self) -> DVector<f64> {
        let d = self.state.len() / 2;
        self.state.rows(d, d).into_owned()
    }

    /// Covariance of the position.
    pub fn position_covariance_m2(&self) -> DMatrix<f64> {
        let d = self.state.len() / 2;
        self.covariance.view((0, 0), (d, d)).into_owned()
    }

    /// Whether it is taken for a target.
    pub fn is_confirmed(&self) -> bool {
        self.status == TrackStatus::Confirmed
    }
}

/// Why a track ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// It probably does not exist.
    Existence,
    /// No frame showed it for too long.
    Coasting,
    /// It became a part of this other track, because frames showed both in the same place and never apart since.
    MergedInto(u64),
    /// There were too many tracks, and it was the least probable.
    Crowded,
}

/// A track that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedTrack {
    /// Its identity.
    pub id: u64,
    /// Why it ended.
    pub cause: EndCause,
    /// Whether it was ever confirmed.
    pub confirmed: bool,
}

/// What a frame changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FrameChanges {
    /// Tracks that were started.
    pub born: Vec<u64>,
    /// Tracks that were confirmed.
    pub confirmed: Vec<u64>,
    /// Tracks that ended.
    pub ended: Vec<EndedTrack>,
    /// Births for which there was no place.
    pub dropped_births: usize,
}
