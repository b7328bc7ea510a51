//! The results of a sweep in long form: one row per point and metric, with its 95 % interval.
//!
//! Means, ratios and roots of means: percentile bootstrap over the trials of the point; shares: Wilson's interval. Units are part of
//! the names of the metrics.

use std::fmt::Write;

use model::units::db_from_ratio;

use super::plan::SweepPlan;
use super::trial::{JudgedFix, TrialOutcome};
use crate::figures::GROSS_M;
use crate::figures::statistics::{Estimate, Resampler, share};

/// One metric of one point.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRow {
    pub point: usize,
    pub metric: &'static str,
    pub estimate: Estimate,
    /// Trials behind it.
    pub trials: u64,
}

/// The rows of a point.
pub fn rows_of(point: usize, dimensions: usize, several: bool, outcomes: &[TrialOutcome]) -> Vec<SweepRow> {
    let trials = outcomes.len();
    let mut rows = Vec::new();
    let mut add = |metric, estimate: Estimate, trials: usize| {
        rows.push(SweepRow { point, metric, estimate, trials: trials as u64 });
    };
    let (there, empty): (Vec<_>, Vec<_>) = outcomes.iter().partition(|outcome| outcome.targets > 0);
    let count = |outcomes: &[&TrialOutcome], is: fn(&TrialOutcome) -> bool| {
        share(outcomes.iter().filter(|outcome| is(outcome)).count() as f64, outcomes.len() as f64)
    };
    if !there.is_empty() {
        add("availability", count(&there, |outcome| outcome.found > 0), there.len());
        add("nominal_rate", count(&there, |outcome| outcome.nominal), there.len());
        add("doubtful_rate", count(&there, |outcome| outcome.doubtful), there.len());
    }
    if !empty.is_empty() {
        add("false_alarm_rate", count(&empty, |outcome| outcome.found > 0), empty.len());
    }
    let errors = PointErrors::new(outcomes);
    if errors.trials() > 0 {
        let judged = errors.trials();
        add("rms_error_m", errors.interval(|fix| Some(fix.squared_m2), |_| Some(1.0)).map(f64::sqrt), judged);
        add("bound_rms_m", errors.interval(|fix| fix.bound_m2, bounded).map(f64::sqrt), judged);
        add("gap_db", errors.gap_db(|_| true), judged);
        add("gap_without_gross_db", errors.gap_db(|fix| !is_gross(fix)), judged);
        add("nees", errors.interval(|fix| fix.nees, |fix| fix.nees.map(|_| 1.0)), judged);
        add("nees_expected", Estimate::exact(dimensions as f64), judged);
        let gross = errors.all().filter(|fix| is_gross(fix)).count();
        add("gross_rate", share(gross as f64, errors.all().count() as f64), judged);
    }
    if several {
        let resampler = Resampler::new(trials);
        let mean = |value: fn(&TrialOutcome) -> f64| {
            resampler.mean(&outcomes.iter().map(value).collect::<Vec<f64>>())
        };
        let whole: Vec<&TrialOutcome> = outcomes.iter().collect();
        add("gospa_m", mean(|outcome| outcome.gospa_m), trials);
        add("localisation_m", mean(|outcome| outcome.localisation_m2.sqrt()), trials);
        add("missed_per_frame", mean(|outcome| f64::from(outcome.missed)), trials);
        add("false_per_frame", mean(|outcome| f64::from(outcome.wrong)), trials);
        add("count_right_rate", count(&whole, |outcome| outcome.found == outcome.targets), trials);
    }
    rows
}

fn bounded(fix: &JudgedFix) -> Option<f64> {
    fix.bound_m2.map(|_| 1.0)
}

fn is_gross(fix: &JudgedFix) -> bool {
    fix.squared_m2 > GROSS_M * GROSS_M
}

/// The targets that were found in the trials of a point.
pub struct PointErrors<'a> {
    found: Vec<&'a [JudgedFix]>,
    resampler: Resampler,
}

impl<'a> PointErrors<'a> {
    pub fn new(outcomes: &'a [TrialOutcome]) -> Self {
        let found = outcomes.iter().map(|outcome| outcome.fixes.as_slice()).filter(|fixes| !fixes.is_empty());
        let found: Vec<_> = found.collect();
        Self { resampler: Resampler::new(found.len()), found }
    }

