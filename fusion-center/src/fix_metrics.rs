//! Metrics of fixes: how many of which status, how far off, how late, and what is known about tracks and clocks.
//!
//! Errors, bounds and NEES are sums, so that a mean over any time can be made of them.

use telemetry::{Counter, Gauge, Histogram, Metrics, Sum};

use crate::fix::FixRecord;
use crate::statistics::STAGES;

/// The statuses of fixes; a frame without a fix is unobservable.
const STATUSES: [&str; 4] = ["nominal", "degraded", "doubtful", "unobservable"];

pub struct FixMetrics {
    by_status: [Counter; 4],
    judged: Counter,
    error_m2: Sum,
    bound_m2: Sum,
    nees: Sum,
    stages: Vec<Histogram>,
    targets: Gauge,
    /// Metrics that exist only where there are tracks, or clocks that are not trusted.
    metrics: Metrics,
    tracks: Option<TrackMetrics>,
    clock_errors: Vec<Gauge>,
}

/// Metrics of the tracks after the latest frame.
struct TrackMetrics {
    confirmed: Gauge,
    coasting: Gauge,
    expected: Gauge,
    least_existence: Gauge,
    update: Histogram,
}

impl TrackMetrics {
    fn new(metrics: &Metrics) -> Self {
        let gauge = |name, help| metrics.gauge(name, help, &[]);
        Self {
            confirmed: gauge("hyloc_tracks_confirmed", "Tracks that are confirmed."),
            coasting: gauge("hyloc_tracks_coasting", "Confirmed tracks that the latest frame does not show."),
            expected: gauge(
                "hyloc_tracks_existence_sum",
                "Sum of the probabilities that the confirmed tracks exist: the expected number of targets.",
            ),
            least_existence: gauge(
                "hyloc_tracks_existence_min",
                "Least probability that a confirmed track exists; 1 without tracks.",
            ),
            update: metrics.seconds(STAGE_METRIC, STAGE_HELP, &[("stage", "track")]),
        }
    }
}

const STAGE_METRIC: &str = "hyloc_stage_seconds";
const STAGE_HELP: &str = "Time of every stage between transmission and publication of a fix.";

impl FixMetrics {
    pub fn new(metrics: &Metrics) -> Self {
        let fixes = |status| {
            metrics.counter("hyloc_fixes_total", "Solved frames by status of the fix.", &[("status", status)])
        };
        let stage = |stage| metrics.seconds(STAGE_METRIC, STAGE_HELP, &[("stage", stage)]);
        Self {
            by_status: STATUSES.map(fixes),
            judged: metrics.counter(
                "hyloc_fixes_judged_total",
                "Fixes with the right number of targets whose truth and bound are known.",
                &[],
            ),
            error_m2: metrics.sum(
                "hyloc_error_square_metres_total",
                "Squared errors of judged fixes.",
                &[],
            ),
            bound_m2: metrics.sum(
                "hyloc_bound_square_metres_total",
                "Squared rms errors that the exact bound allows, of judged fixes.",
                &[],
            ),
            nees: metrics.sum(
                "hyloc_nees_total",
                "Normalised squared errors of judged fixes; their mean is the number of free coordinates if covariances are consistent.",
                &[],
            ),
            stages: STAGES.map(stage).into(),
            targets: metrics.gauge("hyloc_targets_found", "Targets of the latest fix.", &[]),
            metrics: metrics.clone(),
            tracks: None,
            clock_errors: Vec::new(),
        }
    }

    /// Adds a fix.
    pub fn observe(&mut self, fix: &FixRecord) {
        if let Some(status) = STATUSES.iter().position(|status| *status == fix.status) {
            self.by_status[status].inc();
        }
        if let Some((error_m, truth)) = fix.error()
            && let Some((bound_m, nees)) = truth.bound_rms_m.zip(truth.nees)
        {
            self.judged.inc();
            self.error_m2.inc_by(error_m.powi(2));
            self.bound_m2.inc_by(bound_m.powi(2));
            self.nees.inc_by(nees);
        }
        for (histogram, values_ms) in self.stages.iter().zip(fix.timing.of_stages()) {
            values_ms.iter().for_each(|value_ms| histogram.observe(value_ms * 1e-3));
        }
        self.targets.set(fix.targets.len() as f64);
        self.observe_tracks(fix);
        self.observe_clocks(fix);
    }

