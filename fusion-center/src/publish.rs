//! Publishes fixes: to watchers at once, then to the journal.
//!
//! Runs on its own thread behind a bounded queue. A fix is joined with the truth if that is known already, time-stamped,
//! and sent to watchers; nothing is waited for in between, so that the time stamp is the moment from which a
//! subscriber can have it. The [`journal`](crate::journal) then writes log and error statistics.
//! Watchers get fixes over a broadcast channel; one that does not keep up loses the oldest and slows down no other.

use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use model::System;
use proto::clock::unix_time_ns;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::fix::{FixRecord, ReportArrivals};
use crate::fix_log::LogQueue;
use crate::history::FixHistory;
use crate::journal::{Journal, PublishedFix};
use crate::judge::judge;
use crate::solve::Solved;
use crate::statistics::{Figures, Quantiles, Statistics, Tally};
use crate::tracks::TrackFollower;
use crate::truth::TruthStore;

/// Fixes that a watcher may be behind.
const WATCHER_BACKLOG: usize = 256;

/// Fixes that may wait for the publisher, and for the journal.
const QUEUE: usize = 256;

/// How long log and statistics wait for a truth that may still arrive. Acknowledgements wait with the log.
const TRUTH_WAIT: Duration = Duration::from_millis(100);

/// Takes every fix once it is published, with its truth where that was told in time, in the order of the log.
pub type FixSink = Box<dyn FnMut(&FixRecord) + Send>;

/// A solved frame to be published.
#[derive(Debug)]
pub struct Outgoing {
    pub solved: Solved,
    /// None in a replay.
    pub arrivals: Option<ReportArrivals>,
    /// Dropped once the fix is in the log, or cannot be written to it.
    pub unwritten: Option<Unwritten>,
}

/// Held while a fix is not in the log; whoever has its other end learns when it is.
pub type Unwritten = oneshot::Sender<()>;

/// Accepts fixes; cheap to clone.
#[derive(Debug, Clone)]
pub struct Publisher {
    queue: mpsc::Sender<Outgoing>,
    viewer: Viewer,
    has_log: bool,
}

/// The threads of publisher and journal.
#[derive(Debug)]
pub struct PublisherThread {
    publisher: JoinHandle<()>,
    journal: JoinHandle<()>,
    log: Option<JoinHandle<()>>,
}

impl PublisherThread {
    /// Waits until all fixes are published and logged; every [`Publisher`] must have been dropped. What the log lost is
    /// known to its part of the [`telemetry::Degradations`].
    pub fn finish(self) -> anyhow::Result<()> {
        self.publisher.join().map_err(|_| anyhow!("the publisher panicked"))?;
        self.journal.join().map_err(|_| anyhow!("the journal panicked"))?;
        self.log.map_or(Ok(()), JoinHandle::join).map_err(|_| anyhow!("the fix log panicked"))
    }
}

impl Publisher {
    /// Starts the threads; `log` and `sinks` receive all fixes, and `tracks` follows their targets.
    pub fn start(
        system: Arc<System>,
        truth: TruthStore,
        tracks: Option<TrackFollower>,
        log: Option<(LogQueue, JoinHandle<()>)>,
        sinks: Vec<FixSink>,
    ) -> anyhow::Result<(Self, PublisherThread)> {
        Self::start_with_wait(system, truth, tracks, log, sinks, TRUTH_WAIT)
    }

