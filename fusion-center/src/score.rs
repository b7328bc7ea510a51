//! Scores the fixes of anybody against a truth that is known beforehand, by the same judgement and the same statistics as a
//! running fusion center.

use std::collections::{BTreeMap, BTreeSet};

use estimation::direct::Combination;
use estimation::fusion::FrameBlocks;
use estimation::location::Unobservable;
use model::System;
use proto::convert::FrameId;
use serde::Serialize;

use crate::basis::{Basis, FrameBasis};
use crate::fix::{FixRecord, Source};
use crate::judge::{bounds, judged};
use crate::place::Axes;
use crate::statistics::{Figures, Statistics, Tally};
use crate::targets::FixTarget;
use crate::told::TrueFrame;

pub use crate::judge::StatedBound;

/// Why a frame of the truth that has no fix has none.
const NOT_STATED: &str = "the fixes do not contain this frame";

/// The truth of a frame with a bound for every target.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownFrame {
    /// None for a frame that exists and whose truth is not known.
    pub told: Option<TrueFrame>,
    /// None where there is no bound.
    pub bounds: Vec<Option<StatedBound>>,
}

/// The score of a list of fixes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FixScore {
    /// Frames of the truth.
    pub frames: u64,
    /// Share of these with a fix.
    pub availability: Option<f64>,
    /// Fixes of frames that the truth does not contain; they are not counted otherwise.
    pub unknown_frames: u64,
    /// The same figures as in the summary of a fusion center.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The exact bound of every target of a frame if all paths of a site are received, with this many echo frames averaged.
pub fn site_bounds(told: &TrueFrame, system: &System, averaged_frames: u32) -> Vec<Option<StatedBound>> {
    path_bounds(told, system, averaged_frames, Vec::new())
}

/// The same without the paths (l, k) that were not received.
pub fn path_bounds(
    told: &TrueFrame,
    system: &System,
    averaged_frames: u32,
    missing: Vec<(usize, usize)>,
) -> Vec<Option<StatedBound>> {
    let averaged_frames = vec![averaged_frames; system.irs_count()];
    let frame = FrameBasis { number: 0, averaged_frames, missing };
    let basis = Basis { run: 0, frames: vec![frame], combination: Combination::NonCoherent };
    bounds(told, &basis, system, |_| Some(told.clone()))
}

/// A fix by others: the positions of all targets, strongest first, with their covariances where these are stated.
pub fn stated_fix(frame: FrameId, status: Option<String>, targets: Vec<FixTarget>) -> FixRecord {
    let none = Err(Unobservable::NoMeasurements.into());
    let empty = FixRecord::new(frame, &FrameBlocks::new(0), None, &none, Source::Simulated);
    let first = targets.first();
    let axes = first.map(|target| match (target.covariance_m2.len(), target.position_m.len()) {
        (0, 2) | (3, _) => Axes::Xy,
        _ => Axes::Xyz,
    });
    let covariance_m2 =
        first.map(|target| target.covariance_m2.clone()).filter(|entries| !entries.is_empty());
    let usual = || if first.is_some() { "nominal".to_owned() } else { empty.status.clone() };
    FixRecord {
        status: status.unwrap_or_else(usual),
        position_m: first.map(|target| target.position_m),
        axes,
        covariance_m2,
        cautions: Vec::new(),
        targets,
        ..empty
    }
}

