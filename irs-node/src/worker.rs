//! Echo frames in, reports out: receive, average, matched filter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use model::{CMatrix, System};
use prost::Message;
use proto::clock::unix_time_ns;
use proto::convert::{FrameId, Times, report_message};
use proto::echo::{Delivery, EchoSubscriber, Link, Subscription, Timings};
use proto::v1;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::metrics::{NodeMetrics, Readiness};
use crate::outbox::Outbox;
use crate::reporter::Assignment;
use crate::{NodeOptions, RunError};

/// What the workers of a node share.
#[derive(Debug, Clone)]
pub(crate) struct NodeContext {
    pub options: Arc<NodeOptions>,
    pub outbox: Arc<watch::Sender<Outbox>>,
    pub metrics: NodeMetrics,
    pub readiness: Readiness,
}

impl NodeContext {
    /// Works on whatever the node is assigned to, until `stop`.
    pub async fn work(
        self,
        mut assignments: watch::Receiver<Option<Assignment>>,
        stop: CancellationToken,
    ) -> Result<(), RunError> {
        loop {
            let next = async { assignments.wait_for(Option::is_some).await.ok()?.clone() };
            let assignment = tokio::select! {
                assignment = next => assignment,
                () = stop.cancelled() => return Ok(()),
            };
            let Some(assignment) = assignment else {
                // The reporter has ended: it says why.
                stop.cancelled().await;
                return Ok(());
            };
            assignments.mark_unchanged();
            let current = assignment.clone();
            let mut worker = tokio::select! {
                built = Worker::new(self.clone(), assignment) => built?,
                () = stop.cancelled() => return Ok(()),
            };
            let changed = async {
                // A fusion center that was restarted may have another site or index for this node.
                let other = |latest: &Option<Assignment>| latest.as_ref().is_some_and(|a| *a != current);
                let closed = assignments.wait_for(other).await.is_err();
                if closed {
                    std::future::pending::<()>().await;
                }
            };
            let subscriber = worker.subscribe();
            worker.run(subscriber, &stop, changed).await;
            if stop.is_cancelled() {
                return Ok(());
            }
            tracing::warn!("the fusion center has another assignment: starting over");
        }
    }
}

/// Frames that go into one report.
#[derive(Default)]
struct Batch {
    first: FrameId,
    frames: Vec<CMatrix>,
    /// Times of the last frame: that one completes the batch.
    times: Times,
}

/// The matched filter of one assignment.
struct Worker {
    context: NodeContext,
    assignment: Assignment,
    estimator: Arc<DelayEstimator>,
    batch: Batch,
}

impl Worker {
    async fn new(context: NodeContext, assignment: Assignment) -> Result<Self, RunError> {
        let begun = Instant::now();
        let (node, frames) = (assignment.index as usize, context.options.frames_per_fix);
        let site = assignment.site.clone();
        let hold = site.system.coherent_frames;
        if frames > hold {
            tracing::warn!(frames, hold, "more frames are averaged than path phases hold: signal is lost");
        }
        let settings = DelaySettings {
            statistic: Statistic::Illuminated,
            frames: frames as usize,
            ..DelaySettings::default()
        };
        let built = tokio::task::spawn_blocking(move || {
            DelayEstimator::with_settings(&site.system, node, settings).map_err(|error| error.to_string())
        });
        let estimator = built
            .await
            .map_err(|error| error.to_string())
            .and_then(|built| built)
            .map_err(RunError::Estimator)?;
        tracing::info!(node, took_ms = begun.elapsed().as_millis() as u64, "the matched filter is ready");
        let estimator = Arc::new(estimator);
        Ok(Self { context, assignment, estimator, batch: Batch::default() })
    }

    fn subscribe(&self) -> EchoSubscriber {
        EchoSubscriber::start(Subscription {
            address: self.context.options.simulator.clone(),
            node: self.assignment.index,
            site_sha256: self.assignment.site.sha256,
            window: self.context.options.window,
            timings: Timings::default(),
        })
    }

    /// Takes frames until `stop` or until the assignment `changed`; then reports what it has.
    async fn run(
        &mut self,
        mut echoes: EchoSubscriber,
        stop: &CancellationToken,
        changed: impl Future<Output = ()>,
    ) {
        let mut link = echoes.link();
        tokio::pin!(changed);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = &mut changed => break,
                Ok(()) = link.changed() => self.context.readiness.simulator(&link.borrow_and_update()),
                delivery = echoes.next() => match delivery {
                    Some(Ok(delivery)) => self.take(delivery).await,
                    Some(Err(error)) => {
                        self.context.metrics.frames_refused.increment();
                        tracing::warn!(%error, "an echo frame was refused");
                    }
                    None => break,
                },
            }
        }
        self.report().await;
        self.context.readiness.simulator(&Link::Connecting);
        echoes.close().await;
    }

    async fn take(&mut self, delivery: Delivery) {
        let (id, intended_ns) = (delivery.frame.id(), delivery.frame.intended_ns);
        self.context.metrics.frames.increment();
        let System { sensors, subcarriers, .. } = &self.assignment.site.system;
        let matrix = match delivery.frame.into_matrix(self.assignment.index, *sensors, *subcarriers) {
            Ok(matrix) => matrix,
            Err(error) => {
                self.context.metrics.frames_refused.increment();
                tracing::warn!(%error, "an echo frame was refused");
                return;
            }
        };
        let frames_per_fix = self.context.options.frames_per_fix;
        // Named by its first frame, whether or not that one came.
        let first = FrameId { frame: id.frame - id.frame % frames_per_fix, ..id };
        if first != self.batch.first {
            // Frames are missing: what came of the group is averaged.
            self.report().await;
        }
        self.batch.first = first;
        self.batch.frames.push(matrix);
        self.batch.times = Times { intended_ns, received_ns: delivery.received_ns, ..Times::default() };
        if self.batch.frames.len() as u64 >= frames_per_fix {
            self.report().await;
        }
    }

    /// Filters the batch, off the async threads, and hands over the report.
    async fn report(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.frames.is_empty() {
            return;
        }
        let (estimator, node) = (self.estimator.clone(), self.assignment.index as usize);
        let frame = batch.first;
        let format = self.assignment.format;
        let filtered = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let delays = estimator.estimate_frames(&batch.frames).map_err(|error| error.to_string())?;
            let times = Times { filtered_ns: unix_time_ns(), ..batch.times };
            Ok((report_message(frame, node, &delays, format, times), begun.elapsed()))
        });
        match filtered.await.map_err(|error| error.to_string()).and_then(|filtered| filtered) {
            Ok((report, took)) => self.hand_over(report, took),
            Err(reason) => {
                self.context.metrics.frames_failed.increment();
                tracing::warn!(frame = frame.frame, reason, "no estimate");
            }
        }
    }

    fn hand_over(&self, report: v1::FrameReport, took: Duration) {
        let metrics = &self.context.metrics;
        metrics.filter_seconds.observe_time(took);
        let (bytes, frame) = (report.encoded_len() as u64, report.frame);
        if bytes > self.assignment.max_report_bytes {
            metrics.blocks_dropped_at_node.add(report.blocks.len() as u64);
            tracing::error!(frame, bytes, "the report is larger than the fusion center takes: dropped");
            return;
        }
        self.context.outbox.send_modify(|outbox| {
            let dropped = outbox.push(report);
            metrics.blocks_dropped_at_node.add(dropped);
            metrics.reports_waiting.set(outbox.waiting() as f64);
            if dropped > 0 {
                tracing::debug!(frame, dropped, "the queue is full: the oldest report was dropped");
            }
        });
    }
}
