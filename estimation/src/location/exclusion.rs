//! Exclusion of faults, one at a time, until the rest is consistent.
//!
//! A gross error invalidates the linearisation and may lead to a wrong local minimum. So after an
//! alarm the fault statistics are computed again at one or more positions that depend on few of the
//! measurements each, and there the leading faults are solved for with the size of the fault as a
//! further unknown. The one that leaves the smallest cost is excluded (among equals one with the
//! target in the coverage area), and the tests are repeated. Once they pass, exclusions that
//! the final fix no longer supports are revoked. Other faults that would also have removed the
//! contradiction are kept as rivals: the protection level includes their positions of the target.
//!
//! Cost: one minimisation per tried fault, usually four. The paper has no such step.

use std::fmt;

use model::geometry::PlanePoint;
use model::units::SPEED_OF_LIGHT_M_S;

use super::chi_square::chi_square_survival;
use super::faults::{Fault, all_faults};
use super::integrity::{Consistency, fault_statistic};
use super::likelihood::{Likelihood, Minimum};
use super::locate::LocateSettings;
use super::observability::{check_constraints, check_information};
use super::search::CoverageArea;
use super::segments::stage_one;
use super::three_stage::three_stage;
use super::two_stage::stage_two;

/// Faults solved for at each start, in order of their statistics.
const SHORTLIST: usize = 4;
/// Further ones follow while their statistic is within this much of the largest.
const CLOSE_STATISTIC: f64 = 50.0;
/// Up to this number of faults, all are solved for if none of the leading ones removes the contradiction.
const EXHAUSTIVE_FAULTS: usize = 64;
/// An exclusion is revoked if its size is more probable than this without a fault.
const REVOKE_PROBABILITY: f64 = 1e-2;
/// Faults whose costs differ by less explain the data about equally well
/// (likelihood ratio 100).
const RIVAL_COST: f64 = 9.2;
/// A fault is a rival if the probability of a larger cost with it exceeds this.
const RIVAL_PROBABILITY: f64 = 1e-4;
/// A squared residual counts at most this much when starts are compared.
const CAPPED_COST: f64 = 9.0;
/// Starts that disagree with this many measurements more than the best one are not tried.
const MORE_DISAGREEING: f64 = 2.0;
/// Starts nearer to each other than this share of the scene lead to the same place.
const SAME_START_SHARE: f64 = 0.1;

/// A detected fault whose measurements the fix does not use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exclusion {
    /// The excluded fault.
    pub fault: Fault,
    /// Estimated size of the fault over its standard deviation.
    pub significance: f64,
    /// Whether another fault explained the data about as well.
    pub rivalled: bool,
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: off by {:.1} standard deviations", self.fault, self.significance)?;
        if self.rivalled { write!(f, ", another fault fits about as well") } else { Ok(()) }
    }
}

/// The fix after exclusion.
pub(super) struct Screened {
    pub likelihood: Likelihood,
    pub minimum: Minimum,
    pub consistency: Consistency,
    pub excluded: Vec<Exclusion>,
    /// Fixes under other faults that would also have removed the contradiction.
    pub rivals: Vec<Minimum>,
}

/// Tests the fix and excludes faults until the rest is consistent, or nothing more can be
/// excluded.
pub(super) fn screen(original: &Likelihood, minimum: Minimum, settings: &LocateSettings) -> Screened {
    let false_alarm_probability = settings.false_alarm_probability;
    let most_excluded = (settings.most_excluded_share * original.measurement_count() as f64) as usize;
    let consistency = Consistency::at(original, &minimum);
    let mut screened = Screened {
        likelihood: original.clone(),
        minimum,
        consistency,
        excluded: Vec::new(),
        rivals: Vec::new(),
    };
    while !screened.consistency.passes(false_alarm_probability) {
        let Some((exclusion, position_m, rivals)) = find_fault(&screened, settings.coverage.as_ref()) else {
            break;
        };
        let mut rest = screened.likelihood.clone();
        rest.exclude(exclusion.fault);
        if original.measurement_count() - rest.measurement_count() > most_excluded {
            break;
        }
        let minimum = rest.minimise(position_m);
        let information = &minimum.expansion.information;
        if check_constraints(&rest).is_err()
            || check_information(&rest, minimum.position_m, information).is_err()
        {
            break;
        }
        screened.consistency = Consistency::at(&rest, &minimum);
        screened.likelihood = rest;
        screened.minimum = minimum;
        screened.excluded.push(exclusion);
        screened.rivals.extend(rivals);
    }
    if screened.excluded.len() > 1 && screened.consistency.passes(false_alarm_probability) {
        revoke(original, &mut screened, false_alarm_probability);
    }
    screened
}

