//! `hyloc latency`: fusion latency per IRS count, through real processes.
//!
//! For every K the whole pipeline runs open loop at a fixed rate; latency counts from the *intended* send time of
//! a frame, so that a stall is charged to every frame that it delays (no coordinated omission). A rate that
//! cannot be held at some K is said so, and the highest that can is measured instead.

mod growth;
mod plot;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use fusion_center::fix::FixRecord;
use fusion_center::statistics::{Quantiles, StageHistograms};
use serde_json::Value;
use settings::ScenarioChoice;
use tokio_util::sync::CancellationToken;

use crate::commands::{note, say};
use crate::demo::{Choices, DemoFlags, orchestrate};

/// A rate that fails is divided by this, until one holds.
const RATE_STEP: f64 = 1.5;

/// Rates that are tried before a count is given up.
const MOST_TRIES: usize = 12;

/// Frames at the start that warm caches and connections; they are not counted.
const WARM_UP: u64 = 20;

/// Latency in the second half of a run over that in the first, at the median, from which a queue must be growing.
const GROWING: f64 = 1.5;

/// Flags of the latency measurement.
#[derive(Debug, Clone, Args)]
pub struct LatencyFlags {
    /// IRS counts.
    #[arg(long, value_delimiter = ',', default_value = "2,3,4,6,8,12,16", value_name = "K,..")]
    pub nodes: Vec<usize>,
    /// Frames per count.
    #[arg(long, default_value_t = 500)]
    pub frames: u64,
    /// Frames per second.
    #[arg(long, default_value_t = 20.0, value_name = "HZ")]
    pub rate: f64,
    /// Scenario that the counts are made from; Table I without one.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Override one key of it; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Measure through a relay between nodes and fusion center, once with each of these profiles: clear, fibre, microwave,
    /// 5g-fronthaul, congested, flaky.
    #[arg(long, value_delimiter = ',', value_name = "PROFILE,..")]
    pub backhaul: Vec<String>,
    /// What nodes send and how it is fused.
    #[command(flatten)]
    pub choices: Choices,
    /// Directory for latency.csv, latency.md, the plot and one .hdr file per count and stage; with profiles, a
    /// directory for each of them inside.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// One count, measured.
#[derive(Debug, Clone)]
pub struct Measured {
    /// IRSs.
    pub nodes: usize,
    /// The rate that held.
    pub rate_hz: f64,
    /// Rates that did not, and why.
    pub refused: Vec<(f64, String)>,
    /// Latency per stage.
    pub stages: StageHistograms,
}

impl Measured {
    /// Quantiles of a stage.
    pub fn quantiles(&self, stage: &str) -> Quantiles {
        let found = self.stages.iter().find(|(name, _)| *name == stage);
        found.map(|(_, histogram)| Quantiles::of(histogram)).unwrap_or_default()
    }
}

/// Measures, prints the table, and writes files where asked to.
pub fn run(flags: &LatencyFlags) -> anyhow::Result<()> {
    ensure!(flags.frames >= 2 * WARM_UP, "--frames {}: must be at least {}", flags.frames, 2 * WARM_UP);
    ensure!(flags.rate.is_finite() && flags.rate > 0.0, "--rate {}: must be above 0", flags.rate);
    let scenarios: Vec<_> =
        flags.nodes.iter().map(|&nodes| choice(flags, nodes).load()).collect::<Result<_, _>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let stop = runtime.block_on(async { telemetry::shutdown_signal() })?;
    let profiles: Vec<Option<&str>> = match &flags.backhaul[..] {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    for profile in profiles {
        let all = counts(flags, profile, &scenarios, &runtime, &stop)?;
        if let Some(name) = profile {
            say(&format!("backhaul: {name}\n"));
        }
        say(&table::markdown(&all));
        if let Some(out) = &flags.out {
            let directory = profile.map_or(out.clone(), |name| out.join(name));
            std::fs::create_dir_all(&directory)
                .with_context(|| format!("{} cannot be made", directory.display()))?;
            table::write(&directory, &all)?;
        }
    }
    Ok(())
}

/// Every count with one profile of the backhaul.
fn counts(
    flags: &LatencyFlags,
    profile: Option<&str>,
    scenarios: &[model::Scenario],
    runtime: &tokio::runtime::Runtime,
    stop: &CancellationToken,
) -> anyhow::Result<Vec<Measured>> {
    let mut all = Vec::with_capacity(scenarios.len());
    for scenario in scenarios {
        let measured = runtime.block_on(measure(flags, profile, scenario, stop))?;
        for (rate_hz, reason) in &measured.refused {
            note(&format!("K = {}: {rate_hz:.3} frames a second do not hold: {reason}", measured.nodes));
        }
        note(&format!(
            "K = {}: {:.3} frames a second, fusion p50 {:.2} ms, total p50 {:.2} ms",
            measured.nodes,
            measured.rate_hz,
            measured.quantiles("fusion").p50,
            measured.quantiles("total").p50,
        ));
        all.push(measured);
    }
    Ok(all)
}

fn choice(flags: &LatencyFlags, nodes: usize) -> ScenarioChoice {
    ScenarioChoice {
        file: flags.scenario.clone(),
        set: flags.set.clone(),
        nodes: Some(nodes),
        power_dbm: None,
    }
}

/// The asked rate, or the highest below it that holds.
async fn measure(
    flags: &LatencyFlags,
    profile: Option<&str>,
    scenario: &model::Scenario,
    stop: &CancellationToken,
) -> anyhow::Result<Measured> {
    let (mut rate_hz, mut refused) = (flags.rate, Vec::new());
    for _ in 0..MOST_TRIES {
        match attempt(flags, profile, scenario, rate_hz, stop).await? {
            Ok(stages) => return Ok(Measured { nodes: scenario.irs.len(), rate_hz, refused, stages }),
            Err(reason) => refused.push((rate_hz, reason)),
        }
        rate_hz /= RATE_STEP;
    }
    bail!("K = {}: not even {:.4} frames a second hold", scenario.irs.len(), rate_hz * RATE_STEP)
}

/// One run: histograms, or why the rate does not hold.
async fn attempt(
    flags: &LatencyFlags,
    profile: Option<&str>,
    scenario: &model::Scenario,
    rate_hz: f64,
    stop: &CancellationToken,
) -> anyhow::Result<Result<StageHistograms, String>> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("fixes.jsonl");
    let demo = DemoFlags {
        frames: flags.frames,
        rate: rate_hz,
        scenario: None,
        set: Vec::new(),
        nodes: None,
        power_dbm: None,
        frames_per_fix: 1,
        kill_node_after: None,
        fixes: Some(log.clone()),
        record: None,
        // Nothing is cut short: what is late counts as late, not as missing.
        deadline_ms: Some(60_000),
        dashboard: false,
        allow_control: false,
        backhaul: profile.map(str::to_owned),
        choices: flags.choices.clone(),
        json: false,
    };
    let report = orchestrate(&demo, scenario, stop.clone()).await?;
    ensure!(!stop.is_cancelled(), "interrupted");
    let timings = timings(&log)?;
    let complete = timings.iter().filter(|fix| fix.missing.is_empty()).count() as u64;
    if profile.is_some() && complete < flags.frames {
        let (lacking, frames) = (flags.frames - complete, flags.frames);
        note(&format!(
            "{lacking} of {frames} frames had no fix or lacked blocks: the backhaul was out or cut"
        ));
    }
    // A backhaul that is out now and then costs frames at any rate.
    let needed = if profile.is_some() { flags.frames * 9 / 10 } else { flags.frames };
    Ok(verdict(flags.frames, needed, &report.fusion, &timings).map_or_else(
        || {
            let mut stages = StageHistograms::default();
            timings.iter().skip(WARM_UP as usize).for_each(|fix| stages.record(&fix.timing));
            Ok(stages)
        },
        Err,
    ))
}

fn timings(log: &Path) -> anyhow::Result<Vec<FixRecord>> {
    let text = std::fs::read_to_string(log)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Why a rate does not hold; none if it does.
fn verdict(frames: u64, needed: u64, fusion: &Value, fixes: &[FixRecord]) -> Option<String> {
    let complete = fixes.iter().filter(|fix| fix.missing.is_empty()).count() as u64;
    if complete < needed {
        return Some(format!("{} of {frames} frames were dropped, shed or incomplete", frames - complete));
    }
    if fusion["unaccounted"].as_i64() != Some(0) {
        return Some(format!("{} blocks are unaccounted for", fusion["unaccounted"]));
    }
    let totals: Vec<f64> = fixes.iter().filter_map(|fix| fix.timing.total_ms).collect();
    let (first, second) = totals.get(WARM_UP as usize..)?.split_at((totals.len() - WARM_UP as usize) / 2);
    let (before, after) = (median(first), median(second));
    (after > GROWING * before && after - before > 5.0)
        .then(|| format!("latency grows from {before:.1} to {after:.1} ms: a queue builds up"))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
