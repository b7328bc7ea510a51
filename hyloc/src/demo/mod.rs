//! `hyloc demo`: the whole pipeline on this machine, as real processes on loopback.
//!
//! The command starts itself in each role: one fusion center, one simulator, K nodes, each on free ports. It shows fixes as
//! they arrive, and always a summary at the end. Children stop on request, when the demo is interrupted, and when it
//! dies; a child that dies unexpectedly is reported (`watch`).

mod children;
mod clocks;
mod control;
mod report;
mod supervise;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use backhaul::profile::NAMES as PROFILES;
use clap::Args;
use estimation::direct::MOST_TARGETS;
use fusion_center::is_stdout;
use fusion_center::method::MOST_FRAMES;
use model::Scenario;
use model::scenario::{ClockStep, Motion};
use serde_json::{Value, json};
use settings::ScenarioChoice;
use settings::check::{accepted, address, within};
use telemetry::Started;
use telemetry::exit;
use tokio_util::sync::CancellationToken;

use crate::commands::{move_aside, note, reserve_stdout, say};
use crate::verdict::{DetectionConditions, outlook};
use children::{Child, Children, EchoWay};
use clocks::ClockScore;
pub use report::DemoReport;
use supervise::{DemoProcesses, NodeSupply, watch};

/// Timeout for the start of a child.
const START_TIME: Duration = Duration::from_secs(120);

const DEFAULT_FRAMES: u64 = 500;

/// Ports of the page, of which the first that is free is taken.
const PAGE_PORTS: std::ops::RangeInclusive<u16> = 7401..=7499;

/// Largest number of targets that are looked for where their number may change.
const FEW_TARGETS: usize = 8;

/// Least standard deviation that estimators assume for clocks that are not trusted.
const LEAST_PRIOR_NS: f64 = 10.0;

/// Period of the circular motion of the target with `--dashboard`.
const PERIOD_S: f64 = 20.0;

