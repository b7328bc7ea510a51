//! Measurement for one number of IRSs: runs at the requested rate and below it until a rate is sustained.

use std::path::Path;

use anyhow::ensure;
use fusion_center::fix::FixRecord;
use fusion_center::statistics::StageHistograms;
use serde_json::Value;
use settings::{ScenarioChoice, SettingsError};
use telemetry::exit::{self, Failure};
use tokio_util::sync::CancellationToken;

use super::judgement::{Judgement, Sample};
use super::{LatencyFlags, MeasuredCount};
use crate::commands::note;
use crate::demo::{ClockFlags, DemoFlags, EchoTransport, orchestrate};

/// Maximum number of rates that are tried.
const MOST_TRIES: usize = 12;

/// Minimum and maximum factor by which a rate that fails is reduced.
const RATE_STEPS: (f64, f64) = (1.25, 4.0);

/// The next rate as a share of the capacity that a failed run shows.
const OF_CAPACITY: f64 = 0.85;

/// Minimum number of frames at the start that are not counted, while caches and connections warm up and the initial
/// backlog drains. It is a tenth of the run if that is more.
const WARM_UP: usize = 20;

/// Minimum number of frames of a run.
pub const LEAST_FRAMES: u64 = 3 * WARM_UP as u64;

/// Latency and judgement of a run, or the reason why its rate is not sustainable; and the rate of fixes that it reached.
type Attempt = (Result<(StageHistograms, Judgement), String>, Option<f64>);

/// Measures at the requested rate, or the first lower one that is sustained; none if none is.
pub async fn measure(
    flags: &LatencyFlags,
    profile: Option<&str>,
    scenario: &model::Scenario,
    stop: &CancellationToken,
) -> anyhow::Result<Option<MeasuredCount>> {
    let (nodes, mut rate_hz) = (scenario.irs.len(), flags.rate);
    for _ in 0..MOST_TRIES {
        let (outcome, reached_hz) = attempt(flags, profile, scenario, rate_hz, stop).await?;
        match outcome {
            Ok((stages, judgement)) => return Ok(Some(MeasuredCount { nodes, rate_hz, judgement, stages })),
            Err(reason) => note(&format!("K = {nodes}: {rate_hz:.3} frames a second do not hold: {reason}")),
        }
        rate_hz = lower_rate(rate_hz, reached_hz);
    }
    Ok(None)
}

/// The rate to try after one that failed. The output rate of an overloaded pipeline is close to its capacity.
fn lower_rate(rate_hz: f64, reached_hz: Option<f64>) -> f64 {
    let (least, most) = RATE_STEPS;
    let wanted = OF_CAPACITY * reached_hz.unwrap_or(rate_hz / 2.0);
    wanted.clamp(rate_hz / most, rate_hz / least)
}

async fn attempt(
    flags: &LatencyFlags,
    profile: Option<&str>,
    scenario: &model::Scenario,
    rate_hz: f64,
    stop: &CancellationToken,
) -> anyhow::Result<Attempt> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("fixes.jsonl");
    let demo = DemoFlags {
        frames: flags.frames,
        rate: rate_hz,
        scenario: ScenarioChoice::default(),
        frames_per_fix: 1,
        kill_node_after: None,
        fixes: Some(log.clone()),
        record: None,
        // Long deadline, so that late reports count as late and not as missing.
        deadline_ms: Some(60_000),
        dashboard: false,
        http_listen: None,
        allow_control: false,
        backhaul: profile.map(str::to_owned),
        tls: flags.tls,
        echo_transport: EchoTransport::default(),
        choices: flags.choices.clone(),
        clocks: ClockFlags::default(),
        json: false,
    };
    let report = orchestrate(&demo, scenario, stop.clone()).await?;
    ensure!(!stop.is_cancelled(), Failure::new(exit::UNAVAILABLE, "interrupted"));
    ensure!(report.deaths.is_empty(), "{}", report.deaths.join("; "));
    let fixes = read_fixes(&log)?;
    let complete = fixes.iter().filter(|fix| fix.missing.is_empty()).count() as u64;
    if profile.is_some() && complete < flags.frames {
        let (lacking, frames) = (flags.frames - complete, flags.frames);
        note(&format!(
            "{lacking} of {frames} frames had no fix or lacked paths: the backhaul was out or cut"
        ));
    }
    // Outages of the backhaul lose frames at any rate.
    let needed = if profile.is_some() { flags.frames * 9 / 10 } else { flags.frames };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let outcome = match loss(flags.frames, needed, complete, &report.fusion) {
        Some(reason) => Err(reason),
        None => judged(&fixes, rate_hz, workers),
    };
    Ok((outcome, reached_hz(&samples(&fixes))))
}