    fn observe_tracks(&mut self, fix: &FixRecord) {
        let Some(followed) = &fix.tracks else { return };
        let tracks = self.tracks.get_or_insert_with(|| TrackMetrics::new(&self.metrics));
        tracks.confirmed.set(followed.len() as f64);
        tracks.coasting.set(followed.iter().filter(|track| track.coasting).count() as f64);
        tracks.expected.set(followed.iter().map(|track| track.existence).sum());
        tracks.least_existence.set(followed.iter().map(|track| track.existence).fold(1.0, f64::min));
        tracks.update.observe(fix.timing.track_ms * 1e-3);
    }

    /// How far the clocks are off, where their true offsets are told.
    fn observe_clocks(&mut self, fix: &FixRecord) {
        let Some(truth) = &fix.truth else { return };
        for (node, (clock, true_ns)) in fix.clocks.iter().zip(&truth.clock_offset_ns).enumerate() {
            if self.clock_errors.len() <= node {
                let (index, help) = (node.to_string(), "Error of the estimated offset of a node's clock.");
                let gauge = self.metrics.gauge("hyloc_clock_error_seconds", help, &[("node", &index)]);
                self.clock_errors.push(gauge);
            }
            self.clock_errors[node].set((clock.offset_ns - true_ns) * 1e-9);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::{FixClock, Source, Truth};
    use crate::place::{Axes, FixPlace};
    use crate::targets::FixTrack;
    use estimation::fusion::{FixMethod, FrameBlocks, FusedFix};
    use model::Point;
    use nalgebra::DMatrix;

    #[test]
    fn fixes_are_counted_summed_and_timed() {
        let metrics = Metrics::new();
        let mut of_fixes = FixMetrics::new(&metrics);
        let at = Point::new(1.0, 2.0, 0.0);
        let fixes = Ok(vec![FusedFix::new(FixMethod::Direct, at, DMatrix::identity(2, 2))]);
        let mut fix =
            FixRecord::new(Default::default(), &FrameBlocks::new(3), None, &fixes, Source::Simulated);
        fix.timing.fusion_ms = 2.0;
        of_fixes.observe(&fix);
        assert!(
            !metrics.render().contains("hyloc_tracks") && !metrics.render().contains("hyloc_clock_error")
        );
        let place = FixPlace::new(at, Axes::Xy);
        fix.truth = Some(Truth {
            position_m: Some(place),
            error_m: Some(0.5),
            bound_rms_m: Some(0.25),
            bound_m2: None,
            nees: Some(1.5),
            clock_offset_ns: vec![3.0],
            targets: None,
        });
        fix.clocks = vec![FixClock {
            prior_ns: 0.0,
            prior_deviation_ns: 1.0,
            offset_ns: 5.0,
            deviation_ns: 0.5,
            stepped: false,
            at_edge: false,
        }];
        let track = |existence: f64, coasting: bool| FixTrack {
            identity: 1,
            position_m: place,
            velocity_m_s: place,
            covariance: vec![],
            existence,
            coasting,
            merged_with: None,
            doubtful_identity: false,
            age_s: 0.0,
        };
        fix.tracks = Some(vec![track(0.75, false), track(0.5, true)]);
        fix.status = "doubtful".into();
        of_fixes.observe(&fix);
        let text = metrics.render();
        for expected in [
            "hyloc_fixes_total{status=\"doubtful\"} 1\n",
            "hyloc_fixes_total{status=\"nominal\"} 0\n",
            "hyloc_fixes_judged_total{} 1\n",
            "hyloc_error_square_metres_total{} 0.25\n",
            "hyloc_bound_square_metres_total{} 0.0625\n",
            "hyloc_nees_total{} 1.5\n",
            "hyloc_stage_seconds_count{stage=\"fusion\"} 2\n",
            "hyloc_stage_seconds_count{stage=\"total\"} 0\n",
            "hyloc_stage_seconds_count{stage=\"track\"} 1\n",
            "hyloc_tracks_confirmed{} 2.0\n",
            "hyloc_tracks_coasting{} 1.0\n",
            "hyloc_tracks_existence_sum{} 1.25\n",
            "hyloc_tracks_existence_min{} 0.5\n",
            "hyloc_clock_error_seconds{node=\"0\"} 2e-9\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