#[derive(Debug, Clone, Args)]
pub struct DemoFlags {
    /// Fixes to make; 0 continues until Ctrl-C.
    #[arg(long, default_value_t = DEFAULT_FRAMES)]
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
    /// Kill the last node after this many fixes; the others continue.
    #[arg(long, value_name = "N")]
    pub kill_node_after: Option<u64>,
    /// Output file with one JSON line per fix; `-` is standard output, and tables then go to standard error.
    #[arg(long, value_name = "FILE")]
    pub fixes: Option<PathBuf>,
    /// Output directory of a recording for `hyloc replay`.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// How long a frame waits for its last report [default: 250].
    #[arg(long, value_name = "MS")]
    pub deadline_ms: Option<u64>,
    /// Print the address of a live page, and continue until Ctrl-C. Unless a scenario sets its motion, the target moves
    /// in a circle.
    #[arg(long)]
    pub dashboard: bool,
    /// Where the page is served [default: with --dashboard 127.0.0.1:7401, or the next port that is free].
    #[arg(long, value_name = "ADDRESS", value_parser = address, requires = "dashboard")]
    pub http_listen: Option<SocketAddr>,
    /// Let the page change targets, power, clocks, the backhaul and its links, and kill and start nodes; implies a backhaul, and
    /// several targets are looked for.
    #[arg(long, requires = "dashboard")]
    pub allow_control: bool,
    /// Put a relay between nodes and fusion center, with this profile: clear, fibre, microwave, 5g-fronthaul, congested
    /// or flaky.
    #[arg(long, value_name = "PROFILE", value_parser = PROFILES)]
    pub backhaul: Option<String>,
    /// Encrypt all gRPC connections and check roles, with certificates of a temporary authority.
    #[arg(long)]
    pub tls: bool,
    /// How echo frames go from the simulator to the nodes.
    #[arg(long, value_name = "TRANSPORT", value_enum, default_value_t)]
    pub echo_transport: EchoTransport,
    /// What nodes send and how it is fused.
    #[command(flatten)]
    pub choices: Choices,
    /// Clocks that nobody has synchronised.
    #[command(flatten)]
    pub clocks: ClockFlags,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Clocks of the nodes. Any of the flags makes them unknown to the estimators, which then estimate them.
#[derive(Debug, Clone, Default, Args)]
pub struct ClockFlags {
    /// Draw the offset of every node's clock from plus or minus this, and estimate it.
    #[arg(long, value_name = "NS", value_parser = within(0.0, 1e6))]
    pub clock_offset_ns: Option<f64>,
    /// Draw the drift of every node's clock from plus or minus this, in parts per billion.
    #[arg(long, value_name = "PPB", value_parser = within(0.0, 1e6))]
    pub clock_drift_ppb: Option<f64>,
    /// Let the clock of the second node step by this in the middle of the demo.
    #[arg(long, value_name = "NS", value_parser = within(-1e6, 1e6), allow_negative_numbers = true)]
    pub clock_step_ns: Option<f64>,
}

impl ClockFlags {
    /// Sets the clocks of a scenario; what flags do not say stays as it is.
    fn apply(&self, scenario: &mut Scenario, rate_hz: f64, frames: u64) {
        let clocks = &mut scenario.clocks;
        clocks.frame_interval_s = 1.0 / rate_hz;
        let Self { clock_offset_ns, clock_drift_ppb, clock_step_ns } = self;
        clocks.offset_ns = clock_offset_ns.unwrap_or(clocks.offset_ns);
        clocks.drift_ppb = clock_drift_ppb.unwrap_or(clocks.drift_ppb);
        if let Some(step_ns) = *clock_step_ns {
            let node = scenario.irs.len().saturating_sub(1).min(1);
            clocks.step = Some(ClockStep { node, frame: frames.max(DEFAULT_FRAMES) / 2, step_ns });
        }
        let any = clock_offset_ns.or(*clock_drift_ppb).or(*clock_step_ns).is_some();
        if any && clocks.prior_ns == 0.0 {
            let step_ns = clock_step_ns.unwrap_or(0.0).abs();
            clocks.prior_ns = clocks.offset_ns.max(step_ns).max(LEAST_PRIOR_NS);
        }
    }
}

/// The transport of echo frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum EchoTransport {
    /// Nodes subscribe at the simulator.
    #[default]
    Zeromq,
    /// The simulator pushes into the nodes.
    Grpc,
}

/// What nodes send and how it is fused.
#[derive(Debug, Clone, Default, Args)]
pub struct Choices {
    #[arg(long, value_name = "PAYLOAD", value_parser = accepted(irs_node::options::payload),
          help = format!("What nodes send of every path: {} [default: what the fusion center asks for: blocks, spectra \
                          for direct fixes]", irs_node::options::payloads()))]
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
    /// Largest number of targets that are looked for in a frame, with tracks if it is more than one [default: 1; 8 or more if the
    /// scenario does not have exactly one or their number may be changed].
    #[arg(long, value_name = "N", value_parser = within(1, MOST_TARGETS))]
    pub max_targets: Option<usize>,
}

impl Choices {
    /// Warns of an option without effect.
    pub fn warn(&self) {
        if self.precision.is_some() && self.payload.as_deref() == Some("parameters") {
            note("hyloc: warning: --precision has no effect: parameters are sent as they are");
        }
    }
}

impl Choices {
    /// Whether several targets can be looked for.
    fn suit_several(&self) -> bool {
        let spectra = self.payload.as_deref().is_none_or(|payload| ["auto", "spectrum"].contains(&payload));
        let direct = self.method.as_deref().is_none_or(|method| method != "three-stage");
        spectra && direct && self.batch_frames.is_none_or(|frames| frames == 1)
    }
}

impl DemoFlags {
    /// Largest number of targets that are looked for: more than there are, so that their number is not known beforehand.
    fn max_targets(&self, scenario: &Scenario) -> Option<usize> {
        let there = scenario.targets.len();
        let may_change = self.allow_control && self.choices.suit_several();
        let several = (there != 1 || may_change).then(|| (there + 3).clamp(FEW_TARGETS, MOST_TARGETS));
        self.choices.max_targets.or(several)
    }

