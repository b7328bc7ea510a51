//! Statistics of the fixes so far: availability, error relative to the bound, latency per stage.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use model::units::db_from_ratio;
use serde::Serialize;

use crate::axis_errors::{AxisErrors, AxisFigures};
use crate::fix::{FixRecord, Timing};
use crate::place::Axes;
use crate::target_statistics::{TargetFigures, TargetStatistics};

/// Longest latency that is resolved.
const LONGEST_NS: u64 = 600_000_000_000;

/// Stages in the order in which a frame passes them.
pub const STAGES: [&str; 8] = ["emit", "filter", "wire", "assemble", "angles", "locate", "fusion", "total"];

impl Timing {
    /// Times of all stages in milliseconds, as in [`STAGES`].
    pub fn of_stages(&self) -> [&[f64]; 8] {
        let one = std::slice::from_ref;
        [
            &self.emit_ms,
            &self.filter_ms,
            &self.wire_ms,
            one(&self.assemble_ms),
            one(&self.angles_ms),
            one(&self.locate_ms),
            one(&self.fusion_ms),
            self.total_ms.as_slice(),
        ]
    }
}

/// Quantiles of one stage, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    /// Number of values.
    pub n: u64,
}

impl Quantiles {
    /// Quantiles of a histogram of nanoseconds, in one pass: a histogram is long, and callers hold a lock.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let shares = [0.5, 0.9, 0.99, 0.999];
        let ranks = shares.map(|share| ((share * histogram.len() as f64).ceil() as u64).max(1));
        let (mut found_ms, mut next, mut seen) = ([0.0; 4], 0, 0);
        for step in histogram.iter_recorded() {
            seen += step.count_since_last_iteration();
            while next < ranks.len() && seen >= ranks[next] {
                found_ms[next] = step.value_iterated_to() as f64 * 1e-6;
                next += 1;
            }
            if next == ranks.len() {
                break;
            }
        }
        let [p50, p90, p99, p999] = found_ms;
        Self { p50, p90, p99, p999, max: histogram.max() as f64 * 1e-6, n: histogram.len() }
    }
}

/// One histogram per stage.
#[derive(Debug, Clone)]
pub struct StageHistograms(Vec<Histogram<u64>>);

impl Default for StageHistograms {
    fn default() -> Self {
        let fresh = || Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("bounds in order");
        Self(STAGES.iter().map(|_| fresh()).collect())
    }
}

impl StageHistograms {
    pub fn record(&mut self, timing: &Timing) {
        for (histogram, values) in self.0.iter_mut().zip(timing.of_stages()) {
            for value in values {
                histogram.saturating_record(((value * 1e6) as u64).max(1));
            }
        }
    }

    /// Histograms with the names of their stages.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Histogram<u64>)> {
        STAGES.iter().copied().zip(&self.0)
    }

    pub fn quantiles(&self) -> BTreeMap<&'static str, Quantiles> {
        self.iter().map(|(stage, histogram)| (stage, Quantiles::of(histogram))).collect()
    }
}

/// Counts of fixes and of frames without a fix, which unlike [`Statistics`] do not wait for the truth.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    fixes: u64,
    nominal: u64,
    doubtful: u64,
    without_fix: u64,
    reasons: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts a solved frame; `reason` is the kind of reason why it has no position.
    pub fn count(&mut self, fix: &FixRecord, reason: Option<String>) {
        if fix.position_m.is_some() {
            self.fixes += 1;
            self.nominal += u64::from(fix.status == "nominal");
            self.doubtful += u64::from(fix.status == "doubtful");
            return;
        }
        self.without_fix += 1;
        let reason = reason.unwrap_or_else(|| OTHER_REASON.into());
        let room = self.reasons.len() < MOST_REASONS || self.reasons.contains_key(&reason);
        let reason = if room { reason } else { OTHER_REASON.into() };
        *self.reasons.entry(reason).or_default() += 1;
    }
}

/// Kinds of reasons that are counted separately.
const MOST_REASONS: usize = 16;

/// Name under which all other reasons are counted.
const OTHER_REASON: &str = "another reason";

/// Quantile of the normal distribution for an interval of 95 %.
const NORMAL_95: f64 = 1.959_963_984_540_054;

