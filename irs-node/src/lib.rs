//! The node at one IRS: registers with the fusion center, takes echo frames from the simulator, a pusher or a file, estimates the
//! delay and the block of every path by matched filter, and reports them.
//!
//! The `reporter` maintains the connection to the fusion center, the `worker` turns frames into
//! reports, and the [`outbox`] between them contains what is not decided yet. A node does not stop when it loses
//! either connection; memory stays bounded and what is dropped is counted.

mod credentials;
mod echoes;
mod file_run;
mod metrics;
pub mod options;
pub mod outbox;
mod reporter;
pub mod stride;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use proto::echo::EchoesService;
use serde::Serialize;
use settings::{EndpointOptions, Layered, SettingsError};
use telemetry::exit::{self, Failure};
use telemetry::listener::{bind_some, limits};
use telemetry::process::Threads;
use telemetry::{Endpoints, Health, Listener, Metrics, Started, process};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use trust::options::grpc_acceptor;

use credentials::Credentials;
pub use file_run::FileEnd;
use metrics::{NodeMetrics, Readiness};
pub use options::{NodeOptions, ROLE};
use outbox::{Outbox, Totals};
use reporter::Reporter;
use worker::NodeContext;

/// Frames are filtered, files read and hosts looked up by threads that block.
const THREADS: Threads = Threads { sockets: 2, blocking: 4 };

/// Why a node ends before it is told to.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("refused by the fusion center: {0}")]
    Refused(String),
    #[error("no matched filter for this site: {0}")]
    Estimator(String),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("a task of the node failed: {0}")]
    Task(#[from] tokio::task::JoinError),
    #[error("echoes cannot be taken: {0}")]
    Echoes(String),
}

/// The bound ports.
#[derive(Debug, Default)]
pub struct NodeListeners {
    pub endpoints: Endpoints,
    /// Where echo frames are pushed into the node; none if it takes them from the simulator.
    pub echo: Option<TcpListener>,
}

impl NodeListeners {
    /// Binds the ports of `options`; the error names the address.
    pub async fn bind(options: &NodeOptions) -> anyhow::Result<Self> {
        let EndpointOptions { http_listen, health_listen, names } = &options.endpoints;
        let endpoints = Endpoints::bind(*http_listen, *health_listen).await?.with_names(&names.http_name);
        Ok(Self { endpoints, echo: bind_some(options.echo_listen).await? })
    }

    /// The start line with these addresses.
    pub fn started(&self) -> Started {
        let echo = self.echo.as_ref().and_then(|listener| listener.local_addr().ok());
        Started { echo, ..self.endpoints.started(ROLE) }
    }
}

impl From<Endpoints> for NodeListeners {
    fn from(endpoints: Endpoints) -> Self {
        Self { endpoints, echo: None }
    }
}

/// The summary that a node prints when it ends: the fates of its paths as decided by the last instance of the fusion
/// center.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeSummary {
    pub role: &'static str,
    /// None if no index was assigned.
    pub index: Option<u32>,
    #[serde(flatten)]
    pub totals: Totals,
    /// The file that the echoes came from, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub echoes: Option<FileEnd>,
}

impl NodeSummary {
    /// Why the run is not a success although it ended in order.
    fn failure(&self) -> Option<Failure> {
        let FileEnd { frames, fault, .. } = self.echoes.as_ref()?;
        let fault = fault.as_ref()?;
        Some(Failure::new(exit::DATA, format!("{fault}; {frames} frames before it were processed")))
    }
}

/// Checks the settings, binds the ports and works until SIGTERM or SIGINT, or until the file of echoes has ended.
pub fn main(arguments: &Layered<NodeOptions>) -> ExitCode {
    let options = match process::prepare(ROLE, arguments.printed(), || arguments.options.clone().check()) {
        Ok(options) => options,
        Err(code) => return code,
    };
    process::run(ROLE, THREADS, async |shutdown| {
        let listeners = NodeListeners::bind(&options).await?;
        listeners.started().announce();
        let ended = run(options, listeners, shutdown).await;
        let summary = ended.map_err(|error| match error {
            NodeError::Refused(_) => Failure::new(exit::DATA, error).into(),
            other => anyhow::Error::from(other),
        })?;
        match summary.failure() {
            None => Ok(summary),
            Some(failure) => {
                telemetry::print_json(&summary);
                Err(failure.into())
            }
        }
    })
}