fn read_fixes(log: &Path) -> anyhow::Result<Vec<FixRecord>> {
    let invalid = |error| SettingsError::content(log, error);
    settings::read(log)?.lines().map(|line| Ok(serde_json::from_str(line).map_err(invalid)?)).collect()
}

/// Describes lost frames or paths, if there are any.
fn loss(frames: u64, needed: u64, complete: u64, fusion: &Value) -> Option<String> {
    let shed = fusion["frames_shed"].as_u64().unwrap_or(0);
    if shed > 0 {
        return Some(format!("{shed} of {frames} frames were shed"));
    }
    if complete < needed {
        return Some(format!("{} of {frames} frames were dropped or incomplete", frames - complete));
    }
    let unaccounted = &fusion["unaccounted"];
    (unaccounted.as_i64() != Some(0)).then(|| format!("{unaccounted} paths are unaccounted for"))
}

/// Latency after the warm-up if the rate is sustainable, otherwise the reason.
fn judged(fixes: &[FixRecord], rate_hz: f64, workers: usize) -> Result<(StageHistograms, Judgement), String> {
    let measured = fixes.get(WARM_UP.max(fixes.len() / 10)..).unwrap_or_default();
    let samples = samples(measured);
    let [first, .., last] = samples.as_slice() else { return Err("too few frames to judge by".into()) };
    let judgement = Judgement::new(&samples, rate_hz, workers);
    if let Some(objection) = judgement.objection(rate_hz, last.intended_s - first.intended_s) {
        return Err(objection);
    }
    let mut stages = StageHistograms::default();
    measured.iter().for_each(|fix| stages.record(&fix.timing));
    Ok((stages, judgement))
}

fn samples(fixes: &[FixRecord]) -> Vec<Sample> {
    let sample = |fix: &FixRecord| {
        let timing = &fix.timing;
        let total_ms = timing.total_ms?;
        let emit_ms = timing.emit_ms.iter().copied().fold(0.0, f64::max);
        let solve_ms = timing.angles_ms + timing.locate_ms;
        Some(Sample {
            intended_s: timing.time_ns as f64 * 1e-9 - total_ms * 1e-3,
            total_ms,
            wait_ms: emit_ms + (timing.fusion_ms - solve_ms).max(0.0),
            solve_ms,
        })
    };
    fixes.iter().filter_map(sample).collect()
}

/// Fixes per second, from the first fix to the last.
fn reached_hz(samples: &[Sample]) -> Option<f64> {
    let out_s = |sample: &Sample| sample.intended_s + sample.total_ms * 1e-3;
    let (first, last) = (out_s(samples.first()?), out_s(samples.last()?));
    (last > first).then(|| (samples.len() - 1) as f64 / (last - first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_rate_follows_the_capacity_within_bounds() {
        assert_eq!(lower_rate(20.0, Some(10.0)), 8.5);
        assert_eq!(lower_rate(20.0, Some(19.9)), 16.0, "a rate that fails is not tried again");
        assert_eq!(lower_rate(20.0, Some(0.1)), 5.0);
        assert_eq!(lower_rate(20.0, None), 8.5);
    }

    /// Twenty frames a second through a solver of ten a second.
    #[test]
    fn capacity_is_the_rate_at_which_fixes_come_out() {
        let sample = |frame: u32| {
            let (due, out) = (f64::from(frame) / 20.0, f64::from(frame + 1) / 10.0);
            Sample { intended_s: due, total_ms: 1e3 * (out - due), wait_ms: 0.0, solve_ms: 100.0 }
        };
        let reached = reached_hz(&(0..201).map(sample).collect::<Vec<_>>()).unwrap();
        assert!((reached - 10.0).abs() < 1e-9, "{reached}");
        assert_eq!(reached_hz(&[]), None);
    }

    #[test]
    fn what_was_lost_is_named() {
        let fusion = |shed: u64, unaccounted: i64| serde_json::json!({ "frames_shed": shed, "unaccounted": unaccounted });
        assert_eq!(loss(100, 100, 100, &fusion(0, 0)), None);
        assert_eq!(loss(100, 90, 95, &fusion(0, 0)), None, "a backhaul may be out now and then");
        assert_eq!(loss(100, 100, 99, &fusion(1, 0)).unwrap(), "1 of 100 frames were shed");
        assert_eq!(loss(100, 100, 98, &fusion(0, 0)).unwrap(), "2 of 100 frames were dropped or incomplete");
        assert_eq!(loss(100, 100, 100, &fusion(0, 3)).unwrap(), "3 paths are unaccounted for");
    }
}