/// An error above this is gross: the fix is of something else than the target.
pub const GROSS_ERROR_M: f64 = 1.0;

/// Sums over fixes whose truth is known, and latencies.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    /// Fixes whose truth is known, and their squared errors.
    known: u64,
    known_error_m2: f64,
    gross: u64,
    /// Of these, fixes with a bound.
    judged: u64,
    /// Frames that these were made from, with repetition.
    frames: u64,
    error: SquareSums,
    bound: SquareSums,
    error_times_bound: f64,
    /// Fixes with a covariance.
    with_covariance: u64,
    nees: SquareSums,
    axes: AxisErrors,
    /// Free coordinates of the latest of these fixes.
    free_coordinates: Option<usize>,
    /// Where several targets are looked for or simulated.
    targets: Option<TargetStatistics>,
    pub stages: StageHistograms,
}

/// Sums of the values and of their squares.
#[derive(Debug, Clone, Copy, Default)]
struct SquareSums {
    sum: f64,
    square_sum: f64,
}

impl SquareSums {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.square_sum += value.powi(2);
    }
}

/// Statistics as they are published.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Frames with a position: nominal, degraded and doubtful.
    pub fixes: u64,
    pub nominal: u64,
    pub degraded: u64,
    pub doubtful: u64,
    /// Frames that were solved and gave no position.
    pub without_fix: u64,
    pub without_fix_reasons: BTreeMap<String, u64>,
    /// Fixes whose truth is known and that have the right number of targets and a bound; the following figures are of these.
    pub judged: u64,
    /// Of all fixes whose truth is known and that have the right number of targets, those with an error above 1 m.
    pub gross_errors: u64,
    /// Of all fixes whose truth is known, if none has a bound.
    pub rms_error_m: Option<f64>,
    /// Rms of the exact bound.
    pub bound_rms_m: Option<f64>,
    /// Ratio of the mean squared error to the mean bound.
    pub gap_db: Option<f64>,
    /// 95 % confidence interval.
    pub gap_db_interval: Option<[f64; 2]>,
    /// Mean normalised squared error: the number of free coordinates for a consistent covariance.
    pub nees: Option<f64>,
    /// That number: 2 in a flat coverage area, else 3.
    pub nees_expected: Option<usize>,
    /// 95 % confidence interval.
    pub nees_interval: Option<[f64; 2]>,
    /// Error and bound along each coordinate, where positions have a height.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub axes: Option<BTreeMap<&'static str, AxisFigures>>,
    /// Several targets and their tracks, where several are looked for or simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub targets: Option<TargetFigures>,
    /// Latency per stage, of all fixes.
    pub latency_ms: BTreeMap<&'static str, Quantiles>,
}

impl Statistics {
    /// Adds a fix.
    pub fn record(&mut self, fix: &FixRecord) {
        // A fix by others has no times.
        if fix.timing.time_ns > 0 {
            self.stages.record(&fix.timing);
        }
        let Some(truth) = &fix.truth else { return };
        if let Some(listed) = &truth.targets {
            if !self.targets.as_ref().is_some_and(|targets| targets.is_of(fix)) {
                self.targets = Some(TargetStatistics::new(fix.run));
            }
            self.targets.iter_mut().for_each(|targets| targets.record(fix, listed));
        }
        if let Some((error_m, truth)) = fix.error() {
            self.judge(error_m, truth.bound_rms_m, truth.nees, fix.frames);
            self.axes.add(fix);
            self.free_coordinates = fix.axes.map(Axes::count);
        }
    }

    fn judge(&mut self, error_m: f64, bound_m: Option<f64>, nees: Option<f64>, frames: usize) {
        let error_m2 = error_m.powi(2);
        self.known += 1;
        self.known_error_m2 += error_m2;
        self.gross += u64::from(error_m > GROSS_ERROR_M);
        if let Some(bound_m) = bound_m {
            let bound_m2 = bound_m.powi(2);
            self.judged += 1;
            self.frames += frames as u64;
            self.error.add(error_m2);
            self.bound.add(bound_m2);
            self.error_times_bound += error_m2 * bound_m2;
        }
        if let Some(nees) = nees {
            self.with_covariance += 1;
            self.nees.add(nees);
        }
    }