/// A fix with the size of one fault as a further unknown.
struct Trial {
    fault: Fault,
    minimum: Minimum,
}

/// The fault that leaves the smallest cost, of about equal ones the first inside the coverage area, with the position without
/// it and the fixes under other faults that would also remove the contradiction.
fn find_fault(
    screened: &Screened,
    coverage: Option<&CoverageArea>,
) -> Option<(Exclusion, PlanePoint, Vec<Minimum>)> {
    let Screened { likelihood, minimum, consistency, .. } = screened;
    let left = consistency.redundancy.saturating_sub(1);
    let explains = |cost: f64| left == 0 || chi_square_survival(cost, left) > RIVAL_PROBABILITY;

    let mut trials = Vec::with_capacity(2 * SHORTLIST);
    let mut untried = Vec::new();
    for start_m in robust_starts(likelihood, minimum.position_m) {
        let mut ranked = rank_faults(likelihood, start_m);
        let largest = ranked.first().map_or(0.0, |(statistic, _)| *statistic);
        let close = ranked.partition_point(|(statistic, _)| *statistic > largest - CLOSE_STATISTIC);
        let rest = ranked.split_off(close.max(SHORTLIST).min(ranked.len()));
        try_faults(likelihood, start_m, &ranked, &mut trials);
        untried.push((start_m, rest));
    }
    let fault_count = untried.first().map_or(0, |(_, rest)| rest.len()) + SHORTLIST;
    if fault_count <= EXHAUSTIVE_FAULTS && !trials.iter().any(|trial| explains(trial.minimum.expansion.cost))
    {
        for (start_m, rest) in untried {
            try_faults(likelihood, start_m, &rest, &mut trials);
        }
    }

    trials.sort_by(|a, b| a.minimum.expansion.cost.total_cmp(&b.minimum.expansion.cost));
    let smallest = trials.first()?.minimum.expansion.cost;
    let equals = trials.iter().take_while(|trial| trial.minimum.expansion.cost < smallest + RIVAL_COST);
    let is_covered = |trial: &&Trial| coverage.is_none_or(|area| area.holds(&trial.minimum));
    let best = equals.clone().find(is_covered).or(trials.first())?;
    let (fault, cost) = (best.fault, best.minimum.expansion.cost);
    let position_m = best.minimum.position_m;
    let others = trials.iter().filter(|trial| trial.fault != fault);
    let rivalled = equals.clone().any(|trial| trial.fault != fault);
    let rivals =
        others.filter(|trial| explains(trial.minimum.expansion.cost)).map(|trial| trial.minimum).collect();
    let significance = (minimum.expansion.cost - cost).max(0.0).sqrt();
    Some((Exclusion { fault, significance, rivalled }, position_m, rivals))
}

/// Faults by their statistic at `start_m`, largest first.
fn rank_faults(likelihood: &Likelihood, start_m: PlanePoint) -> Vec<(f64, Fault)> {
    let expansion = likelihood.expand(start_m);
    let mut ranked: Vec<(f64, Fault)> = all_faults(likelihood, start_m)
        .into_iter()
        .filter_map(|(fault, terms)| Some((fault_statistic(&expansion, &terms)?, fault)))
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked
}

fn try_faults(
    likelihood: &Likelihood,
    start_m: PlanePoint,
    faults: &[(f64, Fault)],
    trials: &mut Vec<Trial>,
) {
    for &(_, fault) in faults {
        let minimum = likelihood.minimise_with_fault(start_m, fault);
        if minimum.expansion.cost.is_finite() && minimum.position_m.iter().all(|v| v.is_finite()) {
            trials.push(Trial { fault, minimum });
        }
    }
}

