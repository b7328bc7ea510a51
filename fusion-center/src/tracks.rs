//! Tracks: the targets of consecutive frames, followed in the signals themselves (track-before-detect).
//!
//! A second output beside the fixes, which stay functions of their frames alone. Frames are taken in the order in which they were
//! closed; another run begins without tracks.

use std::sync::Arc;

use estimation::direct::{FollowSettings, Survey};
use estimation::fusion::Fuser;
use proto::convert::FrameId;
use tracking::{FrameUpdate, Observation, Predicted, Tracker, TrackerSettings, TrackingError, Updated};

use crate::place::Axes;
use crate::targets::FixTrack;

/// What a solved frame holds for the tracks.
#[derive(Debug)]
pub struct Followable {
    /// When the frame was taken.
    pub time_s: f64,
    /// With the offsets of clocks that are not trusted removed; none where the frame has no spectra.
    pub survey: Option<Survey>,
}

/// Follows the targets of a site.
pub struct TrackFollower {
    fuser: Arc<Fuser>,
    settings: TrackerSettings,
    tracker: Tracker,
    run: Option<u64>,
}

/// A frame that shows nothing.
struct Unseen;

impl Observation for Unseen {
    fn update(&self, predicted: &[Predicted]) -> FrameUpdate {
        FrameUpdate { tracks: predicted.iter().map(Updated::unchanged).collect(), births: Vec::new() }
    }
}

impl TrackFollower {
    pub fn new(fuser: Arc<Fuser>, settings: TrackerSettings) -> Result<Self, TrackingError> {
        let tracker = Tracker::new(fuser.system().axes().len(), settings)?;
        Ok(Self { fuser, settings, tracker, run: None })
    }

    /// Takes a frame in and returns the confirmed tracks after it.
    pub fn follow(&mut self, frame: FrameId, seen: Followable) -> Vec<FixTrack> {
        let Followable { time_s, survey } = seen;
        if self.run.replace(frame.run) != Some(frame.run)
            && let Ok(fresh) = Tracker::new(self.fuser.system().axes().len(), self.settings)
        {
            self.tracker = fresh;
        }
        let survey = survey.as_ref().zip(self.fuser.locator());
        let followed =
            survey.and_then(|(survey, locator)| locator.followed(survey, FollowSettings::default()));
        let stepped = match &followed {
            Some(followed) => self.tracker.step(time_s, followed),
            None => self.tracker.step(time_s, &Unseen),
        };
        if let Err(error) = stepped {
            telemetry::warn_limited!(frame = frame.frame, %error, "the tracks do not take this frame");
        }
        let system = self.fuser.system();
        let (axes, height_m) = (Axes::of_site(system), system.coverage.min_m[2]);
        self.tracker.confirmed().map(|track| FixTrack::new(track, time_s, axes, height_m)).collect()
    }
}
