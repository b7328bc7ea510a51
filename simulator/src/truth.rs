//! Sends the truth to the fusion center over a separate stream, for display and error statistics.
//!
//! The service confirms a stream only at its end. The latest records are therefore kept and sent again after every
//! reconnect: a record that is received twice has no further effect.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::{EchoSource, Point, TrueTarget};
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
use trust::ClientTls;

/// Records that are kept to be sent again.
const KEPT: usize = 4096;

/// How long the confirmation may take.
const CONFIRMATION: Duration = Duration::from_secs(2);

/// Records that may wait for the stream.
const UNDER_WAY: usize = 64;

/// Numbers of truth records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TruthSummary {
    pub made: u64,
    /// Records that the fusion center confirmed at the end of the last stream, including those sent again.
    pub confirmed: u64,
    /// Records that were discarded before they could be sent.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct TruthBuffer {
    records: VecDeque<v1::TruthRecord>,
    /// Number of the first record kept.
    first: u64,
    /// Records before this number have been sent at least once.
    sent: u64,
    summary: TruthSummary,
}

/// The truth of a frame: the targets that are there, and the offsets of the clocks where these are not trusted. `one` says that
/// the scenario has one target, which is then told without a list.
pub fn record(source: &EchoSource, id: FrameId, targets: &[TrueTarget], one: bool) -> v1::TruthRecord {
    let unknown = source.system().clock_prior_s > 0.0;
    let nodes = (0..source.system().irs_count()).filter(|_| unknown);
    let common = v1::TruthRecord {
        run: id.run,
        frame: id.frame,
        clock_offset_s: nodes.map(|l| source.clock_offset_s(l, id.frame)).collect(),
        ..v1::TruthRecord::default()
    };
    if let (true, [TrueTarget { position_m, rcs_m2, .. }]) = (one, targets) {
        let v1::Point { x_m, y_m, z_m } = wire_point(*position_m);
        return v1::TruthRecord { x_m, y_m, z_m, rcs_m2: *rcs_m2, ..common };
    }
    let overlap = targets.len() > 1;
    let gains = |target: &TrueTarget| {
        // Columns of the transpose are rows.
        let gains = source.gains(id.frame, target).transpose();
        gains.iter().flat_map(|gain| [gain.re, gain.im]).collect()
    };
    let tell = |target: &TrueTarget| v1::TrueTarget {
        identity: target.identity as u64,
        position: Some(wire_point(target.position_m)),
        rcs_m2: target.rcs_m2,
        gains: if overlap { gains(target) } else { Vec::new() },
    };
    let targets = targets.iter().map(tell).collect();
    v1::TruthRecord { targets: Some(v1::TrueTargets { targets }), ..common }
}

fn wire_point(at: Point) -> v1::Point {
    v1::Point { x_m: at.x, y_m: at.y, z_m: at.z }
}

/// Buffers the truth and sends it; shared, cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct TruthFeed {
    buffer: Arc<Mutex<TruthBuffer>>,
    fresh: Arc<Notify>,
}

impl TruthFeed {
    fn buffer(&self) -> MutexGuard<'_, TruthBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record.
    pub fn write(&self, record: v1::TruthRecord) {
        let mut buffer = self.buffer();
        buffer.summary.made += 1;
        buffer.records.push_back(record);
        if buffer.records.len() > KEPT {
            buffer.records.pop_front();
            buffer.summary.lost += u64::from(buffer.sent <= buffer.first);
            buffer.first += 1;
        }
        drop(buffer);
        self.fresh.notify_one();
    }

    pub fn summary(&self) -> TruthSummary {
        self.buffer().summary
    }

    /// The record of this number, or the oldest one kept if that is later, and the number after it.
    fn read(&self, number: u64) -> Option<(v1::TruthRecord, u64)> {
        let mut buffer = self.buffer();
        let number = number.max(buffer.first);
        let record = buffer.records.get(usize::try_from(number - buffer.first).ok()?)?.clone();
        buffer.sent = buffer.sent.max(number + 1);
        Some((record, number + 1))
    }

