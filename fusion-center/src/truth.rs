//! Ground truth, for display and error statistics only.
//!
//! The simulator sends it over a separate stream. The publisher joins it to a fix after the fix is made; neither the
//! assembler nor the solver uses this module, which a test checks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::convert::FrameId;

use crate::told::TrueFrame;

/// Frames of one source whose truth is kept: more than the fixes under way and the frames of a batch.
const REMEMBERED_FRAMES: usize = 8192;

/// Streams that may be open at a time: one of a simulator, one of its restarted process, and two spare ones.
const MOST_OPEN: usize = 4;

/// Sources that are remembered, open or not.
const MOST_SOURCES: usize = 8;

/// How far from the latest fix of its run the frame of a record may be: more than a source keeps to send again.
const FARTHEST: u64 = REMEMBERED_FRAMES as u64;

/// Why a record of the truth is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TruthError {
    #[error("a stream carries the truth of one run, and this one belongs to run {told}")]
    OtherRun { told: u64 },
    #[error("the frame is more than {FARTHEST} frames from the latest fix of its run, {latest}")]
    Far { latest: u64 },
    #[error("the truth of this frame is known")]
    Known,
}

/// Truth by source and frame, bounded. A source displaces only its own records of the lowest frames, and of two records
/// of a frame the first counts. Shared, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct TruthStore(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    /// In the order of opening.
    sources: Vec<SourceRecords>,
    opened: u64,
    /// The frame of the latest fix.
    fixed: Option<FrameId>,
}

/// The records of one stream.
#[derive(Debug, Default)]
struct SourceRecords {
    number: u64,
    open: bool,
    run: Option<u64>,
    /// By frame, in a queue that grows to [`REMEMBERED_FRAMES`] places and no further. A hash map of as many doubles its memory once
    /// more after 70 000 insertions and removals.
    records: VecDeque<(u64, TrueFrame)>,
}

impl SourceRecords {
    fn tell(&mut self, frame: FrameId, target: TrueFrame) -> Result<(), TruthError> {
        let told = *self.run.get_or_insert(frame.run);
        if told != frame.run {
            return Err(TruthError::OtherRun { told });
        }
        let Err(place) = self.place(frame.frame) else { return Err(TruthError::Known) };
        if self.records.len() < REMEMBERED_FRAMES {
            self.records.insert(place, (frame.frame, target));
        } else if place > 0 {
            self.records.pop_front();
            self.records.insert(place - 1, (frame.frame, target));
        }
        Ok(())
    }

    /// Where the record of a frame is, or would be.
    fn place(&self, frame: u64) -> Result<usize, usize> {
        self.records.binary_search_by_key(&frame, |(frame, _)| *frame)
    }

    fn get(&self, frame: FrameId) -> Option<TrueFrame> {
        let place = self.place(frame.frame).ok().filter(|_| self.run == Some(frame.run))?;
        self.records.get(place).map(|(_, told)| told.clone())
    }

    /// Whether the truth of a frame may still come.
    fn may_tell(&self, frame: FrameId) -> bool {
        let latest = self.records.back().map(|(latest, _)| *latest);
        self.open && self.run.is_none_or(|run| run == frame.run && latest < Some(frame.frame))
    }
}

/// A stream of truth, which is open until this is dropped.
#[derive(Debug)]
pub struct TruthSource {
    store: TruthStore,
    number: u64,
}

impl TruthSource {
    pub fn tell(&mut self, frame: FrameId, target: TrueFrame) -> Result<(), TruthError> {
        let mut records = self.store.records();
        if let Some(latest) = records.fixed.filter(|fixed| fixed.run == frame.run).map(|fixed| fixed.frame)
            && latest.abs_diff(frame.frame) > FARTHEST
        {
            return Err(TruthError::Far { latest });
        }
        let told = records.sources.iter_mut().find(|told| told.number == self.number);
        told.map_or(Ok(()), |told| told.tell(frame, target))
    }
}

impl Drop for TruthSource {
    fn drop(&mut self) {
        let mut records = self.store.records();
        let told = records.sources.iter_mut().find(|told| told.number == self.number);
        told.into_iter().for_each(|told| told.open = false);
    }
}

impl TruthStore {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream; none if too many are open. The oldest stream that has ended is forgotten when there are too many.
    pub fn source(&self) -> Option<TruthSource> {
        let mut records = self.records();
        if records.sources.iter().filter(|told| told.open).count() >= MOST_OPEN {
            return None;
        }
        if records.sources.len() >= MOST_SOURCES
            && let Some(ended) = records.sources.iter().position(|told| !told.open)
        {
            records.sources.remove(ended);
        }
        records.opened += 1;
        let number = records.opened;
        records.sources.push(SourceRecords { number, open: true, ..SourceRecords::default() });
        Some(TruthSource { store: self.clone(), number })
    }

    /// Adds a record that needs no check, such as that of a recording.
    pub fn insert(&self, frame: FrameId, target: TrueFrame) {
        let mut records = self.records();
        if records.sources.last().and_then(|told| told.run) != Some(frame.run) {
            records.opened += 1;
            let number = records.opened;
            records.sources.push(SourceRecords { number, ..SourceRecords::default() });
            let surplus = records.sources.len().saturating_sub(MOST_SOURCES);
            records.sources.drain(..surplus);
        }
        // A record that is known already has no further effect.
        let _ = records.sources.last_mut().map(|told| told.tell(frame, target));
    }

