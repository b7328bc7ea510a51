//! Files of truth: JSON lines, or a fix log of hyloc.

use std::collections::BTreeMap;
use std::path::Path;

use fusion_center::fix::{FixRecord, Truth};
use fusion_center::place::FixPlace;
use fusion_center::recorded::{ToldTarget, TrueFrame};
use fusion_center::score::{KnownFrame, StatedBound};
use proto::convert::FrameId;
use serde::Deserialize;
use telemetry::exit::Failure;

use super::lines::{line_error, lines, meaning, object};

/// A line by others.
#[derive(Deserialize)]
struct TruthLine {
    #[serde(default)]
    run: u64,
    frame: u64,
    targets: Vec<TrueTargetLine>,
}

#[derive(Deserialize)]
struct TrueTargetLine {
    #[serde(default)]
    identity: u64,
    position_m: FixPlace,
    /// For the bound.
    #[serde(default = "unit_cross_section_m2")]
    rcs_m2: f64,
    /// Gains of all paths, for the joint bound of several targets.
    #[serde(default)]
    gains: Vec<f64>,
    /// The bound itself.
    bound_rms_m: Option<f64>,
}

fn unit_cross_section_m2() -> f64 {
    1.0
}

/// Reads a file of truth.
pub fn read(path: &Path) -> anyhow::Result<BTreeMap<FrameId, KnownFrame>> {
    let mut truth = BTreeMap::new();
    for line in lines(path)? {
        let (line, text) = line?;
        let (frame, known) = known(path, line, &text)?;
        if truth.insert(frame, known).is_some() {
            let problem = format!("{} of run {} occurs twice", frame.frame, frame.run);
            return Err(line_error(path, line, "frame", problem).into());
        }
    }
    // One target in every frame is not a list of targets.
    let one =
        |frame: &KnownFrame| frame.told.as_ref().is_none_or(|told| told.targets.len() == 1 && !told.listed);
    if !truth.values().all(one) {
        truth.values_mut().filter_map(|frame| frame.told.as_mut()).for_each(|told| told.listed = true);
    }
    Ok(truth)
}

fn known(path: &Path, line: usize, text: &str) -> Result<(FrameId, KnownFrame), Failure> {
    let value = object(path, line, text)?;
    if value.get("timing").is_some() && value.get("source").is_some() {
        let fix: FixRecord = meaning(path, line, &value)?;
        return Ok((fix.frame_id(), known_of_log(fix.truth)));
    }
    let TruthLine { run, frame, targets } = meaning(path, line, &value)?;
    let (mut told, mut bounds) = (Vec::new(), Vec::new());
    for (i, target) in targets.into_iter().enumerate() {
        let TrueTargetLine { identity, position_m, rcs_m2, gains, bound_rms_m } = target;
        for (key, value) in [("rcs_m2", Some(rcs_m2)), ("bound_rms_m", bound_rms_m)] {
            if value.is_some_and(|value| !(value.is_finite() && value > 0.0)) {
                return Err(line_error(
                    path,
                    line,
                    &format!("targets[{i}].{key}"),
                    "must be above 0 and finite",
                ));
            }
        }
        if told.iter().any(|other: &ToldTarget| other.identity == identity) {
            let problem = format!("{identity} occurs twice in the frame");
            return Err(line_error(path, line, &format!("targets[{i}].identity"), problem));
        }
        told.push(ToldTarget { identity, position_m, rcs_m2, gains });
        bounds.push(bound_rms_m.map(|rms_m| StatedBound { rms_m, covariance_m2: None }));
    }
    let listed = told.len() != 1;
    let told = Some(TrueFrame { targets: told, listed, clock_offset_s: Vec::new() });
    Ok((FrameId { run, frame }, KnownFrame { told, bounds }))
}

/// The truth of a line of a fix log with the bound of the data behind the fix.
fn known_of_log(truth: Option<Truth>) -> KnownFrame {
    let Some(truth) = truth else { return KnownFrame { told: None, bounds: Vec::new() } };
    let Truth { position_m, bound_rms_m, bound_m2, targets, .. } = truth;
    let told = |identity: u64, position_m: FixPlace| ToldTarget {
        identity,
        position_m,
        rcs_m2: unit_cross_section_m2(),
        gains: Vec::new(),
    };
    let first = bound_rms_m.map(|rms_m| StatedBound { rms_m, covariance_m2: bound_m2 });
    let (listed, all) = match targets {
        None => (false, position_m.map(|at| (told(0, at), first)).into_iter().collect()),
        Some(targets) => {
            let judged = targets.into_iter().map(|target| {
                // The covariance of the bound is stated of the target that the first position is compared with.
                let own = first.clone().filter(|_| Some(target.position_m) == position_m);
                let rms = target.bound_rms_m.map(|rms_m| StatedBound { rms_m, covariance_m2: None });
                (told(target.identity, target.position_m), own.or(rms))
            });
            (true, judged.collect::<Vec<_>>())
        }
    };
    let (targets, bounds) = all.into_iter().unzip();
    KnownFrame { told: Some(TrueFrame { targets, listed, clock_offset_s: Vec::new() }), bounds }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<BTreeMap<FrameId, KnownFrame>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("truth");
        std::fs::write(&path, text).unwrap();
        read(&path).map_err(|error| error.to_string().split_once("truth, ").unwrap().1.to_owned())
    }

    #[test]
    fn one_target_in_every_frame_is_no_list() {
        let one =
            "{\"frame\": 1, \"targets\": [{\"position_m\": [1, 2], \"rcs_m2\": 5, \"bound_rms_m\": 0.1}]}\n";
        let known = read_text(one).unwrap();
        let frame = &known[&FrameId { run: 0, frame: 1 }];
        let told = frame.told.as_ref().unwrap();
        assert_eq!((told.listed, told.targets[0].rcs_m2), (false, 5.0));
        assert_eq!(frame.bounds, [Some(StatedBound { rms_m: 0.1, covariance_m2: None })]);
        let none = read_text(&format!("{one}{{\"frame\": 2, \"targets\": []}}\n")).unwrap();
        assert!(none.values().all(|frame| frame.told.as_ref().unwrap().listed));
    }

    #[test]
    fn errors_name_line_and_key() {
        let cases = [
            ("{\"frame\": 1}", "line 1: missing field `targets`"),
            ("{\"frame\": 1, \"targets\": [{}]}", "line 1: targets[0]: missing field `position_m`"),
            (
                "{\"frame\": 1, \"targets\": [{\"position_m\": [1, 2], \"rcs_m2\": 0}]}",
                "line 1: targets[0].rcs_m2: must be above 0",
            ),
            (
                "{\"frame\": 1, \"targets\": []}\n{\"frame\": 1, \"targets\": []}",
                "line 2: frame: 1 of run 0 occurs twice",
            ),
            (
                "{\"frame\": 1, \"targets\": [{\"position_m\": [1, 2]}, {\"position_m\": [1, 2]}]}",
                "line 1: targets[1].identity: 0 occurs twice",
            ),
        ];
        for (text, expected) in cases {
            let found = read_text(text).unwrap_err();
            assert!(found.starts_with(expected), "{text}: {found}");
        }
    }
}
