//! Ground truth, for display and error statistics only.
//!
//! The simulator sends it over a separate stream. The publisher joins it to a fix after the fix is made; neither the
//! assembler nor the solver uses this module, which a test checks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use estimation::direct::Combination;
use model::{Gain, Information, Point, Scheme, Score, System, constant_velocity_crb_m2};
use nalgebra::DMatrix;
use proto::convert::FrameId;

use crate::basis::Basis;
use crate::fix::{FixRecord, Truth};
use crate::place::{Axes, FixPlace, symmetric, upper_triangle};

/// Frames of one source whose truth is kept: more than the fixes under way and the frames of a batch.
const REMEMBERED_FRAMES: usize = 8192;

/// Streams that may be open at a time: one of a simulator, one of its restarted process, and two spare ones.
const MOST_OPEN: usize = 4;

/// Sources that are remembered, open or not.
const MOST_SOURCES: usize = 8;

/// How far from the latest fix of its run the frame of a record may be: more than a source keeps to send again.
const FARTHEST: u64 = REMEMBERED_FRAMES as u64;

/// The target and the clocks in one frame, as sent by the simulator.
#[derive(Debug, Clone, PartialEq)]
pub struct TrueFrame {
    pub position_m: Point,
    pub rcs_m2: f64,
    /// Offset of the clock of every node; empty where clocks are trusted.
    pub clock_offset_s: Vec<f64>,
}

/// Why a record of the truth is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TruthError {
    #[error("a stream carries the truth of one run, and this one belongs to run {told}")]
    OtherRun { told: u64 },
    #[error("the frame is more than {FARTHEST} frames from the latest fix of its run, {latest}")]
    Far { latest: u64 },
    #[error("the truth of this frame is known")]
    Known,
}

/// Truth by source and frame, bounded. A source displaces only its own oldest records, and of two records
/// of a frame the first counts. Shared, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct TruthStore(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    /// In the order of opening.
    sources: Vec<SourceRecords>,
    opened: u64,
    /// The frame of the latest fix.
    fixed: Option<FrameId>,
}

/// The records of one stream.
#[derive(Debug, Default)]
struct SourceRecords {
    number: u64,
    open: bool,
    run: Option<u64>,
    records: HashMap<u64, TrueFrame>,
    /// Frames in the order of arrival.
    order: VecDeque<u64>,
    /// The furthest frame received.
    latest: Option<u64>,
}

impl SourceRecords {
    fn tell(&mut self, frame: FrameId, target: TrueFrame) -> Result<(), TruthError> {
        let told = *self.run.get_or_insert(frame.run);
        if told != frame.run {
            return Err(TruthError::OtherRun { told });
        }
        if self.records.contains_key(&frame.frame) {
            return Err(TruthError::Known);
        }
        self.records.insert(frame.frame, target);
        self.order.push_back(frame.frame);
        self.latest = self.latest.max(Some(frame.frame));
        if self.order.len() > REMEMBERED_FRAMES
            && let Some(oldest) = self.order.pop_front()
        {
            self.records.remove(&oldest);
        }
        Ok(())
    }

    fn get(&self, frame: FrameId) -> Option<TrueFrame> {
        self.records.get(&frame.frame).filter(|_| self.run == Some(frame.run)).cloned()
    }

    /// Whether the truth of a frame may still come.
    fn may_tell(&self, frame: FrameId) -> bool {
        self.open && self.run.is_none_or(|run| run == frame.run && self.latest < Some(frame.frame))
    }
}

/// A stream of truth, which is open until this is dropped.
#[derive(Debug)]
pub struct TruthSource {
    store: TruthStore,
    number: u64,
}

