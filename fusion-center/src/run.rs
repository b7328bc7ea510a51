//! The process: checks settings, binds ports, serves, and drains when it is stopped.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use estimation::fusion::{Estimator, Method};
use model::System;
use proto::secret::secret;
use proto::site::SharedSite;
use proto::v1::fusion_server::FusionServer;
use proto::{DESCRIPTORS, HTTP2_WINDOW_BYTES};
use serde::Serialize;
use settings::{Layered, SettingsError};
use telemetry::exit::{self, Failure};
use telemetry::listener::bind;
use telemetry::listener::limits::{self, http2_server};
use telemetry::process::{self, Threads};
use telemetry::{Health, HostNames, Listener, Loss, Metrics, Started, follow_certificate, health, http};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tonic::service::interceptor::InterceptedService;
use tracing::field::display;
use trust::options::{grpc_acceptor, http_acceptor};
use trust::{Acceptor, Needs, Peer};

use crate::dashboard::{Control, Dashboard};
use crate::engine::Engine;
use crate::fix::FixRecord;
use crate::fix_log::{Existing, FixLog, LogQueue, is_stdout};
use crate::fix_metrics::FixMetrics;
use crate::low_priority;
use crate::node_table::{Counts, NodeTable, NodeView};
use crate::options::FusionOptions;
use crate::publish::{FixSink, Publisher, Viewer};
use crate::readiness;
use crate::recording::Recorder;
use crate::registry::Registry;
use crate::reply::SharedRequests;
use crate::service::FusionService;
use crate::solve::Solver;
use crate::statistics::Figures;
use crate::truth::TruthStore;
use crate::viewers::Viewers;

/// The name of this process in announcements.
const NAME: &str = "fusion-center";

/// Names of the files in health, metrics and the summary.
const FIXES_LOG: &str = "fixes log";
const RECORDING: &str = "recording";

/// Events that may wait for the engine; when the queue is full, HTTP/2 flow control holds the nodes back.
const EVENT_QUEUE: usize = 256;

/// How long connections may take to end by themselves.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The bound ports.
#[derive(Debug)]
pub struct FusionListeners {
    pub grpc: TcpListener,
    pub http: TcpListener,
}

impl FusionListeners {
    /// Binds the ports of `options`; the error names the address.
    pub async fn bind(options: &FusionOptions) -> anyhow::Result<Self> {
        Ok(Self { grpc: bind(options.listen).await?, http: bind(options.http_listen).await? })
    }
}

/// The summary that the process prints when it ends.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FusionSummary {
    pub role: &'static str,
    #[serde(flatten)]
    pub figures: Figures,
    #[serde(flatten)]
    pub counts: Counts,
    /// Paths that are not accounted for, over all nodes.
    pub unaccounted: i64,
    pub ledger: Vec<NodeView>,
    /// Files that do not contain everything, as after a full disk; known at the end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incomplete_files: Vec<Loss>,
}

impl FusionSummary {
    pub fn new(viewer: &Viewer, node_table: &NodeTable) -> Self {
        let ledger = node_table.nodes();
        Self {
            role: NAME,
            figures: viewer.figures(),
            counts: node_table.counts(),
            unaccounted: ledger
                .iter()
                .fold(0, |sum: i64, node| sum.saturating_add(node.balance.unaccounted.saturating_abs())),
            ledger,
            incomplete_files: Vec::new(),
        }
    }

    /// Why the run is not a success although it ended in order.
    fn failure(&self) -> Option<Failure> {
        let said = |loss: &Loss| format!("{}: {} ({} entries are lost)", loss.part, loss.reason, loss.lost);
        let said: Vec<String> = self.incomplete_files.iter().map(said).collect();
        (!said.is_empty()).then(|| Failure::new(exit::IO, said.join("; ")))
    }
}

