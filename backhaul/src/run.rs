//! The life of the process: settings, self-measurement, ports, work, end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use telemetry::{Endpoints, Health, Metrics, Started, exit, process};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::control::{self, Action};
use crate::measure::PlanRefused;
use crate::options::{ROLE, RelayArguments, RelayOptions, read_plan};
use crate::plan::Plan;
use crate::relay::Relay;
use crate::report;

/// How often the plan's file is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Why the process ends early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The network or the system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What was said.
        source: std::io::Error,
    },
    /// The relay cannot do what it is asked to.
    #[error(transparent)]
    Refused(#[from] PlanRefused),
}

impl RunError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
}

/// The ports, bound by the caller.
#[derive(Debug)]
pub struct Listeners {
    /// For all nodes.
    pub common: Option<TcpListener>,
    /// For single links.
    pub links: Vec<(String, TcpListener)>,
    /// For the control.
    pub control: TcpListener,
    /// For `/metrics` and `/health`.
    pub watched: Endpoints,
}

impl Listeners {
    /// Binds the ports of `options`.
    pub async fn bind(options: &RelayOptions) -> Result<Self, RunError> {
        let bind = async |address: SocketAddr| {
            TcpListener::bind(address).await.map_err(RunError::io(format!("cannot listen on {address}")))
        };
        let mut links = Vec::new();
        for (name, address) in &options.link {
            links.push((name.clone(), bind(*address).await?));
        }
        let common = match options.listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        Ok(Self {
            common,
            links,
            control: bind(options.control_listen).await?,
            watched: Endpoints::bind(options.http_listen, None)
                .await
                .map_err(RunError::io("cannot listen"))?,
        })
    }
}

/// What the process says at its end.
#[derive(Debug, Serialize)]
pub struct RelaySummary {
    /// `backhaul`.
    pub role: &'static str,
    /// Links at the end.
    pub links: Vec<crate::relay::LinkView>,
}

/// The process: settings first, then ports, then work until SIGTERM or SIGINT. With an action, it asks a relay
/// that runs, or measures this machine.
pub fn main(arguments: &RelayArguments) -> ExitCode {
    let options = &arguments.layered.options;
    match &arguments.action {
        Some(Action::Measure { profiles }) => return report::main(profiles),
        Some(action) => return ask(action, options.control_listen),
        None => {}
    }
    let plan = match process::prepare(ROLE, arguments.layered.printed(), || options.load()) {
        Ok(plan) => plan,
        Err(code) => return code,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    process::run(ROLE, threads, async |shutdown| {
        let listeners = Listeners::bind(options).await?;
        Ok(run(options.clone(), plan, listeners, shutdown).await?)
    })
}

/// Asks a relay that runs, at its control.
fn ask(action: &Action, control: SocketAddr) -> ExitCode {
    match action.perform(control) {
        Ok(text) => {
            telemetry::print_text(&text);
            ExitCode::from(exit::CLEAN)
        }
        Err(reason) => {
            telemetry::complain(ROLE, &reason);
            ExitCode::from(exit::FAILED)
        }
    }
}

/// Measures, then relays until `shutdown`.
pub async fn run(
    options: RelayOptions,
    plan: Plan,
    listeners: Listeners,
    shutdown: CancellationToken,
) -> Result<RelaySummary, RunError> {
    let (metrics, health) = (Metrics::new(), Health::new());
    let bound = |(name, listener): &(String, TcpListener)| Some((name.clone(), listener.local_addr().ok()?));
    let started = Started {
        grpc: listeners.common.as_ref().and_then(|listener| listener.local_addr().ok()),
        control: listeners.control.local_addr().ok(),
        links: listeners.links.iter().filter_map(bound).collect(),
        ..listeners.watched.started(ROLE)
    };
    let control = listeners.control.local_addr().map_err(RunError::io("control"))?;
    if !control.ip().is_loopback() {
        tracing::warn!(%control, "whoever reaches the control can cut links");
    }
    let watched = listeners.watched.serve(metrics.clone(), health.clone(), shutdown.clone());
    let names = options.link.iter().map(|(name, _)| name.clone());
    let plan = (plan, options.trust());
    let relay = Relay::new(&options.fusion, plan, options.seed, names, &metrics).await?;

    let mut tasks = JoinSet::new();
    let routes = control::routes(relay.clone(), options.profile.clone(), metrics, health.clone());
    let served = telemetry::http::serve(listeners.control, routes, shutdown.clone());
    tasks.spawn(async move {
        if let Err(error) = served.await {
            tracing::error!(%error, "the control ended");
        }
    });
    if let Some(common) = listeners.common {
        tasks.spawn(relay.clone().serve(common, None, shutdown.clone()));
    }
    for (name, listener) in listeners.links {
        tasks.spawn(relay.clone().serve(listener, Some(name), shutdown.clone()));
    }
    if let Some(file) = options.plan {
        tasks.spawn(follow(file, options.profile, relay.clone(), shutdown.clone()));
    }
    tracing::info!(?started, %control, fusion = options.fusion, "ready");
    started.announce();
    health.ready();

    shutdown.cancelled().await;
    health.not_ready("shutting down");
    let summary = RelaySummary { role: ROLE, links: relay.links() };
    // A connection to the control that stays open does not hold up the end.
    let _ = tokio::time::timeout(Duration::from_millis(500), tasks.join_all()).await;
    watched.ended().await;
    Ok(summary)
}

/// Follows the plan's file: on SIGHUP, and when it changes. What cannot be used changes nothing.
async fn follow(file: PathBuf, profile: String, relay: Relay, shutdown: CancellationToken) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => return tracing::error!(%error, "the plan will not be read again"),
    };
    let mut known = stamp(&file);
    loop {
        let told = tokio::select! {
            () = shutdown.cancelled() => return,
            _ = hangup.recv() => true,
            () = tokio::time::sleep(LOOK) => false,
        };
        let now = stamp(&file);
        if !told && (now == known || now.is_none()) {
            continue;
        }
        known = now;
        let path = file.display();
        match read_plan(Some(&file), &profile) {
            Ok(plan) => {
                if let Err(error) = relay.apply(plan).await {
                    tracing::error!(%path, %error, "the plan is not followed; the old one still is");
                }
            }
            Err(error) => tracing::error!(%error, "the plan is not followed; the old one still is"),
        }
    }
}

fn stamp(file: &PathBuf) -> Option<(SystemTime, u64)> {
    let data = std::fs::metadata(file).ok()?;
    Some((data.modified().ok()?, data.len()))
}
