//! Fixes and node status as wire messages.

use proto::v1;

use crate::fix::{FixClock, FixRecord, Source};
use crate::ledger::Balance;
use crate::node_table::NodeView;
use crate::place::FixPlace;
use crate::targets::{FixTarget, FixTrack};

/// A report as received, which only the recording uses.
pub type ReportMessage = v1::FrameReport;

impl FixRecord {
    /// Offset of the clock of a node as the simulator has told it.
    fn true_offset_ns(&self, node: usize) -> Option<f64> {
        self.truth.as_ref()?.clock_offset_ns.get(node).copied()
    }

    /// The message of the watch stream.
    pub fn to_wire(&self) -> v1::Fix {
        let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let timing = &self.timing;
        v1::Fix {
            frame: self.frame,
            run: self.run,
            time_ns: timing.time_ns,
            status: self.status.clone(),
            method: self.method.clone().unwrap_or_default(),
            position: self.position_m.map(Into::into),
            covariance_m2: self.covariance_m2.clone().unwrap_or_default(),
            axes: self.axes.map(|axes| axes.name().to_owned()).unwrap_or_default(),
            protection_level_m: self.protection_level_m,
            nodes: self.nodes.iter().map(|l| *l as u32).collect(),
            paths_used: self.paths as u32,
            excluded: self.excluded.clone(),
            cautions: self.cautions.clone(),
            alternatives: self
                .alternatives
                .iter()
                .map(|other| v1::Alternative {
                    position: Some(other.position_m.into()),
                    probability: other.probability,
                })
                .collect(),
            bearing_rad: self.bearing_rad.iter().map(|b| b.unwrap_or(f64::NAN)).collect(),
            delay_s: self.delay_s.iter().flatten().map(|d| d.unwrap_or(f64::NAN)).collect(),
            source: match self.source {
                Source::Simulated => "simulated",
                Source::Replayed => "replayed",
            }
            .into(),
            truth: self.truth.as_ref().and_then(|truth| truth.position_m).map(Into::into),
            targets: self.targets.iter().map(Into::into).collect(),
            targets_covariance_m2: self.targets_covariance_m2.clone(),
            tracks: self.tracks().iter().map(Into::into).collect(),
            true_targets: self
                .truth
                .iter()
                .flat_map(|truth| truth.targets.iter().flatten())
                .map(|target| v1::TrueTarget {
                    identity: target.identity,
                    position: Some(target.position_m.into()),
                    ..v1::TrueTarget::default()
                })
                .collect(),
            clocks: self
                .clocks
                .iter()
                .enumerate()
                .map(|(l, clock)| clock.to_wire(self.true_offset_ns(l)))
                .collect(),
            clock_covariance_s2: self.clock_covariance_ns2.iter().map(|entry| entry * 1e-18).collect(),
            bound_rms_m: self.truth.as_ref().and_then(|truth| truth.bound_rms_m),
            stages: Some(v1::StageTimes {
                emit_ms: (!timing.emit_ms.is_empty()).then(|| worst(&timing.emit_ms)),
                filter_ms: worst(&timing.filter_ms),
                wire_ms: worst(&timing.wire_ms),
                assemble_ms: timing.assemble_ms,
                angles_ms: timing.angles_ms,
                locate_ms: timing.locate_ms,
                fusion_ms: timing.fusion_ms,
                total_ms: timing.total_ms,
            }),
        }
    }
}

impl From<FixPlace> for v1::Point {
    fn from(place: FixPlace) -> Self {
        let [x_m, y_m, z_m] = place.point().into();
        Self { x_m, y_m, z_m }
    }
}

impl From<&FixTarget> for v1::FixTarget {
    fn from(target: &FixTarget) -> Self {
        Self {
            position: Some(target.position_m.into()),
            covariance_m2: target.covariance_m2.clone(),
            false_alarm_probability: target.false_alarm_probability,
            unresolved: target.unresolved,
        }
    }
}

impl From<&FixTrack> for v1::Track {
    fn from(track: &FixTrack) -> Self {
        Self {
            identity: track.identity,
            position: Some(track.position_m.into()),
            velocity: Some(track.velocity_m_s.into()),
            covariance: track.covariance.clone(),
            existence: track.existence,
            coasting: track.coasting,
            merged_with: track.merged_with,
            doubtful_identity: track.doubtful_identity,
            age_s: track.age_s,
        }
    }
}

impl From<NodeView> for v1::NodeStatus {
    fn from(node: NodeView) -> Self {
        let Balance { sent, dropped_at_node, fates, in_flight, repeated, unaccounted } = node.balance;
        Self {
            index: node.index as u32,
            identity: node.identity,
            connected: node.connected,
            last_frame: node.last_frame,
            sent,
            dropped_at_node,
            fused: fates.fused,
            late: fates.late,
            duplicate: fates.duplicate,
            dropped: fates.dropped,
            in_flight,
            unaccounted,
            repeated,
            clock_offset_s: node.clock.map(|clock| clock.offset_ns * 1e-9),
            clock_deviation_s: node.clock.map(|clock| clock.deviation_ns * 1e-9),
            clock_rate: node.clock.map(|clock| clock.rate_ppb * 1e-9),
            clock_stepped_frame: node.clock.and_then(|clock| clock.stepped_frame),
        }
    }
}

impl FixClock {
    /// The message of a clock, with its true offset where that is known.
    fn to_wire(self, true_offset_ns: Option<f64>) -> v1::FixClock {
        v1::FixClock {
            prior_s: self.prior_ns * 1e-9,
            prior_deviation_s: self.prior_deviation_ns * 1e-9,
            offset_s: self.offset_ns * 1e-9,
            deviation_s: self.deviation_ns * 1e-9,
            stepped: self.stepped,
            at_edge: self.at_edge,
            true_offset_s: true_offset_ns.map(|offset_ns| offset_ns * 1e-9),
        }
    }
}
