//! `hyloc demo`: the whole pipeline on this machine, as real processes on loopback.
//!
//! The command starts itself again in each role: one fusion center, one simulator, K nodes, each on free ports.
//! It shows fixes as they come, and at the end what they add up to. Children stop when told to, when the demo is
//! interrupted, and when it dies.

mod children;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use backhaul::profile::NAMES as PROFILES;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::Scenario;
use model::scenario::Motion;
use proto::v1;
use proto::v1::fusion_client::FusionClient;
use serde_json::Value;
use settings::ScenarioChoice;
use tokio_util::sync::CancellationToken;

use children::{Child, Children, Controls};
pub use report::DemoReport;

/// How long a child gets to start.
const START_TIME: Duration = Duration::from_secs(120);

/// How long a child gets to drain.
const DRAIN_TIME: Duration = Duration::from_secs(20);

/// How long the target of a page takes for a round.
const ROUND_S: f64 = 20.0;

/// Flags of the demo.
#[derive(Debug, Clone, Args)]
pub struct DemoFlags {
    /// Fixes to make; 0 goes on until Ctrl-C.
    #[arg(long, default_value_t = 500)]
    pub frames: u64,
    /// Echo frames per second.
    #[arg(long, default_value_t = 50.0, value_name = "HZ")]
    pub rate: f64,
    /// Scenario file; Table I without one.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Override one key of the scenario; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Number of IRSs, and so of node processes [default: the scenario's].
    #[arg(long, value_name = "K")]
    pub nodes: Option<usize>,
    /// Transmit power [default: the scenario's].
    #[arg(long, value_name = "DBM")]
    pub power_dbm: Option<f64>,
    /// Echo frames that one fix averages coherently.
    #[arg(long, default_value_t = 1, value_name = "F")]
    pub frames_per_fix: u64,
    /// Kill the last node after this many fixes, to see the others go on.
    #[arg(long, value_name = "N")]
    pub kill_node_after: Option<u64>,
    /// File that takes one JSON line per fix.
    #[arg(long, value_name = "FILE")]
    pub fixes: Option<PathBuf>,
    /// Directory that takes a recording for `hyloc replay`.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// How long a frame waits for its last report [default: 250].
    #[arg(long, value_name = "MS")]
    pub deadline_ms: Option<u64>,
    /// Print the address of a live page, and go on until Ctrl-C. Unless a scenario says how, the target goes round in
    /// a circle.
    #[arg(long)]
    pub dashboard: bool,
    /// Let the page change the target's path and the profile of the backhaul, which is then there.
    #[arg(long, requires = "dashboard")]
    pub allow_control: bool,
    /// Put a relay between nodes and fusion center, with this profile: clear, fibre, microwave, 5g-fronthaul, congested
    /// or flaky.
    #[arg(long, value_name = "PROFILE")]
    pub backhaul: Option<String>,
    /// What nodes send and how it is fused.
    #[command(flatten)]
    pub choices: Choices,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// What nodes send and how it is fused; each process says what it does not take.
#[derive(Debug, Clone, Default, Args)]
pub struct Choices {
    /// What nodes send of every path: parameters, block or spectrum [default: what the
    /// fusion center asks for: blocks, spectra for direct fixes].
    #[arg(long, value_name = "PAYLOAD")]
    pub payload: Option<String>,
    /// Its precision: f64, f32, q16, q8, q4 or q2 [default: what the fusion center asks for: q8].
    #[arg(long, value_name = "PRECISION")]
    pub precision: Option<String>,
    /// How frames become fixes: auto, three-stage or direct [default: auto].
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// Frames that the direct method takes together [default: 1].
    #[arg(long, value_name = "F")]
    pub batch_frames: Option<usize>,
}

impl DemoFlags {
    /// The scenario that all processes share.
    fn scenario(&self) -> anyhow::Result<Scenario> {
        if !(self.rate.is_finite() && self.rate > 0.0 && self.rate <= 10_000.0) {
            bail!("--rate {}: must be above 0 and at most 10000 frames per second", self.rate);
        }
        if !(1..=1000).contains(&self.frames_per_fix) {
            bail!("--frames-per-fix {}: must be 1 to 1000", self.frames_per_fix);
        }
        let choice = ScenarioChoice {
            file: self.scenario.clone(),
            set: self.set.clone(),
            nodes: self.nodes,
            power_dbm: self.power_dbm,
        };
        let mut scenario = choice.load()?;
        if self.frames_per_fix > 1 {
            // What is averaged coherently must hold still.
            scenario.signal.coherent_frames = self.frames_per_fix;
        }
        let own = self.scenario.is_some() || self.set.iter().any(|pair| pair.starts_with("target.motion"));
        if self.dashboard && !own && self.frames_per_fix == 1 {
            let round_frames = (ROUND_S * self.rate).ceil() as u64;
            let circle = Motion::named("circle", &scenario.coverage, round_frames);
            scenario.target.motion = circle.unwrap_or(scenario.target.motion);
        }
        Ok(scenario)
    }

