//! Tracks over the frames of a run: prediction, update, confirmation, merging, births and deaths.
//!
//! A step predicts every track to the time of the frame (state and existence, [`MotionModel`]), passes the laws of the
//! positions to the [`Observation`], and conditions the states on its answer ([`StateLaw::condition`]). A track is
//! confirmed when its existence reaches `confirm_existence` and stays so until it falls below `demote_existence`; it
//! ends below `delete_existence` or after `coast_limit_s` without being shown. Under the model, tracks that are
//! confirmed at existence r are false with probability at most 1 - r; the expected number of false confirmations per frame
//! is at most the births per frame times the odds at which they start, divided by the odds of confirmation (Ville).
//!
//! Two tracks that frames show in one place for `merge_after_s` become one: the confirmed one, or the older of two. Two
//! tentative ones become one at once, the more probable, because a target that is not confirmed yet may have started
//! several, which would share its existence. What stays has existence `1 - (1 - r_1) (1 - r_2)`. If one of two ends earlier
//! without having been shown apart, it is said to have merged as well.
//!
//! The number of tracks is bounded; a birth then replaces the least probable tentative track if it is more probable. Frames
//! must be in the order of time. A refused frame changes nothing.
//!
//! Cost: that of the observation, and a few products of matrices of order 2 D per track.

use crate::error::{TrackingError, probability, require};
use crate::law::{Predicted, StateLaw};
use crate::motion::MotionModel;
use crate::observation::{Birth, FrameUpdate, Observation, Updated};
use crate::track::{EndCause, EndedTrack, FrameChanges, Track, TrackStatus};

/// How tracks are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrackerSettings {
    /// Motion of targets.
    pub motion: MotionModel,
    /// A track of this existence is confirmed. Default: 0.95.
    pub confirm_existence: f64,
    /// A confirmed track of less existence is tentative again. Default: 0.5.
    pub demote_existence: f64,
    /// A track of less existence ends, and a birth of less is none. Default: 1e-6, well below the existence of a birth.
    pub delete_existence: f64,
    /// A track that no frame shows for longer ends. Default: 2 s.
    pub coast_limit_s: f64,
    /// Two tracks that frames show in one place for so long become one. Default: 0.5 s.
    pub merge_after_s: f64,
    /// Tracks at most, tentative ones included. Default: 200.
    pub max_tracks: usize,
}

impl Default for TrackerSettings {
    fn default() -> Self {
        Self {
            motion: MotionModel::default(),
            confirm_existence: 0.95,
            demote_existence: 0.5,
            delete_existence: 1e-6,
            coast_limit_s: 2.0,
            merge_after_s: 0.5,
            max_tracks: 200,
        }
    }
}

impl TrackerSettings {
    /// Refuses what is out of range.
    pub fn validate(&self) -> Result<(), TrackingError> {
        self.motion.validate()?;
        let (confirm, demote, delete) =
            (self.confirm_existence, self.demote_existence, self.delete_existence);
        require((0.0..1.0).contains(&confirm), "confirm_existence", confirm, "at least 0 and below 1")?;
        let ordered = (0.0..=confirm).contains(&demote);
        require(ordered, "demote_existence", demote, "between 0 and confirm_existence")?;
        let ordered = (0.0..=demote).contains(&delete);
        require(ordered, "delete_existence", delete, "between 0 and demote_existence")?;
        let (coast, merge) = (self.coast_limit_s, self.merge_after_s);
        require((0.0..=1e4).contains(&coast), "coast_limit_s", coast, "between 0 and 1e4")?;
        require((0.0..=1e4).contains(&merge), "merge_after_s", merge, "between 0 and 1e4")?;
        let count = self.max_tracks;
        require((1..=10_000).contains(&count), "max_tracks", count as f64, "between 1 and 10 000")
    }
}

/// A track with what only the tracker needs.
#[derive(Debug, Clone, PartialEq)]
struct Followed {
    track: Track,
    law: StateLaw,
    /// The track that is shown in the same place, and since when.
    sharing: Option<(u64, f64)>,
}

/// Follows any number of targets.
#[derive(Debug, Clone)]
pub struct Tracker {
    settings: TrackerSettings,
    dimension: usize,
    next_id: u64,
    time_s: Option<f64>,
    followed: Vec<Followed>,
}

