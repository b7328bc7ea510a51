//! The fixes of the last ten minutes in short, for plots that survive a reload of the page and for download.
//!
//! Bounded in time and in number: of fixes that come faster than fifty a second, those in between are left out. Memory for all
//! entries, 11 MB, is taken at the start, so that it does not depend on how long the fusion center runs and how many fixes there
//! are. Clock offsets and tracks lie in queues of their own, which take 16 bytes for a clock and 40 for a track of an entry, at most
//! twice that while they grow. An entry in many small pieces would fragment the heap: they would live for ten minutes among those of
//! single frames. Pure: times are those of the fixes.

use std::collections::VecDeque;
use std::fmt::Write;
use std::ops::Range;

use serde::Serialize;

use crate::fix::FixRecord;
use crate::place::FixPlace;
use crate::targets::FixTrack;

/// How far the history reaches back.
pub const WINDOW_S: u64 = 600;

/// Least time between two entries.
const INTERVAL_NS: u64 = 19_000_000;

/// Largest number of entries.
pub const MOST_ENTRIES: usize = 30_000;

/// A track of a past fix.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PastTrack {
    pub identity: u64,
    pub position_m: FixPlace,
}

/// The upper triangle of a covariance over two or three coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Triangle {
    Two([f64; 3]),
    Three([f64; 6]),
}

impl Triangle {
    fn new(entries: &[f64]) -> Option<Self> {
        let two = entries.try_into().map(Self::Two);
        two.or_else(|_| entries.try_into().map(Self::Three)).ok()
    }
}

/// The part of a past fix that has a fixed size; its fields are those of the fix and of its truth.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct BriefFix {
    pub time_ns: u64,
    pub run: u64,
    pub frame: u64,
    pub status: &'static str,
    /// Number of paths that were received.
    pub paths: usize,
    pub position_m: Option<FixPlace>,
    pub covariance_m2: Option<Triangle>,
    pub true_position_m: Option<FixPlace>,
    pub error_m: Option<f64>,
    pub bound_rms_m: Option<f64>,
    pub bound_m2: Option<Triangle>,
    pub nees: Option<f64>,
    /// Emit, filter and wire (of the slowest node), assemble, angles, locate.
    pub stages_ms: [f64; 6],
    pub total_ms: Option<f64>,
}

/// A fix in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PastFix {
    #[serde(flatten)]
    pub brief: BriefFix,
    /// By node; empty where clocks are trusted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clock_offset_ns: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub true_clock_offset_ns: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<PastTrack>,
}

/// The columns of [`BriefFix::csv`].
pub const CSV_HEADER: &str = "time_ns,run,frame,status,paths,x_m,y_m,z_m,xx_m2,xy_m2,xz_m2,yy_m2,yz_m2,zz_m2,true_x_m,true_y_m,\
                              true_z_m,error_m,bound_rms_m,nees,total_ms\n";

impl BriefFix {
    pub fn new(fix: &FixRecord) -> Self {
        let (timing, truth) = (&fix.timing, fix.truth.as_ref());
        let slowest = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
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
            covariance_m2: fix.covariance_m2.as_deref().and_then(Triangle::new),
            true_position_m: truth.and_then(|truth| truth.position_m),
            error_m: truth.and_then(|truth| truth.error_m),
            bound_rms_m: truth.and_then(|truth| truth.bound_rms_m),
            bound_m2: truth.and_then(|truth| truth.bound_m2.as_deref()).and_then(Triangle::new),
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
        let places = match self.covariance_m2 {
            Some(Triangle::Three(entries)) => entries.map(Some),
            Some(Triangle::Two([xx, xy, yy])) => [Some(xx), Some(xy), None, Some(yy), None, None],
            None => [None; 6],
        };
        places.into_iter().for_each(&mut add);
        (0..3).for_each(|axis| add(coordinate(&self.true_position_m, axis)));
        [self.error_m, self.bound_rms_m, self.nees, self.total_ms].into_iter().for_each(add);
        line.push('\n');
        line
    }
}

/// A queue whose items keep their numbers when others before them are dropped.
#[derive(Debug)]
struct Numbered<T> {
    items: VecDeque<T>,
    /// Number of the first item.
    first: u64,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), first: 0 }
    }
}

impl<T: Copy> Numbered<T> {
    /// The number of the next item.
    fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// Adds items; returns the number after the last.
    fn extend(&mut self, items: impl IntoIterator<Item = T>) -> u64 {
        self.items.extend(items);
        self.end()
    }

    fn drop_before(&mut self, number: u64) {
        self.items.drain(..(number - self.first) as usize);
        self.first = number;
    }

    /// The items with these numbers that are still there.
    fn range(&self, numbers: Range<u64>) -> impl Iterator<Item = T> {
        let place = |number: u64| number.clamp(self.first, self.end()) - self.first;
        let (from, to) = (place(numbers.start) as usize, place(numbers.end) as usize);
        self.items.range(from..to.max(from)).copied()
    }
}

/// A fix, and the numbers after its last clock offset, true clock offset and track.
#[derive(Debug, Clone, Copy, Default)]
struct HistoryEntry {
    brief: BriefFix,
    ends: [u64; 3],
}

/// The latest fixes in short, oldest first.
#[derive(Debug)]
pub struct FixHistory {
    entries: Numbered<HistoryEntry>,
    clock_offset_ns: Numbered<f64>,
    true_clock_offset_ns: Numbered<f64>,
    tracks: Numbered<PastTrack>,
}

impl Default for FixHistory {
    fn default() -> Self {
        // Written once, or pages would become resident one by one as the queue turns.
        let mut items = VecDeque::from(vec![HistoryEntry::default(); MOST_ENTRIES]);
        items.clear();
        Self {
            entries: Numbered { items, first: 0 },
            clock_offset_ns: Numbered::default(),
            true_clock_offset_ns: Numbered::default(),
            tracks: Numbered::default(),
        }
    }
}

