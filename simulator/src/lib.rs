//! The simulator: echo frames of a scenario for all nodes, open loop at a set rate, and the truth for the
//! fusion center's display.
//!
//! Only this process knows where the target is: nodes get samples, the fusion center gets the truth on a
//! channel that no estimator reads.

mod control;
mod metrics;
pub mod options;
mod pace;
mod truth;

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use model::{EchoSource, Scenario};
use proto::clock::unix_time_ns;
use proto::echo::{EchoError, EchoLedger, EchoPublisher};
use proto::site::{SharedSite, SiteError};
use serde::Serialize;
use settings::Layered;
use telemetry::{Endpoints, Health, Metrics, process};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use control::Course;
use metrics::SimulatorMetrics;
pub use options::{ROLE, SimulatorOptions};
use pace::{DueFrame, Schedule};
use truth::Truth;
pub use truth::TruthSummary;

/// Threads for sockets and timers; echoes are made on others.
const THREADS: usize = 2;

/// How often the wait for nodes is reported.
const WAIT_REPORT: Duration = Duration::from_millis(500);

/// Why a simulator ends before it is told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scenario cannot be built.
    #[error("the scenario cannot be built: {0}")]
    Scenario(String),
    /// The site cannot be shared.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The echo socket failed.
    #[error(transparent)]
    Echo(#[from] EchoError),
}

/// The last line of a simulator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulatorSummary {
    /// `simulator`.
    pub role: &'static str,
    /// The run that all frames belonged to.
    pub run: u64,
    /// Frames made.
    pub frames: u64,
    /// Largest time that a frame left after its own.
    pub latest_ms: f64,
    /// Echo frames per node.
    pub nodes: Vec<EchoLedger>,
    /// The truth.
    pub truth: TruthSummary,
}

/// The ports, bound by the caller.
#[derive(Debug)]
pub struct Listeners {
    /// Where nodes subscribe.
    pub echo: TcpListener,
    /// Where the process is watched.
    pub endpoints: Endpoints,
    /// Where the target's path is changed.
    pub control: Option<tokio::net::TcpListener>,
}

impl Listeners {
    /// Binds the ports of `options`; the error names the address.
    pub async fn bind(options: &SimulatorOptions) -> std::io::Result<Self> {
        let address = options.echo_listen;
        let named = |error: std::io::Error| std::io::Error::new(error.kind(), format!("{address}: {error}"));
        let echo = TcpListener::bind(address).map_err(named)?;
        let endpoints = Endpoints::bind(options.http_listen, options.health_listen).await?;
        let control = match options.control_listen.filter(|_| options.allow_control) {
            Some(address) => {
                let named = |error: std::io::Error| {
                    std::io::Error::new(error.kind(), format!("control: {address}: {error}"))
                };
                Some(tokio::net::TcpListener::bind(address).await.map_err(named)?)
            }
            None => None,
        };
        Ok(Self { echo, endpoints, control })
    }

    /// Prints where they are.
    fn announce(&self) -> std::io::Result<()> {
        let echo = Some(self.echo.local_addr()?);
        let control = self.control.as_ref().map(tokio::net::TcpListener::local_addr).transpose()?;
        telemetry::Started { echo, control, ..self.endpoints.started(ROLE) }.announce();
        Ok(())
    }
}

/// The process: settings, logs, ports, work, summary. Gives the exit code.
pub fn main(arguments: &Layered<SimulatorOptions>) -> ExitCode {
    let options = &arguments.options;
    let scenario = match process::prepare(ROLE, arguments.printed(), || options.load()) {
        Ok(scenario) => scenario,
        Err(code) => return code,
    };
    process::run(ROLE, THREADS, async |shutdown| {
        let listeners = Listeners::bind(options).await?;
        listeners.announce()?;
        Ok(run(options, scenario, listeners, shutdown).await?)
    })
}

/// Runs until all frames are sent and acknowledged, or until `shutdown`.
pub async fn run(
    options: &SimulatorOptions,
    scenario: Scenario,
    listeners: Listeners,
    shutdown: CancellationToken,
) -> Result<SimulatorSummary, RunError> {
    let (registry, health) = (Metrics::new(), Health::new());
    let stop_serving = CancellationToken::new();
    let serving = listeners.endpoints.serve(registry.clone(), health.clone(), stop_serving.clone());
    let course = Course::new(&scenario, options.rate_hz);
    let control = listeners.control.map(|listener| control::serve(listener, &course, stop_serving.clone()));
    let nodes = scenario.irs.len();
    let run = unix_time_ns();
    let source = build(scenario.clone()).await?;
    let hash = SharedSite::new(source.system().clone())?.sha256;
    let transmission = Transmission {
        publisher: EchoPublisher::bind(listeners.echo, run, nodes, hash).await?,
        metrics: SimulatorMetrics::new(&registry, nodes),
        truth: Truth::default(),
        course,
        rcs_m2: scenario.rcs_m2(),
        run,
        frames: 0,
        latest: Duration::ZERO,
    };
    let ended = transmission.run(options, source, &health, &shutdown).await;
    stop_serving.cancel();
    serving.ended().await;
    drop(control);
    ended
}