impl Tracker {
    /// A tracker of positions with 1 to 3 coordinates, before the first frame.
    pub fn new(dimension: usize, settings: TrackerSettings) -> Result<Self, TrackingError> {
        settings.validate()?;
        if !(1..=crate::law::MAX_DIMENSION).contains(&dimension) {
            let what = "position";
            return Err(TrackingError::Dimension { what, found: dimension, expected: "1 to 3".into() });
        }
        Ok(Self { settings, dimension, next_id: 1, time_s: None, followed: Vec::new() })
    }

    /// How tracks are kept.
    pub fn settings(&self) -> &TrackerSettings {
        &self.settings
    }

    /// Time of the last frame.
    pub fn time_s(&self) -> Option<f64> {
        self.time_s
    }

    /// All tracks in the order of their identities, the tentative ones included.
    pub fn tracks(&self) -> impl Iterator<Item = &Track> {
        self.followed.iter().map(|followed| &followed.track)
    }

    /// The tracks that are taken for targets.
    pub fn confirmed(&self) -> impl Iterator<Item = &Track> {
        self.tracks().filter(|track| track.is_confirmed())
    }

    /// The identities and laws that a step at this time passes to its observation, in the same order.
    pub fn predict(&self, time_s: f64) -> Result<Vec<(u64, Predicted)>, TrackingError> {
        let ids = self.tracks().map(|track| track.id).zip(self.kept(time_s));
        let ids = ids.filter(|(_, kept)| *kept).map(|(id, _)| id);
        let laws = self.kept_prediction(time_s)?;
        ids.zip(&laws).map(|(id, law)| Ok((id, predicted(law)?))).collect()
    }

    /// Takes a frame in, which must be later than the last one.
    pub fn step(
        &mut self,
        time_s: f64,
        observation: &dyn Observation,
    ) -> Result<FrameChanges, TrackingError> {
        let mut changes = FrameChanges::default();
        let (states, kept) = (self.kept_prediction(time_s)?, self.kept(time_s));
        let predicted = states.iter().map(predicted).collect::<Result<Vec<_>, _>>()?;
        let update = observation.update(&predicted);
        self.check(&update, predicted.len())?;
        // Nothing is refused from here on.
        self.time_s = Some(time_s);
        self.retain(&mut changes, |index, _| if kept[index] { None } else { Some(EndCause::Coasting) });
        self.condition(time_s, states, &update.tracks);
        self.merge(time_s, &mut changes);
        self.judge(time_s, &mut changes);
        self.begin(time_s, update.births, &mut changes);
        self.mark_confirmed(time_s, &mut changes);
        Ok(changes)
    }

    /// Laws of the states and existences at a time, of the tracks that are still followed then.
    fn kept_prediction(&self, time_s: f64) -> Result<Vec<(StateLaw, f64)>, TrackingError> {
        if !time_s.is_finite() || time_s.abs() > 1e12 {
            return Err(TrackingError::Time { time_s });
        }
        let step_s = match self.time_s {
            Some(last_s) if time_s <= last_s => return Err(TrackingError::OutOfOrder { time_s, last_s }),
            Some(last_s) => time_s - last_s,
            None => 0.0,
        };
        let motion = &self.settings.motion;
        let predict = |followed: &Followed| {
            let law = motion.predict(&followed.law, step_s)?;
            Ok((law, followed.track.existence * motion.survival(step_s)))
        };
        // After a long gap no track is followed, so that it is no error.
        let followed = self.followed.iter().zip(self.kept(time_s)).filter(|(_, kept)| *kept);
        followed.map(|(followed, _)| predict(followed)).collect()
    }

    /// Which tracks are still followed at the time of a frame, whatever it shows.
    fn kept(&self, time_s: f64) -> Vec<bool> {
        let limit_s = self.settings.coast_limit_s;
        let last_s = self.time_s.unwrap_or(time_s);
        // The time of a single step does not count as coasting: the frame may show the track.
        let kept = |track: &Track| last_s - track.seen_s <= limit_s && time_s - last_s <= 1e4;
        self.tracks().map(kept).collect()
    }

