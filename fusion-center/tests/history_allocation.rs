//! The steady state of the history: a fix with clocks and tracks that displaces an older one allocates nothing.

#[path = "../../estimation/tests/support/counting.rs"]
mod counting;

use counting::own_allocations;
use estimation::fusion::{FixMethod, FrameBlocks, FusedFix};
use hyloc_fusion_center::fix::{FixClock, FixRecord, Source, Truth};
use hyloc_fusion_center::history::{FixHistory, MOST_ENTRIES, WINDOW_S};
use hyloc_fusion_center::targets::FixTrack;
use model::Point;
use nalgebra::DMatrix;
use proto::convert::FrameId;

/// Interval of the fixes when a history is full by number, and when it is full by time.
const FAST_NS: u64 = 20_000_000;
const SLOW_NS: u64 = 1_000_000_000;

/// A fix of a frame with the clocks of three nodes and one track.
fn fix() -> FixRecord {
    let covariance = DMatrix::from_row_slice(2, 2, &[0.01, 0.002, 0.002, 0.04]);
    let fixes = Ok(vec![FusedFix::new(FixMethod::Direct, Point::new(1.5, 2.0, 0.0), covariance)]);
    let id = FrameId { run: 7, frame: 0 };
    let mut fix = FixRecord::new(id, &FrameBlocks::new(3), None, &fixes, Source::Simulated);
    let position_m = fix.position_m.unwrap();
    let clock = |offset_ns| FixClock {
        prior_ns: 0.0,
        prior_deviation_ns: 9.0,
        offset_ns,
        deviation_ns: 0.5,
        stepped: false,
        at_edge: false,
    };
    fix.clocks = [0.0, 1.0, 2.0].map(clock).into();
    fix.tracks = Some(vec![FixTrack {
        identity: 3,
        position_m,
        velocity_m_s: position_m,
        covariance: vec![0.0; 10],
        existence: 1.0,
        coasting: false,
        merged_with: None,
        doubtful_identity: false,
        age_s: 1.0,
    }]);
    fix.truth = Some(Truth {
        position_m: Some(position_m),
        error_m: Some(0.1),
        bound_rms_m: Some(0.2),
        bound_m2: fix.covariance_m2.clone(),
        nees: Some(2.0),
        clock_offset_ns: vec![0.0, 1.5, 2.5],
        targets: None,
    });
    fix
}

#[test]
fn a_full_history_allocates_nothing() {
    let mut fix = fix();
    for (interval_ns, full) in [(FAST_NS, MOST_ENTRIES as u64), (SLOW_NS, WINDOW_S + 1)] {
        let mut history = FixHistory::default();
        let mut add = |frames: std::ops::Range<u64>| {
            for frame in frames {
                (fix.frame, fix.timing.time_ns) = (frame, frame * interval_ns);
                history.add(&fix);
            }
        };
        add(0..full);
        let before = own_allocations();
        add(full..3 * full);
        assert_eq!(own_allocations() - before, 0, "one fix in {interval_ns} ns");
        assert_eq!(history.numbers(), 2 * full..3 * full);
        let last = history.range(3 * full - 1..3 * full);
        let written = serde_json::to_string(&last[0]).unwrap();
        let lists = r#""clock_offset_ns":[0.0,1.0,2.0],"true_clock_offset_ns":[0.0,1.5,2.5],"tracks":[{"identity":3,"position_m":[1.5,2.0]}]}"#;
        assert!(written.contains(&format!(r#""frame":{},"#, 3 * full - 1)), "{written}");
        assert!(written.ends_with(lists), "{written}");
    }
}