    /// Trials in which a target was found.
    pub fn trials(&self) -> usize {
        self.found.len()
    }

    fn all(&self) -> impl Iterator<Item = &JudgedFix> {
        self.found.iter().copied().flatten()
    }

    /// The ratio of two sums over all targets; what has no value is left out.
    fn interval(
        &self,
        numerator: impl Fn(&JudgedFix) -> Option<f64>,
        denominator: impl Fn(&JudgedFix) -> Option<f64>,
    ) -> Estimate {
        let sums: Vec<[f64; 2]> = self
            .found
            .iter()
            .map(|fixes| {
                let sum = |value: &dyn Fn(&JudgedFix) -> Option<f64>| fixes.iter().filter_map(value).sum();
                [sum(&numerator), sum(&denominator)]
            })
            .collect();
        self.resampler.interval(|chosen| {
            let [n, d] = chosen.fold([0.0, 0.0], |[n, d], i| [n + sums[i][0], d + sums[i][1]]);
            n / d
        })
    }

    /// Squared errors over their bounds, in dB, of the targets that `keep` selects.
    pub fn gap_db(&self, keep: impl Fn(&JudgedFix) -> bool) -> Estimate {
        let usable = |fix: &JudgedFix| keep(fix) && fix.bound_m2.is_some();
        let squared = |fix: &JudgedFix| usable(fix).then_some(fix.squared_m2);
        self.interval(squared, |fix| fix.bound_m2.filter(|_| usable(fix))).map(db_from_ratio)
    }
}

/// All rows as CSV; values on the axes are written as in the plan.
pub fn to_csv(plan: &SweepPlan, rows: &[SweepRow]) -> String {
    let mut out = String::from("point,");
    for key in &plan.axes {
        out.push_str(&quoted(key));
        out.push(',');
    }
    out.push_str("metric,value,low,high,trials\n");
    for row in rows {
        let Estimate { value, low, high } = row.estimate;
        // Writing to a string cannot fail.
        let _ = write!(out, "{},", row.point);
        for value in &plan.points[row.point].values {
            out.push_str(&quoted(value));
            out.push(',');
        }
        let _ = writeln!(out, "{},{value},{low},{high},{}", row.metric, row.trials);
    }
    out
}

/// A field of a CSV file.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(squared_m2: f64, bound_m2: f64, nees: f64) -> TrialOutcome {
        let fix = JudgedFix { squared_m2, bound_m2: Some(bound_m2), nees: Some(nees) };
        TrialOutcome {
            targets: 1,
            found: 1,
            nominal: true,
            doubtful: false,
            fixes: vec![fix],
            gospa_m: squared_m2.sqrt(),
            localisation_m2: squared_m2,
            missed: 0,
            wrong: 0,
        }
    }

    #[test]
    fn metrics_of_a_point() {
        let missed =
            TrialOutcome { found: 0, nominal: false, fixes: Vec::new(), missed: 1, ..found(1.0, 1.0, 1.0) };
        let outcomes = [found(0.02, 0.01, 3.0), found(0.02, 0.01, 1.0), found(4.0, 0.01, 8.0), missed];
        let rows = rows_of(0, 2, false, &outcomes);
        let value = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap().estimate.value;
        assert_eq!(value("availability"), 0.75);
        assert!((value("gap_without_gross_db") - db_from_ratio(2.0)).abs() < 1e-12);
        assert!((value("gap_db") - db_from_ratio(4.04 / 0.03)).abs() < 1e-12);
        assert!((value("rms_error_m") - (4.04f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!((value("nees"), value("nees_expected")), (4.0, 2.0));
        assert!((value("gross_rate") - 1.0 / 3.0).abs() < 1e-12);
        assert!(rows.iter().all(|row| row.estimate.low <= row.estimate.value));
        assert!(!rows.iter().any(|row| row.metric == "gospa_m"));
        assert!(rows_of(0, 2, true, &outcomes).iter().any(|row| row.metric == "gospa_m"));
    }

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(quoted("[6,6]"), "\"[6,6]\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted("40"), "40");
    }
}
