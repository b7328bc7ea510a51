//! The process: settings, ports, self-measurement, relaying, shutdown.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use telemetry::exit::{self, Failure};
use telemetry::listener::{Limiter, bind, bind_some, limits};
use telemetry::process::Threads;
use telemetry::{Endpoints, Health, HostNames, Listener, Metrics, Started, follow_certificate, process};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::field::display;
use trust::Identity;
use trust::options::http_acceptor;

use crate::control::{self, Action};
use crate::measure::PlanRefused;
use crate::options::{ROLE, RelayArguments, RelayOptions, read_plan};
use crate::plan::Plan;
use crate::relay::Relay;
use crate::report;

/// Interval at which the plan file is checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The bound ports: one for all nodes, those of single links, the control interface, and `/metrics` with `/health`.
#[derive(Debug)]
pub struct RelayListeners {
    pub common: Option<TcpListener>,
    pub links: Vec<(String, TcpListener)>,
    /// None unless control is allowed.
    pub control: Option<TcpListener>,
    pub watched: Endpoints,
}

impl RelayListeners {
    pub async fn bind(options: &RelayOptions) -> anyhow::Result<Self> {
        let mut links = Vec::new();
        for (name, address) in &options.link {
            links.push((name.clone(), bind(*address).await?));
        }
        let control = options.allow_control.then_some(options.control_listen);
        let watched = Endpoints::bind(options.http_listen, None).await?;
        Ok(Self {
            common: bind_some(options.listen).await?,
            links,
            control: bind_some(control).await?,
            watched: watched.with_names(&options.names.http_name),
        })
    }
}

/// Summary that the process prints at its end.
#[derive(Debug, Serialize)]
pub struct RelaySummary {
    pub role: &'static str,
    pub links: Vec<crate::relay::LinkView>,
}

/// Runs the relay until SIGTERM or SIGINT. With an action, sends a request to a running relay or measures this machine.
pub fn main(arguments: &RelayArguments) -> ExitCode {
    let options = &arguments.layered.options;
    if let Some(action) = &arguments.action {
        return perform(action, arguments);
    }
    if arguments.control.is_some() {
        telemetry::note("backhaul: warning: --control has no effect: there is no request to send");
    }
    let plan = match process::prepare(ROLE, arguments.layered.printed(), || options.load()) {
        Ok(plan) => plan,
        Err(code) => return code,
    };
    let sockets = std::thread::available_parallelism().map_or(1, usize::from);
    // Names of hosts are looked up by threads that block.
    process::run(ROLE, Threads { sockets, blocking: 16 }, async |shutdown| {
        let listeners = RelayListeners::bind(options).await?;
        let identity = options.identity()?;
        let ended = run_secured(options.clone(), plan, listeners, identity, shutdown).await;
        ended.map_err(|refused| Failure::new(exit::FAILED, refused).into())
    })
}

/// Sends a request to the control interface of a running relay, or measures this machine, and prints the result.
fn perform(action: &Action, arguments: &RelayArguments) -> ExitCode {
    let options = &arguments.layered.options;
    let performed = match action {
        Action::Measure { profiles } => report::measured_profiles(profiles),
        action => {
            let tls = options.client().map_err(anyhow::Error::from);
            let control = arguments.control.clone().unwrap_or_else(|| options.control_listen.to_string());
            tls.and_then(|tls| action.perform(&control, tls.as_ref()))
        }
    };
    match performed {
        Ok(text) => {
            telemetry::print_text(&text);
            ExitCode::SUCCESS
        }
        Err(error) => exit::fail(ROLE, &error),
    }
}

/// Measures the plan, then relays until `shutdown`; without TLS.
pub async fn run(
    options: RelayOptions,
    plan: Plan,
    listeners: RelayListeners,
    shutdown: CancellationToken,
) -> Result<RelaySummary, PlanRefused> {
    run_secured(options, plan, listeners, None, shutdown).await
}

async fn run_secured(
    options: RelayOptions,
    plan: Plan,
    listeners: RelayListeners,
    identity: Option<Identity>,
    shutdown: CancellationToken,
) -> Result<RelaySummary, PlanRefused> {
    options.tls.warn(&options.listens());
    let (metrics, health) = (Metrics::new(), Health::new());
    let bound = |(name, listener): &(String, TcpListener)| Some((name.clone(), listener.local_addr().ok()?));
    let started = Started {
        grpc: listeners.common.as_ref().and_then(|listener| listener.local_addr().ok()),
        control: listeners.control.as_ref().and_then(|listener| listener.local_addr().ok()),
        links: listeners.links.iter().filter_map(bound).collect(),
        ..listeners.watched.started(ROLE)
    };
    let watched =
        listeners.watched.secured(identity.as_ref()).serve(metrics.clone(), health.clone(), shutdown.clone());
    let links = options.link.iter().map(|(name, _)| name.clone());
    let plan = (plan, options.trust());
    let relay = Relay::new(&options.fusion, plan, options.seed, links, &metrics).await?;

    let mut tasks = JoinSet::new();
    if let Some(listener) = listeners.control {
        let acceptor = http_acceptor(identity.as_ref(), listener.local_addr());
        let listener = Listener::new(listener, limits::CONTROL, &metrics).secured(acceptor);
        let routes = control::routes(relay.clone(), options.profile.clone(), metrics.clone(), health.clone());
        let names = HostNames::new(&options.names.http_name);
        tasks.spawn(telemetry::http::serve(listener, names, routes, shutdown.clone()));
    }
    if let Some(identity) = &identity {
        follow_certificate(identity, &health, &shutdown);
    }
    let limiter = Limiter::new(limits::RELAY, &metrics);
    if let Some(common) = listeners.common {
        tasks.spawn(relay.clone().serve(limiter.listen(common), None, shutdown.clone()));
    }
    for (name, listener) in listeners.links {
        tasks.spawn(relay.clone().serve(limiter.listen(listener), Some(name), shutdown.clone()));
    }
    if let Some(file) = options.plan {
        tasks.spawn(follow(file, options.profile, relay.clone(), shutdown.clone()));
    }
    let (grpc, control) = (started.grpc.map(display), started.control.map(display));
    tracing::info!(grpc, control, links = started.links.len(), fusion = options.fusion, "ready");
    started.announce();
    health.ready();

    shutdown.cancelled().await;
    health.not_ready("shutting down");
    let summary = RelaySummary { role: ROLE, links: relay.links() };
    // An open connection to the control interface must not delay the end.
    let _ = tokio::time::timeout(Duration::from_millis(500), tasks.join_all()).await;
    watched.ended().await;
    Ok(summary)
}

/// Applies the plan file again on SIGHUP and when it changes. An invalid plan changes nothing.
async fn follow(file: PathBuf, profile: String, relay: Relay, shutdown: CancellationToken) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => return tracing::error!(%error, "changes of the plan file will not be noticed"),
    };
    let mut known = stamp(&file);
    loop {
        let requested = tokio::select! {
            () = shutdown.cancelled() => return,
            _ = hangup.recv() => true,
            () = tokio::time::sleep(CHECK_INTERVAL) => false,
        };
        let now = stamp(&file);
        if !requested && (now == known || now.is_none()) {
            continue;
        }
        known = now;
        let path = file.display();
        let applied = match read_plan(Some(&file), &profile) {
            Ok(plan) => relay.apply(plan).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = applied {
            tracing::error!(%path, error, "the plan is not applied; the previous one stays in force");
        }
    }
}

fn stamp(file: &PathBuf) -> Option<(SystemTime, u64)> {
    let data = std::fs::metadata(file).ok()?;
    Some((data.modified().ok()?, data.len()))
}