    /// Sends the truth until `finish`; reconnects whenever the connection is lost.
    pub async fn send(self, fusion: String, tls: Option<ClientTls>, finish: CancellationToken) {
        let mut backoff = Backoff::new();
        let mut failures = Failures::default();
        loop {
            let begun = Instant::now();
            let ended = self.stream(&fusion, tls.as_ref(), &finish).await;
            if begun.elapsed() > CONFIRMATION {
                (backoff, failures) = (Backoff::new(), Failures::default());
            }
            match ended {
                Ok(confirmed) => {
                    self.buffer().summary.confirmed = confirmed;
                    if finish.is_cancelled() {
                        return;
                    }
                }
                Err(status) => {
                    let reason = status.message();
                    if let Some(notice) = failures.failed(Instant::now().into_std(), reason) {
                        let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
                        tracing::warn!(reason, attempts, failing_for_s, "the truth cannot be sent: retrying");
                    }
                }
            }
            tokio::select! {
                () = backoff.wait() => {}
                () = finish.cancelled() => return,
            }
        }
    }

    /// Sends one stream, from the oldest record kept; returns the count that was confirmed at its end.
    async fn stream(
        &self,
        fusion: &str,
        tls: Option<&ClientTls>,
        finish: &CancellationToken,
    ) -> Result<u64, Status> {
        let mut client = FusionClient::new(connect(fusion, tls).await?);
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
        // The service confirms the records when the stream ends.
        drop(sender);
        let confirmed = tokio::time::timeout(CONFIRMATION, answer).await;
        confirmed.map_err(|_| Status::deadline_exceeded("no confirmation of the truth"))?.map(taken)
    }
}

#[cfg(test)]
mod tests {
    use model::Scenario;

    use super::*;

    fn record_of(frame: u64) -> v1::TruthRecord {
        v1::TruthRecord { run: 1, frame, ..v1::TruthRecord::default() }
    }

    #[test]
    fn the_latest_are_kept_and_only_the_untold_are_lost() {
        let truth = TruthFeed::default();
        for frame in 0..10 {
            truth.write(record_of(frame));
        }
        let mut next = 0;
        for frame in 0..4 {
            let (record, after) = truth.read(next).unwrap();
            assert_eq!(record.frame, frame);
            next = after;
        }
        for frame in 10..KEPT as u64 + 10 {
            truth.write(record_of(frame));
        }
        // Ten were forgotten, four of them told before.
        assert_eq!(truth.summary(), TruthSummary { made: KEPT as u64 + 10, confirmed: 0, lost: 6 });
        assert_eq!(truth.read(next).unwrap().0.frame, 10);
        assert!(truth.read(KEPT as u64 + 10).is_none());
    }

    fn told(scenario: &Scenario, frame: u64) -> v1::TruthRecord {
        let source = EchoSource::new(scenario).unwrap();
        record(&source, FrameId { run: 1, frame }, &source.targets(frame), scenario.targets.len() == 1)
    }

    #[test]
    fn one_target_is_told_without_a_list() {
        let mut scenario = Scenario::default();
        scenario.clocks.prior_ns = 1.0;
        let at = EchoSource::new(&scenario).unwrap().target_m(3);
        let record = told(&scenario, 3);
        assert_eq!((record.x_m, record.y_m, record.z_m, record.run, record.frame), (at.x, at.y, at.z, 1, 3));
        assert_eq!(
            (record.rcs_m2, record.targets, record.clock_offset_s.len()),
            (scenario.rcs_m2(), None, 3)
        );
        // Not there: nothing is claimed.
        scenario.targets[0].from_frame = Some(4);
        assert_eq!(told(&scenario, 3).targets, Some(v1::TrueTargets::default()));
        assert_eq!(told(&scenario, 4).targets, None);
    }

    #[test]
    fn several_targets_are_told_with_their_gains() {
        let mut scenario = Scenario::default().with_targets(2);
        scenario.targets[0].from_frame = Some(5);
        let list = |scenario: &Scenario, frame| told(scenario, frame).targets.unwrap().targets;
        let alone = list(&scenario, 4);
        assert_eq!((alone.len(), alone[0].identity, alone[0].gains.len()), (1, 1, 0));
        let source = EchoSource::new(&scenario).unwrap();
        let both = list(&scenario, 5);
        for (told, target) in both.iter().zip(source.targets(5)) {
            let gains = source.gains(5, &target);
            assert_eq!((told.identity, told.gains.len()), (target.identity as u64, 18));
            assert_eq!(told.gains[2..4], [gains[(0, 1)].re, gains[(0, 1)].im]);
        }
        assert_eq!(list(&scenario.with_targets(0), 0), []);
    }
}