/// One run: its sockets and its counts.
struct Transmission {
    publisher: EchoPublisher,
    metrics: SimulatorMetrics,
    truth: Truth,
    course: Course,
    /// Mean radar cross-section of the target.
    rcs_m2: f64,
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
    ) -> Result<SimulatorSummary, RunError> {
        let finish_truth = CancellationToken::new();
        let truth_sender = options.fusion.clone().map(|fusion| {
            AbortOnDropHandle::new(tokio::spawn(self.truth.clone().tell(fusion, finish_truth.clone())))
        });
        let start_after = (!options.start_after.is_zero()).then_some(options.start_after);
        self.wait_for_nodes(start_after, health, shutdown).await;
        if !shutdown.is_cancelled() {
            health.ready();
            self.transmit(options, source, shutdown).await;
        }
        health.not_ready("done");
        self.settle(options.settle_timeout).await;
        finish_truth.cancel();
        if let Some(truth_sender) = truth_sender {
            let _ = tokio::time::timeout(options.settle_timeout, truth_sender).await;
        }
        Ok(self.summary())
    }

    /// All nodes, or as many as there are after `start_after`.
    async fn wait_for_nodes(
        &self,
        start_after: Option<Duration>,
        health: &Health,
        shutdown: &CancellationToken,
    ) {
        let patience = async {
            match start_after {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(patience);
        loop {
            let (there, of) = (self.publisher.subscribed(), self.publisher.ledgers().len());
            health.not_ready(format!("{there} of {of} nodes have subscribed"));
            tokio::select! {
                () = self.publisher.until_all_subscribed() => return,
                () = &mut patience => {
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
        shutdown: &CancellationToken,
    ) {
        let (due, mut frames) = mpsc::channel(1);
        let (run, count, stop) =
            (self.run, (options.frames > 0).then_some(options.frames), shutdown.child_token());
        let schedule = Schedule::starting_now(options.rate_hz);
        tracing::info!(run, frames = count, rate_hz = options.rate_hz, "sending");
        let (maker, course) = (stop.clone(), self.course.clone());
        let pace = tokio::task::spawn_blocking(move || {
            pace::release(&source, &course, run, count, schedule, &due, &maker);
        });
        while let Some(frame) = frames.recv().await {
            self.send(frame).await;
        }
        if let Err(error) = pace.await {
            tracing::error!(%error, "the frames ended");
        }
    }

    async fn send(&mut self, frame: DueFrame) {
        self.truth.write(frame.id, frame.target_m, self.rcs_m2);
        for (node, echo) in frame.echoes.into_iter().enumerate() {
            self.publisher.publish(node, echo).await;
        }
        self.frames += 1;
        self.latest = self.latest.max(frame.late);
        self.metrics.frames.increment();
        self.metrics.late_seconds.observe_time(frame.late);
        self.count();
    }

    fn count(&self) {
        self.metrics.books(&self.publisher.ledgers());
        self.metrics.subscribed.set(self.publisher.subscribed() as f64);
        self.metrics.refused.set(self.publisher.refused() as f64);
    }

    /// Waits for the last acknowledgements.
    async fn settle(&self, patience: Duration) {
        if tokio::time::timeout(patience, self.publisher.until_settled()).await.is_err() {
            let left: u64 = self.publisher.ledgers().iter().map(|ledger| ledger.in_flight).sum();
            tracing::warn!(left, "frames were never acknowledged: counted as dropped");
        }
        self.count();
    }

    fn summary(self) -> SimulatorSummary {
        SimulatorSummary {
            role: ROLE,
            run: self.run,
            frames: self.frames,
            latest_ms: self.latest.as_secs_f64() * 1e3,
            truth: self.truth.summary(),
            nodes: self.publisher.close(),
        }
    }
}

/// The echo source, built off the async threads.
async fn build(scenario: Scenario) -> Result<Arc<EchoSource>, RunError> {
    let begun = std::time::Instant::now();
    let built = tokio::task::spawn_blocking(move || EchoSource::new(&scenario)).await;
    let source = built
        .map_err(|error| RunError::Scenario(error.to_string()))?
        .map_err(|error| RunError::Scenario(error.to_string()))?;
    tracing::info!(took_ms = begun.elapsed().as_millis() as u64, "the scenario is built");
    Ok(Arc::new(source))
}