impl TruthSource {
    pub fn tell(&mut self, frame: FrameId, target: TrueFrame) -> Result<(), TruthError> {
        let mut records = self.store.records();
        if let Some(latest) = records.fixed.filter(|fixed| fixed.run == frame.run).map(|fixed| fixed.frame)
            && latest.abs_diff(frame.frame) > FARTHEST
        {
            return Err(TruthError::Far { latest });
        }
        let told = records.sources.iter_mut().find(|told| told.number == self.number);
        told.map_or(Ok(()), |told| told.tell(frame, target))
    }
}

impl Drop for TruthSource {
    fn drop(&mut self) {
        let mut records = self.store.records();
        let told = records.sources.iter_mut().find(|told| told.number == self.number);
        told.into_iter().for_each(|told| told.open = false);
    }
}

impl TruthStore {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream; none if too many are open. The oldest stream that has ended is forgotten when there are too many.
    pub fn source(&self) -> Option<TruthSource> {
        let mut records = self.records();
        if records.sources.iter().filter(|told| told.open).count() >= MOST_OPEN {
            return None;
        }
        if records.sources.len() >= MOST_SOURCES
            && let Some(ended) = records.sources.iter().position(|told| !told.open)
        {
            records.sources.remove(ended);
        }
        records.opened += 1;
        let number = records.opened;
        records.sources.push(SourceRecords { number, open: true, ..SourceRecords::default() });
        Some(TruthSource { store: self.clone(), number })
    }

    /// Adds a record that needs no check, such as that of a recording.
    pub fn insert(&self, frame: FrameId, target: TrueFrame) {
        let mut records = self.records();
        if records.sources.last().and_then(|told| told.run) != Some(frame.run) {
            records.opened += 1;
            let number = records.opened;
            records.sources.push(SourceRecords { number, ..SourceRecords::default() });
            let surplus = records.sources.len().saturating_sub(MOST_SOURCES);
            records.sources.drain(..surplus);
        }
        // A record that is known already has no further effect.
        let _ = records.sources.last_mut().map(|told| told.tell(frame, target));
    }

    /// The truth of a frame, from the source that was opened first of those that told it.
    pub fn get(&self, frame: FrameId) -> Option<TrueFrame> {
        self.records().sources.iter().find_map(|told| told.get(frame))
    }

    /// Whether the truth of a frame that is not known may still arrive: a stream is open and has not reached the frame.
    pub fn may_come(&self, frame: FrameId) -> bool {
        self.records().sources.iter().any(|told| told.may_tell(frame))
    }

    /// A fix of this frame was published: further records should be of frames near it.
    pub fn fixed(&self, frame: FrameId) {
        self.records().fixed = Some(frame);
    }
}

/// Compares a fix with the truth and with the exact bound of the data that it was made from; none while the truth of its
/// frame is not known.
pub fn judge(record: &FixRecord, basis: &Basis, system: &System, truth: &TruthStore) -> Option<Truth> {
    let TrueFrame { position_m: target_m, clock_offset_s, .. } = truth.get(record.frame_id())?;
    let bound = bound_m2(basis, system, |frame| truth.get(frame));
    let covariance_m2 = record.covariance_m2.as_deref().and_then(symmetric);
    let score = record
        .position_m
        .zip(covariance_m2)
        .map(|(position_m, covariance_m2)| Score::new(position_m.point(), &covariance_m2, target_m));
    Some(Truth {
        position_m: FixPlace::new(target_m, Axes::of_site(system)),
        error_m: score.map(|score| score.error_m),
        bound_rms_m: bound.as_ref().map(|bound| bound.trace().sqrt()),
        bound_m2: bound.as_ref().map(upper_triangle),
        nees: score.and_then(|score| score.nees),
        clock_offset_ns: clock_offset_s.iter().map(|offset_s| offset_s * 1e9).collect(),
    })
}

