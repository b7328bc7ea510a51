//! A fix as it is published: one JSON line of the fix log, one message of the watch stream.
//!
//! Everything except `run`, `timing` and `source` depends only on the paths of the frame and on the truth: two runs of one
//! scenario give the same bytes otherwise.

use estimation::angles::AngleEstimate;
use estimation::direct::ClockUpdate;
use estimation::fusion::{FrameBlocks, FusedFix, FusionError};
use estimation::location::Status;
use model::Point;
use model::units::db_from_ratio;
use proto::convert::{FrameId, Times};
use serde::{Deserialize, Serialize};

use crate::basis::missing_paths;
use crate::place::{Axes, FixPlace, upper_triangle};
use crate::solve::NO_TARGET;
use crate::targets::{FixTarget, FixTrack, JudgedTarget};

/// Where the reports came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    Simulated,
    Replayed,
}

/// The true position of the target with the true clocks, and the fix compared with them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The target; of several the one that the first position of the fix is compared with; none if there is none.
    pub position_m: Option<FixPlace>,
    /// Distance between fix and target.
    pub error_m: Option<f64>,
    /// Rms error that the exact bound allows with the paths that were received.
    pub bound_rms_m: Option<f64>,
    /// Covariance of the bound over the free coordinates, as its upper triangle.
    pub bound_m2: Option<Vec<f64>>,
    /// Normalised squared error; its mean is the number of free coordinates for a consistent covariance.
    pub nees: Option<f64>,
    /// Offset of the clock of every node; none where clocks are trusted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_offset_ns: Vec<f64>,
    /// All targets, where the simulator lists them or the fusion center looks for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<JudgedTarget>>,
}

/// Latencies of a fix; the lists are indexed like `nodes`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// When the fix was published, nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// From the intended transmission to the arrival at the node.
    pub emit_ms: Vec<f64>,
    /// Matched filter.
    pub filter_ms: Vec<f64>,
    /// From the node to the fusion center.
    pub wire_ms: Vec<f64>,
    /// Indices of the nodes that the three lists refer to.
    pub nodes: Vec<usize>,
    /// From the first report of the frame to the last.
    pub assemble_ms: f64,
    /// Estimation of the joint angles.
    pub angles_ms: f64,
    /// Estimation of delays and position.
    pub locate_ms: f64,
    /// Update of the tracks; 0 where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub track_ms: f64,
    /// From the last report to the publication.
    pub fusion_ms: f64,
    /// From the intended transmission to the publication.
    pub total_ms: Option<f64>,
    /// Size of the reports behind the fix.
    #[serde(default)]
    pub wire_bytes: u64,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// Another position at which the target may be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    pub position_m: FixPlace,
    /// Posterior probability of the mode at this position.
    pub probability: f64,
}

/// The clock of a node in a fix.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FixClock {
    /// Offset and standard deviation that the fix was made with.
    pub prior_ns: f64,
    pub prior_deviation_ns: f64,
    /// The same with the frame of the fix.
    pub offset_ns: f64,
    pub deviation_ns: f64,
    /// Whether the clock has stepped since the frames before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stepped: bool,
    /// Whether the offset is at the edge of what was searched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_edge: bool,
}

impl FixClock {
    /// The clocks of all nodes in a fix.
    fn all(update: &ClockUpdate) -> Vec<Self> {
        let ClockUpdate { prior, posterior, .. } = update;
        let clock = |l: usize| Self {
            prior_ns: prior.mean_s()[l] * 1e9,
            prior_deviation_ns: prior.deviation_s(l) * 1e9,
            offset_ns: posterior.mean_s()[l] * 1e9,
            deviation_ns: posterior.deviation_s(l) * 1e9,
            stepped: update.stepped.contains(&l),
            at_edge: update.at_edge.contains(&l),
        };
        (0..prior.mean_s().len()).map(clock).collect()
    }
}