    /// Like [`Self::start`], with the journal's longest wait for a truth.
    fn start_with_wait(
        system: Arc<System>,
        truth: TruthStore,
        mut tracks: Option<TrackFollower>,
        log: Option<(LogQueue, JoinHandle<()>)>,
        sinks: Vec<FixSink>,
        longest_wait: Duration,
    ) -> anyhow::Result<(Self, PublisherThread)> {
        let (log, log_thread) = log.unzip();
        let has_log = log.is_some();
        let (queue, mut incoming) = mpsc::channel::<Outgoing>(QUEUE);
        let (published, to_write) = sync_channel(QUEUE);
        let (watchers, _) = broadcast::channel(WATCHER_BACKLOG);
        let latest = Arc::new(watch::Sender::new(None));
        let viewer = Viewer {
            watchers: watchers.downgrade(),
            tally: Arc::default(),
            statistics: Arc::default(),
            history: Arc::default(),
            latest: Arc::downgrade(&latest),
        };
        let journal = Journal {
            system: system.clone(),
            truth: truth.clone(),
            log,
            sinks,
            statistics: viewer.statistics.clone(),
            history: viewer.history.clone(),
            latest: latest.clone(),
            longest_wait,
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let journal = thread("journal").spawn(move || journal.run(&to_write))?;
        let tally = viewer.tally.clone();
        let publisher = thread("publisher").spawn(move || {
            while let Some(Outgoing { solved, arrivals, unwritten }) = incoming.blocking_recv() {
                let Solved { mut record, basis, reason, followable, .. } = solved;
                if let Some((tracks, followable)) = tracks.as_mut().zip(followable) {
                    let begun = Instant::now();
                    record.tracks = Some(tracks.follow(record.frame_id(), followable));
                    record.timing.track_ms = begun.elapsed().as_secs_f64() * 1e3;
                }
                truth.fixed(record.frame_id());
                let judged = judge(&record, &basis, &system, &truth);
                tally.lock().unwrap_or_else(PoisonError::into_inner).count(&record, reason);
                record.complete(unix_time_ns(), arrivals, judged);
                let record = Arc::new(record);
                // It is not an error if there is no watcher.
                let _ = watchers.send(record.clone());
                latest.send_replace(Some(record.clone()));
                if published.send(PublishedFix { record, basis, unwritten }).is_err() {
                    tracing::error!("the journal has stopped; a fix is missing in log and statistics");
                }
            }
        })?;
        Ok((Self { queue, viewer, has_log }, PublisherThread { publisher, journal, log: log_thread }))
    }

    /// Whether fixes are logged.
    pub fn has_log(&self) -> bool {
        self.has_log
    }

    /// Queues a fix; waits while the queue is full.
    pub async fn publish(&self, fix: Outgoing) {
        if self.queue.send(fix).await.is_err() {
            tracing::error!("the publisher has stopped; a fix is lost");
        }
    }

    /// The same from a thread that may block.
    pub fn publish_blocking(&self, fix: Outgoing) {
        if self.queue.blocking_send(fix).is_err() {
            tracing::error!("the publisher has stopped; a fix is lost");
        }
    }

    pub fn viewer(&self) -> Viewer {
        self.viewer.clone()
    }
}

/// Read access to fixes, which does not keep the publisher running.
#[derive(Debug, Clone)]
pub struct Viewer {
    watchers: broadcast::WeakSender<Arc<FixRecord>>,
    tally: Arc<Mutex<Tally>>,
    statistics: Arc<Mutex<Statistics>>,
    history: Arc<Mutex<FixHistory>>,
    latest: Weak<watch::Sender<Option<Arc<FixRecord>>>>,
}

impl Viewer {
    /// Fixes from now on; none once the publisher has stopped.
    pub fn watch(&self) -> Option<broadcast::Receiver<Arc<FixRecord>>> {
        Some(self.watchers.upgrade()?.subscribe())
    }

    pub fn figures(&self) -> Figures {
        Figures { latency_ms: self.latency_ms(), ..self.tally() }
    }

    /// The figures without latencies, which take long to compute.
    pub fn tally(&self) -> Figures {
        let counts = self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).figures(&counts)
    }