/// Scores fixes. They are taken in the order of their runs and frames; frames of the truth without a fix are frames in which
/// every target is missed.
pub fn score(truth: &BTreeMap<FrameId, KnownFrame>, fixes: Vec<FixRecord>) -> FixScore {
    let stated: BTreeSet<FrameId> = fixes.iter().map(FixRecord::frame_id).collect();
    // Runs are random numbers: their order is that of the file.
    let mut runs: Vec<u64> = Vec::new();
    for run in fixes.iter().map(|fix| fix.run).chain(truth.keys().map(|frame| frame.run)) {
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    let missing = truth.keys().filter(|frame| !stated.contains(frame));
    let missing = missing.map(|frame| {
        let none = stated_fix(*frame, None, Vec::new());
        FixRecord { cautions: vec![NOT_STATED.to_owned()], ..none }
    });
    let mut all: Vec<FixRecord> = fixes.into_iter().chain(missing).collect();
    let place = |run: u64| runs.iter().position(|other| *other == run);
    all.sort_by_cached_key(|fix| (place(fix.run), fix.frame));

    let (mut tally, mut statistics, mut unknown_frames) = (Tally::default(), Statistics::default(), 0);
    for fix in &mut all {
        let Some(KnownFrame { told, bounds }) = truth.get(&fix.frame_id()) else {
            unknown_frames += 1;
            continue;
        };
        let axes = |told: &TrueFrame| {
            let heights = told.targets.iter().any(|target| target.position_m.len() == 3);
            if heights { Axes::Xyz } else { Axes::Xy }
        };
        fix.truth = told.as_ref().map(|told| judged(fix, told, bounds, axes(told)));
        tally.count(fix, fix.cautions.first().cloned());
        statistics.record(fix);
    }
    let mut figures = statistics.figures(&tally);
    if all.iter().any(|fix| fix.timing.time_ns > 0) {
        figures.latency_ms = statistics.stages.quantiles();
    }
    let frames = truth.len() as u64;
    let availability = (frames > 0).then(|| figures.fixes as f64 / frames as f64);
    FixScore { frames, availability, unknown_frames, figures }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::FixPlace;
    use model::{Point, Scenario};

    fn target(x_m: f64, y_m: f64, covariance_m2: &[f64]) -> FixTarget {
        FixTarget {
            position_m: FixPlace::new(Point::new(x_m, y_m, 0.0), Axes::Xy),
            covariance_m2: covariance_m2.to_vec(),
            false_alarm_probability: None,
            unresolved: false,
        }
    }

    fn id(frame: u64) -> FrameId {
        FrameId { run: 9, frame }
    }

    #[test]
    fn a_score_by_hand() {
        let bound = StatedBound { rms_m: 0.5, covariance_m2: None };
        let known = |x_m: f64| KnownFrame {
            told: Some(TrueFrame::one(Point::new(x_m, 0.0, 0.0), 1.0, Vec::new())),
            bounds: vec![Some(bound.clone())],
        };
        let truth: BTreeMap<_, _> = (0..5).map(|frame| (id(frame), known(frame as f64))).collect();
        let round = [0.25, 0.0, 0.25];
        let fixes = vec![
            stated_fix(id(2), None, vec![target(2.0, 0.5, &round)]),
            stated_fix(id(0), None, vec![target(0.5, 0.0, &round)]),
            stated_fix(id(1), Some("doubtful".into()), vec![target(1.0, 3.0, &[])]),
            stated_fix(id(3), None, vec![]),
            stated_fix(id(8), None, vec![target(1.0, 3.0, &[])]),
        ];
        let FixScore { frames, availability, unknown_frames, figures } = score(&truth, fixes);
        assert_eq!((frames, availability, unknown_frames), (5, Some(0.6), 1));
        let counts = (figures.fixes, figures.nominal, figures.doubtful, figures.without_fix);
        assert_eq!(counts, (3, 2, 1, 2));
        assert_eq!(figures.without_fix_reasons[NOT_STATED], 1);
        assert_eq!((figures.judged, figures.gross_errors, figures.nees), (3, 1, Some(1.0)));
        assert!((figures.rms_error_m.unwrap().powi(2) - 9.5 / 3.0).abs() < 1e-12);
        assert!((figures.gap_db.unwrap() - 10.0 * (9.5f64 / 0.75).log10()).abs() < 1e-12);
        assert_eq!(figures.targets, None);
    }

    /// Several targets: GOSPA of single frames, and nothing about tracks, which nobody stated.
    #[test]
    fn several_targets_have_a_distance_and_its_parts() {
        let told = |frame: u64| {
            let mut told = TrueFrame::one(Point::new(frame as f64, 0.0, 0.0), 1.0, Vec::new());
            told.targets.push(told.targets[0].clone());
            told.targets[1].identity = 1;
            told.targets[1].position_m = FixPlace::new(Point::new(5.0, 5.0, 0.0), Axes::Xy);
            told.listed = true;
            (id(frame), KnownFrame { told: Some(told), bounds: vec![None, None] })
        };
        let truth = BTreeMap::from([told(0), told(1)]);
        let fixes = vec![stated_fix(id(1), None, vec![target(5.0, 5.0, &[]), target(1.0, 0.3, &[])])];
        let figures = score(&truth, fixes).figures.targets.unwrap();
        assert_eq!((figures.frames, figures.tracks, figures.fixes.count_right_rate), (2, None, 0.5));
        // The first frame misses both: sqrt(2 c^2 / 2) with c = 2 m.
        assert!((figures.fixes.gospa_m - (2.0 + 0.3) / 2.0).abs() < 1e-12);
        assert!((figures.fixes.missed_rate - 0.5).abs() < 1e-12 && figures.fixes.false_rate == 0.0);
    }

    #[test]
    fn the_bound_of_a_site_is_that_of_its_data() {
        let system = System::new(&Scenario::default()).unwrap();
        let told = TrueFrame::one(Point::new(3.0, 4.0, 0.0), 5.0, Vec::new());
        let rms_m = |frames| site_bounds(&told, &system, frames)[0].as_ref().unwrap().rms_m;
        assert!((rms_m(1) / rms_m(4) - 2.0).abs() < 1e-9);
    }
}
