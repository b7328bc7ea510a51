//! The fixes of the last ten minutes in short, for plots that survive a reload of the page and for download.
//!
//! Bounded in time and in number: of fixes that come faster than fifty a second, those in between are left out. An entry takes
//! about 400 bytes for three nodes, so that a full history takes 12 MB. Pure: times are those of the fixes.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;

use crate::fix::FixRecord;
use crate::place::FixPlace;

/// How far the history reaches back.
pub const WINDOW_S: u64 = 600;

/// Least time between two entries.
const INTERVAL_NS: u64 = 19_000_000;

/// Largest number of entries.
pub const MOST_ENTRIES: usize = 30_000;

/// A track of a past fix.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PastTrack {
    pub identity: u64,
    pub position_m: FixPlace,
}

/// A fix in short; its fields are those of the fix and of its truth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PastFix {
    pub time_ns: u64,
    pub run: u64,
    pub frame: u64,
    pub status: &'static str,
    /// Number of paths that were received.
    pub paths: usize,
    pub position_m: Option<FixPlace>,
    pub covariance_m2: Option<Vec<f64>>,
    pub true_position_m: Option<FixPlace>,
    pub error_m: Option<f64>,
    pub bound_rms_m: Option<f64>,
    pub bound_m2: Option<Vec<f64>>,
    pub nees: Option<f64>,
    /// Emit, filter and wire (of the slowest node), assemble, angles, locate.
    pub stages_ms: [f64; 6],
    pub total_ms: Option<f64>,
    /// By node; empty where clocks are trusted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clock_offset_ns: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub true_clock_offset_ns: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<PastTrack>,
}

/// The columns of [`PastFix::csv`].
pub const CSV_HEADER: &str = "time_ns,run,frame,status,paths,x_m,y_m,z_m,xx_m2,xy_m2,xz_m2,yy_m2,yz_m2,zz_m2,true_x_m,true_y_m,\
                              true_z_m,error_m,bound_rms_m,nees,total_ms\n";

impl PastFix {
    pub fn new(fix: &FixRecord) -> Self {
        let (timing, truth) = (&fix.timing, fix.truth.as_ref());
        let slowest = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        let tracks = fix.tracks().iter();
        Self {
            time_ns: timing.time_ns,
            run: fix.run,
            frame: fix.frame,
            status: ["nominal", "degraded", "doubtful"]
                .into_iter()
                .find(|known| *known == fix.status)
                .unwrap_or("unobservable"),
            paths: fix.paths,
            position_m: fix.position_m,
            covariance_m2: fix.covariance_m2.clone(),
            true_position_m: truth.and_then(|truth| truth.position_m),
            error_m: truth.and_then(|truth| truth.error_m),
            bound_rms_m: truth.and_then(|truth| truth.bound_rms_m),
            bound_m2: truth.and_then(|truth| truth.bound_m2.clone()),
            nees: truth.and_then(|truth| truth.nees),
            stages_ms: [
                slowest(&timing.emit_ms),
                slowest(&timing.filter_ms),
                slowest(&timing.wire_ms),
                timing.assemble_ms,
                timing.angles_ms,
                timing.locate_ms,
            ],
            total_ms: timing.total_ms,
            clock_offset_ns: fix.clocks.iter().map(|clock| clock.offset_ns).collect(),
            true_clock_offset_ns: truth.map(|truth| truth.clock_offset_ns.clone()).unwrap_or_default(),
            tracks: tracks
                .map(|track| PastTrack { identity: track.identity, position_m: track.position_m })
                .collect(),
        }
    }

    /// A line of a CSV file; what is unknown is empty.
    pub fn csv(&self) -> String {
        let mut line = format!("{},{},{},{},{}", self.time_ns, self.run, self.frame, self.status, self.paths);
        let mut add = |value: Option<f64>| {
            line.push(',');
            // Writing to a string cannot fail.
            let _ = value.map(|value| write!(line, "{value}"));
        };
        let coordinate = |place: &Option<FixPlace>, axis: usize| place.as_ref()?.get(axis).copied();
        (0..3).for_each(|axis| add(coordinate(&self.position_m, axis)));
        // Upper triangles of two or three rows, in the places of three.
        let places = match self.covariance_m2.as_ref().map(Vec::len) {
            Some(6) => [Some(0), Some(1), Some(2), Some(3), Some(4), Some(5)],
            Some(3) => [Some(0), Some(1), None, Some(2), None, None],
            _ => [None; 6],
        };
        let entry = |place: Option<usize>| self.covariance_m2.as_ref()?.get(place?).copied();
        places.into_iter().for_each(|place| add(entry(place)));
        (0..3).for_each(|axis| add(coordinate(&self.true_position_m, axis)));
        [self.error_m, self.bound_rms_m, self.nees, self.total_ms].into_iter().for_each(add);
        line.push('\n');
        line
    }
}

