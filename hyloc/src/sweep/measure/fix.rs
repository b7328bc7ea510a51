//! One frame of the scenario through the whole chain in this process, compared with its truth and its exact bound.
//!
//! Trial t is frame t of the scenario (or the first frame of its t-th coherent interval), so that it is the same frame as in a
//! live run, whichever thread or machine makes it. Reports pass the messages of the wire, which quantise them. The direct method reads
//! nothing but spectra, so that nodes estimate no delays for it; this is most of what makes a sweep faster than a live run.

use estimation::fusion::{Estimator, FusedFix, Fuser, Method, PayloadKind};
use estimation::location::Status;
use model::units::db_from_ratio;
use model::{Gain, Information, Scheme, Score, TrueTarget, joint_crb_m2};
use nalgebra::DVector;
use proto::convert::PayloadFormat;
use tracking::{Gospa, GospaSettings, gospa};

use super::{
    Deserialize, Draw, Estimate, FrameChain, GROSS_M, GridPoint, Measure, PointRows, Resampler, Serialize,
    share,
};

/// A target that was found, beside the truth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct JudgedFix {
    pub squared_m2: f64,
    /// Trace of the exact bound; none where the position cannot be determined.
    pub bound_m2: Option<f64>,
    pub nees: Option<f64>,
}

/// The outcome of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialOutcome {
    /// Targets that are there, and targets that were found.
    pub targets: u32,
    pub found: u32,
    /// Whether the first fix is nominal, and whether it is doubtful.
    pub nominal: bool,
    pub doubtful: bool,
    /// The targets that were found, strongest first; of several those within the cut-off of GOSPA.
    pub fixes: Vec<JudgedFix>,
    /// GOSPA (p = 2, c = 2 m), and the square of its part for localisation.
    pub gospa_m: f64,
    pub localisation_m2: f64,
    pub missed: u32,
    pub wrong: u32,
}

/// The chain of one point of the grid.
pub struct FixMeasure {
    frames: FrameChain,
    fuser: Fuser,
    format: PayloadFormat,
    /// Frames per trial.
    interval: u64,
    /// Whether the bound is that of one target, which needs no gains.
    one: bool,
}

impl Measure for FixMeasure {
    type Outcome = TrialOutcome;

    fn trial(draw: Draw) -> anyhow::Result<TrialOutcome> {
        Self::new(draw.point)?.run(draw.trial)
    }

    fn rows(point: &GridPoint, outcomes: &[TrialOutcome], rows: &mut PointRows) {
        let (there, empty): (Vec<_>, Vec<_>) = outcomes.iter().partition(|outcome| outcome.targets > 0);
        let count = |outcomes: &[&TrialOutcome], is: fn(&TrialOutcome) -> bool| {
            share(outcomes.iter().filter(|outcome| is(outcome)).count() as f64, outcomes.len() as f64)
        };
        let mut add = |metric, estimate: Estimate, trials| rows.add_of(trials, "", metric, estimate);
        if !there.is_empty() {
            add("availability", count(&there, |outcome| outcome.found > 0), there.len());
            add("nominal_rate", count(&there, |outcome| outcome.nominal), there.len());
            add("doubtful_rate", count(&there, |outcome| outcome.doubtful), there.len());
        }
        if !empty.is_empty() {
            add("false_alarm_rate", count(&empty, |outcome| outcome.found > 0), empty.len());
        }
        let errors = PointErrors::new(outcomes);
        let judged = errors.trials();
        if judged > 0 {
            let squared = errors.interval(|fix| Some(fix.squared_m2), |_| Some(1.0));
            add("rms_error_m", squared.map(f64::sqrt), judged);
            add("bound_rms_m", errors.interval(|fix| fix.bound_m2, bounded).map(f64::sqrt), judged);
            add("gap_db", errors.gap_db(|_| true), judged);
            add("gap_without_gross_db", errors.gap_db(|fix| !is_gross(fix)), judged);
            add("nees", errors.interval(|fix| fix.nees, |fix| fix.nees.map(|_| 1.0)), judged);
            add("nees_expected", Estimate::exact(point.scenario.coverage.axes().len() as f64), judged);
            let gross = errors.all().filter(|fix| is_gross(fix)).count();
            add("gross_rate", share(gross as f64, errors.all().count() as f64), judged);
        }
        if point.scenario.targets.len() != 1 || point.method.max_targets > 1 {
            let mut mean = |metric: &str, value: fn(&TrialOutcome) -> f64| {
                rows.mean("", metric, &outcomes.iter().map(value).collect::<Vec<f64>>());
            };
            mean("gospa_m", |outcome| outcome.gospa_m);
            mean("localisation_m", |outcome| outcome.localisation_m2.sqrt());
            mean("missed_per_frame", |outcome| f64::from(outcome.missed));
            mean("false_per_frame", |outcome| f64::from(outcome.wrong));
            let whole: Vec<&TrialOutcome> = outcomes.iter().collect();
            rows.add("", "count_right_rate", count(&whole, |outcome| outcome.found == outcome.targets));
        }
    }
}

/// The width of the interval of the gap; infinite before there are as many fixes as a unit has trials.
pub fn gap_interval_db(outcomes: &[TrialOutcome]) -> f64 {
    let errors = PointErrors::new(outcomes);
    let gap = errors.gap_db(|_| true);
    if errors.trials() as u64 >= FixMeasure::UNIT_TRIALS { gap.high - gap.low } else { f64::INFINITY }
}