    /// The figures without latencies, which take long to compute.
    pub fn figures(&self, counts: &Tally) -> Figures {
        let mean_of = |count: u64, sum: f64| (count > 0).then(|| sum / count as f64);
        let mean = |sum: f64| mean_of(self.judged, sum);
        Figures {
            fixes: counts.fixes,
            nominal: counts.nominal,
            degraded: counts.fixes - counts.nominal - counts.doubtful,
            doubtful: counts.doubtful,
            without_fix: counts.without_fix,
            without_fix_reasons: counts.reasons.clone(),
            judged: self.judged,
            gross_errors: self.gross,
            rms_error_m: mean(self.error.sum).or(mean_of(self.known, self.known_error_m2)).map(f64::sqrt),
            bound_rms_m: mean(self.bound.sum).map(f64::sqrt),
            gap_db: mean(self.error.sum).zip(mean(self.bound.sum)).map(|(e, b)| db_from_ratio(e / b)),
            gap_db_interval: self.gap_db_interval(),
            nees: mean_of(self.with_covariance, self.nees.sum),
            nees_expected: self.free_coordinates,
            nees_interval: self.nees_interval(),
            axes: self.axes.figures(),
            targets: self.targets.as_ref().map(TargetStatistics::figures),
            latency_ms: BTreeMap::new(),
        }
    }

    /// Variance of a mean over `count` fixes, from that of one fix. Fixes made from F frames each share up to F - 1 of them with
    /// their neighbours; their errors are then correlated, and the variance of the mean is at most F times as large.
    fn variance_of_mean(&self, variance: f64, count: f64) -> f64 {
        let shared = if self.judged > 0 { self.frames as f64 / self.judged as f64 } else { 1.0 };
        variance.max(0.0) * shared / (count - 1.0)
    }

    /// By the delta method on the logarithm of the ratio of the two means:
    /// `var(ln(e / b)) = (var(e) / e^2 + var(b) / b^2 - 2 cov(e, b) / (e b)) / n`.
    fn gap_db_interval(&self) -> Option<[f64; 2]> {
        let count = self.judged as f64;
        let (error, bound) = (self.error.sum / count, self.bound.sum / count);
        if self.judged < 2 || !(error > 0.0 && bound > 0.0) {
            return None;
        }
        let square = |sums: &SquareSums, mean: f64| sums.square_sum / (count * mean * mean) - 1.0;
        let product = self.error_times_bound / (count * error * bound) - 1.0;
        let variance = square(&self.error, error) + square(&self.bound, bound) - 2.0 * product;
        let half = NORMAL_95 * self.variance_of_mean(variance, count).sqrt();
        Some([-half, half].map(|shift| db_from_ratio(error / bound * shift.exp())))
    }

    /// Mean plus and minus 1.96 times its standard deviation, which is estimated from the sample.
    fn nees_interval(&self) -> Option<[f64; 2]> {
        let count = self.with_covariance as f64;
        let mean = self.nees.sum / count;
        let variance = self.nees.square_sum / count - mean.powi(2);
        let half = NORMAL_95 * self.variance_of_mean(variance, count).sqrt();
        (self.with_covariance >= 2).then_some([mean - half, mean + half])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::FixPlace;
    use model::Point;

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut stages = StageHistograms::default();
        for value in 1..=1000 {
            let timing = Timing { angles_ms: f64::from(value), ..Timing::default() };
            stages.record(&timing);
        }
        let angles = stages.quantiles()["angles"];
        assert_eq!(angles.n, 1000);
        let (_, histogram) = stages.iter().find(|(stage, _)| *stage == "angles").unwrap();
        let one_by_one =
            [0.5, 0.9, 0.99, 0.999].map(|share| histogram.value_at_quantile(share) as f64 * 1e-6);
        assert_eq!([angles.p50, angles.p90, angles.p99, angles.p999], one_by_one);
        for (found, expected) in [(angles.p50, 500.0), (angles.p99, 990.0), (angles.max, 1000.0)] {
            assert!((found / expected - 1.0f64).abs() < 2e-3, "{found} for {expected}");
        }
        assert_eq!(stages.quantiles()["total"].n, 0, "no intended time, no total");
    }