    /// The truth of a frame, from the source that was opened first of those that told it.
    pub fn get(&self, frame: FrameId) -> Option<TrueFrame> {
        self.records().sources.iter().find_map(|told| told.get(frame))
    }

    /// Whether the truth of a frame that is not known may still arrive: a stream is open and has not reached the frame.
    pub fn may_come(&self, frame: FrameId) -> bool {
        self.records().sources.iter().any(|told| told.may_tell(frame))
    }

    /// A fix of this frame was published: further records should be of frames near it.
    pub fn fixed(&self, frame: FrameId) {
        self.records().fixed = Some(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Point;

    fn id(frame: u64) -> FrameId {
        FrameId { run: 1, frame }
    }

    fn target(x_m: f64) -> TrueFrame {
        TrueFrame::one(Point::new(x_m, 0.0, 0.0), 5.0, Vec::new())
    }

    fn told(store: &TruthStore, frame: u64) -> Option<f64> {
        store.get(id(frame)).map(|told| told.targets[0].position_m.point().x)
    }

    #[test]
    fn a_source_keeps_its_latest_records() {
        let store = TruthStore::default();
        let mut source = store.source().unwrap();
        for frame in 0..REMEMBERED_FRAMES as u64 + 10 {
            source.tell(id(frame), target(frame as f64)).unwrap();
        }
        assert_eq!((told(&store, 9), told(&store, 10)), (None, Some(10.0)));
        drop(source);
        assert_eq!(told(&store, 10), Some(10.0), "fixes under way still need it");
    }

    /// Memory that is kept does not grow with the number of records that came and went.
    #[test]
    fn a_full_source_keeps_its_memory() {
        let mut source = SourceRecords::default();
        (0..20 * REMEMBERED_FRAMES as u64).for_each(|frame| source.tell(id(frame), target(0.0)).unwrap());
        assert_eq!(source.records.capacity(), REMEMBERED_FRAMES);
        let full = 19 * REMEMBERED_FRAMES as u64;
        assert_eq!(
            source.tell(id(full - 1), target(0.0)),
            Ok(()),
            "too old, which is no fault of the source"
        );
        assert_eq!((source.get(id(full - 1)), source.get(id(full))), (None, Some(target(0.0))));
        assert_eq!(source.tell(id(full), target(0.0)), Err(TruthError::Known));
    }

    /// A stranger floods the store: the records of the simulator stay, and the first that was told counts.
    #[test]
    fn a_flood_displaces_nothing() {
        let store = TruthStore::default();
        let mut simulator = store.source().unwrap();
        (0..100).for_each(|frame| simulator.tell(id(frame), target(1.0)).unwrap());
        let mut flood = store.source().unwrap();
        (0..100_000).for_each(|frame| flood.tell(id(frame), target(666.0)).unwrap());
        assert_eq!((told(&store, 0), told(&store, 99)), (Some(1.0), Some(1.0)));
        simulator.tell(id(99_999), target(1.0)).unwrap();
        assert_eq!(told(&store, 99_999), Some(1.0));
        assert_eq!(simulator.tell(id(7), target(2.0)), Err(TruthError::Known));
        assert_eq!(told(&store, 7), Some(1.0));
        let other = FrameId { run: 2, frame: 0 };
        assert_eq!(simulator.tell(other, target(2.0)), Err(TruthError::OtherRun { told: 1 }));
        // Streams are bounded too, and those that have ended make room.
        let more: Vec<_> = std::iter::from_fn(|| store.source()).collect();
        assert_eq!(more.len(), MOST_OPEN - 2);
        drop((more, flood));
        for _ in 0..100 {
            drop(store.source().unwrap());
        }
        assert_eq!((told(&store, 0), store.records().sources.len()), (Some(1.0), MOST_SOURCES));
    }

    #[test]
    fn records_far_from_the_latest_fix_are_refused() {
        let store = TruthStore::default();
        let mut source = store.source().unwrap();
        source.tell(id(u64::MAX), target(0.0)).unwrap();
        store.fixed(id(20_000));
        let far = Err(TruthError::Far { latest: 20_000 });
        for (frame, expected) in
            [(20_000 + FARTHEST, Ok(())), (20_001 + FARTHEST, far), (20_000 - FARTHEST, Ok(())), (0, far)]
        {
            assert_eq!(source.tell(id(frame), target(0.0)), expected, "{frame}");
        }
        // A new run begins where it likes.
        let mut next = store.source().unwrap();
        assert_eq!(next.tell(FrameId { run: 2, frame: 0 }, target(0.0)), Ok(()));
    }

    #[test]
    fn a_truth_may_come_while_one_tells_and_has_not_come_as_far() {
        let store = TruthStore::default();
        assert!(!store.may_come(id(0)), "nobody tells");
        let mut source = store.source().unwrap();
        assert!(store.may_come(id(3)));
        source.tell(id(3), target(3.0)).unwrap();
        assert!(!store.may_come(id(2)), "passed over: it will not come");
        assert!(store.may_come(id(4)));
        assert!(!store.may_come(FrameId { run: 2, frame: 4 }), "it tells of another run");
        drop(source);
        assert!(!store.may_come(id(4)));
    }
}
