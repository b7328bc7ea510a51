//! Fixes and tracks compared with the truth and with the exact bound of the data behind them.
//!
//! Where there are several targets, those of the fix are assigned to the true ones by the optimum of GOSPA, which leaves apart what is
//! farther than its cut-off; so are the tracks. The bound is the joint one, with the gains of all targets on all paths unknown.

use estimation::direct::Combination;
use model::{Gain, Information, Scheme, Score, System, constant_velocity_crb_m2, joint_crb_m2};
use nalgebra::{DMatrix, DVector};
use proto::convert::FrameId;
use tracking::{GospaSettings, gospa};

use crate::basis::{Basis, FrameBasis};
use crate::fix::{FixRecord, Truth};
use crate::place::{Axes, FixPlace, symmetric, upper_triangle};
use crate::targets::JudgedTarget;
use crate::told::{ToldTarget, TrueFrame};
use crate::truth::TruthStore;

/// What an unbiased estimator can reach.
#[derive(Debug, Clone, PartialEq)]
pub struct StatedBound {
    /// Rms error.
    pub rms_m: f64,
    /// Covariance over the free coordinates, as its upper triangle; none if only the rms error is known.
    pub covariance_m2: Option<Vec<f64>>,
}

impl From<DMatrix<f64>> for StatedBound {
    fn from(bound_m2: DMatrix<f64>) -> Self {
        Self { rms_m: bound_m2.trace().sqrt(), covariance_m2: Some(upper_triangle(&bound_m2)) }
    }
}

/// Compares a fix with the truth and with the exact bound of the data that it was made from; none while the truth of its
/// frame is not known.
pub fn judge(record: &FixRecord, basis: &Basis, system: &System, truth: &TruthStore) -> Option<Truth> {
    let told = truth.get(record.frame_id())?;
    let bounds = bounds(&told, basis, system, |frame| truth.get(frame));
    Some(judged(record, &told, &bounds, Axes::of_site(system)))
}

/// The exact bound of every target of a frame with the data of a basis; none where it is not known.
pub fn bounds(
    told: &TrueFrame,
    basis: &Basis,
    system: &System,
    truth: impl Fn(FrameId) -> Option<TrueFrame>,
) -> Vec<Option<StatedBound>> {
    let bounds = match (told.targets.len(), basis.frames.last()) {
        (1, _) => vec![bound_m2(basis, system, truth)],
        (count, None) => vec![None; count],
        (_, Some(last)) => joint_bounds_m2(&told.targets, last, system),
    };
    bounds.into_iter().map(|bound| bound.map(StatedBound::from)).collect()
}

/// Compares a fix with the truth and with a bound for every target; positions of the truth have these axes.
pub fn judged(record: &FixRecord, told: &TrueFrame, bounds: &[Option<StatedBound>], axes: Axes) -> Truth {
    let found =
        assigned(&told.targets, &record.targets.iter().map(|target| target.position_m).collect::<Vec<_>>());
    let first = first_target(record, &told.targets, &found);
    let score = first.and_then(|t| record.score(0, &told.targets[t]));
    let bound = first.and_then(|t| bounds.get(t)?.as_ref());
    Truth {
        position_m: first.or((!told.targets.is_empty()).then_some(0)).map(|t| place(&told.targets[t], axes)),
        error_m: score.map(|score| score.error_m),
        bound_rms_m: bound.map(|bound| bound.rms_m),
        bound_m2: bound.and_then(|bound| bound.covariance_m2.clone()),
        nees: score.and_then(|score| score.nees),
        clock_offset_ns: told.clock_offset_s.iter().map(|offset_s| offset_s * 1e9).collect(),
        targets: (told.listed || record.tracks.is_some())
            .then(|| judged_targets(record, &told.targets, &found, bounds, axes)),
    }
}

fn place(target: &ToldTarget, axes: Axes) -> FixPlace {
    FixPlace::new(target.position_m.point(), axes)
}