    /// 1000 runs of 300 fixes, seeded: squared errors of two Gaussian coordinates over bounds that vary by a factor of
    /// four. The intervals hold the true gap (0 dB) and NEES (2) in 95 % of the runs: 930 to 970 with probability
    /// 0.996. Intervals too narrow by 15 % hold them in 905 of 1000.
    #[test]
    fn intervals_of_gap_and_nees_hold_the_truth_as_often_as_they_say() {
        use model::random::{Purpose, complex_normal, stream};
        let (mut gap, mut nees) = (0, 0);
        for run in 0..1000 {
            let mut draws = stream(7, Purpose::Noise, [run, 0]);
            let mut statistics = Statistics::default();
            for fix in 0..300 {
                let bound_m = 1.0 + f64::from(fix % 4) / 3.0;
                let error_m = complex_normal(&mut draws, bound_m.powi(2)).norm();
                statistics.judge(error_m, Some(bound_m), Some(2.0 * (error_m / bound_m).powi(2)), 1);
            }
            let figures = statistics.figures(&Tally::default());
            let holds = |interval: Option<[f64; 2]>, truth: f64| {
                let [low, high] = interval.unwrap();
                usize::from(low <= truth && truth <= high)
            };
            gap += holds(figures.gap_db_interval, 0.0);
            nees += holds(figures.nees_interval, 2.0);
        }
        assert!((930..=970).contains(&gap) && (925..=970).contains(&nees), "{gap} {nees}");
    }

    /// Fixes that share their frames vary together: four frames each widen the interval twofold.
    #[test]
    fn fixes_of_several_frames_have_wider_intervals() {
        let width = |frames: usize| {
            let mut statistics = Statistics::default();
            (0..50).for_each(|fix| statistics.judge(1.0 + f64::from(fix % 5), Some(1.0), Some(2.0), frames));
            let [low, high] = statistics.figures(&Tally::default()).gap_db_interval.unwrap();
            high - low
        };
        assert!((width(4) / width(1) - 2.0).abs() < 1e-9);
        assert_eq!(Statistics::default().figures(&Tally::default()).gap_db_interval, None);
    }

    /// What is not stated is not judged: errors alone, and errors with a bound but without a covariance.
    #[test]
    fn fixes_without_bound_or_covariance_have_fewer_figures() {
        let figures = |bound_m, nees| {
            let mut statistics = Statistics::default();
            [0.3, 0.4, 1.2].into_iter().for_each(|error_m| statistics.judge(error_m, bound_m, nees, 1));
            statistics.figures(&Tally::default())
        };
        let alone = figures(None, None);
        assert_eq!((alone.judged, alone.gross_errors, alone.gap_db, alone.nees), (0, 1, None, None));
        assert!((alone.rms_error_m.unwrap() - (1.69f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!((alone.gap_db_interval, alone.nees_interval), (None, None));
        let bounded = figures(Some(0.5), None);
        assert_eq!((bounded.judged, bounded.nees, bounded.nees_interval), (3, None, None));
        assert!((bounded.gap_db.unwrap() - db_from_ratio(1.69 / 0.75)).abs() < 1e-12);
        let consistent = figures(None, Some(2.0));
        assert_eq!((consistent.nees, consistent.nees_interval), (Some(2.0), Some([2.0, 2.0])));
    }

    #[test]
    fn reasons_are_counted_and_bounded() {
        let mut tally = Tally::default();
        let blocks = estimation::fusion::FrameBlocks::new(2);
        let unusable = Err(estimation::location::Unobservable::NoMeasurements.into());
        let none =
            FixRecord::new(Default::default(), &blocks, None, &unusable, crate::fix::Source::Simulated);
        (0..100).for_each(|i| tally.count(&none, Some(format!("reason {}", i % 20))));
        assert_eq!((tally.without_fix, tally.fixes, tally.reasons.len()), (100, 0, MOST_REASONS + 1));
        assert_eq!((tally.reasons["reason 3"], tally.reasons[OTHER_REASON]), (5, 20));
        tally.count(&FixRecord { position_m: Some(FixPlace::new(Point::zeros(), Axes::Xy)), ..none }, None);
        assert_eq!((tally.without_fix, tally.fixes, tally.nominal), (100, 1, 0));
    }
}