impl FixHistory {
    /// Adds a fix.
    pub fn add(&mut self, fix: &FixRecord) {
        let since_ns = |entry: &HistoryEntry| fix.timing.time_ns.saturating_sub(entry.brief.time_ns);
        let too_soon = |last: &HistoryEntry| last.brief.run == fix.run && since_ns(last) < INTERVAL_NS;
        if self.entries.items.back().is_some_and(too_soon) {
            return;
        }
        while let Some(oldest) = self.entries.items.front()
            && (self.entries.items.len() >= MOST_ENTRIES || since_ns(oldest) > WINDOW_S * 1_000_000_000)
        {
            let [offsets, true_offsets, tracks] = oldest.ends;
            self.clock_offset_ns.drop_before(offsets);
            self.true_clock_offset_ns.drop_before(true_offsets);
            self.tracks.drop_before(tracks);
            self.entries.drop_before(self.entries.first + 1);
        }
        let true_offsets = fix.truth.iter().flat_map(|truth| truth.clock_offset_ns.iter().copied());
        let track = |track: &FixTrack| PastTrack { identity: track.identity, position_m: track.position_m };
        let ends = [
            self.clock_offset_ns.extend(fix.clocks.iter().map(|clock| clock.offset_ns)),
            self.true_clock_offset_ns.extend(true_offsets),
            self.tracks.extend(fix.tracks().iter().map(track)),
        ];
        self.entries.extend([HistoryEntry { brief: BriefFix::new(fix), ends }]);
    }

    /// The numbers of all entries.
    pub fn numbers(&self) -> Range<u64> {
        self.entries.first..self.entries.end()
    }

    /// The entries with these numbers that are still there.
    pub fn range(&self, numbers: Range<u64>) -> Vec<PastFix> {
        let before = self.entries.range(numbers.start.saturating_sub(1)..numbers.start).next();
        let firsts = [self.clock_offset_ns.first, self.true_clock_offset_ns.first, self.tracks.first];
        let mut from = before.map_or(firsts, |entry| entry.ends);
        let past = |HistoryEntry { brief, ends }| {
            let [offsets, true_offsets, tracks] = std::mem::replace(&mut from, ends);
            PastFix {
                brief,
                clock_offset_ns: self.clock_offset_ns.range(offsets..ends[0]).collect(),
                true_clock_offset_ns: self.true_clock_offset_ns.range(true_offsets..ends[1]).collect(),
                tracks: self.tracks.range(tracks..ends[2]).collect(),
            }
        };
        self.entries.range(numbers).map(past).collect()
    }

    /// At most `most` entries, evenly over all, with the last one.
    pub fn thinned(&self, most: usize) -> Vec<PastFix> {
        let Range { start, end } = self.numbers();
        let every = (end - start).div_ceil(most.max(1) as u64).max(1);
        let chosen = (start..end).filter(|number| (end - 1 - number) % every == 0);
        chosen.flat_map(|number| self.range(number..number + 1)).collect()
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

    fn all(history: &FixHistory) -> Vec<PastFix> {
        history.range(history.numbers())
    }

    #[test]
    fn a_history_is_bounded_in_time_and_in_number() {
        let mut history = FixHistory::default();
        (0..40_000u64).for_each(|i| history.add(&fix(i, i * 20 * MS)));
        let kept = all(&history);
        let (first, last) = (kept[0].brief.frame, kept.last().unwrap().brief.frame);
        assert_eq!((kept.len(), first, last), (MOST_ENTRIES, 10_000, 39_999));
        // An hour later one remains.
        history.add(&fix(40_000, 4400 * 1000 * MS));
        assert_eq!(history.numbers(), 40_000..40_001);
        // Of a thousand fixes in a second, fifty.
        let mut fast = FixHistory::default();
        (0..1000u64).for_each(|i| fast.add(&fix(i, i * MS)));
        let count = all(&fast).len();
        assert!((49..=53).contains(&count), "{count}");
    }

    #[test]
    fn a_thinned_history_ends_with_the_latest() {
        let mut history = FixHistory::default();
        assert!(history.thinned(10).is_empty());
        (0..95u64).for_each(|i| history.add(&fix(i, i * 20 * MS)));
        let frames = |most| history.thinned(most).iter().map(|past| past.brief.frame).collect::<Vec<_>>();
        assert_eq!(frames(10), [4, 14, 24, 34, 44, 54, 64, 74, 84, 94]);
        assert_eq!((frames(95).len(), frames(1)), (95, vec![94]));
    }

    #[test]
    fn a_line_has_all_columns_or_fields() {
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
        let line = BriefFix::new(&known).csv();
        assert_eq!(line, "5,7,3,degraded,0,1.5,2,,0.01,0.002,,0.04,,,1,2,,0.5,0.25,2.5,\n");
        assert_eq!(line.matches(',').count(), CSV_HEADER.matches(',').count());
        assert_eq!(BriefFix::new(&known).stages_ms[2], 3.0, "the slowest node");
        let mut history = FixHistory::default();
        history.add(&known);
        assert_eq!(
            serde_json::to_string(&all(&history)).unwrap(),
            r#"[{"time_ns":5,"run":7,"frame":3,"status":"degraded","paths":0,"position_m":[1.5,2.0],"covariance_m2":[0.01,0.002,0.04],"true_position_m":[1.0,2.0],"error_m":0.5,"bound_rms_m":0.25,"bound_m2":null,"nees":2.5,"stages_ms":[0.0,0.0,3.0,0.0,0.0,0.0],"total_ms":null}]"#
        );
    }
}