/// For every target the index of the position that is assigned to it.
fn assigned(targets: &[ToldTarget], positions_m: &[FixPlace]) -> Vec<Option<usize>> {
    let whole = |place: &FixPlace| DVector::from_row_slice(place.point().as_slice());
    let truth: Vec<_> = targets.iter().map(|target| whole(&target.position_m)).collect();
    let found: Vec<_> = positions_m.iter().map(whole).collect();
    let assignment = gospa(&truth, &found, &GospaSettings::default());
    assignment.map_or_else(|_| vec![None; targets.len()], |gospa| gospa.assignments)
}

/// The target that the first position of a fix is compared with: the one that it is assigned to, else the nearest.
fn first_target(record: &FixRecord, targets: &[ToldTarget], found: &[Option<usize>]) -> Option<usize> {
    let at = record.position_m?.point();
    let distance = |t: &usize| (targets[*t].position_m.point() - at).norm();
    let nearest = || (0..targets.len()).min_by(|a, b| distance(a).total_cmp(&distance(b)));
    found.iter().position(|fix| *fix == Some(0)).or_else(nearest)
}

fn judged_targets(
    record: &FixRecord,
    targets: &[ToldTarget],
    found: &[Option<usize>],
    bounds: &[Option<StatedBound>],
    axes: Axes,
) -> Vec<JudgedTarget> {
    let tracks = assigned(targets, &record.tracks().iter().map(|track| track.position_m).collect::<Vec<_>>());
    let judged = |(t, target): (usize, &ToldTarget)| {
        let score = found[t].and_then(|fix| record.score(fix, target));
        JudgedTarget {
            identity: target.identity,
            position_m: place(target, axes),
            bound_rms_m: bounds.get(t).and_then(|bound| Some(bound.as_ref()?.rms_m)),
            fix: found[t],
            error_m: score.map(|score| score.error_m),
            nees: score.and_then(|score| score.nees),
            track: tracks[t].and_then(|track| record.tracks().get(track)).map(|track| track.identity),
        }
    };
    targets.iter().enumerate().map(judged).collect()
}

impl FixRecord {
    /// One of its targets compared with a true one.
    fn score(&self, target: usize, truth: &ToldTarget) -> Option<Score> {
        let fix = self.targets.get(target)?;
        let (at, truth_m) = (fix.position_m.point(), truth.position_m.point());
        Some(match symmetric(&fix.covariance_m2) {
            Some(covariance_m2) => Score::new(at, &covariance_m2, truth_m),
            None => Score { error_m: (at - truth_m).norm(), nees: None },
        })
    }
}

