//! Where fixes go: truth joined, statistics, fix log, watchers.
//!
//! Runs on a thread of its own behind a bounded queue. Watchers get fixes over a broadcast channel; one that
//! does not keep up loses the oldest and slows nobody.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use model::System;
use tokio::sync::{broadcast, mpsc, watch};

use crate::fix::FixRecord;
use crate::statistics::{Figures, Quantiles, Statistics};
use crate::truth::{TruthBook, judge};

/// Fixes that a watcher may be behind.
const WATCHER_BACKLOG: usize = 256;

/// Fixes that may wait for the publisher.
const QUEUE: usize = 256;

/// Hands out fixes; cheap to clone.
#[derive(Debug, Clone)]
pub struct Publisher {
    queue: mpsc::Sender<FixRecord>,
    watchers: broadcast::WeakSender<Arc<FixRecord>>,
    statistics: Arc<Mutex<Statistics>>,
    latest: Weak<watch::Sender<Option<Arc<FixRecord>>>>,
}

/// The publisher's thread.
#[derive(Debug)]
pub struct PublisherThread(std::thread::JoinHandle<std::io::Result<()>>);

impl PublisherThread {
    /// Waits until all fixes are out; every [`Publisher`] must be gone.
    pub fn finish(self) -> std::io::Result<()> {
        self.0.join().unwrap_or_else(|_| Err(std::io::Error::other("the publisher panicked")))
    }
}

impl Publisher {
    /// Starts the thread; `log` takes one JSON line per fix.
    pub fn start(
        system: Arc<System>,
        truth: TruthBook,
        log: Option<&Path>,
    ) -> std::io::Result<(Self, PublisherThread)> {
        let mut log = match log {
            Some(path) => Some(BufWriter::new(File::create(path)?)),
            None => None,
        };
        let (queue, mut incoming) = mpsc::channel::<FixRecord>(QUEUE);
        let (watchers, _) = broadcast::channel(WATCHER_BACKLOG);
        let statistics: Arc<Mutex<Statistics>> = Arc::default();
        let latest = Arc::new(watch::Sender::new(None));
        let publisher = Self {
            queue,
            watchers: watchers.downgrade(),
            statistics: statistics.clone(),
            latest: Arc::downgrade(&latest),
        };
        let thread = std::thread::Builder::new().name("publisher".into()).spawn(move || {
            while let Some(mut record) = incoming.blocking_recv() {
                let known = truth.take(record.frame_id());
                record.truth = known.map(|truth_m| judge(&record, &system, truth_m));
                statistics.lock().unwrap_or_else(PoisonError::into_inner).record(&record);
                if let Some(log) = &mut log {
                    serde_json::to_writer(&mut *log, &record)?;
                    log.write_all(b"\n")?;
                    if incoming.is_empty() {
                        log.flush()?;
                    }
                }
                let record = Arc::new(record);
                latest.send_replace(Some(record.clone()));
                // No watcher is no error.
                let _ = watchers.send(record);
            }
            match &mut log {
                Some(log) => log.flush(),
                None => Ok(()),
            }
        })?;
        Ok((publisher, PublisherThread(thread)))
    }

    /// Hands a fix over; waits when the publisher is behind.
    pub async fn publish(&self, record: FixRecord) {
        if self.queue.send(record).await.is_err() {
            tracing::error!("the publisher is gone; a fix is lost");
        }
    }

    /// The same from a thread that may block.
    pub fn publish_blocking(&self, record: FixRecord) {
        if self.queue.blocking_send(record).is_err() {
            tracing::error!("the publisher is gone; a fix is lost");
        }
    }

    /// A handle that does not keep the publisher running.
    pub fn viewer(&self) -> Viewer {
        Viewer {
            watchers: self.watchers.clone(),
            statistics: self.statistics.clone(),
            latest: self.latest.clone(),
        }
    }
}

/// Looks at fixes without keeping the publisher running.
#[derive(Debug, Clone)]
pub struct Viewer {
    watchers: broadcast::WeakSender<Arc<FixRecord>>,
    statistics: Arc<Mutex<Statistics>>,
    latest: Weak<watch::Sender<Option<Arc<FixRecord>>>>,
}

impl Viewer {
    /// Fixes from now on; none once the publisher has stopped.
    pub fn watch(&self) -> Option<broadcast::Receiver<Arc<FixRecord>>> {
        Some(self.watchers.upgrade()?.subscribe())
    }

    /// What the fixes so far add up to.
    pub fn figures(&self) -> Figures {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).figures()
    }

    /// The same without latencies.
    pub fn tally(&self) -> Figures {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).tally()
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
