//! The gRPC service: checks messages and passes them to engine, node table or publisher.

use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;

use model::System;
use proto::clock::{steady_time_ns, unix_time_ns};
use proto::convert::{
    FrameId, PayloadFormat, max_report_bytes, payload_to_wire, precision_to_wire, report_from_wire,
};
use proto::site::SharedSite;
use proto::v1::fusion_server::Fusion;
use proto::{SESSION_KEY, v1};
use telemetry::listener::admission::peer_key;
use telemetry::log_limit::clipped;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use trust::{Caller, Needs, Peer};

use crate::engine::{Event, Incoming};
use crate::ledger::Fates;
use crate::node_table::NodeTable;
use crate::publish::Viewer;
use crate::recording::TruthRecorder;
use crate::registry::{Application, RegistrationError, StreamError};
use crate::reply::{AcknowledgementSender, SharedRequests};
use crate::told::TrueFrame;
use crate::truth::TruthStore;
use crate::viewers::Viewers;

/// Fixes that may wait for one watcher.
const WATCH_QUEUE: usize = 64;

/// Cheap to clone.
#[derive(Clone)]
pub struct FusionService {
    pub site: Arc<SharedSite>,
    pub system: Arc<System>,
    /// Changes with every start.
    pub instance: String,
    /// Reports that a node may have in flight.
    pub credit: usize,
    /// Which frames nodes are asked to report.
    pub requests: SharedRequests,
    /// What nodes are asked to send.
    pub payload: PayloadFormat,
    /// None if nothing is recorded.
    pub recording: Option<TruthRecorder>,
    pub events: mpsc::Sender<Event>,
    pub node_table: NodeTable,
    pub truth: TruthStore,
    pub viewer: Viewer,
    /// The streams of fixes that are open.
    pub watchers: Viewers,
    pub shutdown: CancellationToken,
}

impl From<RegistrationError> for Status {
    fn from(refusal: RegistrationError) -> Self {
        let text = refusal.to_string();
        match refusal {
            RegistrationError::Protocol { .. } | RegistrationError::Site { .. } => {
                Self::failed_precondition(text)
            }
            RegistrationError::Taken { .. } => Self::already_exists(text),
            RegistrationError::Full { .. } => Self::resource_exhausted(text),
            RegistrationError::NoSuchIndex { .. } | RegistrationError::Identity => {
                Self::invalid_argument(text)
            }
            RegistrationError::Unproven { .. } => Self::permission_denied(text),
        }
    }
}

impl From<StreamError> for Status {
    fn from(refusal: StreamError) -> Self {
        let text = refusal.to_string();
        match refusal {
            StreamError::Unknown => Self::unauthenticated(text),
            StreamError::Open => Self::already_exists(text),
        }
    }
}

#[tonic::async_trait]
impl Fusion for FusionService {
    type ReportStream = ReceiverStream<Result<v1::Acknowledgement, Status>>;
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::Fix, Status>> + Send>>;

    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterReply>, Status> {
        let proven = Peer::of(request.extensions())?.node(request.get_ref().index)?;
        let request = request.into_inner();
        let application = Application {
            protocol_version: request.protocol_version,
            identity: request.identity,
            index: proven.or(request.index).map(|index| index as usize),
            site_sha256: request.site_sha256.to_vec(),
            incarnation: request.incarnation,
            proven_index: proven.map(|index| index as usize),
        };
        if self.shutdown.is_cancelled() {
            return Err(Status::unavailable("shutting down"));
        }
        let (index, session) = self.node_table.register(&application).inspect_err(|refusal| {
            let (identity, refusal) = (clipped(&application.identity), clipped(&refusal.to_string()));
            telemetry::warn_limited!(identity, refusal, "node refused");
        })?;
        telemetry::info_limited!(identity = application.identity, index, "node registered");
        Ok(Response::new(v1::RegisterReply {
            index: index as u32,
            site: Some(self.site.message.clone()),
            site_sha256: self.site.sha256.to_vec().into(),
            session,
            instance: self.instance.clone(),
            credit: self.credit as u32,
            max_report_bytes: max_report_bytes(&self.system) as u64,
            payload: payload_to_wire(self.payload.kind) as i32,
            precision: precision_to_wire(self.payload.precision) as i32,
        }))
    }