/// Checks the settings, binds the ports and works until SIGTERM or SIGINT.
pub fn main(arguments: &Layered<FusionOptions>) -> ExitCode {
    let options = &arguments.options;
    let prepare = || {
        let site = options.load()?;
        let solver = Solver::new(&site, &options.method)
            .map_err(|error| SettingsError::Options(format!("the method does not suit the site: {error}")))?;
        Ok::<_, SettingsError>((site, solver))
    };
    let (site, solver) = match process::prepare(NAME, arguments.printed(), prepare) {
        Ok(prepared) => prepared,
        Err(code) => return code,
    };
    if options.fixes.as_deref().is_some_and(is_stdout) {
        telemetry::reserve_stdout();
    }
    let sockets = std::thread::available_parallelism().map_or(1, usize::from);
    // Besides solvers: the likelihood that a viewer asks for, a request to the simulator, names of hosts, the end.
    let threads = Threads { sockets, blocking: options.engine.workers() + 4 };
    process::run(NAME, threads, async |shutdown| {
        let listeners = FusionListeners::bind(options).await?;
        let summary = serve(options.clone(), site, solver, listeners, shutdown, Started::announce).await?;
        match summary.failure() {
            None => Ok(summary),
            Some(failure) => {
                telemetry::print_json(&summary);
                Err(failure.into())
            }
        }
    })
}

/// Serves a site until `shutdown`, drains, and returns the summary.
pub async fn run(
    options: FusionOptions,
    site: System,
    listeners: FusionListeners,
    shutdown: CancellationToken,
) -> anyhow::Result<FusionSummary> {
    let solver = Solver::new(&site, &options.method)?;
    serve(options, site, solver, listeners, shutdown, |_| ()).await
}

/// Like [`run`], with another estimator, which gets frames of the payload that `options` select. It solves single frames
/// only: batches are ignored, and a replay of a recording uses the built-in estimator.
pub async fn run_with(
    estimator: Box<dyn Estimator>,
    options: FusionOptions,
    site: System,
    listeners: FusionListeners,
    shutdown: CancellationToken,
) -> anyhow::Result<FusionSummary> {
    serve(options, site, Solver::with_estimator(estimator), listeners, shutdown, |_| ()).await
}

async fn serve(
    options: FusionOptions,
    site: System,
    solver: Solver,
    listeners: FusionListeners,
    shutdown: CancellationToken,
    announce: fn(&Started),
) -> anyhow::Result<FusionSummary> {
    let identity = options.identity()?;
    options.tls.warn(&options.listens());
    let site = Arc::new(SharedSite::new(site)?);
    let count = site.system.irs_count();
    let payload = options.method.payload(&site.system);
    tracing::info!(
        payload = payload.kind.name(),
        precision = payload.precision.name(),
        "nodes are asked to send"
    );
    if let Some(reason) = site.system.needs_direct().filter(|_| options.method.method != Method::ThreeStage) {
        tracing::info!("fixes are located directly: {reason}");
    }
    if solver.lacks_direct() {
        tracing::warn!("the coverage area is too large for the direct method: three-stage fixes only");
    }
    let system = Arc::new(site.system.clone());
    let (metrics, health) = (Metrics::new(), Health::new());
    let truth = TruthStore::default();
    // The fix log and the recording are opened before anything is written to either.
    let part = |name| health.degradations.part(name, &metrics);
    let fixes = options.fixes.as_deref();
    let log = fixes.map(|path| FixLog::open(path, Existing::Append, part(FIXES_LOG))).transpose()?;
    let record = options.record.as_deref();
    let record = record.map(|directory| Recorder::start(directory, &site, &options.method, part(RECORDING)));
    let recorder = record.transpose()?;
    let tracks = solver.tracks(&options.method)?;
    let log = log.map(|log| LogQueue::start(log, shutdown.clone(), false)).transpose()?;
    let mut observed = FixMetrics::new(&metrics);
    let mut sinks: Vec<FixSink> = vec![Box::new(move |fix: &FixRecord| observed.observe(fix))];
    if let Some(mut recorded) = recorder.as_ref().map(Recorder::fix_recorder) {
        sinks.push(Box::new(move |fix: &FixRecord| recorded.fix(fix)));
    }
    let (publisher, publisher_thread) = Publisher::start(system.clone(), truth.clone(), tracks, log, sinks)?;
    let viewer = publisher.viewer();
    let instance = secret();
    let node_table = NodeTable::new(Registry::new(count, &site.sha256), count, &metrics);
    let (events, incoming) = mpsc::channel(EVENT_QUEUE);
    let requests = SharedRequests::new(count);
    let service = FusionService {
        site: site.clone(),
        system: system.clone(),
        instance,
        credit: options.credit,
        requests: requests.clone(),
        payload,
        recording: recorder.as_ref().map(Recorder::truth_recorder),
        events,
        node_table: node_table.clone(),
        truth,
        viewer: viewer.clone(),
        watchers: Viewers::default(),
        shutdown: shutdown.clone(),
    };
    let likelihoods = solver.likelihoods();
    let engine =
        Engine::new(solver, count, options.engine, node_table.clone(), publisher, recorder, requests);
    let engine = tokio::spawn(engine.run(incoming, shutdown.clone()));

    let addresses = Started {
        grpc: listeners.grpc.local_addr().ok(),
        http: listeners.http.local_addr().ok(),
        ..Started::new(NAME)
    };
    let drained = CancellationToken::new();
    let control = Control::new(options.control, identity.clone());
    let shown = (&*system, site.short_hash());
    let dashboard = Dashboard::new(viewer.clone(), node_table.clone(), shown, control, likelihoods);
    let names = HostNames::new(&options.names.http_name);
    let acceptor = http_acceptor(identity.as_ref(), listeners.http.local_addr());
    let page = serve_page((listeners.http, acceptor), names, &metrics, &health, dashboard, &drained)?;
    let grpc =
        Listener::new(listeners.grpc, limits::GRPC, &metrics).secured(grpc_acceptor(identity.as_ref()));
    if let Some(identity) = &identity {
        follow_certificate(identity, &health, &drained);
    }
    let grpc = serve_grpc(grpc, service, &health, &drained).await?;
    let servers = async { tokio::join!(page, grpc) };
    let (at, http) = (addresses.grpc.map(display), addresses.http.map(display));
    tracing::info!(irs = count, site = site.short_hash(), grpc = at, http, "ready");
    announce(&addresses);
    health.ready();

    let watched = tokio::spawn(readiness::watch(node_table.clone(), health.clone(), shutdown.clone()));
    let recorder = engine.await?;
    watched.abort();
    health.not_ready("shutting down");
    let finish = || {
        let published = publisher_thread.finish();
        recorder.into_iter().for_each(Recorder::finish);
        published
    };
    tokio::task::spawn_blocking(finish).await??;
    let incomplete_files = health.degradations.losses();
    let summary = FusionSummary { incomplete_files, ..FusionSummary::new(&viewer, &node_table) };
    drained.cancel();
    if tokio::time::timeout(CLOSE_TIMEOUT, servers).await.is_err() {
        tracing::warn!("some connections did not end by themselves");
    }
    tracing::info!(fixes = summary.figures.fixes, unaccounted = summary.unaccounted, "drained");
    Ok(summary)
}

