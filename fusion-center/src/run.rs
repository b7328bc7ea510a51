//! The life of the process: settings, ports, work, drain.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use estimation::fusion::{Fuser, Method};
use model::System;
use proto::clock::unix_time_ns;
use proto::site::SharedSite;
use proto::v1::fusion_server::FusionServer;
use proto::{DESCRIPTORS, HTTP2_WINDOW_BYTES};
use serde::Serialize;
use settings::Layered;
use telemetry::{Health, Metrics, Started, health, http, process};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;

use crate::dashboard::{Dashboard, SiteView};
use crate::engine::Engine;
use crate::low_priority;
use crate::node_table::{Counts, NodeTable, NodeView};
use crate::options::FusionOptions;
use crate::publish::{Publisher, Viewer};
use crate::recording::Recorder;
use crate::registry::Registry;
use crate::service::FusionService;
use crate::statistics::Figures;
use crate::truth::TruthStore;

/// The name of this process in announcements.
const NAME: &str = "fusion-center";

/// Events that may wait for the engine; behind it HTTP/2 flow control holds the nodes back.
const EVENT_QUEUE: usize = 256;

/// How long connections get to end by themselves.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why the process ends early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The file system or the network refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What was said.
        source: std::io::Error,
    },
    /// Anything else, as a sentence.
    #[error("{0}")]
    Other(String),
}

impl RunError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }

    fn other(error: impl std::fmt::Display) -> Self {
        Self::Other(error.to_string())
    }
}

/// The ports, bound by the caller.
#[derive(Debug)]
pub struct Listeners {
    /// For gRPC.
    pub grpc: TcpListener,
    /// For HTTP.
    pub http: TcpListener,
}

impl Listeners {
    /// Binds the ports of `options`.
    pub async fn bind(options: &FusionOptions) -> Result<Self, RunError> {
        let bind = async |address: SocketAddr| {
            TcpListener::bind(address).await.map_err(RunError::io(format!("cannot listen on {address}")))
        };
        Ok(Self { grpc: bind(options.listen).await?, http: bind(options.http_listen).await? })
    }
}

/// What the process did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FusionSummary {
    /// `fusion-center`.
    pub role: &'static str,
    /// Fixes, error, latency.
    #[serde(flatten)]
    pub figures: Figures,
    /// Frames shed, refused reports.
    #[serde(flatten)]
    pub counts: Counts,
    /// What does not balance, over all nodes.
    pub unaccounted: i64,
    /// The account of every node.
    pub ledger: Vec<NodeView>,
}

impl FusionSummary {
    /// As things stand.
    pub fn new(viewer: &Viewer, node_table: &NodeTable) -> Self {
        let ledger = node_table.nodes();
        Self {
            role: NAME,
            figures: viewer.figures(),
            counts: node_table.counts(),
            unaccounted: ledger.iter().map(|node| node.balance.unaccounted.abs()).sum(),
            ledger,
        }
    }
}