/// A fix, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FixRecord {
    pub frame: u64,
    /// nominal, degraded, doubtful or unobservable.
    pub status: String,
    /// How the fix was made: three-stage, direct, direct-frames or direct-targets; none when unobservable.
    pub method: Option<String>,
    /// None when unobservable.
    pub position_m: Option<FixPlace>,
    /// Free coordinates of the position; absent in logs of releases without heights.
    #[serde(default)]
    pub axes: Option<Axes>,
    /// Covariance of the position error over the free coordinates, as its upper triangle.
    pub covariance_m2: Option<Vec<f64>>,
    /// All targets of the frame, strongest first: position and covariance of the fix are those of the first.
    #[serde(default)]
    pub targets: Vec<FixTarget>,
    /// Covariance of the errors of all targets, in their order, as its upper triangle; none for fewer than two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets_covariance_m2: Vec<f64>,
    /// Targets that are followed over several frames, by identity; no list where the fusion center looks for one target only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracks: Option<Vec<FixTrack>>,
    /// Estimated only from several frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub velocity_m_per_frame: Option<FixPlace>,
    /// Radius that contains the error with probability 1 - 1e-3 given one possible undetected fault.
    pub protection_level_m: Option<f64>,
    /// Number of frames that the fix was made from.
    #[serde(default = "one_frame", skip_serializing_if = "is_one_frame")]
    pub frames: usize,
    /// Nodes that reported.
    pub nodes: Vec<usize>,
    /// Number of paths received, of K^2.
    pub paths: usize,
    /// Paths (l, k) that were not received.
    pub missing: Vec<(usize, usize)>,
    /// What was excluded as faulty.
    pub excluded: Vec<String>,
    /// Why the fix is not nominal.
    pub cautions: Vec<String>,
    /// Most probable first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// Local angle of each IRS.
    pub angle_rad: Vec<Option<f64>>,
    /// Global bearing of each IRS.
    pub bearing_rad: Vec<Option<f64>>,
    /// Cascade delays, refined where angles allow it, by `l`, then `k`.
    pub delay_s: Vec<Vec<Option<f64>>>,
    /// SNR of each path as measured by its node, by `l`, then `k`.
    pub snr_db: Vec<Vec<Option<f64>>>,
    /// Iterations of the joint solver.
    pub iterations: usize,
    /// Clocks of all nodes; none where they are trusted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<FixClock>,
    /// Covariance of their offsets, as its upper triangle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_covariance_ns2: Vec<f64>,
    pub source: Source,
    /// None unless a simulator has sent it.
    pub truth: Option<Truth>,
    pub timing: Timing,
    /// The run of the simulator that the frame belongs to; 0 in logs of releases that did not say. It comes after the
    /// timing, so that what precedes it is the same in two runs.
    #[serde(default)]
    pub run: u64,
}

fn one_frame() -> usize {
    1
}

fn is_one_frame(frames: &usize) -> bool {
    *frames == 1
}

/// What is unusual about the clocks of a fix.
fn clock_cautions(update: &ClockUpdate) -> Vec<String> {
    let stepped = update.stepped.iter().map(|l| format!("the clock of node {l} has stepped"));
    let at_edge = update
        .at_edge
        .iter()
        .map(|l| format!("the clock of node {l} is at the edge of the searched offsets"));
    stepped.chain(at_edge).collect()
}

/// When the reports behind a fix were received, nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Default)]
pub struct ReportArrivals {
    pub first_ns: u64,
    pub last_ns: u64,
    /// Size of all reports.
    pub bytes: u64,
    /// Node, its times and the arrival of each report whose node knows the intended transmission.
    pub reports: Vec<(usize, Times, u64)>,
}

/// Time from one instant to another; zero if the clocks of two hosts disagree about the order.
pub fn milliseconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 * 1e-6
}

