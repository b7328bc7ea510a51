//! `hyloc score`: fixes of anybody against the truth and the exact bound.
//!
//! Nothing of the pipeline is needed: two files, and a scenario for the bound unless the truth states it. Judgement and
//! statistics are those of the fusion center, so that the score of its own fix log is the summary of its run.

mod fixes;
mod lines;
mod truth;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use fusion_center::fix::FixRecord;
use fusion_center::score::{FixScore, KnownFrame, StatedBound, score, site_bounds};
use model::System;
use proto::convert::FrameId;
use serde_json::json;
use settings::check::within;
use settings::{ScenarioChoice, SettingsError};
use telemetry::exit::Failure;

use self::fixes::StatedFix;
use self::lines::line_error;
use crate::commands::{say, written};
use crate::summary::{number, write_accuracy, write_latency};

#[derive(Debug, Clone, Args)]
pub struct ScoreFlags {
    /// The truth: JSON lines with `frame`, `targets` (each with `position_m`, `rcs_m2`, `identity`), and `run` if there are
    /// several; or a fix log of hyloc whose lines contain the truth.
    #[arg(long, value_name = "FILE")]
    pub truth: PathBuf,
    /// The fixes: JSON lines with `frame`, `position_m` and `covariance_m2`, or `targets` with these; or CSV with the columns
    /// frame, x_m, y_m, z_m, xx_m2, xy_m2, yy_m2 and so on; or a fix log of hyloc.
    #[arg(long, value_name = "FILE")]
    pub fixes: PathBuf,
    /// Scenario file, for the exact bound of frames whose truth states none, with all paths received.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Override one key of it; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "scenario")]
    pub overrides: Vec<String>,
    /// Echo frames that one fix averages coherently, for this bound.
    #[arg(long, default_value = "1", value_name = "F", requires = "scenario",
          value_parser = within::<u32>(1, 1000))]
    pub frames_per_fix: u32,
    /// The bound of every frame whose truth states none: rms error in metres.
    #[arg(long, value_name = "M", conflicts_with = "scenario", value_parser = within(1e-9, 1e9))]
    pub bound_rms_m: Option<f64>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

impl ScoreFlags {
    /// The site of the scenario, if there is one.
    fn system(&self) -> Result<Option<System>, SettingsError> {
        let choice = |file: &PathBuf| ScenarioChoice {
            file: Some(file.clone()),
            set: self.overrides.clone(),
            ..ScenarioChoice::default()
        };
        self.scenario.as_ref().map(|file| choice(file).load_site()).transpose()
    }
}

/// Scores a file of fixes and prints the figures.
pub fn run(flags: &ScoreFlags) -> anyhow::Result<()> {
    let system = flags.system()?;
    let mut truth = truth::read(&flags.truth)?;
    for KnownFrame { told, bounds } in truth.values_mut() {
        let Some(told) = told else { continue };
        let computed = match (&system, flags.bound_rms_m) {
            (Some(system), _) => site_bounds(told, system, flags.frames_per_fix),
            (None, Some(rms_m)) => {
                vec![Some(StatedBound { rms_m, covariance_m2: None }); told.targets.len()]
            }
            (None, None) => continue,
        };
        bounds.iter_mut().zip(computed).for_each(|(stated, computed)| *stated = stated.take().or(computed));
    }
    let fixes = in_runs(fixes::read(&flags.fixes)?, &truth, &flags.fixes)?;
    let targets = truth.values().filter_map(|frame| Some(frame.told.as_ref()?.targets.len())).max();
    let score = score(&truth, fixes);
    say(&if flags.json { serde_json::to_string(&score)? } else { table(&score, targets.unwrap_or(0)) });
    Ok(())
}

/// Fixes that name no run are of the run of the truth, which must be the only one.
fn in_runs(
    fixes: Vec<StatedFix>,
    truth: &BTreeMap<FrameId, KnownFrame>,
    path: &Path,
) -> Result<Vec<FixRecord>, Failure> {
    let mut runs: Vec<u64> = truth.keys().map(|frame| frame.run).collect();
    runs.dedup();
    let placed = fixes.into_iter().map(|(line, run, fix)| match (run, runs.as_slice()) {
        (Some(run), _) => Ok(FixRecord { run, ..fix }),
        (None, [only]) => Ok(FixRecord { run: *only, ..fix }),
        (None, _) => {
            let problem = format!("is missing, and the truth has {} runs", runs.len());
            Err(line_error(path, line, "run", problem))
        }
    });
    placed.collect()
}

fn table(score: &FixScore, targets: usize) -> String {
    let figures = json!(score);
    written(|out| {
        use std::fmt::Write;
        writeln!(
            out,
            "{} fixes in {} frames ({} nominal, {} degraded, {} doubtful), availability {}",
            number(&figures["fixes"]),
            score.frames,
            number(&figures["nominal"]),
            number(&figures["degraded"]),
            number(&figures["doubtful"]),
            score.availability.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share)),
        )?;
        if score.unknown_frames > 0 {
            writeln!(out, "{} fixes are of frames that the truth does not contain", score.unknown_frames)?;
        }
        write_accuracy(out, &figures, targets)?;
        write_latency(out, &figures["latency_ms"])
    })
}
