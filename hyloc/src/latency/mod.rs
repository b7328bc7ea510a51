//! `hyloc latency`: fusion latency per IRS count, through real processes.
//!
//! For every K the whole pipeline runs open loop at a fixed rate; latency counts from the *intended* send time of a frame,
//! so that a stall is charged to every frame that it delays (no coordinated omission). Only a sustainable rate is a
//! valid measurement (`judgement`): any other is reported with the reason, and lowered until it is sustainable.

mod judgement;
mod measure;
mod plot;
mod table;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use backhaul::profile::NAMES as PROFILES;
use clap::Args;
use fusion_center::statistics::{Quantiles, StageHistograms};
use settings::ScenarioChoice;
use settings::check::within;
use telemetry::exit::{self, Failure};
use tokio_util::sync::CancellationToken;

use crate::commands::{note, say};
use crate::demo::Choices;
use judgement::Judgement;
use measure::{LEAST_FRAMES, measure};

#[derive(Debug, Clone, Args)]
pub struct LatencyFlags {
    /// Numbers of IRSs to measure.
    #[arg(long, value_delimiter = ',', default_value = "2,3,4,6,8,12,16", value_name = "K,..")]
    pub nodes: Vec<usize>,
    /// Frames per count.
    #[arg(long, default_value = "500", value_parser = within(LEAST_FRAMES, 1_000_000_000))]
    pub frames: u64,
    /// Frames per second; lowered for numbers of IRSs at which it is not sustainable.
    #[arg(long, default_value = "20", value_name = "HZ", value_parser = within(1e-3, 1e5))]
    pub rate: f64,
    /// Base scenario; Table I without one.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Override one key of it; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Measure through a relay between nodes and fusion center, once with each of these profiles: clear, fibre, microwave,
    /// 5g-fronthaul, congested, flaky.
    #[arg(long, value_delimiter = ',', value_name = "PROFILE,..", value_parser = PROFILES)]
    pub backhaul: Vec<String>,
    /// Encrypt all gRPC connections and check roles, with certificates of a temporary authority.
    #[arg(long)]
    pub tls: bool,
    /// What nodes send and how it is fused.
    #[command(flatten)]
    pub choices: Choices,
    /// Directory for latency.csv, latency.md, the plot and one .hdr file per count and stage; with profiles, a
    /// directory for each of them inside.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Latency per stage for one number of IRSs, at the rate that was sustained.
#[derive(Debug, Clone)]
pub struct MeasuredCount {
    pub nodes: usize,
    pub rate_hz: f64,
    pub judgement: Judgement,
    pub stages: StageHistograms,
}

impl MeasuredCount {
    pub fn quantiles(&self, stage: &str) -> Quantiles {
        let found = self.stages.iter().find(|(name, _)| *name == stage);
        found.map(|(_, histogram)| Quantiles::of(histogram)).unwrap_or_default()
    }

