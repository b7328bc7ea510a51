//! The node at one IRS: registers with the fusion center, takes echo frames from the simulator, estimates the
//! delay and the block of every path by matched filter, and reports them.
//!
//! The `reporter` maintains the connection to the fusion center, the `worker` turns frames into
//! reports, and the [`outbox`] between them contains what is not decided yet. A node does not stop when it loses
//! either connection; memory stays bounded and what is dropped is counted.

mod credentials;
mod metrics;
pub mod options;
pub mod outbox;
mod reporter;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use settings::{EndpointOptions, Layered, SettingsError};
use telemetry::exit::{self, Failure};
use telemetry::{Endpoints, Health, Metrics, process};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use credentials::Credentials;
use metrics::{NodeMetrics, Readiness};
pub use options::{NodeOptions, ROLE};
use outbox::{Outbox, Totals};
use reporter::Reporter;
use worker::NodeContext;

/// Threads for sockets and timers; frames are filtered on others.
const THREADS: usize = 2;

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
}

/// Checks the settings, binds the ports and works until SIGTERM or SIGINT.
pub fn main(arguments: &Layered<NodeOptions>) -> ExitCode {
    let options = match process::prepare(ROLE, arguments.printed(), || arguments.options.clone().check()) {
        Ok(options) => options,
        Err(code) => return code,
    };
    process::run(ROLE, THREADS, async |shutdown| {
        let EndpointOptions { http_listen, health_listen, names } = &options.endpoints;
        let endpoints = Endpoints::bind(*http_listen, *health_listen).await?.with_names(&names.http_name);
        endpoints.started(ROLE).announce();
        run(options, endpoints, shutdown).await.map_err(|error| match error {
            NodeError::Refused(_) => Failure::new(exit::DATA, error).into(),
            other => other.into(),
        })
    })
}

/// Runs a node until `shutdown`; then it sends what it has and waits for acknowledgements, in bounded time.
pub async fn run(
    options: NodeOptions,
    endpoints: Endpoints,
    shutdown: CancellationToken,
) -> Result<NodeSummary, NodeError> {
    let (registry, health) = (Metrics::new(), Health::new());
    let stop_serving = CancellationToken::new();
    let credentials = Credentials::load(&options)?;
    options.tls.warn(&options.listens());
    credentials.follow(&health, &stop_serving);
    let endpoints = endpoints.secured(credentials.identity());
    let serving = endpoints.serve(registry.clone(), health.clone(), stop_serving.clone());
    let context = NodeContext {
        outbox: Arc::new(tokio::sync::watch::Sender::new(Outbox::new(options.queue))),
        metrics: NodeMetrics::new(&registry),
        readiness: Readiness::new(health),
        options: Arc::new(options),
        credentials,
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
    let mut worker = AbortOnDropHandle::new(tokio::spawn(context.clone().work(assignments, shutdown)));
    tokio::select! {
        ended = &mut reporter => return Err(refusal(ended?)),
        worked = &mut worker => worked??,
    }
    // Shutting down: no more echoes are received, what is queued is sent.
    let mut outbox = context.outbox.subscribe();
    tokio::select! {
        ended = &mut reporter => return Err(refusal(ended?)),
        _ = tokio::time::timeout(context.options.drain_timeout, outbox.wait_for(Outbox::is_empty)) => {}
    }
    finish.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(1), reporter).await;
    context.outbox.send_modify(|outbox| {
        context.metrics.paths_dropped_at_node.inc_by(outbox.give_up_waiting());
    });
    let index = index.borrow().as_ref().map(|assignment| assignment.index);
    Ok(NodeSummary { role: ROLE, index, totals: context.outbox.borrow().totals() })
}

fn refusal(ended: Result<(), NodeError>) -> NodeError {
    ended.err().unwrap_or_else(|| NodeError::Refused("the connection was ended".into()))
}
