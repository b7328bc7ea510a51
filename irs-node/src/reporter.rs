//! The node's side of the fusion center: register, stream reports, take decisions, come back after a loss.

use std::sync::Arc;
use std::time::Duration;

use proto::backoff::{Backoff, random_u64};
use proto::channel::connect;
use proto::clock::unix_time_ns;
use proto::convert::PayloadFormat;
use proto::format::{payload_from_wire, precision_from_wire};
use proto::samples::Precision;
use proto::site::{MAX_SITE_BYTES, SharedSite};
use proto::v1::fusion_client::FusionClient;
use proto::{PROTOCOL_VERSION, SESSION_KEY, v1};
use telemetry::Failures;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use crate::outbox::Outbox;
use crate::worker::NodeContext;

/// How long one call may take, streams apart.
const CALL: Duration = Duration::from_secs(2);

/// What the fusion center wants of this node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    /// IRS index.
    pub index: u32,
    /// The site.
    pub site: Arc<SharedSite>,
    /// What is sent of every path, and how finely.
    pub format: PayloadFormat,
    /// Largest report that is taken.
    pub max_report_bytes: u64,
}

/// The fusion center does not want this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused(pub String);

/// Why a stream of reports ended.
enum Ended {
    Finished,
    Lost(String),
}

/// Keeps the node registered and its reports flowing.
pub(crate) struct Reporter {
    context: NodeContext,
    assignments: watch::Sender<Option<Assignment>>,
    /// The index of the last registration: asked for again, so that a restarted fusion center gives it back.
    index: Option<u32>,
    /// Tells this process from an earlier one of the same identity.
    incarnation: String,
}

impl Reporter {
    pub fn new(context: NodeContext, assignments: watch::Sender<Option<Assignment>>) -> Self {
        let index = context.options.index;
        Self { context, assignments, index, incarnation: format!("{:016x}", random_u64()) }
    }

    /// Runs until `finish`, or until refused for good.
    pub async fn run(mut self, finish: CancellationToken) -> Result<(), Refused> {
        let (mut backoff, mut failures) = (Backoff::new(), Failures::default());
        while !finish.is_cancelled() {
            let (client, reply) = tokio::select! {
                registered = self.register() => registered?,
                () = finish.cancelled() => return Ok(()),
            };
            let opened = Instant::now();
            let ended = self.stream(client, &reply, &finish).await;
            if opened.elapsed() > CALL {
                backoff.reset();
                failures.succeeded(opened.into_std());
            }
            self.context.outbox.send_modify(Outbox::disconnected);
            let Ended::Lost(reason) = ended else { return Ok(()) };
            if let Some(notice) = failures.failed(Instant::now().into_std(), &reason) {
                let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
                tracing::warn!(
                    reason,
                    attempts,
                    failing_for_s,
                    "the fusion center is gone: connecting again"
                );
            }
            self.context.metrics.connections_lost.increment();
            self.context.readiness.fusion(Some(format!("lost the fusion center: {reason}")));
            tokio::select! {
                () = backoff.wait() => {}
                () = finish.cancelled() => {}
            }
        }
        Ok(())
    }

    /// Registers, however long that takes.
    async fn register(&mut self) -> Result<(FusionClient<Channel>, v1::RegisterReply), Refused> {
        let mut backoff = Backoff::new();
        let mut taken_since = None;
        let mut failures = Failures::default();
        loop {
            let status = match self.try_register().await {
                Ok(registered) => {
                    self.assign(&registered.1)?;
                    return Ok(registered);
                }
                Err(status) => status,
            };
            let reason = status.message().to_owned();
            match status.code() {
                // The index of an earlier registration may not exist any more.
                Code::InvalidArgument if self.index != self.context.options.index => {
                    self.index = self.context.options.index;
                }
                Code::FailedPrecondition | Code::InvalidArgument => return Err(Refused(reason)),
                Code::AlreadyExists | Code::ResourceExhausted => {
                    let since = *taken_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.context.options.claim_timeout {
                        return Err(Refused(reason));
                    }
                    // Without a claim of its own the node takes any other index.
                    self.index = self.context.options.index;
                }
                _ => taken_since = None,
            }
            self.context.readiness.fusion(Some(format!("not registered: {reason}")));
            if let Some(notice) = failures.failed(Instant::now().into_std(), &reason) {
                let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
                let code = status.code();
                tracing::warn!(?code, reason, attempts, failing_for_s, "not registered: trying again");
            }
            backoff.wait().await;
        }
    }

    async fn try_register(&self) -> Result<(FusionClient<Channel>, v1::RegisterReply), Status> {
        let options = &self.context.options;
        let channel = connect(&options.fusion).await?;
        let mut client = FusionClient::new(channel).max_decoding_message_size(2 * MAX_SITE_BYTES);
        let mut request = Request::new(v1::RegisterRequest {
            protocol_version: PROTOCOL_VERSION,
            identity: options.identity.clone(),
            index: self.index,
            site_sha256: options.site_sha256.map(|hash| hash.to_vec()).unwrap_or_default().into(),
            incarnation: self.incarnation.clone(),
        });
        request.set_timeout(CALL);
        let reply = client.register(request).await?.into_inner();
        Ok((client, reply))
    }

