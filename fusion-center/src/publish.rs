//! Where fixes go: to watchers at once, then to the journal.
//!
//! Runs on a thread of its own behind a bounded queue. A fix is joined with the truth where that is known already,
//! stamped, and handed to watchers; nothing is waited for in between, so that the stamp is the moment from which a
//! subscriber can have it. The [`journal`](crate::journal) then takes its time over log and figures of error.
//! Watchers get fixes over a broadcast channel; one that does not keep up loses the oldest and slows nobody.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use model::System;
use proto::clock::unix_time_ns;
use tokio::sync::{broadcast, mpsc, watch};

use crate::basis::Basis;
use crate::fix::{FixRecord, Timing};
use crate::journal::{Entry, Journal};
use crate::statistics::{Figures, Quantiles, Statistics, Tally};
use crate::truth::{TruthStore, judge};

/// Fixes that a watcher may be behind.
const WATCHER_BACKLOG: usize = 256;

/// Fixes that may wait for the publisher, and for the journal.
const QUEUE: usize = 256;

/// How long log and figures wait for a truth that is on its way.
const TRUTH_PATIENCE: Duration = Duration::from_millis(500);

/// A fix on its way out.
#[derive(Debug)]
pub struct Outgoing {
    /// The fix, or why there is none.
    pub record: FixRecord,
    /// The data that it was made of.
    pub basis: Basis,
    /// The kind of reason why there is none.
    pub reason: Option<String>,
    /// What its latency counts from; a replay has no such times.
    pub since: Option<Since>,
}

/// Times that the latency of a fix counts from, nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
pub struct Since {
    /// The last needed block was in.
    pub last_ns: u64,
    /// The echo frame was due to leave, where a node knows.
    pub intended_ns: Option<u64>,
}

impl Since {
    /// Ends the latencies of a fix at the time when it was out.
    fn end(self, timing: &mut Timing) {
        let out_ns = timing.time_ns;
        timing.fusion_ms = milliseconds(self.last_ns, out_ns);
        timing.total_ms = self.intended_ns.map(|intended_ns| milliseconds(intended_ns, out_ns));
    }
}

/// From one time to another; zero where clocks of two hosts disagree about the order.
pub fn milliseconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 * 1e-6
}

/// Hands out fixes; cheap to clone.
#[derive(Debug, Clone)]
pub struct Publisher {
    queue: mpsc::Sender<Outgoing>,
    viewer: Viewer,
}

/// The threads of publisher and journal.
#[derive(Debug)]
pub struct PublisherThread {
    publisher: std::thread::JoinHandle<()>,
    journal: std::thread::JoinHandle<std::io::Result<()>>,
}

impl PublisherThread {
    /// Waits until all fixes are out and written down; every [`Publisher`] must be gone.
    pub fn finish(self) -> std::io::Result<()> {
        self.publisher.join().map_err(|_| std::io::Error::other("the publisher panicked"))?;
        self.journal.join().unwrap_or_else(|_| Err(std::io::Error::other("the journal panicked")))
    }
}

impl Publisher {
    /// Starts the threads; `log` takes one JSON line per fix.
    pub fn start(
        system: Arc<System>,
        truth: TruthStore,
        log: Option<&Path>,
    ) -> std::io::Result<(Self, PublisherThread)> {
        Self::start_patient(system, truth, log, TRUTH_PATIENCE)
    }

    /// The same with another longest wait of the journal for a truth that is on its way.
    fn start_patient(
        system: Arc<System>,
        truth: TruthStore,
        log: Option<&Path>,
        patience: Duration,
    ) -> std::io::Result<(Self, PublisherThread)> {
        let log = log.map(File::create).transpose()?.map(BufWriter::new);
        let (queue, mut incoming) = mpsc::channel::<Outgoing>(QUEUE);
        let (entries, written) = sync_channel(QUEUE);
        let (watchers, _) = broadcast::channel(WATCHER_BACKLOG);
        let latest = Arc::new(watch::Sender::new(None));
        let viewer = Viewer {
            watchers: watchers.downgrade(),
            tally: Arc::default(),
            statistics: Arc::default(),
            latest: Arc::downgrade(&latest),
        };
        let journal = Journal {
            system: system.clone(),
            truth: truth.clone(),
            log,
            statistics: viewer.statistics.clone(),
            latest: latest.clone(),
            patience,
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let journal = thread("journal").spawn(move || journal.run(&written))?;
        let tally = viewer.tally.clone();
        let publisher = thread("publisher").spawn(move || {
            while let Some(Outgoing { mut record, basis, reason, since }) = incoming.blocking_recv() {
                record.truth = judge(&record, &basis, &system, &truth);
                tally.lock().unwrap_or_else(PoisonError::into_inner).count(&record, reason);
                record.timing.time_ns = unix_time_ns();
                if let Some(since) = since {
                    since.end(&mut record.timing);
                }
                let record = Arc::new(record);
                // No watcher is no error.
                let _ = watchers.send(record.clone());
                latest.send_replace(Some(record.clone()));
                if entries.send(Entry { record, basis }).is_err() {
                    tracing::error!("the fix log cannot be written; a fix is not in it");
                }
            }
        })?;
        Ok((Self { queue, viewer }, PublisherThread { publisher, journal }))
    }

    /// Hands a fix over; waits when the publisher is behind.
    pub async fn publish(&self, fix: Outgoing) {
        if self.queue.send(fix).await.is_err() {
            tracing::error!("the publisher is gone; a fix is lost");
        }
    }

    /// The same from a thread that may block.
    pub fn publish_blocking(&self, fix: Outgoing) {
        if self.queue.blocking_send(fix).is_err() {
            tracing::error!("the publisher is gone; a fix is lost");
        }
    }

    /// A handle that does not keep the publisher running.
    pub fn viewer(&self) -> Viewer {
        self.viewer.clone()
    }
}

/// Looks at fixes without keeping the publisher running.
#[derive(Debug, Clone)]
pub struct Viewer {
    watchers: broadcast::WeakSender<Arc<FixRecord>>,
    tally: Arc<Mutex<Tally>>,
    statistics: Arc<Mutex<Statistics>>,
    latest: Weak<watch::Sender<Option<Arc<FixRecord>>>>,
}

impl Viewer {
    /// Fixes from now on; none once the publisher has stopped.
    pub fn watch(&self) -> Option<broadcast::Receiver<Arc<FixRecord>>> {
        Some(self.watchers.upgrade()?.subscribe())
    }

