//! A fix as the world sees it: one JSON line of the fix log, one message of the watch stream.
//!
//! All but `timing` and `source` depend on the blocks of the frame and the truth alone: two runs of one
//! scenario give the same bytes.

use estimation::angles::AngleEstimate;
use estimation::fusion::{FrameBlocks, FusedFix, FusionError};
use estimation::location::Status;
use model::units::db_from_ratio;
use proto::convert::FrameId;
use serde::{Deserialize, Serialize};

/// Where the blocks came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// From nodes that a simulator drives.
    Simulated,
    /// From a recording.
    Replayed,
}

/// What is known of a frame's target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Where it is.
    pub position_m: [f64; 2],
    /// Distance of the fix.
    pub error_m: Option<f64>,
    /// Rms error that the exact bound allows with the paths that came.
    pub bound_rms_m: Option<f64>,
    /// Covariance of the bound: xx, xy, yy.
    pub bound_m2: Option<[f64; 3]>,
    /// Normalised squared error; two on average for an honest covariance.
    pub nees: Option<f64>,
}

/// When things happened, milliseconds but for `time_ns`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Run of the simulator.
    pub run: u64,
    /// When the fix was out, nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// Intended send to arrival at the node, of each node that reported.
    pub emit_ms: Vec<f64>,
    /// Matched filter, of each node.
    pub filter_ms: Vec<f64>,
    /// Node to fusion center, of each node.
    pub wire_ms: Vec<f64>,
    /// Nodes that the three lists speak of.
    pub nodes: Vec<usize>,
    /// First block in to last.
    pub assemble_ms: f64,
    /// Joint angles.
    pub angles_ms: f64,
    /// Delays and location.
    pub locate_ms: f64,
    /// Last needed block in to fix out.
    pub fusion_ms: f64,
    /// Intended send to fix out.
    pub total_ms: Option<f64>,
    /// Bytes of the reports behind the fix.
    #[serde(default)]
    pub wire_bytes: u64,
}

/// Another place where the target may be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The place.
    pub position_m: [f64; 2],
    /// Posterior probability that the target is thereabouts.
    pub probability: f64,
}

/// A fix, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FixRecord {
    /// Frame number.
    pub frame: u64,
    /// nominal, degraded, doubtful or unobservable.
    pub status: String,
    /// How the fix was made: three-stage, direct or direct-frames; none when unobservable.
    pub method: Option<String>,
    /// Position; none when unobservable.
    pub position_m: Option<[f64; 2]>,
    /// Covariance of its error: xx, xy, yy.
    pub covariance_m2: Option<[f64; 3]>,
    /// Velocity, where several frames tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub velocity_m_per_frame: Option<[f64; 2]>,
    /// Radius that holds the error with probability 1 - 1e-3 given one possible undetected fault.
    pub protection_level_m: Option<f64>,
    /// Nodes that reported.
    pub nodes: Vec<usize>,
    /// Paths that came, of K^2.
    pub paths: usize,
    /// Paths (l, k) that did not come.
    pub missing: Vec<(usize, usize)>,
    /// What was excluded as faulty.
    pub excluded: Vec<String>,
    /// Why the fix is not nominal.
    pub cautions: Vec<String>,
    /// Where else the target may be, likeliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// Local angle of each IRS.
    pub angle_rad: Vec<Option<f64>>,
    /// Global bearing of each IRS.
    pub bearing_rad: Vec<Option<f64>>,
    /// Cascade delays, refined where angles allow it, by `l`, then `k`.
    pub delay_s: Vec<Vec<Option<f64>>>,
    /// SNR of each path as its node measured it, by `l`, then `k`.
    pub snr_db: Vec<Vec<Option<f64>>>,
    /// Iterations of the joint solver.
    pub iterations: usize,
    /// Where the blocks came from.
    pub source: Source,
    /// Truth, where a simulator tells it.
    pub truth: Option<Truth>,
    /// When things happened.
    pub timing: Timing,
}

fn alternatives(fix: &FusedFix) -> Vec<Alternative> {
    let places = fix.alternatives.iter();
    places
        .map(|place| Alternative { position_m: place.position_m.into(), probability: place.probability })
        .collect()
}

impl FixRecord {
    /// The record of a solved frame, before timing and truth.
    pub fn new(
        frame: FrameId,
        blocks: &FrameBlocks,
        angles: Option<&AngleEstimate>,
        outcome: &Result<FusedFix, FusionError>,
        source: Source,
    ) -> Self {
        let count = blocks.irs_count();
        let path = |l: usize, k: usize| blocks.path(l, k);
        let table = |value: &dyn Fn(usize, usize) -> Option<f64>| -> Vec<Vec<Option<f64>>> {
            (0..count).map(|l| (0..count).map(|k| value(l, k)).collect()).collect()
        };
        let missing: Vec<(usize, usize)> = (0..count * count)
            .map(|path| (path / count, path % count))
            .filter(|&(l, k)| path(l, k).is_none())
            .collect();
        let nodes: Vec<usize> = (0..count).filter(|&l| (0..count).any(|k| path(l, k).is_some())).collect();
        let fix = outcome.as_ref().ok();
        let staged = fix.and_then(|fused| fused.three_stage.as_ref());
        let measurements = staged.map(|staged| &staged.measurements);
        let mut cautions: Vec<String> = match outcome {
            Ok(fused) => fused.cautions.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        };
        cautions
            .extend((0..count).filter(|l| !nodes.contains(l)).map(|l| format!("node {l} did not report")));
        let incomplete = missing.len() > count * (count - nodes.len());
        cautions.extend(incomplete.then(|| "some blocks of a reporting node are missing".to_owned()));
        let status = match fix {
            None => Status::Unobservable,
            Some(fix) => match Status::with_cautions(&fix.cautions) {
                Status::Nominal if !cautions.is_empty() => Status::Degraded,
                status => status,
            },
        };
        Self {
            frame: frame.frame,
            status: status.to_string(),
            method: fix.map(|fix| fix.method.name().to_owned()),
            position_m: fix.map(|fix| fix.position_m.into()),
            covariance_m2: fix.map(|fix| {
                let c = fix.covariance_m2;
                [c.m11, c.m12, c.m22]
            }),
            velocity_m_per_frame: fix.and_then(|fix| fix.velocity_m_per_frame.map(Into::into)),
            protection_level_m: fix.and_then(|fix| fix.protection_level_m),
            paths: count * count - missing.len(),
            nodes,
            missing,
            excluded: fix.map(|fix| fix.excluded.clone()).unwrap_or_default(),
            cautions,
            alternatives: fix.map(alternatives).unwrap_or_default(),
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
            source,
            truth: None,
            timing: Timing { run: frame.run, ..Timing::default() },
        }
    }

    /// The frame that it belongs to.
    pub fn frame_id(&self) -> FrameId {
        FrameId { run: self.timing.run, frame: self.frame }
    }
}