    /// Checks what the fusion center says and passes it on to the worker.
    fn assign(&mut self, reply: &v1::RegisterReply) -> Result<(), Refused> {
        let message = reply.site.clone().ok_or_else(|| Refused("the fusion center sent no site".into()))?;
        let site =
            SharedSite::with_hash(message, &reply.site_sha256).map_err(|error| Refused(error.to_string()))?;
        let count = site.system.irs_count();
        if reply.index as usize >= count {
            return Err(Refused(format!("the fusion center gave index {} of {count} IRSs", reply.index)));
        }
        if self.context.options.site_sha256.is_some_and(|hash| hash != site.sha256) {
            return Err(Refused(format!("the fusion center has another site, {}", site.short_hash())));
        }
        let (index, hash) = (reply.index, site.short_hash());
        tracing::info!(index, site = hash, credit = reply.credit, "registered with the fusion center");
        self.index = Some(index);
        let max_report_bytes = reply.max_report_bytes;
        let format = self.format(reply);
        let assignment = Assignment { index, site: Arc::new(site), format, max_report_bytes };
        if self.assignments.borrow().as_ref() != Some(&assignment) {
            let (payload, precision) = (format.kind, format.precision.name());
            let asked = (payload_from_wire(reply.payload), precision_from_wire(reply.precision));
            tracing::info!(?payload, precision, ?asked, "what is sent of every path, and what was asked for");
            // Reports of another index or site are of no use to anyone.
            self.context.outbox.send_modify(Outbox::clear);
            self.assignments.send_replace(Some(assignment));
        }
        Ok(())
    }

    /// What the node was told to send by its own settings; where it was told nothing, what the fusion center asks for.
    fn format(&self, reply: &v1::RegisterReply) -> PayloadFormat {
        let options = &self.context.options;
        PayloadFormat {
            kind: options.payload.or(payload_from_wire(reply.payload)).unwrap_or_default(),
            precision: options.precision.or(precision_from_wire(reply.precision)).unwrap_or(Precision::Q8),
        }
    }

    async fn stream(
        &self,
        client: FusionClient<Channel>,
        reply: &v1::RegisterReply,
        finish: &CancellationToken,
    ) -> Ended {
        let (reports, outgoing) = mpsc::unbounded_channel();
        let mut decisions = match self.open(client, reply, outgoing).await {
            Ok(decisions) => decisions,
            Err(status) => return Ended::Lost(status.message().to_owned()),
        };
        self.context.readiness.fusion(None);
        self.context.outbox.send_modify(|outbox| outbox.registered(&reply.instance, reply.credit));
        let mut changes = self.context.outbox.subscribe();
        loop {
            while let Some(report) = self.next_report() {
                if reports.send(report).is_err() {
                    return Ended::Lost("the stream of reports is closed".into());
                }
            }
            tokio::select! {
                decision = decisions.message() => match decision {
                    Ok(Some(decision)) => self.decided(&decision),
                    Ok(None) => return Ended::Lost("the fusion center ended the stream".into()),
                    Err(status) => return Ended::Lost(status.message().to_owned()),
                },
                _ = changes.changed() => {}
                () = finish.cancelled() => {
                    // Closed properly: the fusion center sees the end of the stream, not a loss.
                    drop(reports);
                    let _ = timeout(CALL / 4, async { while let Ok(Some(_)) = decisions.message().await {} }).await;
                    return Ended::Finished;
                }
            }
        }
    }

    async fn open(
        &self,
        client: FusionClient<Channel>,
        reply: &v1::RegisterReply,
        outgoing: mpsc::UnboundedReceiver<v1::FrameReport>,
    ) -> Result<Streaming<v1::Acknowledgement>, Status> {
        let limit = usize::try_from(reply.max_report_bytes).unwrap_or(usize::MAX);
        let mut client = client.max_encoding_message_size(limit);
        let mut request = Request::new(UnboundedReceiverStream::new(outgoing));
        let session = reply.session.parse().map_err(|_| Status::internal("the session has no name"))?;
        request.metadata_mut().insert(SESSION_KEY, session);
        let opened = timeout(CALL, client.report(request)).await;
        let opened = opened.map_err(|_| Status::deadline_exceeded("the stream of reports did not open"))?;
        Ok(opened?.into_inner())
    }

    /// The next report that credit allows, with the time at which it leaves.
    fn next_report(&self) -> Option<v1::FrameReport> {
        let mut next = None;
        self.context.outbox.send_if_modified(|outbox| {
            let before = outbox.totals();
            next = outbox.take_next();
            self.context.metrics.moved(&before, &outbox.totals());
            self.context.metrics.reports_waiting.set(outbox.waiting() as f64);
            false
        });
        let mut report = next?;
        if let Some(times) = &mut report.times {
            times.sent_ns = unix_time_ns();
        }
        Some(report)
    }

    fn decided(&self, decision: &v1::Acknowledgement) {
        if decision.dropped > 0 {
            tracing::debug!(frame = decision.frame, reason = decision.reason, "blocks were dropped");
        }
        self.context.outbox.send_modify(|outbox| {
            let before = outbox.totals();
            if outbox.acknowledge(decision).is_none() {
                tracing::debug!(frame = decision.frame, "a decision on a report that is not under way");
            }
            self.context.metrics.moved(&before, &outbox.totals());
        });
    }
}