    async fn report(
        &self,
        request: Request<Streaming<v1::FrameReport>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let proven = Peer::of(request.extensions()).and_then(|peer| peer.node(None));
        let proven = proven.inspect_err(|_| self.node_table.refused())?;
        let session = request.metadata().get(SESSION_KEY).and_then(|value| value.to_str().ok());
        let connected = match session {
            None => Err(Status::unauthenticated("no session: register first")),
            // A session is valid only together with the certificate of its index.
            Some(session) if proven.is_some_and(|proven| !self.node_table.belongs(session, proven)) => {
                Err(Status::unauthenticated("this session belongs to another certificate: register again"))
            }
            Some(session) => {
                self.node_table.connect(session).map(|node| (node, session.to_owned())).map_err(Status::from)
            }
        };
        let (node, session) = connected.inspect_err(|_| self.node_table.refused())?;
        telemetry::info_limited!(node, "node connected");
        let (sender, acknowledgements) = AcknowledgementSender::new(self.credit, node, self.requests.clone());
        let connection = ReportStream { service: self.clone(), node, session, acknowledgements: sender };
        // The task owns the session from here on, also if the caller goes away and this call is not completed.
        let (opened, is_open) = oneshot::channel();
        tokio::spawn(connection.run(request.into_inner(), opened));
        // The node learns that its stream is open when the engine waits for it: from its first frame on.
        is_open.await.map_err(|_| Status::unavailable("shutting down"))?;
        Ok(Response::new(ReceiverStream::new(acknowledgements)))
    }

