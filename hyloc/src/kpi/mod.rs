//! `hyloc kpi`: a scorecard against the sensing service categories of 3GPP TS 22.137.
//!
//! Frames with a target at a random position and frames of noise alone pass through the pipeline in this process
//! (`measure`); `requirements` are compared with what was reached (`score`).

mod measure;
mod quantile;
mod requirements;
mod score;
mod table;

use clap::Args;
use serde_json::json;
use settings::ScenarioChoice;
use settings::check::within;

use crate::commands::{progress_bar, say};
use measure::measure;
use score::Scorecard;

/// What the figures leave out.
const LEAVES_OUT: &str =
    "network, sockets and queues are not part of latency and refresh; payloads are not quantised";

#[derive(Debug, Clone, Args)]
pub struct KpiFlags {
    /// The scenario; its target is placed at random positions, whatever its motion.
    #[command(flatten)]
    pub scenario: ScenarioChoice,
    /// Frames with a target, and as many of noise alone.
    #[arg(long, value_name = "N", default_value = "400", value_parser = within::<u64>(1, 1_000_000))]
    pub frames: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Measures and prints the scorecard.
pub fn run(flags: &KpiFlags) -> anyhow::Result<()> {
    let scenario = flags.scenario.load()?;
    let bar = progress_bar(2 * flags.frames as usize, "frames");
    let measured = measure(&scenario, flags.frames, || bar.inc(1))
        .map_err(|error| flags.scenario.unusable(format!("{error:#}")))?;
    bar.finish_and_clear();
    let card = Scorecard::new(&measured);
    if flags.json {
        let counts = json!({
            "seed": scenario.seed,
            "frames": measured.frames,
            "noise_frames": measured.frames,
            "fixes": measured.errors.len(),
            "nominal": measured.nominal,
            "false_alarms": measured.false_alarms,
            "median_latency_s": measured.median_latency_s(),
            "leaves_out": LEAVES_OUT,
        });
        let mut report = serde_json::to_value(&card)?;
        if let (Some(report), Some(counts)) = (report.as_object_mut(), counts.as_object()) {
            report.extend(counts.clone());
        }
        say(&report.to_string());
    } else {
        say(&table::text(&card, &measured));
    }
    Ok(())
}
