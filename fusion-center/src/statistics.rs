//! What the fixes so far add up to: availability, error against the bound, latency per stage.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use model::units::db_from_ratio;
use serde::Serialize;

use crate::fix::{FixRecord, Timing};

/// Longest latency that is told apart.
const LONGEST_NS: u64 = 600_000_000_000;

/// Stages in the order in which a frame passes them.
pub const STAGES: [&str; 8] = ["emit", "filter", "wire", "assemble", "angles", "locate", "fusion", "total"];

/// Quantiles of one stage, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// Largest.
    pub max: f64,
    /// Values.
    pub n: u64,
}

impl Quantiles {
    /// Of a histogram of nanoseconds, in one pass: a histogram is long, and this is asked for while others wait.
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
    /// Adds the times of one fix.
    pub fn record(&mut self, timing: &Timing) {
        let one = std::slice::from_ref;
        let total = timing.total_ms.as_slice();
        let values: [&[f64]; 8] = [
            &timing.emit_ms,
            &timing.filter_ms,
            &timing.wire_ms,
            one(&timing.assemble_ms),
            one(&timing.angles_ms),
            one(&timing.locate_ms),
            one(&timing.fusion_ms),
            total,
        ];
        for (histogram, values) in self.0.iter_mut().zip(values) {
            for value in values {
                histogram.saturating_record(((value * 1e6) as u64).max(1));
            }
        }
    }

    /// By name of the stage.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Histogram<u64>)> {
        STAGES.iter().copied().zip(&self.0)
    }

    /// Quantiles by name of the stage.
    pub fn quantiles(&self) -> BTreeMap<&'static str, Quantiles> {
        self.iter().map(|(stage, histogram)| (stage, Quantiles::of(histogram))).collect()
    }
}

/// Sums over fixes.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    /// Frames with a position.
    pub fixes: u64,
    /// Of these, nominal.
    pub nominal: u64,
    /// Frames that were solved and gave no position.
    pub without_fix: u64,
    /// Fixes whose truth is known.
    judged: u64,
    error_m2: f64,
    bound_m2: f64,
    nees: f64,
    stages: StageHistograms,
}

/// Statistics as they are told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Frames with a position.
    pub fixes: u64,
    /// Of these, nominal.
    pub nominal: u64,
    /// Of these, degraded.
    pub degraded: u64,
    /// Frames that were solved and gave no position.
    pub without_fix: u64,
    /// Fixes with known truth.
    pub judged: u64,
    /// Rms error of those.
    pub rms_error_m: Option<f64>,
    /// Rms of the exact bound.
    pub bound_rms_m: Option<f64>,
    /// Mean squared error over the mean bound.
    pub gap_db: Option<f64>,
    /// Mean normalised squared error: two for an honest covariance.
    pub nees: Option<f64>,
    /// Latency per stage.
    pub latency_ms: BTreeMap<&'static str, Quantiles>,
}

impl Statistics {
    /// Adds a fix.
    pub fn record(&mut self, fix: &FixRecord) {
        self.stages.record(&fix.timing);
        if fix.position_m.is_none() {
            self.without_fix += 1;
            return;
        }
        self.fixes += 1;
        self.nominal += u64::from(fix.status == "nominal");
        let Some(truth) = &fix.truth else { return };
        if let (Some(error_m), Some(bound_m), Some(nees)) = (truth.error_m, truth.bound_rms_m, truth.nees) {
            self.judged += 1;
            self.error_m2 += error_m.powi(2);
            self.bound_m2 += bound_m.powi(2);
            self.nees += nees;
        }
    }

    /// Latency per stage.
    pub fn stages(&self) -> &StageHistograms {
        &self.stages
    }

    /// What they add up to.
    pub fn figures(&self) -> Figures {
        Figures { latency_ms: self.stages.quantiles(), ..self.tally() }
    }

    /// The same without quantiles, which take long.
    pub fn tally(&self) -> Figures {
        let mean = |sum: f64| (self.judged > 0).then(|| sum / self.judged as f64);
        Figures {
            fixes: self.fixes,
            nominal: self.nominal,
            degraded: self.fixes - self.nominal,
            without_fix: self.without_fix,
            judged: self.judged,
            rms_error_m: mean(self.error_m2).map(f64::sqrt),
            bound_rms_m: mean(self.bound_m2).map(f64::sqrt),
            gap_db: mean(self.error_m2).zip(mean(self.bound_m2)).map(|(e, b)| db_from_ratio(e / b)),
            nees: mean(self.nees),
            latency_ms: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
