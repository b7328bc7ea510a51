//! Ground truth, for display and error statistics only.
//!
//! The simulator sends it over a separate stream. The publisher joins it to a fix after the fix is made; neither the
//! assembler nor the solver uses this module, which a test checks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use estimation::direct::Combination;
use model::{Gain, Information, Point, Scheme, Score, System, constant_velocity_crb_m2};
use nalgebra::Matrix2;
use proto::convert::FrameId;

use crate::basis::Basis;
use crate::fix::{FixRecord, Truth};

/// Frames whose truth is kept: more than the fixes under way and the frames of a batch.
const REMEMBERED_FRAMES: usize = 8192;

/// The target in one frame, as sent by the simulator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrueTarget {
    pub position_m: Point,
    pub rcs_m2: f64,
}

/// Truth by frame, bounded: the oldest is removed first. Shared, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct TruthStore(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    records: BTreeMap<FrameId, TrueTarget>,
    /// Number of open streams.
    sources: usize,
    /// The furthest frame received.
    latest: Option<FrameId>,
}

/// A stream of truth, which is open until this is dropped.
#[derive(Debug)]
pub struct TruthSource(TruthStore);

impl TruthSource {
    pub fn tell(&self, frame: FrameId, target: TrueTarget) {
        self.0.insert(frame, target);
    }
}

impl Drop for TruthSource {
    fn drop(&mut self) {
        self.0.records().sources -= 1;
    }
}

impl TruthStore {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn source(&self) -> TruthSource {
        self.records().sources += 1;
        TruthSource(self.clone())
    }

    pub fn insert(&self, frame: FrameId, target: TrueTarget) {
        let mut records = self.records();
        records.records.insert(frame, target);
        records.latest = records.latest.max(Some(frame));
        while records.records.len() > REMEMBERED_FRAMES {
            records.records.pop_first();
        }
    }

    pub fn get(&self, frame: FrameId) -> Option<TrueTarget> {
        self.records().records.get(&frame).copied()
    }

    /// Whether the truth of a frame that is not known may still arrive: a stream is open and has not reached the frame.
    pub fn may_come(&self, frame: FrameId) -> bool {
        let records = self.records();
        records.sources > 0 && records.latest < Some(frame)
    }
}

/// Compares a fix with the truth and with the exact bound of the data that it was made from; none while the truth of its
/// frame is not known.
pub fn judge(record: &FixRecord, basis: &Basis, system: &System, truth: &TruthStore) -> Option<Truth> {
    let target_m = truth.get(record.frame_id())?.position_m;
    let bound = bound_m2(basis, system, |frame| truth.get(frame));
    let score = record.position_m.zip(record.covariance_m2).map(|(position_m, [xx, xy, yy])| {
        Score::new(position_m.into(), &Matrix2::new(xx, xy, xy, yy), target_m)
    });
    Some(Truth {
        position_m: target_m.into(),
        error_m: score.map(|score| score.error_m),
        bound_rms_m: bound.map(|bound| bound.trace().sqrt()),
        bound_m2: bound.map(|bound| [bound.m11, bound.m12, bound.m22]),
        nees: score.and_then(|score| score.nees),
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
    target: impl Fn(FrameId) -> Option<TrueTarget>,
) -> Option<Matrix2<f64>> {
    let coherent = basis.frames.len() > 1 && basis.combination == Combination::Coherent;
    let gain = if coherent { Gain::Known } else { Gain::Unknown };
    let last = basis.frames.last()?.number;
    let frames = basis.frames.iter().zip(basis.frames()).map(|(frame, id)| {
        let TrueTarget { position_m, rcs_m2 } = target(id)?;
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

    fn target(x_m: f64) -> TrueTarget {
        TrueTarget { position_m: Point::new(x_m, 0.0), rcs_m2: 5.0 }
    }

    #[test]
    fn the_store_is_bounded() {
        let store = TruthStore::default();
        for frame in 0..REMEMBERED_FRAMES as u64 + 10 {
            store.insert(id(frame), target(frame as f64));
        }
        assert_eq!(store.get(id(9)), None);
        assert_eq!(store.get(id(10)), Some(target(10.0)));
    }

    #[test]
    fn a_truth_may_come_while_one_tells_and_has_not_come_as_far() {
        let store = TruthStore::default();
        assert!(!store.may_come(id(0)), "nobody tells");
        let source = store.source();
        assert!(store.may_come(id(3)));
        source.tell(id(3), target(3.0));
        assert!(!store.may_come(id(2)), "passed over: it will not come");
        assert!(store.may_come(id(4)));
        drop(source);
        assert!(!store.may_come(id(4)));
    }

    fn bound_rms_m(frames: Vec<FrameBasis>, combination: Combination, rcs_m2: f64) -> Option<f64> {
        let system = System::new(&Scenario::default()).unwrap();
        let basis = Basis { run: 1, frames, combination };
        let position_m = Point::new(3.0, 4.0);
        let known = |id: FrameId| (id.frame < 100).then_some(TrueTarget { position_m, rcs_m2 });
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
