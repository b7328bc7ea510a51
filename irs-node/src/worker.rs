//! Turns echo frames into reports: receive, average, matched filter.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use model::{CMatrix, SystemParts};
use prost::Message;
use proto::clock::unix_time_ns;
use proto::convert::{FrameId, Times, report_message};
use proto::echo::file::EchoFileSource;
use proto::echo::{
    Delivery, EchoLayout, EchoSubscriber, EchoesService, Subscription, SubscriptionState, Timings,
};
use proto::v1;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::credentials::Credentials;
use crate::file_run::FileEnd;
use crate::metrics::{NodeMetrics, Readiness};
use crate::outbox::Outbox;
use crate::reporter::Assignment;
use crate::stride::Stride;
use crate::{NodeError, NodeOptions};

/// What reporter and worker share; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct NodeContext {
    pub options: Arc<NodeOptions>,
    pub credentials: Credentials,
    pub outbox: Arc<watch::Sender<Outbox>>,
    /// Which frames the fusion center asks for.
    pub stride: Arc<Mutex<Stride>>,
    /// Offset of this node's clock in seconds, as the fusion center has estimated it; none while it has not.
    pub clock_offset_s: Arc<Mutex<Option<f64>>>,
    pub metrics: NodeMetrics,
    pub readiness: Readiness,
    /// Takes pushed frames, if the node listens for them.
    pub echoes: Option<EchoesService>,
}

impl NodeContext {
    /// Works on the current assignment until `stop`, or until the file of echoes has ended, which is returned.
    pub async fn work(
        self,
        mut assignments: watch::Receiver<Option<Assignment>>,
        stop: CancellationToken,
    ) -> Result<Option<FileEnd>, NodeError> {
        loop {
            let next = async { assignments.wait_for(Option::is_some).await.ok()?.clone() };
            let assignment = tokio::select! {
                assignment = next => assignment,
                () = stop.cancelled() => return Ok(None),
            };
            let Some(assignment) = assignment else {
                // The reporter has ended and returns the reason.
                stop.cancelled().await;
                return Ok(None);
            };
            assignments.mark_unchanged();
            let current = assignment.clone();
            let mut worker = tokio::select! {
                built = Worker::new(self.clone(), assignment) => built?,
                () = stop.cancelled() => return Ok(None),
            };
            if self.options.echoes.is_some() {
                tokio::select! {
                    () = self.until_all_connected() => {}
                    () = stop.cancelled() => return Ok(None),
                }
            }
            let changed = async {
                // A restarted fusion center may assign another site or index to this node.
                let other = |latest: &Option<Assignment>| latest.as_ref().is_some_and(|a| *a != current);
                let closed = assignments.wait_for(other).await.is_err();
                if closed {
                    std::future::pending::<()>().await;
                }
            };
            let subscriber = worker.subscribe();
            let ended = worker.run(subscriber, &stop, changed).await;
            if ended.is_some() || stop.is_cancelled() {
                return Ok(ended);
            }
            tracing::warn!("the fusion center has changed the assignment: restarting the matched filter");
        }
    }
}

/// Frames that are averaged into one report.
#[derive(Default)]
struct FrameGroup {
    first: FrameId,
    frames: Vec<CMatrix>,
    /// Times of the last frame received.
    times: Times,
}

/// The matched filter of one assignment.
struct Worker {
    context: NodeContext,
    assignment: Assignment,
    estimator: Arc<DelayEstimator>,
    group: FrameGroup,
    /// Echo frames received for this assignment.
    received: u64,
}

