//! Solves a frame and measures the time of angles and location.
//!
//! With batches, a frame takes part in several fixes; the part of the work that they share is done once and kept with
//! the frame. The solver sees only received paths and has no access to the truth.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use estimation::angles::AngleEstimate;
use estimation::direct::{ClockPrior, ClockUpdate, Missed, Survey};
use estimation::fusion::{Estimator, FrameBlocks, FusedFix, Fuser, FuserError, FusionError, Method};
use model::System;
use proto::convert::FrameId;
use tracking::TrackingError;

use crate::basis::{Basis, FrameBasis};
use crate::fix::{FixRecord, Source};
use crate::likelihood::{LatestFrame, Likelihoods, SeenFrame};
use crate::method::MethodSettings;
use crate::tracks::{Followable, TrackFollower};

/// Solves frames: an estimator of single frames, and the fuser of batches if there is one.
pub struct Solver {
    estimator: Arc<dyn Estimator>,
    batches: Option<Arc<Fuser>>,
    /// The latest frame that was solved, for display.
    latest: LatestFrame,
}

impl Solver {
    /// The fuser of a site.
    pub fn new(site: &System, method: &MethodSettings) -> Result<Self, FuserError> {
        let fuser = Arc::new(Fuser::new(site.clone(), method.fusion())?);
        Ok(Self { estimator: fuser.clone(), batches: Some(fuser), latest: LatestFrame::default() })
    }

    /// Another estimator, which solves single frames only.
    pub fn with_estimator(estimator: Box<dyn Estimator>) -> Self {
        Self { estimator: estimator.into(), batches: None, latest: LatestFrame::default() }
    }

    /// Shows the likelihood of the latest frame.
    pub fn likelihoods(&self) -> Likelihoods {
        Likelihoods::new(self.batches.clone(), self.latest.clone())
    }

    /// Keeps a solved frame for display.
    pub fn show(&self, frame: FrameId, kept: &Arc<Kept>, clocks: Option<&ClockPrior>) {
        self.latest.put(SeenFrame { frame, kept: kept.clone(), clocks: clocks.cloned() });
    }

    /// The fuser, if several targets are looked for.
    fn several(&self) -> Option<&Fuser> {
        self.batches.as_deref().filter(|fuser| fuser.settings().max_targets > 1)
    }

    /// Follows targets from frame to frame; none where one target only is looked for.
    pub fn tracks(&self, method: &MethodSettings) -> Result<Option<TrackFollower>, TrackingError> {
        let fuser = self.batches.as_ref().filter(|_| self.several().is_some());
        fuser.map(|fuser| TrackFollower::new(fuser.clone(), method.tracker())).transpose()
    }

    /// Frames per batch.
    pub fn batch_frames(&self) -> usize {
        self.batches.as_ref().map_or(1, |fuser| fuser.settings().batch.frames)
    }

    /// Standard deviation of the clock offsets before anything is received; 0 where clocks are trusted.
    pub fn clock_prior_s(&self) -> f64 {
        self.batches.as_ref().map_or(0.0, |fuser| fuser.system().clock_prior_s)
    }

    /// Whether the direct method is missing although it is part of the method.
    pub fn lacks_direct(&self) -> bool {
        self.batches
            .as_ref()
            .is_some_and(|fuser| fuser.settings().method == Method::Auto && !fuser.has_direct())
    }
}

/// A solved frame.
#[derive(Debug)]
pub struct Solved {
    /// The fix, or why there is none; its timing holds the solver's part.
    pub record: FixRecord,
    /// The data that it was made from.
    pub basis: Basis,
    /// The kind of reason why there is no fix, without figures, so that reasons can be counted.
    pub reason: Option<String>,
    /// What the frame says about the clocks.
    pub clocks: Option<ClockUpdate>,
    /// What the tracks need of the frame; none where there are no tracks.
    pub followable: Option<Followable>,
}

