//! The simulator: sends echo frames of a scenario to all nodes, open loop at a set rate, and the truth to the
//! fusion center for display.
//!
//! Only this process knows the positions of the targets: nodes get samples, the fusion center gets the truth over a
//! stream that no estimator reads.

mod control;
mod files;
mod metrics;
pub mod options;
mod pace;
mod truth;
mod watchdog;

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use model::{EchoSource, Scenario};
use proto::echo::{EchoLedger, EchoPublisher, Publication, PushTarget};
use proto::secret::run_identity;
use proto::site::SharedSite;
use serde::Serialize;
use settings::{EndpointOptions, Layered};
use telemetry::exit::{self, Failure};
use telemetry::listener::{bind_some, limits};
use telemetry::process::Threads;
use telemetry::{Endpoints, Health, HostNames, Listener, Metrics, follow_certificate, process};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use trust::options::http_acceptor;
use trust::{Identity, Role};

use control::Course;
pub use files::{EchoFilesSummary, write_files};
use metrics::SimulatorMetrics;
pub use options::{ROLE, SimulatorOptions};
use pace::{DueFrame, Schedule};
use truth::TruthFeed;
pub use truth::{TruthSummary, record as truth_record};
use watchdog::Sending;

/// Echoes are generated and written by threads that block.
const THREADS: Threads = Threads { sockets: 2, blocking: 4 };

/// How often the wait for nodes is reported.
const WAIT_REPORT: Duration = Duration::from_millis(500);

/// The summary that the simulator prints when it ends.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulatorSummary {
    pub role: &'static str,
    /// The random identity of the run that all frames belonged to.
    pub run: u64,
    pub frames: u64,
    /// Largest delay of a frame after its intended time.
    pub latest_ms: f64,
    /// Echo frames per node.
    pub nodes: Vec<EchoLedger>,
    pub truth: TruthSummary,
}

/// The bound ports.
#[derive(Debug)]
pub struct SimulatorListeners {
    /// Where nodes subscribe over ZeroMQ; none if frames are pushed by gRPC.
    pub echo: Option<TcpListener>,
    pub endpoints: Endpoints,
    /// Where targets, power and clocks are changed.
    pub control: Option<tokio::net::TcpListener>,
}

impl SimulatorListeners {
    /// Binds the ports of `options`; the error names the address.
    pub async fn bind(options: &SimulatorOptions) -> anyhow::Result<Self> {
        let address = options.echo_listen;
        let bind = || TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"));
        let echo = options.push.is_empty().then(bind).transpose()?;
        let EndpointOptions { http_listen, health_listen, names } = &options.endpoints;
        let endpoints = Endpoints::bind(*http_listen, *health_listen).await?.with_names(&names.http_name);
        let control = options.control_listen.filter(|_| options.allow_control);
        Ok(Self { echo, endpoints, control: bind_some(control).await.context("control")? })
    }

    /// Prints the addresses.
    fn announce(&self) -> anyhow::Result<()> {
        let echo = self.echo.as_ref().map(TcpListener::local_addr).transpose()?;
        let control = self.control.as_ref().map(tokio::net::TcpListener::local_addr).transpose()?;
        telemetry::Started { echo, control, ..self.endpoints.started(ROLE) }.announce();
        Ok(())
    }
}

/// Checks the settings, binds the ports and works until all frames are sent, SIGTERM or SIGINT; or writes them to files.
pub fn main(arguments: &Layered<SimulatorOptions>) -> ExitCode {
    let options = &arguments.options;
    let scenario = match process::prepare(ROLE, arguments.printed(), || options.load()) {
        Ok(scenario) => scenario,
        Err(code) => return code,
    };
    if options.echoes_out.is_some() {
        return process::run(ROLE, THREADS, async |shutdown| write_files(options, scenario, shutdown).await);
    }
    process::run(ROLE, THREADS, async |shutdown| {
        let listeners = SimulatorListeners::bind(options).await?;
        listeners.announce()?;
        run(options, scenario, listeners, shutdown).await
    })
}