    /// Profile of the relay, if there is one: what may be changed must be there.
    fn profile(&self) -> anyhow::Result<Option<&str>> {
        let profile = self.backhaul.as_deref().or(self.allow_control.then_some("clear"));
        match profile {
            Some(name) if !PROFILES.contains(&name) => {
                bail!("--backhaul {name}: must be one of {}", PROFILES.join(", "))
            }
            profile => Ok(profile),
        }
    }
}

/// Runs the demo and prints its report.
pub fn run(flags: &DemoFlags) -> anyhow::Result<()> {
    // A page is looked at for as long as one likes.
    let frames = if flags.dashboard { 0 } else { flags.frames };
    let flags = &DemoFlags { frames, ..flags.clone() };
    let scenario = flags.scenario()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let report = runtime.block_on(async {
        let stop = telemetry::shutdown_signal()?;
        orchestrate(flags, &scenario, stop).await
    })?;
    crate::commands::say(&if flags.json { report.json() } else { report.tables() });
    Ok(())
}

/// Starts everything, waits for the end of the simulator or of patience, stops everything.
pub async fn orchestrate(
    flags: &DemoFlags,
    scenario: &Scenario,
    stop: CancellationToken,
) -> anyhow::Result<DemoReport> {
    let began = Instant::now();
    let mut children = Children::new()?;
    let scenario_file = children.directory().join("scenario.toml");
    std::fs::write(&scenario_file, toml::to_string(scenario)?)?;
    let count = scenario.irs.len();

    let profile = flags.profile()?;
    let controls = if flags.allow_control { Some(Controls::free()?) } else { None };

    let mut fusion = children.fusion(flags, &scenario_file, controls)?;
    let fusion_started = fusion.started(START_TIME).await?;
    let grpc = fusion_started.grpc.context("the fusion center told no gRPC address")?;
    if let Some(http) = fusion_started.http.filter(|_| flags.dashboard) {
        crate::commands::note(&format!("dashboard: http://{http}/ (Ctrl-C ends)"));
    }
    let mut simulator = children.simulator(flags, &scenario_file, grpc, controls)?;
    let echo = simulator.started(START_TIME).await?.echo.context("the simulator told no echo address")?;
    let (relay, links) = match profile {
        Some(profile) => {
            let mut relay = children.relay(profile, count, grpc, controls)?;
            let links = relay.started(START_TIME).await?.links;
            (Some(relay), links)
        }
        None => (None, BTreeMap::new()),
    };
    let mut nodes = Vec::with_capacity(count);
    for index in 0..count {
        let way = links.get(&format!("node-{index}")).copied().unwrap_or(grpc);
        nodes.push(children.node(flags, index, way, echo)?);
    }

    let mut cast = Cast { simulator, nodes, relay };
    let outcome = watch(flags, grpc, &mut cast, began, &stop).await;
    // Upstream first: each stage drains into the next.
    let Cast { simulator, mut nodes, relay } = cast;
    let simulator = simulator.stop(DRAIN_TIME).await;
    for node in &mut nodes {
        node.terminate();
    }
    let mut node_summaries = Vec::with_capacity(count);
    for node in nodes {
        node_summaries.push(node.stop(DRAIN_TIME).await);
    }
    if let Some(relay) = relay {
        relay.stop(DRAIN_TIME).await;
    }
    let fusion = fusion.stop(DRAIN_TIME).await.context("the fusion center left no summary")?;
    let watched = outcome?;
    Ok(DemoReport {
        nodes: count,
        expected_fixes: if stop.is_cancelled() { 0 } else { flags.frames },
        first_fix_s: watched.first_fix_s,
        power_dbm: scenario.base_station.power_dbm,
        rate_hz: flags.rate,
        fusion,
        simulator: simulator.unwrap_or(Value::Null),
        node_summaries: node_summaries.into_iter().map(|s| s.unwrap_or(Value::Null)).collect(),
    })
}

struct Watched {
    first_fix_s: Option<f64>,
}

/// Who sends to the fusion center.
struct Cast {
    simulator: Child,
    nodes: Vec<Child>,
    relay: Option<Child>,
}

impl Cast {
    /// Refuses that a node or the relay has ended; the last `spared` nodes may have.
    fn check(&mut self, spared: usize) -> anyhow::Result<()> {
        let expected = self.nodes.len() - spared;
        for (index, node) in self.nodes.iter_mut().enumerate().take(expected) {
            if let Some(status) = node.ended()? {
                bail!("node {index} ended with {status}");
            }
        }
        match self.relay.as_mut().map(Child::ended).transpose()?.flatten() {
            Some(status) => bail!("the backhaul ended with {status}"),
            None => Ok(()),
        }
    }
}

/// Shows fixes until the simulator ends; a child that dies early is an error.
async fn watch(
    flags: &DemoFlags,
    grpc: std::net::SocketAddr,
    cast: &mut Cast,
    began: Instant,
    stop: &CancellationToken,
) -> anyhow::Result<Watched> {
    let bar = progress_bar(flags);
    let mut client = FusionClient::connect(format!("http://{grpc}")).await?;
    let mut fixes = client.watch(v1::WatchRequest {}).await?.into_inner();
    let mut watched = Watched { first_fix_s: None };
    let mut seen = 0;
    loop {
        tokio::select! {
            fix = fixes.message() => {
                let Some(fix) = fix? else { bail!("the fusion center ended early") };
                watched.first_fix_s.get_or_insert_with(|| began.elapsed().as_secs_f64());
                seen += 1;
                bar.set_position(seen);
                bar.set_message(one_line(&fix));
                if flags.kill_node_after == Some(seen) {
                    cast.nodes.iter_mut().next_back().into_iter().for_each(Child::kill);
                }
            }
            status = cast.simulator.wait() => {
                let status = status?;
                if !status.success() {
                    bail!("the simulator ended with {status}");
                }
                break;
            }
            () = stop.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(200)) => {
                let spared = usize::from(flags.kill_node_after.is_some_and(|after| seen >= after));
                cast.check(spared)?;
            }
        }
    }
    bar.finish_and_clear();
    Ok(watched)
}

fn progress_bar(flags: &DemoFlags) -> ProgressBar {
    let target =
        if flags.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
    let (bar, template) = if flags.frames == 0 {
        (ProgressBar::with_draw_target(None, target), "{spinner} fix {pos}  {msg}")
    } else {
        let bar = ProgressBar::with_draw_target(Some(flags.frames), target);
        (bar, "{bar:30} fix {pos}/{len}, {eta} left  {msg}")
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn one_line(fix: &v1::Fix) -> String {
    let Some(position) = &fix.position else { return format!("{}: no position", fix.status) };
    let error = fix.truth.as_ref().map(|truth| {
        let error_m = (position.x_m - truth.x_m).hypot(position.y_m - truth.y_m);
        format!(", off by {:.1} cm", 100.0 * error_m)
    });
    format!("({:.2}, {:.2}) m{} {}", position.x_m, position.y_m, error.unwrap_or_default(), fix.status)
}