    /// Where the page is served: as asked for, with a page on the first of its ports that is free, else anywhere.
    fn page_address(&self) -> SocketAddr {
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let free = |port: &u16| TcpListener::bind(at(*port)).is_ok();
        let found = || self.dashboard.then(|| PAGE_PORTS.into_iter().find(free)).flatten();
        self.http_listen.unwrap_or_else(|| at(found().unwrap_or(0)))
    }

    /// Warns of options without effect.
    fn warn(&self) {
        self.choices.warn();
        if self.frames > 0 && self.kill_node_after.is_some_and(|fixes| fixes >= self.frames) {
            note("hyloc: warning: --kill-node-after has no effect: the demo ends before");
        }
    }

    /// Whether fixes go to standard output.
    fn to_stdout(&self) -> bool {
        self.fixes.as_deref().is_some_and(is_stdout)
    }

    /// The scenario that all processes share.
    fn scenario(&self) -> anyhow::Result<Scenario> {
        let mut scenario = self.scenario.load()?;
        if self.frames_per_fix > 1 {
            // The target must not move while frames are averaged coherently.
            scenario.signal.coherent_frames = self.frames_per_fix;
        }
        let ScenarioChoice { file, set, .. } = &self.scenario;
        let moves = |pair: &String| ["target.motion", "target="].iter().any(|key| pair.starts_with(key));
        let own = file.is_some() || set.iter().any(moves);
        let round_frames = (PERIOD_S * self.rate).ceil() as u64;
        let circle = Motion::named("circle", &scenario.coverage, round_frames);
        if let ([target], Some(circle)) = (&mut scenario.targets[..], circle)
            && self.dashboard
            && !own
            && self.frames_per_fix == 1
        {
            target.motion = circle;
        }
        self.clocks.apply(&mut scenario, self.rate, self.frames);
        scenario.validate()?;
        Ok(scenario)
    }

    /// Profile of the relay, if there is one; control needs a relay.
    fn profile(&self) -> Option<&str> {
        self.backhaul.as_deref().or(self.allow_control.then_some("clear"))
    }
}

