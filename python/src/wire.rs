//! Fixes of the wire, as live streams and recordings hold them.

use fusion_center::fix::{Alternative, FixRecord, Source, Timing, Truth};
use fusion_center::place::{Axes, FixPlace};
use fusion_center::targets::{FixTarget, FixTrack};
use model::Point;
use proto::v1;

fn place(at: &v1::Point, axes: Axes) -> FixPlace {
    FixPlace::new(Point::new(at.x_m, at.y_m, at.z_m), axes)
}

fn target(message: &v1::FixTarget, axes: Axes) -> FixTarget {
    FixTarget {
        position_m: place(&message.position.unwrap_or_default(), axes),
        covariance_m2: message.covariance_m2.clone(),
        false_alarm_probability: message.false_alarm_probability,
        unresolved: message.unresolved,
    }
}

fn track(message: &v1::Track, axes: Axes) -> FixTrack {
    FixTrack {
        identity: message.identity,
        position_m: place(&message.position.unwrap_or_default(), axes),
        velocity_m_s: place(&message.velocity.unwrap_or_default(), axes),
        covariance: message.covariance.clone(),
        existence: message.existence,
        coasting: message.coasting,
        merged_with: message.merged_with,
        doubtful_identity: message.doubtful_identity,
        age_s: message.age_s,
    }
}

/// A fix as watchers receive it. What the message does not carry is left empty.
pub fn record_of_wire(fix: v1::Fix) -> FixRecord {
    let axes = if fix.axes == Axes::Xyz.name() { Axes::Xyz } else { Axes::Xy };
    let stages = fix.stages.unwrap_or_default();
    let truth = fix.truth.map(|at| Truth {
        position_m: Some(place(&at, axes)),
        error_m: fix.position.map(|found| (place(&found, axes).point() - place(&at, axes).point()).norm()),
        bound_rms_m: fix.bound_rms_m,
        bound_m2: None,
        nees: None,
        clock_offset_ns: Vec::new(),
        targets: None,
    });
    let others = fix.alternatives.iter().map(|other| Alternative {
        position_m: place(&other.position.unwrap_or_default(), axes),
        probability: other.probability,
    });
    FixRecord {
        frame: fix.frame,
        status: fix.status,
        method: Some(fix.method).filter(|name| !name.is_empty()),
        position_m: fix.position.map(|at| place(&at, axes)),
        axes: fix.position.map(|_| axes),
        covariance_m2: fix.position.map(|_| fix.covariance_m2),
        targets: fix.targets.iter().map(|message| target(message, axes)).collect(),
        targets_covariance_m2: fix.targets_covariance_m2,
        tracks: (!fix.tracks.is_empty())
            .then(|| fix.tracks.iter().map(|message| track(message, axes)).collect()),
        velocity_m_per_frame: None,
        protection_level_m: fix.protection_level_m,
        frames: 1,
        nodes: fix.nodes.iter().map(|node| *node as usize).collect(),
        paths: fix.paths_used as usize,
        missing: Vec::new(),
        excluded: fix.excluded,
        cautions: fix.cautions,
        alternatives: others.collect(),
        angle_rad: Vec::new(),
        bearing_rad: fix
            .bearing_rad
            .iter()
            .map(|angle| Some(*angle).filter(|angle| !angle.is_nan()))
            .collect(),
        delay_s: Vec::new(),
        snr_db: Vec::new(),
        iterations: 0,
        clocks: Vec::new(),
        clock_covariance_ns2: Vec::new(),
        source: if fix.source == "replayed" { Source::Replayed } else { Source::Simulated },
        truth,
        timing: Timing {
            time_ns: fix.time_ns,
            fusion_ms: stages.fusion_ms,
            total_ms: stages.total_ms,
            ..Timing::default()
        },
        run: fix.run,
    }
}
