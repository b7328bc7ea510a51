//! The slow part of publishing: the fix log and the error statistics, which need the truth of every fix.
//!
//! Runs on its own thread and takes fixes that have been published. A fix whose truth has not arrived yet waits in a
//! queue bounded in length and time, and the fixes after it wait with it, so that the log keeps their order. Watchers
//! do not wait for the journal.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::System;
use tokio::sync::watch;

use crate::basis::Basis;
use crate::fix::FixRecord;
use crate::fix_log::LogQueue;
use crate::history::FixHistory;
use crate::judge::judge;
use crate::publish::{FixSink, Unwritten};
use crate::statistics::Statistics;
use crate::truth::TruthStore;

/// Fixes that may wait for their truth.
const MOST_WAITING: usize = 1024;

/// How often waiting fixes are checked.
const TICK: Duration = Duration::from_millis(5);

/// A published fix with the data that it was made from.
#[derive(Debug)]
pub struct PublishedFix {
    pub record: Arc<FixRecord>,
    pub basis: Basis,
    pub unwritten: Option<Unwritten>,
}

pub struct Journal {
    pub system: Arc<System>,
    pub truth: TruthStore,
    pub log: Option<LogQueue>,
    pub sinks: Vec<FixSink>,
    pub statistics: Arc<Mutex<Statistics>>,
    pub history: Arc<Mutex<FixHistory>>,
    /// The latest fix, sent again if its truth arrives after it.
    pub latest: Arc<watch::Sender<Option<Arc<FixRecord>>>>,
    /// Longest wait for a truth that may still arrive.
    pub longest_wait: Duration,
}

impl Journal {
    /// Takes fixes until their sender is dropped and none waits.
    pub fn run(mut self, fixes: &Receiver<PublishedFix>) {
        let mut held = HoldingQueue::new(MOST_WAITING, self.longest_wait);
        let mut open = true;
        while open || !held.queue.is_empty() {
            // No fix can be overdue while none waits.
            let tick = if held.queue.is_empty() { Duration::from_secs(1) } else { TICK };
            match fixes.recv_timeout(tick) {
                Ok(fix) => held.push(fix, Instant::now()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if open => open = false,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
            }
            let truth = self.truth.clone();
            let coming = |fix: &PublishedFix| {
                let frame = fix.record.frame_id();
                fix.record.truth.is_none() && truth.get(frame).is_none() && truth.may_come(frame)
            };
            while let Some(fix) = held.pop(Instant::now(), coming) {
                self.write(fix);
            }
        }
    }

    fn write(&mut self, PublishedFix { mut record, basis, unwritten }: PublishedFix) {
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
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).record(&record);
        self.sinks.iter_mut().for_each(|sink| sink(&record));
        self.history.lock().unwrap_or_else(PoisonError::into_inner).add(&record);
        if let Some(log) = &self.log {
            log.write(record, unwritten);
        }
    }
}

/// A queue whose first item may be held back for a while. Time is passed in.
#[derive(Debug)]
struct HoldingQueue<T> {
    queue: VecDeque<(Instant, T)>,
    most: usize,
    longest_wait: Duration,
}

impl<T> HoldingQueue<T> {
    fn new(most: usize, longest_wait: Duration) -> Self {
        Self { queue: VecDeque::new(), most, longest_wait }
    }

    fn push(&mut self, item: T, now: Instant) {
        self.queue.push_back((now, item));
    }

    /// The first item, unless what it waits for is still coming, it has waited less than `longest_wait`, and at most `most`
    /// items wait.
    fn pop(&mut self, now: Instant, coming: impl Fn(&T) -> bool) -> Option<T> {
        let (since, first) = self.queue.front()?;
        let waits = coming(first) && now - *since < self.longest_wait && self.queue.len() <= self.most;
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
        let mut held = HoldingQueue::new(3, Duration::from_millis(500));
        held.push(1, at(0));
        held.push(2, at(10));
        assert_eq!(
            held.pop(at(20), |item| *item == 1),
            None,
            "two waits behind one, though nothing holds it"
        );
        assert_eq!(held.pop(at(30), |_| false), Some(1));
        assert_eq!(held.pop(at(509), |_| true), None);
        assert_eq!(held.pop(at(510), |_| true), Some(2), "its time is up");
        (3..7).for_each(|item| held.push(item, at(600)));
        assert_eq!(held.pop(at(600), |_| true), Some(3), "no room for four");
        assert_eq!(held.pop(at(600), |_| true), None);
    }
}
