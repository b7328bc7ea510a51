//! `hyloc demo`: the whole pipeline on this machine, as real processes on loopback.
//!
//! The command starts itself again in each role: one fusion center, one simulator, K nodes, each on free ports.
//! It shows fixes as they come, and at the end what they add up to, however it ends. Children stop when told to, when the
//! demo is interrupted, and when it dies; a child that dies by itself is named (`watch`).

mod children;
mod report;
mod supervise;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use backhaul::profile::NAMES as PROFILES;
use clap::Args;
use fusion_center::method::MOST_FRAMES;
use model::Scenario;
use model::scenario::Motion;
use serde_json::{Value, json};
use settings::ScenarioChoice;
use settings::check::{accepted, within};
use tokio_util::sync::CancellationToken;

use crate::commands::{note, say};
use children::{Children, Controls};
pub use report::DemoReport;
use supervise::{Cast, watch};

/// How long a child gets to start.
const START_TIME: Duration = Duration::from_secs(120);

/// How long the target of a page takes for a round.
const ROUND_S: f64 = 20.0;

/// Flags of the demo.
#[derive(Debug, Clone, Args)]
pub struct DemoFlags {
    /// Fixes to make; 0 goes on until Ctrl-C.
    #[arg(long, default_value_t = 500)]
    pub frames: u64,
    /// Echo frames per second.
    #[arg(long, default_value = "50", value_name = "HZ", value_parser = within(1e-3, 1e4))]
    pub rate: f64,
    /// The scenario; a node process is started for each of its IRSs.
    #[command(flatten)]
    pub scenario: ScenarioChoice,
    /// Echo frames that one fix averages coherently.
    #[arg(long, default_value = "1", value_name = "F", value_parser = within::<u64>(1, 1000))]
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
    #[arg(long, value_name = "PROFILE", value_parser = PROFILES)]
    pub backhaul: Option<String>,
    /// What nodes send and how it is fused.
    #[command(flatten)]
    pub choices: Choices,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// What nodes send and how it is fused.
#[derive(Debug, Clone, Default, Args)]
pub struct Choices {
    /// What nodes send of every path: parameters, block or spectrum [default: what the
    /// fusion center asks for: blocks, spectra for direct fixes].
    #[arg(long, value_name = "PAYLOAD", value_parser = accepted(irs_node::options::payload))]
    pub payload: Option<String>,
    /// Its precision: f64, f32, q16, q8, q4 or q2 [default: what the fusion center asks for: q8].
    #[arg(long, value_name = "PRECISION", value_parser = accepted(irs_node::options::precision))]
    pub precision: Option<String>,
    /// How frames become fixes: auto, three-stage or direct [default: auto].
    #[arg(long, value_name = "METHOD", value_parser = accepted(fusion_center::method::method))]
    pub method: Option<String>,
    /// Frames that the direct method takes together [default: 1].
    #[arg(long, value_name = "F", value_parser = within::<usize>(1, MOST_FRAMES))]
    pub batch_frames: Option<usize>,
}

impl DemoFlags {
    /// Options that are given and have no effect, in words.
    fn without_effect(&self) -> Vec<&'static str> {
        let Choices { payload, precision, .. } = &self.choices;
        let late = self.frames > 0 && self.kill_node_after.is_some_and(|fixes| fixes >= self.frames);
        let all = [
            (late, "--kill-node-after has no effect: the demo ends before"),
            (
                precision.is_some() && payload.as_deref() == Some("parameters"),
                "--precision has no effect: parameters are sent as they are",
            ),
        ];
        all.into_iter().filter_map(|(applies, warning)| applies.then_some(warning)).collect()
    }
}

impl DemoFlags {
    /// The scenario that all processes share.
    fn scenario(&self) -> anyhow::Result<Scenario> {
        let mut scenario = self.scenario.load()?;
        if self.frames_per_fix > 1 {
            // What is averaged coherently must hold still.
            scenario.signal.coherent_frames = self.frames_per_fix;
        }
        let ScenarioChoice { file, set, .. } = &self.scenario;
        let own = file.is_some() || set.iter().any(|pair| pair.starts_with("target.motion"));
        if self.dashboard && !own && self.frames_per_fix == 1 {
            let round_frames = (ROUND_S * self.rate).ceil() as u64;
            let circle = Motion::named("circle", &scenario.coverage, round_frames);
            scenario.target.motion = circle.unwrap_or(scenario.target.motion);
        }
        Ok(scenario)
    }

    /// Profile of the relay, if there is one: what may be changed must be there.
    fn profile(&self) -> Option<&str> {
        self.backhaul.as_deref().or(self.allow_control.then_some("clear"))
    }
}

/// Runs the demo and prints its report, however it ended; the code says how.
pub fn run(flags: &DemoFlags) -> anyhow::Result<ExitCode> {
    // A page is looked at for as long as one likes.
    let frames = if flags.dashboard { 0 } else { flags.frames };
    let flags = &DemoFlags { frames, ..flags.clone() };
    for warning in flags.without_effect() {
        note(&format!("hyloc: warning: {warning}"));
    }
    let scenario = flags.scenario()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let report = runtime.block_on(async {
        let stop = telemetry::shutdown_signal()?;
        orchestrate(flags, &scenario, stop).await
    })?;
    say(&if flags.json { report.json() } else { report.tables() });
    if let Some(failure) = report.failure() {
        note(&format!("hyloc: {failure}"));
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// Starts everything, waits for the end of the simulator or of a process that it cannot go on without, stops everything.
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

    let profile = flags.profile();
    let controls = if flags.allow_control { Some(Controls::free()?) } else { None };

    let mut fusion = children.fusion(flags, &scenario_file, controls)?;
    let fusion_started = fusion.started(START_TIME).await?;
    let grpc = fusion_started.grpc.context("the fusion center told no gRPC address")?;
    if let Some(http) = fusion_started.http.filter(|_| flags.dashboard) {
        note(&format!("dashboard: http://{http}/ (Ctrl-C ends)"));
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

    let mut cast = Cast { fusion, simulator, nodes, relay };
    let outcome = watch(flags, grpc, &mut cast, began, &stop).await;
    let summaries = cast.stop().await;
    let watched = outcome?;
    Ok(DemoReport {
        nodes: count,
        expected_fixes: if stop.is_cancelled() { 0 } else { flags.frames },
        interrupted: stop.is_cancelled(),
        first_fix_s: watched.first_fix_s,
        power_dbm: scenario.base_station.power_dbm,
        rate_hz: flags.rate,
        // A fusion center that died leaves no summary: what was seen of its fixes is left.
        fusion: summaries.fusion.unwrap_or_else(
            || json!({ "fixes": watched.fixes, "without_fix": watched.without_fix, "unaccounted": null }),
        ),
        simulator: summaries.simulator.unwrap_or(Value::Null),
        node_summaries: summaries.nodes.into_iter().map(|s| s.unwrap_or(Value::Null)).collect(),
        deaths: watched.deaths,
    })
}