    /// Refuses an answer that does not fit.
    fn check(&self, update: &FrameUpdate, expected: usize) -> Result<(), TrackingError> {
        let found = update.tracks.len();
        if found != expected {
            return Err(TrackingError::Answer { found, expected });
        }
        let laws =
            update.tracks.iter().map(|track| &track.law).chain(update.births.iter().map(|birth| &birth.law));
        for law in laws {
            if law.dimension() != self.dimension {
                let (what, found) = ("law of a position", law.dimension());
                return Err(TrackingError::Dimension { what, found, expected: self.dimension.to_string() });
            }
        }
        for (index, track) in update.tracks.iter().enumerate() {
            probability("an existence", track.existence)?;
            if let Some(partner) =
                track.merged_with.filter(|&partner| partner >= expected || partner == index)
            {
                return Err(TrackingError::Partner { track: index, partner });
            }
        }
        update.births.iter().try_for_each(|birth| probability("the existence of a birth", birth.existence))
    }

    /// Ends the tracks for which there is a cause.
    fn retain(&mut self, changes: &mut FrameChanges, cause: impl Fn(usize, &Followed) -> Option<EndCause>) {
        let mut index = 0;
        self.followed.retain(|followed| {
            let cause = cause(index, followed);
            index += 1;
            if let Some(cause) = cause {
                let (id, confirmed) = (followed.track.id, followed.track.confirmed_s.is_some());
                changes.ended.push(EndedTrack { id, cause, confirmed });
            }
            cause.is_none()
        });
    }

    fn condition(&mut self, time_s: f64, predicted: Vec<(StateLaw, f64)>, updates: &[Updated]) {
        let ids: Vec<u64> = self.tracks().map(|track| track.id).collect();
        for ((followed, (law, _)), update) in self.followed.iter_mut().zip(predicted).zip(updates) {
            // A posterior that numbers cannot express leaves the prediction.
            followed.law = law.condition(&update.law).unwrap_or(law);
            let track = &mut followed.track;
            track.state = followed.law.mean().clone();
            track.covariance = followed.law.covariance().clone();
            track.existence = update.existence;
            track.coasting = !update.detected;
            track.doubtful_identity = update.doubtful_identity;
            track.merged_with = update.merged_with.map(|partner| ids[partner]);
            if update.detected {
                track.seen_s = time_s;
            }
            if update.doubtful_identity {
                track.doubtful_s = Some(time_s);
            }
            followed.sharing = match (track.merged_with, followed.sharing) {
                (Some(partner), Some((before, since_s))) if partner == before => Some((before, since_s)),
                (Some(partner), _) => Some((partner, time_s)),
                (None, sharing) => sharing.filter(|_| !update.detected),
            };
        }
    }

    /// Makes one of two tracks that share their detections for long.
    fn merge(&mut self, time_s: f64, changes: &mut FrameChanges) {
        let after_s = self.settings.merge_after_s;
        // Two tentative tracks at one detection are two beginnings of one track.
        let begins = |id: u64| self.tracks().any(|track| track.id == id && !track.is_confirmed());
        let due = |followed: &Followed| {
            let (partner, since_s) = followed.sharing?;
            let long = time_s - since_s >= after_s || (begins(followed.track.id) && begins(partner));
            (long && followed.track.merged_with == Some(partner)).then_some((followed.track.id, partner))
        };
        let pairs: Vec<(u64, u64)> = self.followed.iter().filter_map(due).collect();
        for (first, second) in pairs {
            let place = |id: u64| self.followed.iter().position(|followed| followed.track.id == id);
            // Either may have ended in another pair.
            let (Some(first), Some(second)) = (place(first), place(second)) else { continue };
            let (one, other) = (&self.followed[first].track, &self.followed[second].track);
            let stays_first = match (one.is_confirmed(), other.is_confirmed()) {
                (true, true) => one.id < other.id,
                (false, false) => (one.existence, other.id) > (other.existence, one.id),
                (confirmed, _) => confirmed,
            };
            let (stays, ends) = if stays_first { (first, second) } else { (second, first) };
            let ended = self.followed[ends].track.clone();
            let track = &mut self.followed[stays].track;
            track.existence = 1.0 - (1.0 - track.existence) * (1.0 - ended.existence);
            track.absorbed = Some(ended.id);
            let (id, cause) = (ended.id, EndCause::MergedInto(track.id));
            changes.ended.push(EndedTrack { id, cause, confirmed: ended.confirmed_s.is_some() });
            self.followed.remove(ends);
        }
        let ids: Vec<u64> = self.tracks().map(|track| track.id).collect();
        for followed in &mut self.followed {
            followed.sharing = followed.sharing.filter(|(partner, _)| ids.contains(partner));
            followed.track.merged_with = followed.track.merged_with.filter(|partner| ids.contains(partner));
        }
    }

