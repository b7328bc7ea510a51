//! Anybody's fixes beside the truth and the exact bound, judged as the fusion center judges its own.

use std::collections::BTreeMap;

use fusion_center::fix::FixRecord;
use fusion_center::place::{Axes, FixPlace, upper_triangle};
use fusion_center::recorded::TrueFrame;
use fusion_center::score::{FixScore, KnownFrame, path_bounds, score, stated_fix};
use fusion_center::targets::FixTarget;
use model::{Point, System};
use nalgebra::DMatrix;
use numpy::{PyReadonlyArray2, PyReadonlyArray3};
use proto::convert::FrameId;
use pyo3::prelude::*;
use rayon::prelude::*;
use simulator::truth_record;

use crate::arrays::points;
use crate::errors::ErrorKind;
use crate::fixes::FixesHandle;
use crate::recording::RecordingHandle;
use crate::scenario::ScenarioHandle;
use crate::site::SiteHandle;
use crate::work::detached;

fn is_finite(at: &Point) -> bool {
    at.iter().all(|coordinate| coordinate.is_finite())
}

/// Fixes of a site from positions and covariances, NaN where there is none.
#[pyfunction]
pub fn fixes_of_arrays(
    site: &SiteHandle,
    frames: Vec<u64>,
    positions_m: PyReadonlyArray2<'_, f64>,
    covariances_m2: PyReadonlyArray3<'_, f64>,
) -> PyResult<FixesHandle> {
    let axes = site.system.axes().len();
    let (positions_m, covariances_m2) = (points(&positions_m)?, covariances_m2.as_array());
    if covariances_m2.shape() != [positions_m.len(), axes, axes] || frames.len() != positions_m.len() {
        let [count, rows, columns] = [0, 1, 2].map(|axis| covariances_m2.shape()[axis]);
        let reason = format!(
            "{} frames, {} positions and covariances of the shape {count} x {rows} x {columns}: must be n, n and n x {axes} x {axes}",
            frames.len(),
            positions_m.len(),
        );
        return Err(ErrorKind::Argument.error(reason));
    }
    let record = |(i, (frame, at)): (usize, (u64, Point))| {
        let covariance = DMatrix::from_fn(axes, axes, |row, column| covariances_m2[[i, row, column]]);
        let stated = covariance.iter().all(|entry| entry.is_finite());
        let target = FixTarget {
            position_m: FixPlace::new(at, Axes::of_site(&site.system)),
            covariance_m2: if stated { upper_triangle(&covariance) } else { Vec::new() },
            false_alarm_probability: None,
            unresolved: false,
        };
        let found = is_finite(&at).then_some(target);
        stated_fix(FrameId { run: 0, frame }, None, found.into_iter().collect())
    };
    let records = frames.into_iter().zip(positions_m).enumerate().map(record).collect();
    Ok(FixesHandle { records, axes })
}

/// The truth of a frame of a scenario, as its simulator tells it.
fn told(scenario: &ScenarioHandle, id: FrameId) -> Option<(FrameId, TrueFrame)> {
    let (source, one) = (&scenario.source, scenario.scenario.targets.len() == 1);
    let record = truth_record(source, id, &source.targets(id.frame), one);
    TrueFrame::from_wire(record, scenario.system.irs_count()).ok()
}

/// The figures of fixes; bounds are those of the paths that were received, averaged over so many frames.
fn scored(
    system: &System,
    truth: &BTreeMap<FrameId, TrueFrame>,
    fixes: &[FixRecord],
    frames_per_fix: u32,
) -> FixScore {
    let missing: BTreeMap<FrameId, &Vec<(usize, usize)>> =
        fixes.iter().map(|fix| (fix.frame_id(), &fix.missing)).collect();
    let known = |(id, told): (&FrameId, &TrueFrame)| {
        let missing = missing.get(id).map(|paths| (*paths).clone()).unwrap_or_default();
        let bounds = path_bounds(told, system, frames_per_fix.max(1), missing);
        (*id, KnownFrame { told: Some(told.clone()), bounds })
    };
    let known: BTreeMap<FrameId, KnownFrame> = truth.par_iter().map(known).collect();
    // What a recording says about the truth is not needed.
    let bare = fixes.iter().map(|fix| FixRecord { truth: None, ..fix.clone() });
    score(&known, bare.collect())
}

fn as_json(score: &FixScore) -> PyResult<String> {
    serde_json::to_string(score).map_err(|error| ErrorKind::Internal.error(error))
}

/// The score of fixes of a simulation of these frames.
#[pyfunction]
pub fn score_simulation(
    py: Python<'_>,
    scenario: &ScenarioHandle,
    frames: Vec<u64>,
    fixes: &FixesHandle,
    frames_per_fix: u32,
) -> PyResult<String> {
    let score = detached(py, |_| {
        let truth = frames.into_par_iter().filter_map(|frame| told(scenario, FrameId { run: 0, frame }));
        scored(&scenario.system, &truth.collect(), &fixes.records, frames_per_fix)
    })?;
    as_json(&score)
}

/// The score of fixes of a recording.
#[pyfunction]
pub fn score_recording(
    py: Python<'_>,
    recording: &RecordingHandle,
    fixes: &FixesHandle,
    frames_per_fix: u32,
) -> PyResult<String> {
    let score =
        detached(py, |_| scored(&recording.system, &recording.truths, &fixes.records, frames_per_fix))?;
    as_json(&score)
}

/// The score of fixes of one target at these positions, one for every fix; frames with NaN do not count.
#[pyfunction]
pub fn score_positions(
    py: Python<'_>,
    site: &SiteHandle,
    truths_m: PyReadonlyArray2<'_, f64>,
    rcs_m2: f64,
    fixes: &FixesHandle,
    frames_per_fix: u32,
) -> PyResult<String> {
    let truths_m = points(&truths_m)?;
    if truths_m.len() != fixes.records.len() {
        let reason = format!("{} true positions for {} fixes", truths_m.len(), fixes.records.len());
        return Err(ErrorKind::Argument.error(reason));
    }
    if !(rcs_m2.is_finite() && rcs_m2 > 0.0) {
        return Err(ErrorKind::Argument.error(format!("rcs_m2 = {rcs_m2}: must be above 0 and finite")));
    }
    let there = fixes.records.iter().zip(truths_m).filter(|(_, at)| is_finite(at));
    let truth = there.map(|(fix, at)| (fix.frame_id(), TrueFrame::one(at, rcs_m2, Vec::new()))).collect();
    let score = detached(py, |_| scored(&site.system, &truth, &fixes.records, frames_per_fix))?;
    as_json(&score)
}
