//! Exclusion of faults, one at a time, until the rest is consistent.
//!
//! A gross error bends the linearisation, and may pull the fix into the wrong valley. So after an
//! alarm the fault statistics are taken anew at one or more places that depend on few of the
//! measurements each, and there the leading faults are solved for with the fault's size as a
//! further unknown. The one that leaves the smallest cost is excluded (among equals one that puts
//! the target into the coverage area), and the tests run again. Once they pass, exclusions that
//! the final fix no longer supports are taken back. Other faults that would have cured the
//! contradiction as well are kept as rivals: the protection level reaches to where they would put
//! the target.
//!
//! Cost: one minimisation per fault tried, four as a rule. The paper has no such step.

use std::fmt;

use model::geometry::Point;
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
/// Up to this many faults all are solved for, if none of the leading ones cures the alarm.
const EXHAUSTIVE_FAULTS: usize = 64;
/// An exclusion is taken back if its size is likelier than this under no fault.
const TAKE_BACK_PROBABILITY: f64 = 1e-2;
/// Faults whose costs differ by less explain the data about equally well
/// (likelihood ratio 100).
const RIVAL_COST: f64 = 9.2;
/// A fault is no rival if a larger cost has less than this probability with it.
const RIVAL_PROBABILITY: f64 = 1e-4;
/// A squared residual counts at most this much when starts are compared.
const CAPPED_COST: f64 = 9.0;
/// Starts that disagree with this many measurements more than the best one are not tried.
const MORE_DISAGREEING: f64 = 2.0;
/// Starts nearer to each other than this share of the scene lead to the same place.
const SAME_START_SHARE: f64 = 0.1;

/// A fault that was found, and whose measurements the fix does not use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exclusion {
    /// What was excluded.
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
    /// Fixes under other faults that would have cured the contradiction.
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
        let Some(Culprit { exclusion, position_m, rivals }) =
            find_fault(&screened, settings.coverage.as_ref())
        else {
            break;
        };
        let mut rest = screened.likelihood.clone();
        rest.exclude(exclusion.fault);
        if original.measurement_count() - rest.measurement_count() > most_excluded {
            break;
        }
        let minimum = rest.minimise(position_m);
        if !is_observable(&rest, &minimum) {
            break;
        }
        screened.consistency = Consistency::at(&rest, &minimum);
        screened.likelihood = rest;
        screened.minimum = minimum;
        screened.excluded.push(exclusion);
        screened.rivals.extend(rivals);
    }
    if screened.excluded.len() > 1 && screened.consistency.passes(false_alarm_probability) {
        take_back(original, &mut screened, false_alarm_probability);
    }
    screened
}

/// The fault found, where the fix is without it, and fixes under its rivals.
struct Culprit {
    exclusion: Exclusion,
    position_m: Point,
    rivals: Vec<Minimum>,
}

/// A fix with the size of one fault as a further unknown.
struct Trial {
    fault: Fault,
    minimum: Minimum,
}

/// The fault that leaves the smallest cost, of about equal ones the first inside the coverage area.
fn find_fault(screened: &Screened, coverage: Option<&CoverageArea>) -> Option<Culprit> {
    let Screened { likelihood, minimum, consistency, .. } = screened;
    let left = consistency.redundancy.saturating_sub(1);
    let cures = |cost: f64| left == 0 || chi_square_survival(cost, left) > RIVAL_PROBABILITY;

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
    if fault_count <= EXHAUSTIVE_FAULTS && !trials.iter().any(|trial| cures(trial.minimum.expansion.cost)) {
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
        others.filter(|trial| cures(trial.minimum.expansion.cost)).map(|trial| trial.minimum).collect();
    let significance = (minimum.expansion.cost - cost).max(0.0).sqrt();
    Some(Culprit { exclusion: Exclusion { fault, significance, rivalled }, position_m, rivals })
}

/// Faults by their statistic at `start_m`, largest first.
fn rank_faults(likelihood: &Likelihood, start_m: Point) -> Vec<(f64, Fault)> {
    let expansion = likelihood.expand(start_m);
    let mut ranked: Vec<(f64, Fault)> = all_faults(likelihood, start_m)
        .into_iter()
        .filter_map(|(fault, terms)| Some((fault_statistic(&expansion, &terms)?, fault)))
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked
}

fn try_faults(likelihood: &Likelihood, start_m: Point, faults: &[(f64, Fault)], trials: &mut Vec<Trial>) {
    for &(_, fault) in faults {
        let minimum = likelihood.minimise_with_fault(start_m, fault);
        if minimum.expansion.cost.is_finite() && minimum.position_m.iter().all(|v| v.is_finite()) {
            trials.push(Trial { fault, minimum });
        }
    }
}

/// Where to start after an alarm: places that most of the measurements agree with, best first.
/// Besides the fix these are the crossing of the bearings, which no delay moves; the fix by
/// delays, which no bearing moves; and for every IRS the end of its own segment along its own
/// bearing.
fn robust_starts(likelihood: &Likelihood, position_m: Point) -> Vec<Point> {
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
    let mut starts: Vec<(f64, Point)> = [position_m, crossing.position_m]
        .into_iter()
        .chain(by_delays.map(|stage| stage.position_m))
        .chain(ends)
        .map(|start_m| (likelihood.capped_cost(start_m, CAPPED_COST), start_m))
        .filter(|(cost, _)| cost.is_finite())
        .collect();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));

    let mut chosen: Vec<Point> = Vec::with_capacity(starts.len());
    for &(cost, start_m) in &starts {
        let extent_m = likelihood.nodes.iter().map(|node| (start_m - node).norm()).fold(0.0, f64::max);
        let known = chosen.iter().any(|other| (other - start_m).norm() < SAME_START_SHARE * extent_m);
        if !known && cost <= starts[0].0 + MORE_DISAGREEING * CAPPED_COST {
            chosen.push(start_m);
        }
    }
    chosen
}

fn is_observable(likelihood: &Likelihood, minimum: &Minimum) -> bool {
    check_constraints(likelihood).is_ok()
        && check_information(likelihood, minimum.position_m, &minimum.expansion.information).is_ok()
}

/// Takes exclusions back, one at a time, while the fix does not support them.
fn take_back(original: &Likelihood, screened: &mut Screened, false_alarm_probability: f64) {
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
        if chi_square_survival(rise, members) > TAKE_BACK_PROBABILITY
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