/// Runs a node until `shutdown`, or until its file of echoes has ended; then it sends what it has and waits for acknowledgements, in bounded time.
pub async fn run(
    options: NodeOptions,
    listeners: impl Into<NodeListeners>,
    shutdown: CancellationToken,
) -> Result<NodeSummary, NodeError> {
    let NodeListeners { endpoints, echo } = listeners.into();
    let (registry, health) = (Metrics::new(), Health::new());
    let stop_serving = CancellationToken::new();
    let credentials = Credentials::load(&options)?;
    options.tls.warn(&options.listens());
    credentials.follow(&health, &stop_serving);
    let endpoints = endpoints.secured(credentials.identity());
    let serving = endpoints.serve(registry.clone(), health.clone(), stop_serving.clone());
    let echoes = echo.as_ref().map(|_| EchoesService::default());
    let _pushes = match echo.zip(echoes.clone()) {
        Some((listener, service)) => {
            let acceptor = grpc_acceptor(credentials.identity());
            let listener = Listener::new(listener, limits::GRPC, &registry).secured(acceptor);
            let served = echoes::serve(listener, service, health.clone(), stop_serving.clone()).await;
            Some(served.map_err(|error| NodeError::Echoes(error.to_string()))?)
        }
        None => None,
    };
    let context = NodeContext {
        outbox: Arc::new(tokio::sync::watch::Sender::new(Outbox::new(options.queue))),
        stride: Arc::default(),
        clock_offset_s: Arc::default(),
        metrics: NodeMetrics::new(&registry),
        readiness: Readiness::new(health),
        options: Arc::new(options),
        credentials,
        echoes,
    };
    let ended = work_and_report(&context, shutdown).await;
    stop_serving.cancel();
    serving.ended().await;
    ended
}

async fn work_and_report(
    context: &NodeContext,
    shutdown: CancellationToken,
) -> Result<NodeSummary, NodeError> {
    let (assign, assignments) = tokio::sync::watch::channel(None);
    let index = assignments.clone();
    let finish = CancellationToken::new();
    let reporter = Reporter::new(context.clone(), assign).run(finish.clone());
    let mut reporter = AbortOnDropHandle::new(tokio::spawn(reporter));
    let work = context.clone().work(assignments, shutdown.clone());
    let mut worker = AbortOnDropHandle::new(tokio::spawn(work));
    let echoes = tokio::select! {
        ended = &mut reporter => return Err(refusal(ended?)),
        worked = &mut worker => worked??,
    };
    // Shutting down: no more echoes are received, what is queued is sent. After the end of a file nobody is in a hurry.
    let drained = async {
        let mut outbox = context.outbox.subscribe();
        if echoes.is_some() {
            tokio::select! {
                _ = outbox.wait_for(Outbox::is_empty) => {}
                () = shutdown.cancelled() => {}
            }
        }
        let _ = tokio::time::timeout(context.options.drain_timeout, outbox.wait_for(Outbox::is_empty)).await;
    };
    tokio::select! {
        ended = &mut reporter => return Err(refusal(ended?)),
        () = drained => {}
    }
    finish.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), reporter).await;
    context.outbox.send_modify(|outbox| {
        context.metrics.paths_dropped_at_node.inc_by(outbox.give_up_waiting());
    });
    let index = index.borrow().as_ref().map(|assignment| assignment.index);
    Ok(NodeSummary { role: ROLE, index, totals: context.outbox.borrow().totals(), echoes })
}

fn refusal(ended: Result<(), NodeError>) -> NodeError {
    ended.err().unwrap_or_else(|| NodeError::Refused("the connection was ended".into()))
}