/// Starts the gRPC server; the future completes when it ends.
async fn serve_grpc(
    listener: Listener,
    service: FusionService,
    health: &Health,
    drained: &CancellationToken,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let limit = 2 * proto::convert::max_report_bytes(&service.system);
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let reflection = InterceptedService::new(reflection, |request: Request<()>| {
        Peer::check(request.extensions(), Needs::Watcher)?;
        Ok(request)
    });
    let grpc_health = health::grpc_service(health.clone(), &["hyloc.v1.Fusion"], drained.clone()).await;
    let grpc = http2_server()
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES)
        .add_service(FusionServer::new(service).max_decoding_message_size(limit))
        .add_service(grpc_health)
        .add_service(reflection)
        .serve_with_incoming_shutdown(listener.incoming(), drained.clone().cancelled_owned());
    let grpc = tokio::spawn(grpc);
    Ok(async move {
        if let Ok(Err(error)) = grpc.await {
            tracing::error!(%error, "the gRPC server failed");
        }
    })
}

/// Starts the server of page, API, metrics and health; the future completes when it ends.
fn serve_page(
    (listener, acceptor): (TcpListener, Acceptor),
    names: HostNames,
    metrics: &Metrics,
    health: &Health,
    dashboard: Dashboard,
    drained: &CancellationToken,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let routes = http::routes(metrics.clone(), health.clone());
    let (shutdown, metrics) = (drained.clone(), metrics.clone());
    let serve = async move |listener| {
        let listener = Listener::new(listener, limits::HTTP, &metrics).secured(acceptor);
        http::serve(listener, names, routes.merge(dashboard.start()), shutdown).await;
        Ok(())
    };
    let page = listener.into_std().and_then(|listener| low_priority::start(listener, serve));
    let page = page.context("the page cannot be served")?;
    Ok(async {
        if let Err(error) = page.await {
            tracing::error!(%error, "the HTTP server failed");
        }
    })
}