/// The exact joint bound of several targets with the paths of one frame, per target; none where the gains are not told.
fn joint_bounds_m2(targets: &[ToldTarget], basis: &FrameBasis, system: &System) -> Vec<Option<DMatrix<f64>>> {
    let count = system.irs_count();
    let gains = targets.iter().map(|target| Some((target.position_m.point(), target.gains(count)?)));
    let frames = |l: usize, k: usize| match basis.missing.contains(&(l, k)) {
        true => 0.0,
        false => basis.averaged_frames.get(l).map_or(0.0, |frames| f64::from(*frames)),
    };
    let bound = gains.collect::<Option<Vec<_>>>().and_then(|all| joint_crb_m2(system, &all, frames).ok());
    let axes = system.axes().len();
    let own = |t: usize| bound.as_ref().map(|all| all.view((t * axes, t * axes), (axes, axes)).into_owned());
    (0..targets.len()).map(own).collect()
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
        let told = target(id)?;
        let ToldTarget { position_m, rcs_m2, .. } = told.targets.first()?;
        let one = Information::new(system, position_m.point(), *rcs_m2, gain);
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
    use crate::fix::Source;
    use estimation::fusion::{FixMethod, FrameBlocks, FusedFix};
    use model::{Point, Scenario};

    fn bound_rms_m(frames: Vec<FrameBasis>, combination: Combination, rcs_m2: f64) -> Option<f64> {
        let system = System::new(&Scenario::default()).unwrap();
        let basis = Basis { run: 1, frames, combination };
        let position_m = Point::new(3.0, 4.0, 0.0);
        let known = |id: FrameId| (id.frame < 100).then(|| TrueFrame::one(position_m, rcs_m2, Vec::new()));
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

    /// A target at (x, y) whose paths have the gains of a target of 5 m^2, in phase.
    fn told(system: &System, identity: u64, x_m: f64, y_m: f64) -> ToldTarget {
        let at = Point::new(x_m, y_m, 0.0);
        let count = system.irs_count();
        let paths = (0..count).flat_map(|l| (0..count).map(move |k| (l, k)));
        let gains = paths.flat_map(|(l, k)| [system.echo_gain(l, k, at, 5.0).unwrap(), 0.0]).collect();
        ToldTarget { identity, position_m: FixPlace::new(at, Axes::Xy), rcs_m2: 5.0, gains }
    }

    fn fix_at(positions: &[[f64; 2]]) -> FixRecord {
        let fused = |at: &[f64; 2]| {
            let at = Point::new(at[0], at[1], 0.0);
            FusedFix::new(FixMethod::DirectTargets, at, DMatrix::identity(2, 2) * 0.01)
        };
        let fixes = Ok(positions.iter().map(fused).collect());
        let id = FrameId { run: 1, frame: 7 };
        FixRecord::new(id, &FrameBlocks::new(3), None, &fixes, Source::Simulated)
    }

    /// Fixes are assigned whatever their order, what is missed says so, and near targets have a larger bound than one alone.
    #[test]
    fn several_targets_are_judged_one_by_one() {
        let system = System::new(&Scenario::default()).unwrap();
        let basis = Basis { run: 1, frames: vec![frame(7, 1, &[])], combination: Combination::NonCoherent };
        let judged = |targets: Vec<ToldTarget>, fix: &FixRecord| {
            let store = TruthStore::default();
            let told = TrueFrame { targets, listed: true, clock_offset_s: Vec::new() };
            store.insert(FrameId { run: 1, frame: 7 }, told);
            judge(fix, &basis, &system, &store).unwrap()
        };
        let pair = || vec![told(&system, 4, 3.0, 4.0), told(&system, 9, 5.0, 4.0)];
        let truth = judged(pair(), &fix_at(&[[5.1, 4.0], [3.0, 4.2], [9.0, 9.0]]));
        let targets = truth.targets.as_ref().unwrap();
        let found: Vec<_> = targets.iter().map(|target| (target.identity, target.fix)).collect();
        assert_eq!(found, [(4, Some(1)), (9, Some(0))]);
        assert!(
            (targets[0].nees.unwrap() - 4.0).abs() < 1e-9 && (targets[0].error_m.unwrap() - 0.2).abs() < 1e-9
        );
        // The first position of the fix is the one of the second target.
        assert_eq!(truth.position_m.unwrap().to_vec(), [5.0, 4.0]);
        assert!((truth.error_m.unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(truth.bound_rms_m, targets[1].bound_rms_m);
        let alone = judged(vec![told(&system, 4, 3.0, 4.0)], &fix_at(&[[3.0, 4.0]]));
        let together = targets[0].bound_rms_m.unwrap();
        assert!(together > 1.01 * alone.bound_rms_m.unwrap(), "{together} {alone:?}");
        let missed = judged(pair(), &fix_at(&[[3.1, 4.0]])).targets.unwrap();
        assert_eq!((missed[0].fix, missed[1].fix, missed[1].error_m), (Some(0), None, None));
        // Nobody is there.
        let empty = judged(Vec::new(), &fix_at(&[[3.1, 4.0]]));
        assert_eq!((empty.position_m, empty.error_m, empty.targets), (None, None, Some(Vec::new())));
    }
}