    async fn truth(
        &self,
        request: Request<Streaming<v1::TruthRecord>>,
    ) -> Result<Response<v1::TruthSummary>, Status> {
        Peer::check(request.extensions(), Needs::Simulator)?;
        let mut records = request.into_inner();
        let Some(mut source) = self.truth.source() else {
            return Err(Status::resource_exhausted("too many streams of truth are open"));
        };
        let mut taken = 0;
        loop {
            let next = tokio::select! {
                next = records.message() => next?,
                () = self.shutdown.cancelled() => None,
            };
            let Some(record) = next else { break };
            let (frame, told) =
                TrueFrame::from_wire(record, self.system.irs_count()).map_err(Status::invalid_argument)?;
            if let Err(refusal) = source.tell(frame, told.clone()) {
                tracing::debug!(run = frame.run, frame = frame.frame, %refusal, "truth refused");
                continue;
            }
            if let Some(recorder) = &self.recording {
                recorder.truth(frame, &told, unix_time_ns());
            }
            taken += 1;
        }
        Ok(Response::new(v1::TruthSummary { taken }))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Peer::check(request.extensions(), Needs::Watcher)?;
        let address = Caller::of(request.extensions())?.address;
        let peer = address.map_or(Ipv4Addr::UNSPECIFIED.into(), |address| peer_key(address.ip()));
        let slot = self.watchers.join(peer);
        let slot = slot.ok_or_else(|| Status::resource_exhausted("too many watchers"))?;
        let mut fixes = self.viewer.watch().ok_or_else(|| Status::unavailable("shutting down"))?;
        let (sender, receiver) = mpsc::channel(WATCH_QUEUE);
        tokio::spawn(async move {
            let forward = async {
                loop {
                    match fixes.recv().await {
                        Ok(fix) => {
                            if sender.send(Ok(fix.to_wire())).await.is_err() {
                                return;
                            }
                        }
                        Err(RecvError::Lagged(missed)) => tracing::debug!(missed, "a watcher is too slow"),
                        Err(RecvError::Closed) => return,
                    }
                }
            };
            tokio::select! {
                () = forward => {}
                () = sender.closed() => {}
                () = slot.evicted.cancelled() => {
                    let reason = "closed: this address has too many watchers, and another one was opened";
                    // A watcher that does not read gets the error when it reads again.
                    let _ = sender.try_send(Err(Status::resource_exhausted(reason)));
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        Peer::check(request.extensions(), Needs::Watcher)?;
        let (counts, figures) = (self.node_table.counts(), self.viewer.figures());
        Ok(Response::new(v1::StatusReply {
            instance: self.instance.clone(),
            irs_count: self.system.irs_count() as u32,
            site_sha256: self.site.sha256.to_vec().into(),
            fixes: figures.fixes,
            frames_without_fix: figures.without_fix + counts.frames_minority,
            frames_shed: counts.load.frames_shed,
            nodes: self.node_table.nodes().into_iter().map(Into::into).collect(),
            refused_reports: counts.refused_reports,
            frames_offered: counts.load.frames_offered,
            frames_waiting: counts.load.frames_waiting as u32,
            oldest_waiting_ms: counts.load.oldest_waiting_ms as f64,
        }))
    }
}

/// The report stream of one node.
struct ReportStream {
    service: FusionService,
    node: usize,
    session: String,
    acknowledgements: AcknowledgementSender,
}

impl ReportStream {
    async fn run(self, mut reports: Streaming<v1::FrameReport>, opened: oneshot::Sender<()>) {
        let Self { service, node, .. } = &self;
        if service.events.send(Event::Presence { node: *node, present: true }).await.is_ok() {
            let _ = opened.send(());
        }
        let mut in_order = false;
        loop {
            let next = tokio::select! {
                biased;
                () = service.shutdown.cancelled() => break,
                next = reports.next() => next,
            };
            match next {
                None => {
                    in_order = true;
                    break;
                }
                Some(Ok(message)) => {
                    if !self.take(message).await {
                        break;
                    }
                }
                Some(Err(status)) => {
                    // The message was too large or not a report; a broken connection needs no answer.
                    if matches!(status.code(), tonic::Code::OutOfRange | tonic::Code::Internal) {
                        service.node_table.refused();
                        self.acknowledgements.fail(status.clone());
                    }
                    telemetry::info_limited!(node, reason = clipped(status.message()), "report stream ended");
                    break;
                }
            }
        }
        if service.node_table.disconnect(&self.session, *node, in_order) && !service.shutdown.is_cancelled() {
            telemetry::info_limited!(node, "node disconnected");
            let _ = service.events.send(Event::Presence { node: *node, present: false }).await;
        }
    }

    /// Passes a report on to the engine or refuses it; returns whether the stream continues.
    async fn take(&self, message: v1::FrameReport) -> bool {
        let (received_ns, arrived_ns) = (unix_time_ns(), steady_time_ns());
        let (service, node) = (&self.service, self.node);
        if !service.node_table.is_current(&self.session) {
            self.acknowledgements.fail(Status::aborted("this node has registered again"));
            return false;
        }
        let frame = FrameId { run: message.run, frame: message.frame };
        let Some(acknowledgement) = self.acknowledgements.expect(frame) else {
            service.node_table.refused();
            let reason = "more reports in flight than the credit allows";
            self.acknowledgements.fail(Status::resource_exhausted(reason));
            return false;
        };
        let (kept, paths) =
            (service.recording.as_ref().map(|_| message.clone()), message.blocks.len() as u64);
        match report_from_wire(message, node, &service.system) {
            Ok(report) => {
                let incoming =
                    Incoming { node, report, message: kept, received_ns, arrived_ns, acknowledgement };
                service.events.send(Event::Report(Box::new(incoming))).await.is_ok()
            }
            Err(error) => {
                telemetry::warn_limited!(node, error = clipped(&error.to_string()), "report refused");
                service.node_table.refused_paths(node, paths);
                acknowledgement.send(Fates { dropped: paths, ..Fates::default() }, &error.to_string());
                true
            }
        }
    }
}