impl Solved {
    fn new(
        (frame, kept): (FrameId, &Kept),
        angles: Option<&AngleEstimate>,
        outcome: &Result<Vec<FusedFix>, FusionError>,
        source: Source,
        (angles_time, locate_time): (Duration, Duration),
    ) -> Self {
        let mut record = FixRecord::new(frame, &kept.blocks, angles, outcome, source);
        record.timing.angles_ms = angles_time.as_secs_f64() * 1e3;
        record.timing.locate_ms = locate_time.as_secs_f64() * 1e3;
        record.timing.fusion_ms = record.timing.angles_ms + record.timing.locate_ms;
        let first = outcome.as_ref().map(|fixes| fixes.first());
        let reason = match &first {
            Ok(Some(_)) => None,
            Ok(None) | Err(FusionError::Missed(Missed::NoTarget { .. })) => Some(NO_TARGET.to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let clocks = first.ok().flatten().and_then(|fix| fix.clocks.clone());
        Self { record, basis: Basis::of_frame(frame, &kept.blocks), reason, clocks, followable: None }
    }

    /// A frame on which the solver failed.
    pub fn failed(frame: FrameId, kept: &Kept) -> Self {
        let unusable = Err(estimation::location::Unobservable::NoMeasurements.into());
        let none = (Duration::ZERO, Duration::ZERO);
        let mut solved = Self::new((frame, kept), None, &unusable, Source::Simulated, none);
        solved.record.cautions = vec!["the solver failed on this frame".into()];
        solved.reason = solved.record.cautions.first().cloned();
        solved
    }
}

/// The reason why a frame in which no target was detected has no fix.
pub const NO_TARGET: &str = "no target: noise alone looks like this";

/// An offset of a clock is known if its standard deviation is below this share of the inverse bandwidth.
const KNOWN_OFFSET: f64 = 0.1;

/// A frame that is kept for the batches of later frames; it is surveyed at most once.
#[derive(Debug)]
pub struct Kept {
    /// The paths that were received.
    pub blocks: FrameBlocks,
    survey: OnceLock<Result<Survey, Missed>>,
}

impl Kept {
    /// A frame that has not been surveyed.
    pub fn new(blocks: FrameBlocks) -> Self {
        Self { blocks, survey: OnceLock::new() }
    }

    fn survey(&self, fuser: &Fuser) -> Result<&Survey, Missed> {
        self.survey.get_or_init(|| fuser.survey(&self.blocks, None)).as_ref().map_err(|missed| *missed)
    }
}

/// The earlier frames of a batch, with their numbers.
pub type Earlier = Vec<(u64, Arc<Kept>)>;

/// Solves a frame, together with earlier ones where those are given, with what is known about the clocks.
pub fn solve(
    solver: &Solver,
    frame: FrameId,
    kept: &Kept,
    earlier: &Earlier,
    clocks: Option<&ClockPrior>,
    source: Source,
) -> Solved {
    let started = Instant::now();
    if let Some(fuser) = solver.batches.as_deref().filter(|_| !earlier.is_empty()) {
        match solve_batch(fuser, (frame.frame, kept), earlier) {
            // A batch may be unobservable where a single frame is not, for example if the target changes its velocity.
            Err(FusionError::Missed(Missed::Unobservable)) => {}
            outcome => {
                let times = (Duration::ZERO, started.elapsed());
                let outcome = outcome.map(|fix| vec![fix]);
                let mut solved = Solved::new((frame, kept), None, &outcome, source, times);
                let before = earlier.iter().map(|(number, kept)| FrameBasis::new(*number, &kept.blocks));
                solved.basis.frames.splice(0..0, before);
                solved.record.frames = solved.basis.frames.len();
                solved.basis.combination = fuser.settings().batch.combination;
                return solved;
            }
        }
    }
    if let Some(fuser) = solver.several() {
        let survey = fuser.survey(&kept.blocks, clocks);
        let outcome =
            survey.as_ref().map_err(|missed| (*missed).into()).and_then(|survey| fuser.fuse_targets(survey));
        let times = (Duration::ZERO, started.elapsed());
        let mut solved = Solved::new((frame, kept), None, &outcome, source, times);
        let survey = survey.ok().and_then(|survey| with_known_clocks(fuser, survey, &solved, clocks));
        solved.followable = Some(Followable { time_s: 0.0, survey });
        return solved;
    }
    let mut angles_stage = (None, started);
    let outcome = solver.estimator.estimate_observed(&kept.blocks, clocks, &mut |angles| {
        angles_stage = (angles.cloned(), Instant::now());
    });
    let (angles, between) = angles_stage;
    let times = (between - started, between.elapsed());
    Solved::new((frame, kept), angles.as_ref(), &outcome, source, times)
}

/// The survey for the tracks: with the offsets that the frame has shown; those that were known before, if it has no fix and they
/// were known to a fraction of the resolution.
fn with_known_clocks(
    fuser: &Fuser,
    survey: Survey,
    solved: &Solved,
    before: Option<&ClockPrior>,
) -> Option<Survey> {
    let system = fuser.system();
    if system.clock_prior_s == 0.0 {
        return Some(survey);
    }
    let most_s = KNOWN_OFFSET / system.bandwidth_hz;
    let sharp = |prior: &&ClockPrior| (0..system.irs_count()).all(|l| prior.deviation_s(l) < most_s);
    let known = solved.clocks.as_ref().map(|update| &update.posterior).or(before.filter(sharp))?;
    fuser.locator()?.with_offsets_removed(&survey, known.mean_s().as_slice())
}

fn solve_batch(fuser: &Fuser, last: (u64, &Kept), earlier: &Earlier) -> Result<FusedFix, FusionError> {
    let frames = earlier.iter().map(|(number, kept)| (*number, kept.as_ref())).chain([last]);
    let surveys = frames.map(|(number, kept)| Ok((number, kept.survey(fuser)?)));
    fuser.fuse_frames(&surveys.collect::<Result<Vec<_>, Missed>>()?)
}

/// The latest frames of a run, for batches.
#[derive(Debug, Default)]
pub struct History {
    batch_frames: usize,
    run: u64,
    /// By number.
    frames: BTreeMap<u64, Arc<Kept>>,
}

impl History {
    /// A history for batches of this many frames.
    pub fn new(batch_frames: usize) -> Self {
        Self { batch_frames, ..Self::default() }
    }

    /// Adds a frame; returns the earlier frames of its batch.
    pub fn take(&mut self, frame: FrameId, kept: &Arc<Kept>) -> Earlier {
        if self.batch_frames < 2 {
            return Vec::new();
        }
        self.keep(frame, kept.clone());
        let first = frame.frame.saturating_sub(self.batch_frames as u64 - 1);
        let earlier = self.frames.range(first..frame.frame);
        earlier.map(|(number, kept)| (*number, kept.clone())).collect()
    }

    /// Keeps a frame for those that follow; another run begins a new history.
    pub fn keep(&mut self, frame: FrameId, kept: Arc<Kept>) {
        if self.run != frame.run {
            self.frames.clear();
            self.run = frame.run;
        }
        self.frames.insert(frame.frame, kept);
        while self.frames.len() > self.batch_frames {
            self.frames.pop_first();
        }
    }

    /// A frame that is still kept.
    pub fn get(&self, frame: FrameId) -> Option<Arc<Kept>> {
        self.frames.get(&frame.frame).filter(|_| self.run == frame.run).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch is of one run, whichever identity is greater.
    #[test]
    fn another_run_begins_a_new_history() {
        let mut history = History::new(3);
        let kept = Arc::new(Kept::new(FrameBlocks::new(2)));
        let mut take = |run, frame| -> Vec<u64> {
            let earlier = history.take(FrameId { run, frame }, &kept);
            earlier.iter().map(|(number, _)| *number).collect()
        };
        assert_eq!(take(900, 7), [0; 0]);
        assert_eq!((take(900, 8), take(900, 10)), (vec![7], vec![8]));
        assert_eq!(
            (take(5, 0), take(5, 1), take(5, 2), take(5, 3)),
            (vec![], vec![0], vec![0, 1], vec![1, 2])
        );
        let get = |run| history.get(FrameId { run, frame: 2 }).is_some();
        assert_eq!((get(5), get(900)), (true, false));
    }
}