impl FixRecord {
    /// The record of a solved frame, before [`Self::complete`].
    pub fn new(
        frame: FrameId,
        blocks: &FrameBlocks,
        angles: Option<&AngleEstimate>,
        outcome: &Result<Vec<FusedFix>, FusionError>,
        source: Source,
    ) -> Self {
        let count = blocks.irs_count();
        let path = |l: usize, k: usize| blocks.path(l, k);
        let table = |value: &dyn Fn(usize, usize) -> Option<f64>| -> Vec<Vec<Option<f64>>> {
            (0..count).map(|l| (0..count).map(|k| value(l, k)).collect()).collect()
        };
        let missing = missing_paths(blocks);
        let nodes: Vec<usize> = (0..count).filter(|&l| (0..count).any(|k| path(l, k).is_some())).collect();
        let fixes = outcome.as_deref().unwrap_or_default();
        let fix = fixes.first();
        let staged = fix.and_then(|fused| fused.three_stage.as_ref());
        let measurements = staged.map(|staged| &staged.measurements);
        let mut cautions: Vec<String> = match (outcome, fix) {
            (Err(error), _) => vec![error.to_string()],
            (Ok(_), None) => vec![NO_TARGET.to_owned()],
            (Ok(_), Some(fused)) => fused.cautions.iter().map(ToString::to_string).collect(),
        };
        cautions
            .extend((0..count).filter(|l| !nodes.contains(l)).map(|l| format!("node {l} did not report")));
        let clocks = fix.and_then(|fix| fix.clocks.as_ref());
        cautions.extend(clocks.into_iter().flat_map(clock_cautions));
        let incomplete = missing.len() > count * (count - nodes.len());
        cautions.extend(incomplete.then(|| "some paths of a reporting node are missing".to_owned()));
        let status = match fix {
            None => Status::Unobservable,
            Some(fix) => match Status::with_cautions(&fix.cautions) {
                Status::Nominal if !cautions.is_empty() => Status::Degraded,
                status => status,
            },
        };
        let axes = fix.map(|fix| Axes::of_covariance(&fix.covariance_m2));
        let place = |at: Point| FixPlace::new(at, axes.unwrap_or(Axes::Xyz));
        let alternatives = fix
            .into_iter()
            .flat_map(|fix| &fix.alternatives)
            .map(|other| Alternative { position_m: place(other.position_m), probability: other.probability });
        Self {
            frame: frame.frame,
            status: status.to_string(),
            method: fix.map(|fix| fix.method.name().to_owned()),
            position_m: fix.map(|fix| place(fix.position_m)),
            axes,
            covariance_m2: fix.map(|fix| upper_triangle(&fix.covariance_m2)),
            targets: fixes.iter().map(|fix| FixTarget::new(fix, axes.unwrap_or(Axes::Xyz))).collect(),
            targets_covariance_m2: fix
                .and_then(|fix| fix.joint_covariance_m2.as_ref())
                .map(upper_triangle)
                .unwrap_or_default(),
            tracks: None,
            velocity_m_per_frame: fix.and_then(|fix| fix.velocity_m_per_frame.map(place)),
            protection_level_m: fix.and_then(|fix| fix.protection_level_m),
            frames: 1,
            paths: count * count - missing.len(),
            nodes,
            missing,
            excluded: fix.map(|fix| fix.excluded.clone()).unwrap_or_default(),
            cautions,
            alternatives: alternatives.collect(),
            angle_rad: (0..count).map(|k| angles.and_then(|a| a.irs[k].angle_rad)).collect(),
            bearing_rad: (0..count)
                .map(|k| measurements.and_then(|m| m.bearing(k)).map(|b| b.bearing_rad))
                .collect(),
            delay_s: table(&|l, k| {
                let refined = measurements.and_then(|m| m.cascade_delay(l, k)).map(|d| d.delay_s);
                refined.or_else(|| path(l, k).map(|path| path.delay_s).filter(|_| fix.is_some()))
            }),
            snr_db: table(&|l, k| path(l, k).map(|path| db_from_ratio(path.snr.max(1e-3)))),
            iterations: angles.map_or(0, |angles| angles.iterations),
            clocks: clocks.map(FixClock::all).unwrap_or_default(),
            clock_covariance_ns2: clocks
                .map(|update| upper_triangle(&(update.posterior.covariance_s2() * 1e18)))
                .unwrap_or_default(),
            source,
            truth: None,
            timing: Timing::default(),
            run: frame.run,
        }
    }