impl FixMeasure {
    pub fn new(point: &GridPoint) -> anyhow::Result<Self> {
        let mut frames = FrameChain::of_spectra(&point.scenario)?;
        let fuser = Fuser::new(frames.system().clone(), point.method.fusion())?;
        let settings = fuser.settings();
        if settings.method != Method::Direct || point.format.kind != PayloadKind::Spectrum {
            frames = frames.with_delays()?;
        }
        let one = point.scenario.targets.len() == 1 && settings.max_targets == 1;
        let interval = point.scenario.signal.coherent_frames;
        Ok(Self { frames, fuser, format: point.format, interval, one })
    }

    pub fn run(&self, trial: u64) -> anyhow::Result<TrialOutcome> {
        let frame = trial * self.interval;
        // A frame without a fix is an outcome, not a failure.
        let fixes = self.fuser.estimate(&self.frames.frame(frame, Some(self.format))?).unwrap_or_default();
        self.judged(frame, &self.frames.source.targets(frame), &fixes)
    }

    /// Compares fixes with the truth. A single target is compared with the first fix however far that is.
    fn judged(&self, frame: u64, targets: &[TrueTarget], fixes: &[FusedFix]) -> anyhow::Result<TrialOutcome> {
        let place = |position_m: model::Point| DVector::from_row_slice(position_m.as_slice());
        let truth: Vec<_> = targets.iter().map(|target| place(target.position_m)).collect();
        let found: Vec<_> = fixes.iter().map(|fix| place(fix.position_m)).collect();
        let Gospa { total, localisation, assignments, .. } =
            gospa(&truth, &found, &GospaSettings::default())?;
        let pairs: Vec<(usize, usize)> = match (self.one, targets, fixes) {
            (true, [_], [_, ..]) => vec![(0, 0)],
            _ => assignments.iter().enumerate().filter_map(|(t, fix)| Some((t, (*fix)?))).collect(),
        };
        let bounds = self.bounds_m2(frame, targets);
        let judged = |&(t, f): &(usize, usize)| {
            let fix = &fixes[f];
            let score = Score::new(fix.position_m, &fix.covariance_m2, targets[t].position_m);
            let squared_m2 = score.error_m.powi(2);
            JudgedFix { squared_m2, bound_m2: bounds.get(t).copied().flatten(), nees: score.nees }
        };
        let status = fixes.first().map(|fix| Status::with_cautions(&fix.cautions));
        let missed = assignments.iter().filter(|fix| fix.is_none()).count();
        Ok(TrialOutcome {
            targets: targets.len() as u32,
            found: fixes.len() as u32,
            nominal: status == Some(Status::Nominal),
            doubtful: status == Some(Status::Doubtful),
            fixes: pairs.iter().map(judged).collect(),
            gospa_m: total,
            localisation_m2: localisation,
            missed: missed as u32,
            wrong: (fixes.len() + missed).saturating_sub(targets.len()) as u32,
        })
    }

    /// Traces of the exact bounds on all targets of a frame; the joint bound where there are several.
    fn bounds_m2(&self, frame: u64, targets: &[TrueTarget]) -> Vec<Option<f64>> {
        let system = self.frames.system();
        if let [TrueTarget { position_m, rcs_m2, .. }] = targets {
            let information = Information::new(system, *position_m, *rcs_m2, Gain::Unknown);
            return vec![information.position_crb_m2(Scheme::Hybrid).ok().map(|bound| bound.trace())];
        }
        let all: Vec<_> = targets
            .iter()
            .map(|target| (target.position_m, self.frames.source.gains(frame, target)))
            .collect();
        let axes = system.axes().len();
        let bound = joint_crb_m2(system, &all, |_, _| 1.0).ok();
        let own = |t: usize| bound.as_ref().map(|all| all.view((t * axes, t * axes), (axes, axes)).trace());
        (0..targets.len()).map(own).collect()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::plan::PlanFile;
    use crate::sweep::rows::SweepRow;

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

    fn rows(targets: &str, outcomes: &[TrialOutcome]) -> Vec<SweepRow> {
        let plan = PlanFile { set: vec![format!("targets={targets}")], ..PlanFile::default() };
        let point = &plan.resolve().unwrap().points[0];
        let mut rows = PointRows::new(point, outcomes.len());
        FixMeasure::rows(point, outcomes, &mut rows);
        rows.into_rows()
    }

    #[test]
    fn metrics_of_a_point() {
        let missed =
            TrialOutcome { found: 0, nominal: false, fixes: Vec::new(), missed: 1, ..found(1.0, 1.0, 1.0) };
        let outcomes = [found(0.02, 0.01, 3.0), found(0.02, 0.01, 1.0), found(4.0, 0.01, 8.0), missed];
        let one = rows("1", &outcomes);
        let value = |metric: &str| one.iter().find(|row| row.metric == metric).unwrap().estimate.value;
        assert_eq!(value("availability"), 0.75);
        assert!((value("gap_without_gross_db") - db_from_ratio(2.0)).abs() < 1e-12);
        assert!((value("gap_db") - db_from_ratio(4.04 / 0.03)).abs() < 1e-12);
        assert!((value("rms_error_m") - (4.04f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!((value("nees"), value("nees_expected")), (4.0, 2.0));
        assert!((value("gross_rate") - 1.0 / 3.0).abs() < 1e-12);
        assert!(one.iter().all(|row| row.estimate.low <= row.estimate.value));
        assert!(!one.iter().any(|row| row.metric == "gospa_m"));
        assert!(rows("2", &outcomes).iter().any(|row| row.metric == "gospa_m"));
    }
}