    /// Ends the tracks that probably do not exist or coast for too long. One that was last shown where another track is
    /// has become a part of it.
    fn judge(&mut self, time_s: f64, changes: &mut FrameChanges) {
        let settings = self.settings;
        let cause = |followed: &Followed| {
            let track = &followed.track;
            let absent = track.existence < settings.delete_existence;
            let coasts = time_s - track.seen_s > settings.coast_limit_s;
            let reason = if absent { EndCause::Existence } else { EndCause::Coasting };
            (absent || coasts).then_some(reason)
        };
        let lasting: Vec<u64> = self
            .followed
            .iter()
            .filter(|followed| cause(followed).is_none())
            .map(|followed| followed.track.id)
            .collect();
        let first = changes.ended.len();
        self.retain(changes, |_, followed| {
            let partner = followed.sharing.map(|(partner, _)| partner).filter(|id| lasting.contains(id));
            cause(followed).map(|cause| partner.map_or(cause, EndCause::MergedInto))
        });
        for ended in &changes.ended[first..] {
            let EndCause::MergedInto(partner) = ended.cause else { continue };
            for followed in self.followed.iter_mut().filter(|followed| followed.track.id == partner) {
                followed.track.absorbed = Some(ended.id);
            }
        }
    }

    /// Starts tracks, the most probable first, as long as there is room.
    fn begin(&mut self, time_s: f64, mut births: Vec<Birth>, changes: &mut FrameChanges) {
        births.retain(|birth| birth.existence > 0.0 && birth.existence >= self.settings.delete_existence);
        // The order is that of existence, then of place, so that it does not depend on the order of detections.
        births.sort_by(|a, b| {
            let place = |birth: &Birth| birth.law.mean_m().iter().copied().collect::<Vec<f64>>();
            let by_place = || place(a).iter().zip(&place(b)).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne());
            b.existence.total_cmp(&a.existence).then_with(|| by_place().unwrap_or(std::cmp::Ordering::Equal))
        });
        let count = births.len();
        for (index, birth) in births.into_iter().enumerate() {
            if self.followed.len() >= self.settings.max_tracks && !self.make_room(birth.existence, changes) {
                changes.dropped_births += count - index;
                break;
            }
            let Ok(law) = self.settings.motion.birth(&birth.law) else { continue };
            let id = self.next_id;
            self.next_id += 1;
            let track = Track {
                id,
                state: law.mean().clone(),
                covariance: law.covariance().clone(),
                existence: birth.existence,
                status: TrackStatus::Tentative,
                coasting: false,
                born_s: time_s,
                confirmed_s: None,
                seen_s: time_s,
                doubtful_identity: false,
                doubtful_s: None,
                merged_with: None,
                absorbed: None,
            };
            self.followed.push(Followed { track, law, sharing: None });
            changes.born.push(id);
        }
    }

    /// Ends the least probable tentative track if a birth is more probable.
    fn make_room(&mut self, existence: f64, changes: &mut FrameChanges) -> bool {
        let tentative = self.tracks().enumerate().filter(|(_, track)| !track.is_confirmed());
        let least = tentative.min_by(|(_, a), (_, b)| a.existence.total_cmp(&b.existence));
        let Some((index, _)) = least.filter(|(_, track)| track.existence < existence) else { return false };
        let track = self.followed.remove(index).track;
        let (id, confirmed) = (track.id, track.confirmed_s.is_some());
        changes.ended.push(EndedTrack { id, cause: EndCause::Crowded, confirmed });
        true
    }

    /// Confirms and demotes by existence, with hysteresis.
    fn mark_confirmed(&mut self, time_s: f64, changes: &mut FrameChanges) {
        for Followed { track, .. } in &mut self.followed {
            if track.is_confirmed() && track.existence < self.settings.demote_existence {
                track.status = TrackStatus::Tentative;
            } else if !track.is_confirmed() && track.existence >= self.settings.confirm_existence {
                track.status = TrackStatus::Confirmed;
                track.confirmed_s.get_or_insert(time_s);
                changes.confirmed.push(track.id);
            }
        }
    }
}

/// The law of a state and its existence as an observation sees them.
fn predicted((law, existence): &(StateLaw, f64)) -> Result<Predicted, TrackingError> {
    Predicted::new(law.position()?, *existence)
}
