//! The connection to the fusion center: registers, streams reports, takes acknowledgements, reconnects after a loss.

use std::fmt::Display;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use estimation::fusion::PayloadKind;
use proto::backoff::Backoff;
use proto::channel::connect;
use proto::clock::unix_time_ns;
use proto::convert::{PayloadFormat, payload_from_wire, precision_from_wire};
use proto::samples::Precision;
use proto::secret::secret;
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

use crate::NodeError;
use crate::outbox::Outbox;
use crate::worker::NodeContext;

/// How long one call other than a stream may take.
const CALL: Duration = Duration::from_secs(2);

/// What the fusion center has assigned to this node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    pub index: u32,
    pub site: Arc<SharedSite>,
    /// Kind and precision of the payloads.
    pub format: PayloadFormat,
    /// Size of the largest report that the fusion center accepts.
    pub max_report_bytes: u64,
}

/// Keeps the node registered and sends its reports.
pub(crate) struct Reporter {
    context: NodeContext,
    assignments: watch::Sender<Option<Assignment>>,
    /// The index of the last registration, which is claimed again after a restart of the fusion center.
    index: Option<u32>,
    /// Proves to the fusion center that a registration comes from this process.
    incarnation: String,
}

impl Reporter {
    pub fn new(context: NodeContext, assignments: watch::Sender<Option<Assignment>>) -> Self {
        let index = context.options.index;
        Self { context, assignments, index, incarnation: secret() }
    }

    /// Runs until `finish`, or until the fusion center refuses the node.
    pub async fn run(mut self, finish: CancellationToken) -> Result<(), NodeError> {
        let (mut backoff, mut failures) = (Backoff::new(), Failures::default());
        while !finish.is_cancelled() {
            let (client, reply) = tokio::select! {
                registered = self.register() => registered?,
                () = finish.cancelled() => return Ok(()),
            };
            let assignment = self.check(&reply)?;
            let opened = Instant::now();
            let ended = self.stream(client, &reply, assignment, &finish).await;
            if opened.elapsed() > CALL {
                backoff.reset();
                failures.succeeded(opened.into_std());
            }
            self.context.outbox.send_modify(Outbox::disconnected);
            let Err(reason) = ended else { return Ok(()) };
            if let Some(notice) = failures.failed(Instant::now().into_std(), &reason) {
                let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
                tracing::warn!(reason, attempts, failing_for_s, "lost the fusion center: reconnecting");
            }
            self.context.metrics.connections_lost.inc();
            self.context.readiness.fusion(Some(format!("lost the fusion center: {reason}")));
            tokio::select! {
                () = backoff.wait() => {}
                () = finish.cancelled() => {}
            }
        }
        Ok(())
    }

    /// Tries to register until the node is registered or refused.
    async fn register(&mut self) -> Result<(FusionClient<Channel>, v1::RegisterReply), NodeError> {
        let mut backoff = Backoff::new();
        let mut taken_since = None;
        let mut failures = Failures::default();
        loop {
            let status = match self.try_register().await {
                Ok(registered) => return Ok(registered),
                Err(status) => status,
            };
            let reason = status.message().to_owned();
            match status.code() {
                // The index of an earlier registration may no longer exist.
                // Another certificate may be for an index that is free.
                Code::AlreadyExists | Code::ResourceExhausted | Code::InvalidArgument
                    if self.context.credentials.next() =>
                {
                    continue;
                }
                Code::InvalidArgument if self.index != self.context.options.index => {
                    self.index = self.context.options.index;
                }
                Code::FailedPrecondition | Code::InvalidArgument | Code::PermissionDenied => {
                    return Err(NodeError::Refused(reason));
                }
                // Whoever holds the index may leave, and a registration without a stream expires.
                Code::AlreadyExists | Code::ResourceExhausted => {
                    let since = *taken_since.get_or_insert_with(Instant::now);
                    if self.context.options.claim_timeout.is_some_and(|limit| since.elapsed() >= limit) {
                        return Err(NodeError::Refused(reason));
                    }
                    // Unless its options claim an index, the node takes any other.
                    self.index = self.context.options.index;
                }
                _ => taken_since = None,
            }
            self.context.readiness.fusion(Some(format!("not registered: {reason}")));
            if let Some(notice) = failures.failed(Instant::now().into_std(), &reason) {
                let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
                let code = status.code().description();
                tracing::warn!(code, reason, attempts, failing_for_s, "not registered: trying again");
            }
            backoff.wait().await;
        }
    }

    async fn try_register(&self) -> Result<(FusionClient<Channel>, v1::RegisterReply), Status> {
        let NodeContext { options, credentials, .. } = &self.context;
        let channel = connect(&options.fusion, credentials.to_fusion().as_ref()).await?;
        let mut client = FusionClient::new(channel).max_decoding_message_size(2 * MAX_SITE_BYTES);
        let mut request = Request::new(v1::RegisterRequest {
            protocol_version: PROTOCOL_VERSION,
            identity: options.identity.clone(),
            index: credentials.index().or(self.index),
            site_sha256: options.site_sha256.map(|hash| hash.to_vec()).unwrap_or_default().into(),
            incarnation: self.incarnation.clone(),
        });
        request.set_timeout(CALL);
        let reply = client.register(request).await?.into_inner();
        Ok((client, reply))
    }