/// Starts after an alarm: positions that most of the measurements agree with, best first.
/// Besides the fix these are the intersection of the bearings, which is independent of the delays; the fix by
/// delays, which is independent of the bearings; and for every IRS the end of its own segment along its own
/// bearing.
fn robust_starts(likelihood: &Likelihood, position_m: PlanePoint) -> Vec<PlanePoint> {
    let mut bearings_only = likelihood.clone();
    bearings_only.range_weight.fill(0.0);
    let crossing = bearings_only.minimise(position_m);

    let segments = stage_one(likelihood);
    let mut delays_only = likelihood.clone();
    delays_only.bearing_weight.fill(0.0);
    let by_delays = stage_two(&delays_only, &segments).as_ref().and_then(three_stage);

    let ends = segments.nodes.iter().zip(&segments.delay_s).filter_map(|(&node, delay_s)| {
        let along = likelihood.bearing_direction[node] * (SPEED_OF_LIGHT_M_S * delay_s);
        (likelihood.bearing_weight[node] > 0.0).then(|| likelihood.nodes[node] + along)
    });
    let mut starts: Vec<(f64, PlanePoint)> = [position_m, crossing.position_m]
        .into_iter()
        .chain(by_delays.map(|stage| stage.position_m))
        .chain(ends)
        .map(|start_m| (likelihood.capped_cost(start_m, CAPPED_COST), start_m))
        .filter(|(cost, _)| cost.is_finite())
        .collect();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));

    let mut chosen: Vec<PlanePoint> = Vec::with_capacity(starts.len());
    for &(cost, start_m) in &starts {
        let extent_m = likelihood.nodes.iter().map(|node| (start_m - node).norm()).fold(0.0, f64::max);
        let known = chosen.iter().any(|other| (other - start_m).norm() < SAME_START_SHARE * extent_m);
        if !known && cost <= starts[0].0 + MORE_DISAGREEING * CAPPED_COST {
            chosen.push(start_m);
        }
    }
    chosen
}

