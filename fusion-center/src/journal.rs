//! The slow side of publishing: the fix log and the figures of error, which want the truth of every fix.
//!
//! A thread of its own takes fixes that are out already. One whose truth is on its way waits in a room bounded by
//! count and time, and those behind it with it, so that the log keeps the order of the fixes. Watchers wait for
//! nothing here.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::System;
use tokio::sync::watch;

use crate::basis::Basis;
use crate::fix::FixRecord;
use crate::statistics::Statistics;
use crate::truth::{TruthStore, judge};

/// Fixes that may wait for their truth.
const MOST_WAITING: usize = 1024;

/// How often waiting fixes are looked at.
const TICK: Duration = Duration::from_millis(5);

/// A fix that is out, with the data that it was made of.
#[derive(Debug)]
pub struct Entry {
    /// The fix, with its truth where that was known in time.
    pub record: Arc<FixRecord>,
    /// What it was made of.
    pub basis: Basis,
}

/// Writes down fixes once they can be judged.
pub struct Journal<W> {
    /// What the bounds are computed from.
    pub system: Arc<System>,
    /// Where the truth comes.
    pub truth: TruthStore,
    /// One JSON line per fix.
    pub log: Option<W>,
    /// Error and latency.
    pub statistics: Arc<Mutex<Statistics>>,
    /// The latest fix, told again when its truth comes after it.
    pub latest: Arc<watch::Sender<Option<Arc<FixRecord>>>>,
    /// Longest wait for a truth that is on its way.
    pub patience: Duration,
}

impl<W: Write> Journal<W> {
    /// Takes fixes until their sender is gone and none waits.
    pub fn run(mut self, entries: &Receiver<Entry>) -> std::io::Result<()> {
        let mut room = WaitingRoom::new(MOST_WAITING, self.patience);
        let mut open = true;
        while open || !room.is_empty() {
            // Nothing is late while nobody waits.
            let tick = if room.is_empty() { Duration::from_secs(1) } else { TICK };
            match entries.recv_timeout(tick) {
                Ok(entry) => room.enter(entry, Instant::now()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if open => open = false,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
            }
            let truth = self.truth.clone();
            let coming = |entry: &Entry| {
                let frame = entry.record.frame_id();
                entry.record.truth.is_none() && truth.get(frame).is_none() && truth.may_come(frame)
            };
            while let Some(entry) = room.leave(Instant::now(), coming) {
                self.write(entry)?;
            }
        }
        self.log.as_mut().map_or(Ok(()), Write::flush)
    }

    fn write(&mut self, Entry { mut record, basis }: Entry) -> std::io::Result<()> {
        if record.truth.is_none()
            && let Some(truth) = judge(&record, &basis, &self.system, &self.truth)
        {
            let judged = Arc::new(FixRecord { truth: Some(truth), ..FixRecord::clone(&record) });
            self.latest.send_if_modified(|latest| {
                let still = latest.as_ref().is_some_and(|latest| Arc::ptr_eq(latest, &record));
                if still {
                    *latest = Some(judged.clone());
                }
                still
            });
            record = judged;
        }
        let frames = basis.frames.len();
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).record(&record, frames);
        if let Some(log) = &mut self.log {
            serde_json::to_writer(&mut *log, &*record)?;
            log.write_all(b"\n")?;
            log.flush()?;
        }
        Ok(())
    }
}

/// A queue whose first may be kept waiting for a while. Time is passed in.
#[derive(Debug)]
struct WaitingRoom<T> {
    queue: VecDeque<(Instant, T)>,
    most: usize,
    patience: Duration,
}

impl<T> WaitingRoom<T> {
    fn new(most: usize, patience: Duration) -> Self {
        Self { queue: VecDeque::new(), most, patience }
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn enter(&mut self, item: T, now: Instant) {
        self.queue.push_back((now, item));
    }

    /// The first, unless what it waits for is still coming, it has not waited long, and there is room for others.
    fn leave(&mut self, now: Instant, coming: impl Fn(&T) -> bool) -> Option<T> {
        let (since, first) = self.queue.front()?;
        let waits = coming(first) && now - *since < self.patience && self.queue.len() <= self.most;
        if waits { None } else { self.queue.pop_front().map(|(_, item)| item) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_waits_within_bounds_and_keeps_its_place() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut room = WaitingRoom::new(3, Duration::from_millis(500));
        room.enter(1, at(0));
        room.enter(2, at(10));
        assert_eq!(
            room.leave(at(20), |item| *item == 1),
            None,
            "two waits behind one, though nothing holds it"
        );
        assert_eq!(room.leave(at(30), |_| false), Some(1));
        assert_eq!(room.leave(at(509), |_| true), None);
        assert_eq!(room.leave(at(510), |_| true), Some(2), "its time is up");
        (3..7).for_each(|item| room.enter(item, at(600)));
        assert_eq!(room.leave(at(600), |_| true), Some(3), "no room for four");
        assert_eq!(room.leave(at(600), |_| true), None);
    }
}