    /// Adds what is known when the fix is published at `time_ns`: the truth, and the latencies of received reports.
    pub fn complete(&mut self, time_ns: u64, arrivals: Option<ReportArrivals>, truth: Option<Truth>) {
        self.truth = truth;
        let timing = &mut self.timing;
        timing.time_ns = time_ns;
        let Some(arrivals) = arrivals else { return };
        timing.assemble_ms = milliseconds(arrivals.first_ns, arrivals.last_ns);
        timing.fusion_ms = milliseconds(arrivals.last_ns, time_ns);
        timing.wire_bytes = arrivals.bytes;
        for (node, times, arrived_ns) in arrivals.reports {
            timing.nodes.push(node);
            timing.emit_ms.push(milliseconds(times.intended_ns, times.received_ns));
            timing.filter_ms.push(milliseconds(times.received_ns, times.filtered_ns));
            timing.wire_ms.push(milliseconds(times.sent_ns, arrived_ns));
            timing.total_ms = Some(milliseconds(times.intended_ns, time_ns));
        }
    }

    /// Its error and the truth, where that is known and the fix has the right number of targets: a frame with a wrong number is an
    /// error of its own, and counted as such.
    pub fn error(&self) -> Option<(f64, &Truth)> {
        let truth = self.truth.as_ref()?;
        let right = truth.targets.as_ref().is_none_or(|targets| targets.len() == self.targets.len());
        Some((truth.error_m.filter(|_| right)?, truth))
    }

    /// The tracks; empty where there are none.
    pub fn tracks(&self) -> &[FixTrack] {
        self.tracks.as_deref().unwrap_or_default()
    }

    pub fn frame_id(&self) -> FrameId {
        FrameId { run: self.run, frame: self.frame }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estimation::fusion::FixMethod;
    use nalgebra::DMatrix;

    fn record(at: Point, axes: usize) -> FixRecord {
        let covariance_m2 = DMatrix::from_fn(axes, axes, |i, j| (1 + i.min(j) * 10 + i.max(j)) as f64);
        let fix = Ok(vec![FusedFix::new(FixMethod::Direct, at, covariance_m2)]);
        FixRecord::new(FrameId::default(), &FrameBlocks::new(2), None, &fix, Source::Simulated)
    }

    #[test]
    fn a_fix_names_its_axes_and_states_a_covariance_of_these() {
        let line = |at, axes| serde_json::to_string(&record(at, axes)).unwrap();
        let flat = line(Point::new(1.0, 2.0, 0.0), 2);
        assert!(
            flat.contains(r#""position_m":[1.0,2.0],"axes":"xy","covariance_m2":[1.0,2.0,12.0],"targets":[{"position_m":[1.0,2.0],"covariance_m2":[1.0,2.0,12.0]}]"#),
            "{flat}"
        );
        let space = line(Point::new(1.0, 2.0, 0.0), 3);
        let expected =
            r#""position_m":[1.0,2.0,0.0],"axes":"xyz","covariance_m2":[1.0,2.0,3.0,12.0,13.0,23.0]"#;
        assert!(space.contains(expected), "{space}");
        let message = record(Point::new(1.0, 2.0, 3.0), 3).to_wire();
        assert_eq!((message.axes.as_str(), message.position.unwrap().z_m), ("xyz", 3.0));
    }

    #[test]
    fn lines_from_before_there_were_heights_are_read() {
        let old = serde_json::to_string(&record(Point::new(1.0, 2.0, 0.0), 2))
            .unwrap()
            .replace(r#""axes":"xy","#, "");
        let read: FixRecord = serde_json::from_str(&old).unwrap();
        assert_eq!(read.axes, None);
        assert_eq!(read.position_m.unwrap().point(), Point::new(1.0, 2.0, 0.0));
        assert_eq!(read.covariance_m2.unwrap(), [1.0, 2.0, 12.0]);
    }
}