/// The process: settings first, then ports, then work until SIGTERM or SIGINT.
pub fn main(arguments: &Layered<FusionOptions>) -> ExitCode {
    let options = &arguments.options;
    let site = match process::prepare(NAME, arguments.printed(), || options.load()) {
        Ok(site) => site,
        Err(code) => return code,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    process::run(NAME, threads, async |shutdown| {
        let listeners = Listeners::bind(options).await?;
        Ok(run(options.clone(), site, listeners, shutdown).await?)
    })
}

/// Serves a site until `shutdown`, drains, and sums up.
pub async fn run(
    options: FusionOptions,
    site: System,
    listeners: Listeners,
    shutdown: CancellationToken,
) -> Result<FusionSummary, RunError> {
    let site = Arc::new(SharedSite::new(site).map_err(RunError::other)?);
    let count = site.system.irs_count();
    let payload = options.method.payload();
    tracing::info!(payload = ?payload.kind, precision = payload.precision.name(), "nodes are asked to send");
    let fuser = Arc::new(Fuser::new(site.system.clone(), options.method.fusion()).map_err(RunError::other)?);
    if options.method.method == Method::Auto && !fuser.has_direct() {
        tracing::warn!("the coverage area is too large for the direct method: three-stage fixes only");
    }
    let system = Arc::new(fuser.system().clone());
    let (metrics, health) = (Metrics::new(), Health::new());
    let truth = TruthStore::default();
    let (publisher, publisher_thread) =
        Publisher::start(system.clone(), truth.clone(), options.fixes.as_deref())
            .map_err(RunError::io("the fix log cannot be opened"))?;
    let viewer = publisher.viewer();
    let recorder = match &options.record {
        Some(directory) => Some(Recorder::start(directory, &site, &options.method).map_err(RunError::other)?),
        None => None,
    };
    let instance = format!("{:x}", unix_time_ns());
    let node_table = NodeTable::new(Registry::new(count, &site.sha256, &instance), count, &metrics);
    let (events, incoming) = mpsc::channel(EVENT_QUEUE);
    let service = FusionService {
        site: site.clone(),
        system: system.clone(),
        instance,
        credit: options.credit,
        payload,
        recording: recorder.as_ref().map(Recorder::truth_recorder),
        events,
        node_table: node_table.clone(),
        truth,
        viewer: viewer.clone(),
        shutdown: shutdown.clone(),
    };
    let engine = Engine::new(fuser, options.engine, node_table.clone(), publisher, recorder);
    let engine = tokio::spawn(engine.run(incoming, shutdown.clone()));

    let addresses = Started {
        grpc: listeners.grpc.local_addr().ok(),
        http: listeners.http.local_addr().ok(),
        ..Started::new(NAME)
    };
    let drained = CancellationToken::new();
    let shown = SiteView::new(&system, site.short_hash());
    let dashboard = Dashboard::new(viewer.clone(), node_table.clone(), shown, options.control);
    let page = serve_page(listeners.http, &metrics, &health, dashboard, &drained)?;
    let grpc = serve_grpc(listeners.grpc, service, &health, &drained).await?;
    let servers = async { tokio::join!(page, grpc) };
    tracing::info!(irs = count, site = site.short_hash(), ?addresses, "ready");
    addresses.announce();
    health.ready();

    engine.await.map_err(RunError::other)?;
    health.not_ready("shutting down");
    tokio::task::spawn_blocking(|| publisher_thread.finish())
        .await
        .map_err(RunError::other)?
        .map_err(RunError::io("the fix log cannot be written"))?;
    let summary = FusionSummary::new(&viewer, &node_table);
    drained.cancel();
    if tokio::time::timeout(FAREWELL, servers).await.is_err() {
        tracing::warn!("some connections did not end by themselves");
    }
    tracing::info!(fixes = summary.figures.fixes, unaccounted = summary.unaccounted, "drained");
    Ok(summary)
}

/// Starts the gRPC server; the future ends with it.
async fn serve_grpc(
    listener: TcpListener,
    service: FusionService,
    health: &Health,
    drained: &CancellationToken,
) -> Result<impl Future<Output = ()> + use<>, RunError> {
    let limit = 2 * proto::convert::max_report_bytes(&service.system);
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(RunError::other)?;
    let grpc_health = health::grpc_service(health.clone(), &["hyloc.v1.Fusion"], drained.clone()).await;
    let grpc = tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES)
        .http2_keepalive_interval(Some(Duration::from_secs(1)))
        .http2_keepalive_timeout(Some(Duration::from_secs(2)))
        .add_service(FusionServer::new(service).max_decoding_message_size(limit))
        .add_service(grpc_health)
        .add_service(reflection)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), drained.clone().cancelled_owned());
    let grpc = tokio::spawn(grpc);
    Ok(async move {
        if let Ok(Err(error)) = grpc.await {
            tracing::error!(%error, "the gRPC server failed");
        }
    })
}

/// Starts the page, its API, metrics and health; the future ends with them.
fn serve_page(
    listener: TcpListener,
    metrics: &Metrics,
    health: &Health,
    dashboard: Dashboard,
    drained: &CancellationToken,
) -> Result<impl Future<Output = ()> + use<>, RunError> {
    let routes = http::routes(metrics.clone(), health.clone());
    let shutdown = drained.clone();
    let serve = |listener| http::serve(listener, routes.merge(dashboard.start()), shutdown);
    let page = listener.into_std().and_then(|listener| low_priority::start(listener, serve));
    let page = page.map_err(RunError::io("the page cannot be served"))?;
    Ok(async {
        if let Err(error) = page.await {
            tracing::error!(%error, "the HTTP server failed");
        }
    })
}
