//! One frame solved: the pure chain with a stopwatch around its two steps.
//!
//! With batches a frame takes part in several fixes; what these have in common is made once and kept with it.
//! Knows blocks alone. The truth lives in [`crate::truth`], which nothing here can reach.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use estimation::angles::AngleEstimate;
use estimation::direct::{Missed, Survey};
use estimation::fusion::{FrameBlocks, FusedFix, Fuser, FusionError};
use proto::convert::FrameId;

use crate::basis::{Basis, FrameBasis};
use crate::fix::{FixRecord, Source};

/// A solved frame.
#[derive(Debug)]
pub struct Solved {
    /// The fix, or why there is none; its timing holds the solver's part.
    pub record: FixRecord,
    /// The data that it was made of.
    pub basis: Basis,
    /// The kind of reason why there is no fix, without figures, so that reasons can be counted.
    pub reason: Option<String>,
}

impl Solved {
    fn new(
        (frame, kept): (FrameId, &Kept),
        angles: Option<&AngleEstimate>,
        outcome: &Result<FusedFix, FusionError>,
        source: Source,
        (angles_time, locate_time): (Duration, Duration),
    ) -> Self {
        let mut record = FixRecord::new(frame, &kept.blocks, angles, outcome, source);
        record.timing.angles_ms = angles_time.as_secs_f64() * 1e3;
        record.timing.locate_ms = locate_time.as_secs_f64() * 1e3;
        record.timing.fusion_ms = record.timing.angles_ms + record.timing.locate_ms;
        let reason = outcome.as_ref().err().map(|error| match error {
            FusionError::Missed(Missed::NoTarget { .. }) => NO_TARGET.to_owned(),
            error => error.to_string(),
        });
        Self { record, basis: Basis::of_frame(frame, &kept.blocks), reason }
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

/// Why there is no fix where there is nothing to be seen.
pub const NO_TARGET: &str = "no target: noise alone looks like this";

/// A frame that others may be solved with: what came of it, surveyed at most once.
#[derive(Debug)]
pub struct Kept {
    /// What came.
    pub blocks: FrameBlocks,
    survey: OnceLock<Result<Survey, Missed>>,
}

impl Kept {
    /// Not surveyed yet.
    pub fn new(blocks: FrameBlocks) -> Self {
        Self { blocks, survey: OnceLock::new() }
    }

    fn survey(&self, fuser: &Fuser) -> Result<&Survey, Missed> {
        self.survey.get_or_init(|| fuser.survey(&self.blocks)).as_ref().map_err(|missed| *missed)
    }
}

/// Frames before the one in question, of the same run, with their numbers.
pub type Earlier = Vec<(u64, Arc<Kept>)>;

/// Solves a frame, together with earlier ones where those are given.
pub fn solve(fuser: &Fuser, frame: FrameId, kept: &Kept, earlier: &Earlier, source: Source) -> Solved {
    let started = Instant::now();
    if !earlier.is_empty() {
        match solve_batch(fuser, (frame.frame, kept), earlier) {
            // Several frames may lack what one has, such as a target that keeps its velocity.
            Err(FusionError::Missed(Missed::Unobservable)) => {}
            outcome => {
                let times = (Duration::ZERO, started.elapsed());
                let mut solved = Solved::new((frame, kept), None, &outcome, source, times);
                let before = earlier.iter().map(|(number, kept)| FrameBasis::new(*number, &kept.blocks));
                solved.basis.frames.splice(0..0, before);
                solved.basis.combination = fuser.settings().batch.combination;
                return solved;
            }
        }
    }
    let prepared = fuser.prepare(&kept.blocks);
    let angles = fuser.angles(&prepared);
    let between = Instant::now();
    let outcome = fuser.locate(&prepared, &angles);
    let times = (between - started, between.elapsed());
    let estimate = angles.as_ref().ok().and_then(Option::as_ref);
    Solved::new((frame, kept), estimate, &outcome, source, times)
}

fn solve_batch(fuser: &Fuser, last: (u64, &Kept), earlier: &Earlier) -> Result<FusedFix, FusionError> {
    let frames = earlier.iter().map(|(number, kept)| (*number, kept.as_ref())).chain([last]);
    let surveys = frames.map(|(number, kept)| Ok((number, kept.survey(fuser)?)));
    fuser.fuse_frames(&surveys.collect::<Result<Vec<_>, Missed>>()?)
}

/// The latest frames, for batches.
#[derive(Debug, Default)]
pub struct History {
    batch_frames: usize,
    frames: BTreeMap<FrameId, Arc<Kept>>,
}

impl History {
    /// A history for batches of this many frames.
    pub fn new(batch_frames: usize) -> Self {
        Self { batch_frames, frames: BTreeMap::new() }
    }

    /// Takes a frame; gives those before it that make up its batch.
    pub fn take(&mut self, frame: FrameId, kept: &Arc<Kept>) -> Earlier {
        if self.batch_frames < 2 {
            return Vec::new();
        }
        let first = frame.frame.saturating_sub(self.batch_frames as u64 - 1);
        let earlier = self.frames.range(FrameId { frame: first, ..frame }..frame);
        let earlier = earlier.map(|(id, kept)| (id.frame, kept.clone())).collect();
        self.keep(frame, kept.clone());
        earlier
    }

    /// Keeps a frame for those that follow.
    pub fn keep(&mut self, frame: FrameId, kept: Arc<Kept>) {
        self.frames.insert(frame, kept);
        while self.frames.len() > self.batch_frames {
            self.frames.pop_first();
        }
    }

    /// A frame that is still kept.
    pub fn get(&self, frame: FrameId) -> Option<Arc<Kept>> {
        self.frames.get(&frame).cloned()
    }
}