    /// Latency per stage of the fixes so far.
    pub fn latency_ms(&self) -> BTreeMap<&'static str, Quantiles> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).stages.quantiles()
    }

    /// Reads the history of the fixes.
    pub fn history<T>(&self, read: impl FnOnce(&FixHistory) -> T) -> T {
        read(&self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The latest fix, from now on; none once the publisher has stopped.
    pub fn live(&self) -> Option<watch::Receiver<Option<Arc<FixRecord>>>> {
        Some(self.latest.upgrade()?.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::basis::Basis;
    use crate::fix::{Source, milliseconds};
    use crate::fix_log::{Existing, FixLog};
    use crate::told::TrueFrame;
    use estimation::fusion::FrameBlocks;
    use model::{Point, Scenario};
    use proto::convert::{FrameId, Times};
    use std::path::Path;
    use telemetry::Part;
    use tokio::sync::oneshot::error::TryRecvError;
    use tokio_util::sync::CancellationToken;

    fn outgoing(frame: u64, arrivals: Option<ReportArrivals>) -> Outgoing {
        let id = FrameId { run: 1, frame };
        let blocks = FrameBlocks::new(3);
        let none = Err(estimation::location::Unobservable::NoMeasurements.into());
        let record = FixRecord::new(id, &blocks, None, &none, Source::Simulated);
        Outgoing {
            solved: Solved {
                record,
                basis: Basis::of_frame(id, &blocks),
                reason: None,
                clocks: None,
                followable: None,
            },
            arrivals,
            unwritten: None,
        }
    }

    fn start(
        truth: &TruthStore,
        log: Option<&Path>,
        longest_wait: Duration,
    ) -> (Publisher, PublisherThread, broadcast::Receiver<Arc<FixRecord>>) {
        let system = Arc::new(System::new(&Scenario::default()).unwrap());
        let log = log.map(|path| {
            let log = FixLog::open(path, Existing::Append, Part::unobserved("fixes log")).unwrap();
            LogQueue::start(log, CancellationToken::new(), true).unwrap()
        });
        let (publisher, thread) =
            Publisher::start_with_wait(system, truth.clone(), None, log, Vec::new(), longest_wait).unwrap();
        let watcher = publisher.viewer().watch().unwrap();
        (publisher, thread, watcher)
    }

    /// Latency ends when a watcher can have the fix, not when the engine hands it over.
    #[test]
    fn a_fix_is_stamped_when_it_is_out() {
        let (publisher, thread, mut watcher) = start(&TruthStore::default(), None, Duration::ZERO);
        let solved_ns = unix_time_ns();
        let times = Times { intended_ns: solved_ns - 5_000_000, ..Times::default() };
        let last_ns = solved_ns - 3_000_000;
        let arrivals =
            ReportArrivals { last_ns, reports: vec![(0, times, last_ns)], ..ReportArrivals::default() };
        let fix = outgoing(0, Some(arrivals));
        std::thread::sleep(Duration::from_millis(2));
        let handed_over_ns = unix_time_ns();
        publisher.publish_blocking(fix);
        let timing = &watcher.blocking_recv().unwrap().timing;
        assert!(timing.time_ns >= handed_over_ns && timing.time_ns <= unix_time_ns());
        assert_eq!(timing.fusion_ms, milliseconds(last_ns, timing.time_ns));
        assert_eq!(timing.total_ms, Some(milliseconds(solved_ns - 5_000_000, timing.time_ns)));
        drop(publisher);
        thread.finish().unwrap();
    }

    /// A stream that is open and tells nothing: with a longest wait of an hour, whoever waited for it would wait for an hour.
    #[test]
    fn a_silent_truth_holds_up_no_watcher_and_the_log_gets_it_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fixes.jsonl");
        let truth = TruthStore::default();
        let mut source = truth.source().unwrap();
        let (publisher, thread, mut watcher) = start(&truth, Some(&path), Duration::from_secs(3600));
        for frame in 0..3 {
            publisher.publish_blocking(outgoing(frame, None));
            let fix = watcher.blocking_recv().unwrap();
            assert_eq!((fix.frame, &fix.truth), (frame, &None));
        }
        let viewer = publisher.viewer();
        assert_eq!((viewer.tally().without_fix, std::fs::read_to_string(&path).unwrap().len()), (3, 0));
        // What waits for the log knows that it is not there yet.
        let (unwritten, mut written) = oneshot::channel();
        publisher.publish_blocking(Outgoing { unwritten: Some(unwritten), ..outgoing(3, None) });
        watcher.blocking_recv().unwrap();
        assert_eq!(written.try_recv(), Err(TryRecvError::Empty));
        // The truth of the last comes first: the others were passed over, and are written without.
        let clock_offset_s = vec![1e-9, 0.0, -2e-9];
        let told = TrueFrame::one(Point::new(1.0, 2.0, 0.0), 5.0, clock_offset_s);
        for frame in [0, 2, 3] {
            source.tell(FrameId { run: 1, frame }, told.clone()).unwrap();
        }
        let mut latest = viewer.live().unwrap();
        assert!(written.blocking_recv().is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 4);
        drop(publisher);
        thread.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let fixes: Vec<FixRecord> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(fixes.iter().map(|fix| fix.frame).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(
            fixes.iter().map(|fix| fix.truth.is_some()).collect::<Vec<_>>(),
            [true, false, true, true]
        );
        let shown = latest.borrow_and_update().clone().unwrap();
        assert_eq!(shown.frame, 3);
        assert_eq!(shown.truth.as_ref().unwrap().clock_offset_ns, [1.0, 0.0, -2.0], "the page is told again");
    }
}