    fn counts(&self) -> Tally {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the fixes so far add up to.
    pub fn figures(&self) -> Figures {
        Figures { latency_ms: self.latency_ms(), ..self.tally() }
    }

    /// The same without latencies, which take long.
    pub fn tally(&self) -> Figures {
        let counts = self.counts();
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).figures(&counts)
    }

    /// Latency per stage of the fixes so far.
    pub fn latency_ms(&self) -> BTreeMap<&'static str, Quantiles> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).stages().quantiles()
    }

    /// The latest fix, from now on; none once the publisher has stopped.
    pub fn live(&self) -> Option<watch::Receiver<Option<Arc<FixRecord>>>> {
        Some(self.latest.upgrade()?.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::Source;
    use crate::truth::TrueTarget;
    use estimation::fusion::FrameBlocks;
    use model::{Point, Scenario};
    use proto::convert::FrameId;

    fn outgoing(frame: u64, since: Option<Since>) -> Outgoing {
        let id = FrameId { run: 1, frame };
        let blocks = FrameBlocks::new(3);
        let none = Err(estimation::location::Unobservable::NoMeasurements.into());
        let record = FixRecord::new(id, &blocks, None, &none, Source::Simulated);
        Outgoing { record, basis: Basis::of_frame(id, &blocks), reason: None, since }
    }

    fn start(
        truth: &TruthStore,
        log: Option<&Path>,
        patience: Duration,
    ) -> (Publisher, PublisherThread, broadcast::Receiver<Arc<FixRecord>>) {
        let system = Arc::new(System::new(&Scenario::default()).unwrap());
        let (publisher, thread) = Publisher::start_patient(system, truth.clone(), log, patience).unwrap();
        let watcher = publisher.viewer().watch().unwrap();
        (publisher, thread, watcher)
    }

    /// Latency ends when a watcher can have the fix, not when the engine hands it over.
    #[test]
    fn a_fix_is_stamped_when_it_is_out() {
        let (publisher, thread, mut watcher) = start(&TruthStore::default(), None, Duration::ZERO);
        let solved_ns = unix_time_ns();
        let since = Since { last_ns: solved_ns - 3_000_000, intended_ns: Some(solved_ns - 5_000_000) };
        let mut fix = outgoing(0, Some(since));
        // As an engine would stamp it.
        fix.record.timing.time_ns = solved_ns;
        std::thread::sleep(Duration::from_millis(2));
        let handed_over_ns = unix_time_ns();
        publisher.publish_blocking(fix);
        let timing = &watcher.blocking_recv().unwrap().timing;
        assert!(timing.time_ns >= handed_over_ns && timing.time_ns <= unix_time_ns());
        assert_eq!(timing.fusion_ms, milliseconds(since.last_ns, timing.time_ns));
        assert_eq!(timing.total_ms, Some(milliseconds(solved_ns - 5_000_000, timing.time_ns)));
        drop(publisher);
        thread.finish().unwrap();
    }

    /// A stream that is open and tells nothing: with an hour of patience, who waited for it would wait for an hour.
    #[test]
    fn a_silent_truth_holds_up_no_watcher_and_the_log_gets_it_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fixes.jsonl");
        let truth = TruthStore::default();
        let source = truth.source();
        let (publisher, thread, mut watcher) = start(&truth, Some(&path), Duration::from_secs(3600));
        for frame in 0..3 {
            publisher.publish_blocking(outgoing(frame, None));
            let fix = watcher.blocking_recv().unwrap();
            assert_eq!((fix.frame, &fix.truth), (frame, &None));
        }
        let viewer = publisher.viewer();
        assert_eq!((viewer.tally().without_fix, std::fs::read_to_string(&path).unwrap().len()), (3, 0));
        // The truth of the last comes first: the others were passed over, and are written without.
        let target = TrueTarget { position_m: Point::new(1.0, 2.0), rcs_m2: 5.0 };
        source.tell(FrameId { run: 1, frame: 0 }, target);
        source.tell(FrameId { run: 1, frame: 2 }, target);
        let mut latest = viewer.live().unwrap();
        drop(publisher);
        thread.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let fixes: Vec<FixRecord> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(fixes.iter().map(|fix| fix.frame).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(fixes.iter().map(|fix| fix.truth.is_some()).collect::<Vec<_>>(), [true, false, true]);
        let shown = latest.borrow_and_update().clone().unwrap();
        assert!(shown.frame == 2 && shown.truth.is_some(), "the page is told again");
    }
}
