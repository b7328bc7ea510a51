//! The truth goes to the fusion center on a channel of its own, for display and error figures.
//!
//! The service confirms a stream only at its end. So the latest records are kept, and told again whenever a
//! connection had to be made anew: telling a record twice does no harm.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::Point;
use proto::backoff::Backoff;
use proto::channel::connect;
use proto::convert::FrameId;
use proto::v1;
use proto::v1::fusion_client::FusionClient;
use serde::Serialize;
use telemetry::Failures;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status};

/// Records that are kept to be told again.
const KEPT: usize = 4096;

/// How long the confirmation may take.
const CONFIRMATION: Duration = Duration::from_secs(2);

/// Records on their way into the stream.
const UNDER_WAY: usize = 64;

/// What became of the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TruthSummary {
    /// Records made.
    pub made: u64,
    /// Records that the fusion center confirmed at the end of the last stream, some of them told again.
    pub confirmed: u64,
    /// Records that were forgotten before they could be told.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Book {
    records: VecDeque<v1::TruthRecord>,
    /// Number of the first record kept.
    first: u64,
    /// Records before this number have been told at least once.
    told: u64,
    summary: TruthSummary,
}

/// Where the truth is written down and told from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Truth {
    book: Arc<Mutex<Book>>,
    fresh: Arc<Notify>,
}

impl Truth {
    fn with<T>(&self, act: impl FnOnce(&mut Book) -> T) -> T {
        act(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes down where the target is, and how large it is.
    pub fn write(&self, id: FrameId, target_m: Point, rcs_m2: f64) {
        let (x_m, y_m) = (target_m.x, target_m.y);
        let record = v1::TruthRecord { run: id.run, frame: id.frame, x_m, y_m, rcs_m2 };
        self.with(|book| {
            book.summary.made += 1;
            book.records.push_back(record);
            if book.records.len() > KEPT {
                book.records.pop_front();
                book.summary.lost += u64::from(book.told <= book.first);
                book.first += 1;
            }
        });
        self.fresh.notify_one();
    }

    pub fn summary(&self) -> TruthSummary {
        self.with(|book| book.summary)
    }

    /// The record of that number, or the oldest that is kept; with the number after it.
    fn read(&self, number: u64) -> Option<(v1::TruthRecord, u64)> {
        self.with(|book| {
            let number = number.max(book.first);
            let record = book.records.get(usize::try_from(number - book.first).ok()?)?;
            book.told = book.told.max(number + 1);
            Some((*record, number + 1))
        })
    }

    /// Tells the truth until `finish`, however often the fusion center goes away.
    pub async fn tell(self, fusion: String, finish: CancellationToken) {
        let mut backoff = Backoff::new();
        let mut failures = Failures::default();
        loop {
            let begun = Instant::now();
            let ended = self.stream(&fusion, &finish).await;
            if begun.elapsed() > CONFIRMATION {
                (backoff, failures) = (Backoff::new(), Failures::default());
            }
            match ended {
                Ok(confirmed) => {
                    self.with(|book| book.summary.confirmed = confirmed);
                    if finish.is_cancelled() {
                        return;
                    }
                }
                Err(status) => {
                    let reason = status.message();
                    if let Some(notice) = failures.failed(Instant::now().into_std(), reason) {
                        let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
                        tracing::warn!(
                            reason,
                            attempts,
                            failing_for_s,
                            "the truth cannot be told: trying again"
                        );
                    }
                }
            }
            tokio::select! {
                () = backoff.wait() => {}
                () = finish.cancelled() => return,
            }
        }
    }

    /// One stream, from the oldest record kept; gives the count that was confirmed at its end.
    async fn stream(&self, fusion: &str, finish: &CancellationToken) -> Result<u64, Status> {
        let mut client = FusionClient::new(connect(fusion).await?);
        let (sender, receiver) = mpsc::channel(UNDER_WAY);
        let answer = client.truth(ReceiverStream::new(receiver));
        tokio::pin!(answer);
        let taken = |answer: Response<v1::TruthSummary>| answer.into_inner().taken;
        let mut next = 0;
        loop {
            while let Some((record, after)) = self.read(next) {
                tokio::select! {
                    sent = sender.send(record) => if sent.is_err() { break },
                    answer = &mut answer => return answer.map(taken),
                }
                next = after;
            }
            tokio::select! {
                () = self.fresh.notified() => {}
                answer = &mut answer => return answer.map(taken),
                () = finish.cancelled() => break,
            }
        }
        // All is told: the end of the stream asks for the confirmation.
        drop(sender);
        let patience = tokio::time::timeout(CONFIRMATION, answer).await;
        patience.map_err(|_| Status::deadline_exceeded("no confirmation of the truth"))?.map(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(frame: u64) -> FrameId {
        FrameId { run: 1, frame }
    }

    #[test]
    fn the_latest_are_kept_and_only_the_untold_are_lost() {
        let truth = Truth::default();
        for frame in 0..10 {
            truth.write(id(frame), Point::new(1.0, frame as f64), 5.0);
        }
        let mut next = 0;
        for frame in 0..4 {
            let (record, after) = truth.read(next).unwrap();
            assert_eq!((record.frame, record.y_m, record.rcs_m2), (frame, frame as f64, 5.0));
            next = after;
        }
        for frame in 10..KEPT as u64 + 10 {
            truth.write(id(frame), Point::new(0.0, 0.0), 5.0);
        }
        // Ten were forgotten, four of them told before.
        assert_eq!(truth.summary(), TruthSummary { made: KEPT as u64 + 10, confirmed: 0, lost: 6 });
        assert_eq!(truth.read(next).unwrap().0.frame, 10);
        assert!(truth.read(KEPT as u64 + 10).is_none());
    }
}