/// Runs until all frames are sent and acknowledged, or until `shutdown`.
pub async fn run(
    options: &SimulatorOptions,
    scenario: Scenario,
    listeners: SimulatorListeners,
    shutdown: CancellationToken,
) -> anyhow::Result<SimulatorSummary> {
    let (registry, health) = (Metrics::new(), Health::new());
    let stop_serving = CancellationToken::new();
    let identity = options.identity()?;
    options.tls.warn(&options.listens());
    let serving = listeners.endpoints.secured(identity.as_ref()).serve(
        registry.clone(),
        health.clone(),
        stop_serving.clone(),
    );
    let course = Course::new(&scenario, options.rate_hz);
    let names = HostNames::new(&options.endpoints.names.http_name);
    let control = listeners.control.map(|listener| {
        let acceptor = http_acceptor(identity.as_ref(), listener.local_addr());
        let listener = Listener::new(listener, limits::CONTROL, &registry).secured(acceptor);
        control::serve(listener, names, &course, stop_serving.clone())
    });
    let nodes = scenario.irs.len();
    let run = run_identity();
    let source = build(timed(scenario.clone(), options.rate_hz)).await?;
    let hash = SharedSite::new(source.system().clone())?.sha256;
    let (sensors, subcarriers) = (source.system().sensors(), source.system().subcarriers);
    let publication = Publication { run, nodes, site_sha256: hash, sensors, subcarriers };
    let transmission = Transmission {
        publisher: match listeners.echo {
            Some(listener) => EchoPublisher::bind(listener, &publication)?,
            None => {
                let identity = &identity;
                let target =
                    |address: &String| PushTarget { address: address.clone(), identity: identity.clone() };
                EchoPublisher::push(options.push.iter().map(target).collect(), &publication)
            }
        },
        metrics: SimulatorMetrics::new(&registry, nodes),
        truth: TruthFeed::default(),
        identity: identity.clone(),
        course,
        run,
        frames: 0,
        latest: Duration::ZERO,
    };
    if let Some(identity) = &identity {
        follow_certificate(identity, &health, &stop_serving);
    }
    let summary = transmission.run(options, source, &health, &shutdown).await;
    stop_serving.cancel();
    serving.ended().await;
    drop(control);
    Ok(summary)
}

/// The sockets and counts of one run.
struct Transmission {
    publisher: EchoPublisher,
    metrics: SimulatorMetrics,
    truth: TruthFeed,
    identity: Option<Identity>,
    course: Course,
    run: u64,
    frames: u64,
    latest: Duration,
}

impl Transmission {
    async fn run(
        mut self,
        options: &SimulatorOptions,
        source: Arc<EchoSource>,
        health: &Health,
        shutdown: &CancellationToken,
    ) -> SimulatorSummary {
        let finish_truth = CancellationToken::new();
        let tls = self.identity.as_ref().map(|identity| identity.client(Some(Role::FusionCenter)));
        let truth_sender = options.fusion.clone().map(|fusion| {
            AbortOnDropHandle::new(tokio::spawn(self.truth.clone().send(fusion, tls, finish_truth.clone())))
        });
        let start_after = (!options.start_after.is_zero()).then_some(options.start_after);
        self.wait_for_nodes(start_after, health, shutdown).await;
        if !shutdown.is_cancelled() {
            let sending = Arc::new(watch::Sender::new(self.sending()));
            let watchdog = watchdog::watch(sending.clone(), options.rate_hz, health.clone());
            let _watchdog = AbortOnDropHandle::new(tokio::spawn(watchdog));
            self.transmit(options, source, &sending, shutdown).await;
        }
        health.not_ready("done");
        self.settle(options.settle_timeout).await;
        finish_truth.cancel();
        if let Some(truth_sender) = truth_sender {
            let _ = tokio::time::timeout(options.settle_timeout, truth_sender).await;
        }
        SimulatorSummary {
            role: ROLE,
            run: self.run,
            frames: self.frames,
            latest_ms: self.latest.as_secs_f64() * 1e3,
            truth: self.truth.summary(),
            nodes: self.publisher.close(),
        }
    }