/// Bound on the position in the last frame of a basis: the information of every frame at the true position of that
/// frame, of the paths that were received, times the frames that each node averaged; several frames are combined under
/// the constant-velocity model by which they were fused. None if the truth of a frame is not known.
///
/// Frames combined coherently share one gain per path, which is more informative than a separate gain for every frame, so
/// that the bound with gains unknown per frame would not be a lower bound. The bound with known gains is one: apart from
/// the state, the gains are all that the coherent model leaves unknown.
fn bound_m2(
    basis: &Basis,
    system: &System,
    target: impl Fn(FrameId) -> Option<TrueFrame>,
) -> Option<DMatrix<f64>> {
    let coherent = basis.frames.len() > 1 && basis.combination == Combination::Coherent;
    let gain = if coherent { Gain::Known } else { Gain::Unknown };
    let last = basis.frames.last()?.number;
    let frames = basis.frames.iter().zip(basis.frames()).map(|(frame, id)| {
        let TrueFrame { position_m, rcs_m2, .. } = target(id)?;
        let one = Information::new(system, position_m, rcs_m2, gain);
        let averages = frame.averaged_frames.iter().map(|frames| f64::from(*frames)).enumerate();
        let averaged = averages.fold(one, |all, (l, frames)| all.averaged(l, frames));
        let came = frame.missing.iter().fold(averaged, |all, &(l, k)| all.without(l, k));
        let back = last.saturating_sub(frame.number) as f64;
        Some((-back, came.position_information(Scheme::Hybrid)))
    });
    constant_velocity_crb_m2(&frames.collect::<Option<Vec<_>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::basis::FrameBasis;
    use model::Scenario;

    fn id(frame: u64) -> FrameId {
        FrameId { run: 1, frame }
    }

    fn target(x_m: f64) -> TrueFrame {
        TrueFrame { position_m: Point::new(x_m, 0.0, 0.0), rcs_m2: 5.0, clock_offset_s: Vec::new() }
    }

    fn told(store: &TruthStore, frame: u64) -> Option<f64> {
        store.get(id(frame)).map(|target| target.position_m.x)
    }

    #[test]
    fn a_source_keeps_its_latest_records() {
        let store = TruthStore::default();
        let mut source = store.source().unwrap();
        for frame in 0..REMEMBERED_FRAMES as u64 + 10 {
            source.tell(id(frame), target(frame as f64)).unwrap();
        }
        assert_eq!((told(&store, 9), told(&store, 10)), (None, Some(10.0)));
        drop(source);
        assert_eq!(told(&store, 10), Some(10.0), "fixes under way still need it");
    }

    /// A stranger floods the store: the records of the simulator stay, and the first that was told counts.
    #[test]
    fn a_flood_displaces_nothing() {
        let store = TruthStore::default();
        let mut simulator = store.source().unwrap();
        (0..100).for_each(|frame| simulator.tell(id(frame), target(1.0)).unwrap());
        let mut flood = store.source().unwrap();
        (0..100_000).for_each(|frame| flood.tell(id(frame), target(666.0)).unwrap());
        assert_eq!((told(&store, 0), told(&store, 99)), (Some(1.0), Some(1.0)));
        simulator.tell(id(99_999), target(1.0)).unwrap();
        assert_eq!(told(&store, 99_999), Some(1.0));
        assert_eq!(simulator.tell(id(7), target(2.0)), Err(TruthError::Known));
        assert_eq!(told(&store, 7), Some(1.0));
        let other = FrameId { run: 2, frame: 0 };
        assert_eq!(simulator.tell(other, target(2.0)), Err(TruthError::OtherRun { told: 1 }));
        // Streams are bounded too, and those that have ended make room.
        let more: Vec<_> = std::iter::from_fn(|| store.source()).collect();
        assert_eq!(more.len(), MOST_OPEN - 2);
        drop((more, flood));
        for _ in 0..100 {
            drop(store.source().unwrap());
        }
        assert_eq!((told(&store, 0), store.records().sources.len()), (Some(1.0), MOST_SOURCES));
    }

    #[test]
    fn records_far_from_the_latest_fix_are_refused() {
        let store = TruthStore::default();
        let mut source = store.source().unwrap();
        source.tell(id(u64::MAX), target(0.0)).unwrap();
        store.fixed(id(20_000));
        let far = Err(TruthError::Far { latest: 20_000 });
        for (frame, expected) in
            [(20_000 + FARTHEST, Ok(())), (20_001 + FARTHEST, far), (20_000 - FARTHEST, Ok(())), (0, far)]
        {
            assert_eq!(source.tell(id(frame), target(0.0)), expected, "{frame}");
        }
        // A new run begins where it likes.
        let mut next = store.source().unwrap();
        assert_eq!(next.tell(FrameId { run: 2, frame: 0 }, target(0.0)), Ok(()));
    }

    #[test]
    fn a_truth_may_come_while_one_tells_and_has_not_come_as_far() {
        let store = TruthStore::default();
        assert!(!store.may_come(id(0)), "nobody tells");
        let mut source = store.source().unwrap();
        assert!(store.may_come(id(3)));
        source.tell(id(3), target(3.0)).unwrap();
        assert!(!store.may_come(id(2)), "passed over: it will not come");
        assert!(store.may_come(id(4)));
        assert!(!store.may_come(FrameId { run: 2, frame: 4 }), "it tells of another run");
        drop(source);
        assert!(!store.may_come(id(4)));
    }

    fn bound_rms_m(frames: Vec<FrameBasis>, combination: Combination, rcs_m2: f64) -> Option<f64> {
        let system = System::new(&Scenario::default()).unwrap();
        let basis = Basis { run: 1, frames, combination };
        let position_m = Point::new(3.0, 4.0, 0.0);
        let known = |id: FrameId| {
            (id.frame < 100).then(|| TrueFrame { position_m, rcs_m2, clock_offset_s: Vec::new() })
        };
        Some(bound_m2(&basis, &system, known)?.trace().sqrt())
    }

    fn frame(number: u64, averaged_frames: u32, missing: &[(usize, usize)]) -> FrameBasis {
        FrameBasis { number, averaged_frames: vec![averaged_frames; 3], missing: missing.to_vec() }
    }

    /// The bound is the one of the data: averages, missing paths, batches and the target's own cross-section.
    #[test]
    fn the_bound_is_that_of_the_data_behind_the_fix() {
        let system_rcs_m2 = Scenario::default().rcs_m2();
        let bound = |frames| bound_rms_m(frames, Combination::NonCoherent, system_rcs_m2).unwrap();
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
        let one = bound(vec![frame(7, 1, &[])]);
        close(bound(vec![frame(7, 10, &[])]), one / 10f64.sqrt());
        assert!(bound(vec![frame(7, 1, &[(0, 0), (0, 1)])]) > 1.01 * one);
        // Four frames of a target at rest: (4 F - 2) / (F (F + 1)) = 0.7.
        let four = || (4..8).map(|number| frame(number, 1, &[])).collect::<Vec<_>>();
        close(bound(four()), one * 0.7f64.sqrt());
        // The batch lacks a frame in the middle: its times count, not its places in the list.
        let gap = bound(vec![frame(4, 1, &[]), frame(6, 1, &[]), frame(7, 1, &[])]);
        assert!(gap > bound(four()) && gap < one);
        // Twice the cross-section is twice the power.
        let large = bound_rms_m(vec![frame(7, 1, &[])], Combination::NonCoherent, 2.0 * system_rcs_m2);
        close(large.unwrap(), one / 2f64.sqrt());
        // Coherent frames know more, and one frame alone nothing of coherence.
        let coherent = |frames| bound_rms_m(frames, Combination::Coherent, system_rcs_m2).unwrap();
        assert!(coherent(four()) < bound(four()));
        close(coherent(vec![frame(7, 1, &[])]), one);
        assert_eq!(bound_rms_m(vec![frame(500, 1, &[])], Combination::NonCoherent, 1.0), None, "no truth");
    }
}