impl Worker {
    async fn new(context: NodeContext, assignment: Assignment) -> Result<Self, NodeError> {
        let begun = Instant::now();
        let (node, frames) = (assignment.index as usize, context.options.frames_per_fix);
        let site = assignment.site.clone();
        let hold = site.system.coherent_frames;
        if frames > hold {
            tracing::warn!(
                frames,
                hold,
                "more frames are averaged than path phases are constant over: signal is lost"
            );
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
            .map_err(NodeError::Estimator)?;
        tracing::info!(node, took_ms = begun.elapsed().as_millis() as u64, "the matched filter is ready");
        let estimator = Arc::new(estimator);
        Ok(Self { context, assignment, estimator, group: FrameGroup::default(), received: 0 })
    }

    /// Frames of a file or those that are pushed, if the node was told so, else those of the simulator.
    fn subscribe(&self) -> EchoSubscriber {
        let system = &self.assignment.site.system;
        let SystemParts { subcarriers, bandwidth_hz, .. } = **system;
        let sensors = system.sensors();
        let (node, site_sha256) = (self.assignment.index, self.assignment.site.sha256);
        let window = self.context.options.window;
        let layout = EchoLayout { node, site_sha256, sensors, subcarriers, bandwidth_hz, window };
        if let Some(file) = self.context.options.echoes.clone() {
            return EchoFileSource { file, rate_hz: self.context.options.rate_hz }.open(layout);
        }
        if let Some(echoes) = &self.context.echoes {
            return echoes.open(layout);
        }
        EchoSubscriber::start(Subscription {
            address: self.context.options.simulator.clone(),
            node,
            site_sha256,
            window,
            sensors,
            subcarriers,
            timings: Timings::default(),
        })
    }

    /// Takes frames until `stop`, until the assignment has `changed` or until the file has ended, which is returned; then reports the
    /// frames that it has.
    async fn run(
        &mut self,
        mut echoes: EchoSubscriber,
        stop: &CancellationToken,
        changed: impl Future<Output = ()>,
    ) -> Option<FileEnd> {
        let mut link = echoes.state();
        let mut room = self.context.room();
        let mut is_over = false;
        tokio::pin!(changed);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = &mut changed => break,
                Ok(()) = link.changed() => self.context.readiness.simulator(&link.borrow_and_update()),
                delivery = room.then(echoes.next()) => match delivery {
                    Some(Ok(delivery)) => self.take(delivery).await,
                    Some(Err(error)) => self.refuse(&error),
                    None => {
                        is_over = true;
                        break;
                    }
                },
            }
        }
        self.report().await;
        self.context.readiness.simulator(&SubscriptionState::Connecting);
        // The task of the file says how it ended just after its last frame.
        let ended = async {
            link.wait_for(|state| matches!(state, SubscriptionState::Ended { .. }))
                .await
                .ok()
                .map(|s| s.clone())
        };
        let ended = if is_over { ended.await } else { None };
        echoes.close().await;
        let file = self.context.options.echoes.clone().filter(|_| is_over)?;
        let fault = match ended {
            Some(SubscriptionState::Ended { fault }) => fault,
            _ => None,
        };
        Some(FileEnd { file, frames: self.received, fault })
    }

    async fn take(&mut self, delivery: Delivery) {
        let (id, intended_ns) = (delivery.frame.id(), delivery.frame.intended_ns);
        self.context.metrics.frames.inc();
        self.received += 1;
        if self.context.options.echoes.is_none() && !self.is_asked_for(id) {
            return;
        }
        let system = &self.assignment.site.system;
        let shape = (system.sensors(), system.subcarriers);
        let matrix = match delivery.frame.into_matrix(self.assignment.index, shape.0, shape.1) {
            Ok(matrix) => matrix,
            Err(error) => return self.refuse(&error),
        };
        let frames_per_fix = self.context.options.frames_per_fix;
        // A group has the number of its first frame, even if that frame is missing.
        let first = FrameId { frame: id.frame - id.frame % frames_per_fix, ..id };
        if first != self.group.first {
            // Frames of the previous group are missing: the others are averaged.
            self.report().await;
        }
        self.group.first = first;
        self.group.frames.push(matrix);
        self.group.times = Times { intended_ns, received_ns: delivery.received_ns, ..Times::default() };
        if self.group.frames.len() as u64 >= frames_per_fix {
            self.report().await;
        }
    }

    /// Whether the fusion center asks for a frame; if not, its paths count as dropped at the node, once per report.
    fn is_asked_for(&self, id: FrameId) -> bool {
        let frames_per_fix = self.context.options.frames_per_fix;
        let stride = self.context.stride.lock().unwrap_or_else(PoisonError::into_inner);
        let asked_for = stride.includes(id.frame / frames_per_fix, Instant::now());
        drop(stride);
        if !asked_for && id.frame.is_multiple_of(frames_per_fix) {
            let paths = self.assignment.site.system.irs_count() as u64;
            self.context.outbox.send_if_modified(|outbox| {
                outbox.leave_out(paths);
                false
            });
            self.context.metrics.paths_dropped_at_node.inc_by(paths);
        }
        asked_for
    }

    fn refuse(&self, error: &dyn Display) {
        self.context.metrics.frames_refused.inc();
        telemetry::warn_limited!(%error, "an echo frame was refused");
    }

    /// Filters the group, off the async threads, and queues the report.
    async fn report(&mut self) {
        let group = std::mem::take(&mut self.group);
        if group.frames.is_empty() {
            return;
        }
        let (estimator, node) = (self.estimator.clone(), self.assignment.index as usize);
        let frame = group.first;
        let format = self.assignment.format;
        let offset_s = *self.context.clock_offset_s.lock().unwrap_or_else(PoisonError::into_inner);
        let filtered = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let delays =
                estimator.estimate_timed(&group.frames, offset_s).map_err(|error| error.to_string())?;
            let times = Times { filtered_ns: unix_time_ns(), ..group.times };
            Ok((report_message(frame, node, &delays, format, times), begun.elapsed()))
        });
        match filtered.await.map_err(|error| error.to_string()).and_then(|filtered| filtered) {
            Ok((report, took)) => self.queue(report, took),
            Err(reason) => {
                self.context.metrics.frames_failed.inc();
                telemetry::warn_limited!(frame = frame.frame, reason, "no estimate");
            }
        }
    }

    fn queue(&self, report: v1::FrameReport, took: Duration) {
        let metrics = &self.context.metrics;
        metrics.filter_seconds.observe(took.as_secs_f64());
        let (bytes, frame) = (report.encoded_len() as u64, report.frame);
        if bytes > self.assignment.max_report_bytes {
            telemetry::warn_limited!(
                frame,
                bytes,
                "the report is larger than the fusion center accepts: dropped"
            );
            self.context.outbox.send_modify(|outbox| {
                metrics.paths_dropped_at_node.inc_by(outbox.discard(&report));
            });
            return;
        }
        self.context.outbox.send_modify(|outbox| {
            let dropped = outbox.push(report);
            metrics.paths_dropped_at_node.inc_by(dropped);
            metrics.reports_waiting.set(outbox.waiting() as f64);
            if dropped > 0 {
                tracing::debug!(frame, dropped, "the queue is full: the oldest report was dropped");
            }
        });
    }
}