/// The latest fixes in short, oldest first.
#[derive(Debug, Default)]
pub struct FixHistory {
    entries: VecDeque<Arc<PastFix>>,
}

impl FixHistory {
    /// Adds a fix.
    pub fn add(&mut self, fix: &FixRecord) {
        let time_ns = fix.timing.time_ns;
        let since_ns = |entry: &Arc<PastFix>| time_ns.saturating_sub(entry.time_ns);
        if self.entries.back().is_some_and(|last| last.run == fix.run && since_ns(last) < INTERVAL_NS) {
            return;
        }
        let old = |entry: &Arc<PastFix>| since_ns(entry) > WINDOW_S * 1_000_000_000;
        while self.entries.len() >= MOST_ENTRIES || self.entries.front().is_some_and(old) {
            self.entries.pop_front();
        }
        self.entries.push_back(Arc::new(PastFix::new(fix)));
    }

    /// All entries; as many clones of a pointer.
    pub fn all(&self) -> Vec<Arc<PastFix>> {
        self.entries.iter().cloned().collect()
    }

    /// At most `most` entries, evenly over all, with the last one.
    pub fn thinned(&self, most: usize) -> Vec<Arc<PastFix>> {
        let (count, most) = (self.entries.len(), most.max(1));
        let every = count.div_ceil(most).max(1);
        let chosen = self.entries.iter().enumerate().filter(|(i, _)| (count - 1 - i) % every == 0);
        chosen.map(|(_, entry)| entry.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::{Source, Truth};
    use crate::place::Axes;
    use estimation::fusion::{FixMethod, FrameBlocks, FusedFix};
    use model::Point;
    use nalgebra::DMatrix;
    use proto::convert::FrameId;

    const MS: u64 = 1_000_000;

    fn fix(frame: u64, time_ns: u64) -> FixRecord {
        let covariance = DMatrix::from_row_slice(2, 2, &[0.01, 0.002, 0.002, 0.04]);
        let fixes = Ok(vec![FusedFix::new(FixMethod::Direct, Point::new(1.5, 2.0, 0.0), covariance)]);
        let id = FrameId { run: 7, frame };
        let mut fix = FixRecord::new(id, &FrameBlocks::new(2), None, &fixes, Source::Simulated);
        fix.timing.time_ns = time_ns;
        fix.timing.wire_ms = vec![1.0, 3.0];
        fix
    }

    #[test]
    fn a_history_is_bounded_in_time_and_in_number() {
        let mut history = FixHistory::default();
        (0..40_000u64).for_each(|i| history.add(&fix(i, i * 20 * MS)));
        let all = history.all();
        assert_eq!((all.len(), all[0].frame, all.last().unwrap().frame), (MOST_ENTRIES, 10_000, 39_999));
        // An hour later one remains.
        history.add(&fix(40_000, 4400 * 1000 * MS));
        assert_eq!(history.all().len(), 1);
        // Of a thousand fixes in a second, fifty.
        let mut fast = FixHistory::default();
        (0..1000u64).for_each(|i| fast.add(&fix(i, i * MS)));
        assert!((49..=53).contains(&fast.all().len()), "{}", fast.all().len());
    }

    #[test]
    fn a_thinned_history_ends_with_the_latest() {
        let mut history = FixHistory::default();
        assert!(history.thinned(10).is_empty());
        (0..95u64).for_each(|i| history.add(&fix(i, i * 20 * MS)));
        let frames = |most| history.thinned(most).iter().map(|past| past.frame).collect::<Vec<_>>();
        assert_eq!(frames(10), [4, 14, 24, 34, 44, 54, 64, 74, 84, 94]);
        assert_eq!((frames(95).len(), frames(1)), (95, vec![94]));
    }

    #[test]
    fn a_line_of_csv_has_all_columns() {
        let mut known = fix(3, 5);
        let place = FixPlace::new(Point::new(1.0, 2.0, 0.0), Axes::Xy);
        known.truth = Some(Truth {
            position_m: Some(place),
            error_m: Some(0.5),
            bound_rms_m: Some(0.25),
            bound_m2: None,
            nees: Some(2.5),
            clock_offset_ns: Vec::new(),
            targets: None,
        });
        let line = PastFix::new(&known).csv();
        assert_eq!(line, "5,7,3,degraded,0,1.5,2,,0.01,0.002,,0.04,,,1,2,,0.5,0.25,2.5,\n");
        assert_eq!(line.matches(',').count(), CSV_HEADER.matches(',').count());
        assert_eq!(PastFix::new(&known).stages_ms[2], 3.0, "the slowest node");
    }
}