/// Runs the demo and prints its report, also after a failure; returns the exit code.
pub fn run(flags: &DemoFlags) -> anyhow::Result<ExitCode> {
    // With a page the demo runs until it is interrupted.
    let frames = if flags.dashboard { 0 } else { flags.frames };
    let flags = &DemoFlags { frames, ..flags.clone() };
    reserve_stdout(flags.fixes.as_deref(), flags.json)?;
    flags.warn();
    let scenario = flags.scenario()?;
    move_aside(flags.fixes.as_deref())?;
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

/// Starts the fusion center. Another process may take the port of the page in between, and the next one is then tried.
async fn start_fusion(flags: &DemoFlags, children: &Children<'_>) -> anyhow::Result<(Child, Started)> {
    for _ in PAGE_PORTS {
        let page = flags.page_address();
        let mut fusion = children.fusion(page)?;
        match fusion.started(START_TIME).await {
            Err(_) if flags.http_listen.is_none() && page.port() > 0 && TcpListener::bind(page).is_err() => {}
            started => return Ok((fusion, started?)),
        }
    }
    anyhow::bail!("other processes take the ports of the page; choose one with --http-listen")
}

/// Starts all processes, waits for the end of the simulator or of another indispensable process, and stops all.
pub async fn orchestrate(
    flags: &DemoFlags,
    scenario: &Scenario,
    stop: CancellationToken,
) -> anyhow::Result<DemoReport> {
    let began = Instant::now();
    let children = Children::new(flags, scenario)?;
    let count = scenario.irs.len();

    let (fusion, fusion_started) = start_fusion(flags, &children).await?;
    let grpc = fusion_started.grpc.context("the fusion center announced no gRPC address")?;
    if let Some(http) = fusion_started.http.filter(|_| flags.dashboard) {
        let scheme = if flags.tls && !http.ip().is_loopback() { "https" } else { "http" };
        note(&format!("dashboard: {scheme}://{http}/ (gRPC {grpc}; Ctrl-C ends)"));
    }
    // Over ZeroMQ nodes must know the simulator, by gRPC the simulator must know the nodes.
    let (mut simulator, mut echo) = (None, None);
    if flags.echo_transport == EchoTransport::Zeromq {
        let mut started = children.simulator(grpc, &[])?;
        echo = started.started(START_TIME).await?.echo;
        echo.context("the simulator announced no echo address")?;
        simulator = Some(started);
    }
    let (relay, links) = match flags.profile() {
        Some(profile) => {
            let mut relay = children.relay(profile, count, grpc)?;
            let links = relay.started(START_TIME).await?.links;
            (Some(relay), links)
        }
        None => (None, BTreeMap::new()),
    };
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let way = |index: usize| links.get(&format!("node-{index}")).copied().unwrap_or(grpc);
    let mut ways: Vec<(SocketAddr, EchoWay)> = (0..count)
        .map(|index| (way(index), echo.map_or(EchoWay::Listen(anywhere), EchoWay::Subscribe)))
        .collect();
    let start = |(index, (grpc, echo)): (usize, &(SocketAddr, EchoWay))| children.node(index, *grpc, *echo);
    let mut nodes = ways.iter().enumerate().map(start).collect::<anyhow::Result<Vec<Child>>>()?;
    let simulator = match simulator {
        Some(simulator) => simulator,
        None => {
            let mut pushes = Vec::with_capacity(count);
            for (node, (_, echo)) in nodes.iter_mut().zip(&mut ways) {
                let started = node.started(START_TIME).await?;
                let address = started.echo.context("a node announced no echo address")?;
                // The simulator knows it there, also after a restart.
                *echo = EchoWay::Listen(address);
                pushes.push(address);
            }
            children.simulator(grpc, &pushes)?
        }
    };
    let (served, orders) = children.node_control()?.map(control::serve).transpose()?.unzip();
    let supply = NodeSupply { children: &children, ways, orders };

    let mut processes = DemoProcesses { fusion, simulator, nodes, relay };
    let clocks = (scenario.clocks.prior_ns > 0.0).then(ClockScore::default);
    let outcome = match children.watcher() {
        Ok(tls) => watch(flags, (grpc, tls.as_ref()), &mut processes, supply, (began, clocks), &stop).await,
        Err(error) => Err(error),
    };
    drop(served);
    let (fusion, simulator, nodes, status) = processes.stop().await;
    let mut watched = outcome?;
    // A fusion center that gives a reason, such as a fix log that cannot be written, has printed it.
    let failed = status.filter(|status| exit::code_of_child(*status) != exit::SOFTWARE);
    watched.deaths.extend(failed.map(|status| format!("the fusion center ended with {status}")));
    let conditions =
        DetectionConditions { frames_per_fix: flags.frames_per_fix, ..DetectionConditions::default() };
    Ok(DemoReport {
        nodes: count,
        targets: scenario.targets.len(),
        expected_fixes: if stop.is_cancelled() { 0 } else { flags.frames },
        interrupted: stop.is_cancelled(),
        first_fix_s: watched.first_fix_s,
        power_dbm: scenario.base_station.power_dbm,
        rate_hz: flags.rate,
        outlook: watched.first_fix_s.is_none().then(|| outlook(scenario, conditions)).flatten(),
        // A fusion center that died leaves no summary; its fixes were counted here.
        fusion: fusion.unwrap_or_else(
            || json!({ "fixes": watched.fixes, "without_fix": watched.without_fix, "unaccounted": null }),
        ),
        clocks: watched.clocks.as_ref().map(ClockScore::summary),
        simulator: simulator.unwrap_or(Value::Null),
        node_summaries: nodes.into_iter().map(|s| s.unwrap_or(Value::Null)).collect(),
        deaths: watched.deaths,
        death_code: failed.map_or(exit::SOFTWARE, exit::code_of_child),
    })
}