    /// The stage that takes most of the computing time of a frame, in milliseconds, and its share: where all processes share
    /// a machine, it limits the rate. The matched filter counts once for every node. Other samples than the fastest also
    /// contain what a process waits for the processor.
    pub fn limiting_stage(&self) -> (&'static str, f64, f64) {
        let fastest_ms = |stage: &str| {
            let found = self.stages.iter().find(|(name, _)| *name == stage);
            found.map_or(0.0, |(_, histogram)| histogram.min() as f64 * 1e-6)
        };
        let filters = self.nodes as f64 * fastest_ms("filter");
        let stages =
            [("filter", filters), ("angles", fastest_ms("angles")), ("locate", fastest_ms("locate"))];
        let all: f64 = stages.iter().map(|(_, time_ms)| time_ms).sum();
        let (stage, time_ms) = stages.into_iter().fold(("none", 0.0), |a, b| if b.1 > a.1 { b } else { a });
        (stage, time_ms, if all > 0.0 { time_ms / all } else { 0.0 })
    }
}

/// Measures, prints the table, and writes the files of `--out`.
pub fn run(flags: &LatencyFlags) -> anyhow::Result<()> {
    flags.choices.warn();
    let scenario = |&nodes: &usize| {
        let (file, set) = (flags.scenario.clone(), flags.set.clone());
        ScenarioChoice { file, set, nodes: Some(nodes), ..ScenarioChoice::default() }.load()
    };
    let scenarios: Vec<_> = flags.nodes.iter().map(scenario).collect::<Result<_, _>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let stop = runtime.block_on(async { telemetry::shutdown_signal() })?;
    let profiles: Vec<Option<&str>> = match &flags.backhaul[..] {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let mut without = Vec::new();
    for profile in profiles {
        let (all, unmeasured) = counts(flags, profile, &scenarios, &runtime, &stop)?;
        without.extend(unmeasured);
        if let Some(name) = profile {
            say(&format!("backhaul: {name}\n"));
        }
        say(&table::markdown(&all));
        if let Some(out) = &flags.out {
            let directory = profile.map_or(out.clone(), |name| out.join(name));
            std::fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
            table::write(&directory, &all)?;
        }
    }
    let reason = format!("no rate holds at {}: no latency there", without.join(", "));
    ensure!(without.is_empty(), Failure::new(exit::UNAVAILABLE, reason));
    Ok(())
}

/// Measures all numbers of IRSs with one backhaul profile; also returns those without a sustainable rate.
fn counts(
    flags: &LatencyFlags,
    profile: Option<&str>,
    scenarios: &[model::Scenario],
    runtime: &tokio::runtime::Runtime,
    stop: &CancellationToken,
) -> anyhow::Result<(Vec<MeasuredCount>, Vec<String>)> {
    let (mut all, mut without) = (Vec::with_capacity(scenarios.len()), Vec::new());
    for scenario in scenarios {
        let Some(measured) = runtime.block_on(measure(flags, profile, scenario, stop))? else {
            without.push(format!("K = {}", scenario.irs.len()));
            continue;
        };
        note(&format!(
            "K = {}: {:.3} frames a second hold ({}): fusion p50 {:.2} ms, total p50 {:.2} ms, limited by {}",
            measured.nodes,
            measured.rate_hz,
            measured.judgement.in_words(),
            measured.quantiles("fusion").p50,
            measured.quantiles("total").p50,
            measured.limiting_stage().0,
        ));
        all.push(measured);
    }
    Ok((all, without))
}

#[cfg(test)]
mod tests {
    use fusion_center::fix::Timing;

    use super::*;

    /// A measurement of frames with these times of the matched filter, the joint angles and the locator.
    fn measured(nodes: usize, frames: &[[f64; 3]]) -> MeasuredCount {
        let mut stages = StageHistograms::default();
        for &[filter_ms, angles_ms, locate_ms] in frames {
            let filter_ms = vec![filter_ms; nodes];
            stages.record(&Timing { filter_ms, angles_ms, locate_ms, ..Timing::default() });
        }
        MeasuredCount { nodes, rate_hz: 10.0, judgement: Judgement::default(), stages }
    }

    /// The matched filters of all nodes count, and of every stage its fastest sample.
    #[test]
    fn the_stage_with_most_computing_time_limits() {
        for (nodes, expected, time_ms, share) in [(2, "angles", 3.0, 0.5), (8, "filter", 8.0, 8.0 / 12.0)] {
            let (stage, time, part) = measured(nodes, &[[1.0, 3.0, 1.0], [9.0, 4.0, 60.0]]).limiting_stage();
            assert_eq!(stage, expected);
            // Histograms keep three digits.
            assert!((time - time_ms).abs() < 0.01 && (part - share).abs() < 0.01, "{time} {part}");
        }
        let (stage, _, share) = measured(2, &[[0.1, 0.1, 4.0]]).limiting_stage();
        assert!(stage == "locate" && (share - 4.0 / 4.3).abs() < 0.01, "{stage} {share}");
        assert_eq!(measured(3, &[]).limiting_stage(), ("none", 0.0, 0.0));
    }
}