    /// Waits until all nodes have subscribed, or until `start_after` has passed.
    async fn wait_for_nodes(
        &self,
        start_after: Option<Duration>,
        health: &Health,
        shutdown: &CancellationToken,
    ) {
        let timeout = async {
            match start_after {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(timeout);
        loop {
            let (there, of) = (self.publisher.subscribed(), self.publisher.ledgers().len());
            health.not_ready(format!("{there} of {of} nodes have subscribed"));
            tokio::select! {
                () = self.publisher.until_all_subscribed() => return,
                () = &mut timeout => {
                    tracing::warn!(there, of, "starting without all nodes");
                    return;
                }
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(WAIT_REPORT) => {}
            }
        }
    }

    async fn transmit(
        &mut self,
        options: &SimulatorOptions,
        source: Arc<EchoSource>,
        sending: &watch::Sender<Sending>,
        shutdown: &CancellationToken,
    ) {
        let (due, mut frames) = mpsc::channel(1);
        let (run, count) = (self.run, (options.frames > 0).then_some(options.frames));
        let (course, stop) = (self.course.clone(), shutdown.clone());
        let schedule = Schedule::starting_now(options.rate_hz);
        tracing::info!(run, frames = count, rate_hz = options.rate_hz, "sending");
        let pace = tokio::task::spawn_blocking(move || {
            pace::release(source, &course, run, count, schedule, &due, &stop);
        });
        while let Some(frame) = frames.recv().await {
            self.send(frame);
            sending.send_replace(self.sending());
        }
        if let Err(error) = pace.await {
            tracing::error!(%error, "the generation of frames failed");
        }
    }

    fn send(&mut self, frame: DueFrame) {
        self.truth.write(frame.truth);
        for (node, echo) in frame.echoes.into_iter().enumerate() {
            self.publisher.publish(node, echo);
        }
        self.frames += 1;
        self.latest = self.latest.max(frame.late);
        self.metrics.frames.inc();
        self.metrics.late_seconds.observe(frame.late.as_secs_f64());
        self.count();
    }

    fn sending(&self) -> Sending {
        Sending { last: Instant::now(), subscribed: self.publisher.subscribed() }
    }

    fn count(&self) {
        self.metrics.update(&self.publisher.ledgers());
        self.metrics.subscribed.set(self.publisher.subscribed() as f64);
        self.metrics.refused.set(self.publisher.refused() as f64);
        self.metrics.evicted.set(self.publisher.evicted() as f64);
    }

    /// Waits for the last acknowledgements.
    async fn settle(&self, timeout: Duration) {
        if tokio::time::timeout(timeout, self.publisher.until_settled()).await.is_err() {
            let left: u64 = self.publisher.ledgers().iter().map(|ledger| ledger.in_flight).sum();
            tracing::warn!(left, "frames were never acknowledged: counted as dropped");
        }
        self.count();
    }
}

/// The scenario at a rate of frames: clocks drift from one frame to the next.
fn timed(mut scenario: Scenario, rate_hz: f64) -> Scenario {
    scenario.clocks.frame_interval_s = 1.0 / rate_hz;
    scenario
}

/// Builds the echo source off the async threads.
async fn build(scenario: Scenario) -> anyhow::Result<Arc<EchoSource>> {
    let begun = Instant::now();
    let built = tokio::task::spawn_blocking(move || EchoSource::new(&scenario)).await?;
    let source = built.context(Failure::new(exit::DATA, "the scenario cannot be built"))?;
    tracing::info!(took_ms = begun.elapsed().as_millis() as u64, "the scenario is built");
    Ok(Arc::new(source))
}