    /// Checks the reply of the fusion center.
    fn check(&mut self, reply: &v1::RegisterReply) -> Result<Assignment, NodeError> {
        let refused = |reason: &dyn Display| NodeError::Refused(reason.to_string());
        let message = reply.site.clone().ok_or_else(|| refused(&"the fusion center sent no site"))?;
        let site = SharedSite::with_hash(message, &reply.site_sha256).map_err(|error| refused(&error))?;
        let count = site.system.irs_count();
        if reply.index as usize >= count {
            return Err(refused(&format!("the fusion center gave index {} of {count} IRSs", reply.index)));
        }
        if self.context.options.site_sha256.is_some_and(|hash| hash != site.sha256) {
            return Err(refused(&format!("the fusion center has another site, {}", site.short_hash())));
        }
        let (index, hash) = (reply.index, site.short_hash());
        tracing::info!(index, site = hash, credit = reply.credit, "registered with the fusion center");
        self.index = Some(index);
        let max_report_bytes = reply.max_report_bytes;
        let format = self.format(reply);
        Ok(Assignment { index, site: Arc::new(site), format, max_report_bytes })
    }

    /// Passes an assignment on to the worker. Only once the stream of reports is open: the fusion center then waits for
    /// this node, and no frame is fused without it.
    fn assign(&self, assignment: Assignment, reply: &v1::RegisterReply) {
        let format = assignment.format;
        if self.assignments.borrow().as_ref() != Some(&assignment) {
            let (payload, precision) = (format.kind.name(), format.precision.name());
            let asked = payload_from_wire(reply.payload).map(PayloadKind::name);
            let asked_precision = precision_from_wire(reply.precision).map(Precision::name);
            tracing::info!(payload, precision, asked, asked_precision, "payload, and what was asked for");
            // Reports of another index or site are useless.
            self.context.outbox.send_modify(Outbox::clear);
            self.assignments.send_replace(Some(assignment));
        }
    }

    /// The payload format of the node's options; where these leave it open, what the fusion center asks for.
    fn format(&self, reply: &v1::RegisterReply) -> PayloadFormat {
        let options = &self.context.options;
        PayloadFormat {
            kind: options.payload.or(payload_from_wire(reply.payload)).unwrap_or_default(),
            precision: options.precision.or(precision_from_wire(reply.precision)).unwrap_or(Precision::Q8),
        }
    }

    /// Streams reports until `finish`; the error is why the stream was lost.
    async fn stream(
        &self,
        client: FusionClient<Channel>,
        reply: &v1::RegisterReply,
        assignment: Assignment,
        finish: &CancellationToken,
    ) -> Result<(), String> {
        let message = |status: Status| status.message().to_owned();
        let (reports, outgoing) = mpsc::unbounded_channel();
        let mut acknowledgements = self.open(client, reply, outgoing).await.map_err(message)?;
        self.assign(assignment, reply);
        self.context.readiness.fusion(None);
        self.context.outbox.send_modify(|outbox| outbox.registered(&reply.instance, reply.credit));
        let mut changes = self.context.outbox.subscribe();
        loop {
            while let Some(report) = self.next_report() {
                reports.send(report).map_err(|_| "the stream of reports is closed")?;
            }
            tokio::select! {
                next = acknowledgements.message() => {
                    let acknowledgement = next.map_err(message)?.ok_or("the fusion center ended the stream")?;
                    self.acknowledge(&acknowledgement);
                }
                _ = changes.changed() => {}
                () = finish.cancelled() => {
                    // Waits for the fusion center to end the stream, which it would otherwise log as broken.
                    drop(reports);
                    let rest = async { while let Ok(Some(_)) = acknowledgements.message().await {} };
                    let _ = timeout(CALL / 4, rest).await;
                    return Ok(());
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

    /// The next report that the credit allows, with the time at which it is sent.
    fn next_report(&self) -> Option<v1::FrameReport> {
        let mut next = None;
        self.context.outbox.send_if_modified(|outbox| {
            let before = outbox.totals();
            next = outbox.take_next();
            self.context.metrics.add_difference(&before, &outbox.totals());
            self.context.metrics.reports_waiting.set(outbox.waiting() as f64);
            false
        });
        let mut report = next?;
        if let Some(times) = &mut report.times {
            times.sent_ns = unix_time_ns();
        }
        Some(report)
    }

    fn acknowledge(&self, acknowledgement: &v1::Acknowledgement) {
        let v1::Acknowledgement { frame, dropped, reason, .. } = acknowledgement;
        let mut stride = self.context.stride.lock().unwrap_or_else(PoisonError::into_inner);
        stride.ask(acknowledgement.stride, std::time::Instant::now());
        drop(stride);
        *self.context.clock_offset_s.lock().unwrap_or_else(PoisonError::into_inner) =
            acknowledgement.clock_offset_s;
        if *dropped > 0 {
            tracing::debug!(frame, reason, "paths were dropped");
        }
        self.context.outbox.send_modify(|outbox| {
            let before = outbox.totals();
            if outbox.acknowledge(acknowledgement).is_none() {
                tracing::debug!(frame, "acknowledgement of a report that is not in flight");
            }
            self.context.metrics.add_difference(&before, &outbox.totals());
        });
    }
}