/// Revokes exclusions, one at a time, while the fix does not support them.
fn revoke(original: &Likelihood, screened: &mut Screened, false_alarm_probability: f64) {
    let mut index = 0;
    while index < screened.excluded.len() && screened.excluded.len() > 1 {
        let mut with = original.clone();
        for (other, exclusion) in screened.excluded.iter().enumerate() {
            if other != index {
                with.exclude(exclusion.fault);
            }
        }
        let minimum = with.minimise(screened.minimum.position_m);
        let members = with.measurement_count() - screened.likelihood.measurement_count();
        let rise = minimum.expansion.cost - screened.minimum.expansion.cost;
        let consistency = Consistency::at(&with, &minimum);
        if chi_square_survival(rise, members) > REVOKE_PROBABILITY
            && consistency.passes(false_alarm_probability)
        {
            screened.excluded.remove(index);
            screened.likelihood = with;
            screened.minimum = minimum;
            screened.consistency = consistency;
            index = 0;
        } else {
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_scene::{TARGET_M, exact};
    use super::*;

    fn path(sensor: usize, reflector: usize) -> Fault {
        Fault::Path { sensor, reflector }
    }

    /// The measurements with paths that are off by so many metres.
    fn with_faults(faults_m: &[(usize, usize, f64)]) -> Likelihood {
        let mut likelihood = exact();
        for (sensor, reflector, error_m) in faults_m {
            likelihood.range_m[sensor * 4 + reflector] += error_m;
        }
        likelihood
    }

    /// The fix with these faults excluded.
    fn excluding(original: &Likelihood, faults: &[Fault]) -> Screened {
        let mut likelihood = original.clone();
        faults.iter().for_each(|fault| likelihood.exclude(*fault));
        let minimum = likelihood.minimise(TARGET_M);
        let exclusion = |&fault| Exclusion { fault, significance: 5.0, rivalled: false };
        Screened {
            consistency: Consistency::at(&likelihood, &minimum),
            likelihood,
            minimum,
            excluded: faults.iter().map(exclusion).collect(),
            rivals: Vec::new(),
        }
    }

    fn kept(screened: &Screened) -> Vec<Fault> {
        screened.excluded.iter().map(|exclusion| exclusion.fault).collect()
    }

    #[test]
    fn the_faulty_paths_are_excluded_and_no_others() {
        let original = with_faults(&[(0, 2, 4.0), (3, 1, -3.0)]);
        let screened = screen(&original, original.minimise(TARGET_M), &LocateSettings::default());
        let mut found = kept(&screened);
        found.sort_by_key(|fault| !fault.spoils_path(0, 2));
        assert_eq!(found, [path(0, 2), path(3, 1)]);
        assert!((screened.minimum.position_m - TARGET_M).norm() < 1e-6);
        assert_eq!(screened.likelihood.measurement_count(), 18);
        // The first is off by about 40 of its standard deviations, less what the fix gives way.
        assert!(screened.excluded.iter().all(|exclusion| (20.0..45.0).contains(&exclusion.significance)));
    }

    #[test]
    fn an_exclusion_without_support_is_taken_back() {
        let original = with_faults(&[(0, 2, 4.0)]);
        for faults in [[path(1, 1), path(0, 2)], [path(0, 2), path(1, 1)]] {
            let mut screened = excluding(&original, &faults);
            revoke(&original, &mut screened, 1e-3);
            assert_eq!(kept(&screened), [path(0, 2)]);
            assert_eq!(screened.likelihood.measurement_count(), 19);
            assert_eq!(screened.consistency.redundancy, 17);
            assert!((screened.minimum.position_m - TARGET_M).norm() < 1e-6);
        }
    }

    #[test]
    fn exclusions_with_support_stay() {
        // Three standard deviations: the global test would pass with it, the fault itself has probability 0.3 %.
        let original = with_faults(&[(0, 2, 4.0), (3, 1, 0.33)]);
        let faults = [path(0, 2), path(3, 1)];
        let mut screened = excluding(&original, &faults);
        assert!(excluding(&original, &faults[..1]).consistency.passes(1e-3));
        revoke(&original, &mut screened, 1e-3);
        assert_eq!(kept(&screened), faults);
        assert_eq!(screened.likelihood.measurement_count(), 18);
        // The last one is never taken back.
        let mut only = excluding(&exact(), &faults[..1]);
        revoke(&exact(), &mut only, 1e-3);
        assert_eq!(kept(&only), faults[..1]);
    }

    #[test]
    fn starts_are_places_that_most_measurements_agree_with() {
        assert_eq!(robust_starts(&exact(), TARGET_M).len(), 1, "all lead to the target");
        // All delays of one node are off: its fix is far off, and the crossing of the bearings is the better start.
        let mut spoiled = exact();
        for path in (0..16).filter(|path| path / 4 == 2 || path % 4 == 2) {
            spoiled.range_m[path] += 60.0;
        }
        let far_m = PlanePoint::new(-30.0, 40.0);
        let starts = robust_starts(&spoiled, far_m);
        assert!((starts[0] - TARGET_M).norm() < 1e-3, "{starts:?}");
        assert!(starts.iter().all(|start| (start - far_m).norm() > 1.0), "disagrees with most: {starts:?}");
    }

    /// A fault of seven of the twenty measurements is excluded only if that many may be.
    #[test]
    fn no_more_than_the_allowed_share_is_excluded() {
        let mut spoiled = exact();
        for path in (0..16).filter(|path| path / 4 == 2 || path % 4 == 2) {
            spoiled.range_m[path] += if path == 10 { 12.0 } else { 6.0 };
        }
        for (most_excluded_share, expected) in [(0.25, vec![]), (0.36, vec![Fault::NodeDelays { node: 2 }])] {
            let settings = LocateSettings { most_excluded_share, ..LocateSettings::default() };
            let screened = screen(&spoiled, spoiled.minimise(TARGET_M), &settings);
            assert_eq!(kept(&screened), expected, "{most_excluded_share}");
            assert_eq!(screened.consistency.passes(settings.false_alarm_probability), !expected.is_empty());
        }
    }

    /// Two IRSs of which only the two paths between them and rough bearings are known: either of two paths that
    /// contradict each other may be the faulty one. With a path of its own for each IRS it is certain which.
    #[test]
    fn a_fault_that_another_explains_as_well_has_a_rival() {
        let scene = exact();
        let mut likelihood = Likelihood {
            range_m: vec![scene.range_m[0], scene.range_m[1] + 5.0, scene.range_m[4], scene.range_m[5]],
            range_weight: vec![0.0, 100.0, 100.0, 0.0],
            nodes: scene.nodes[..2].to_vec(),
            bearing_direction: scene.bearing_direction[..2].to_vec(),
            bearing_weight: vec![100.0; 2],
        };
        for (known, rivalled) in [(false, true), (true, false)] {
            if known {
                likelihood.range_weight.fill(100.0);
                likelihood.bearing_weight.fill(1e6);
            }
            let screened = excluding(&likelihood, &[]);
            let (exclusion, position_m, rivals) = find_fault(&screened, None).unwrap();
            assert_eq!((exclusion.rivalled, rivals.is_empty()), (rivalled, !rivalled), "{exclusion}");
            if known {
                assert_eq!(exclusion.fault, path(0, 1));
                assert!((position_m - TARGET_M).norm() < 1e-6);
            }
        }
    }
}
