//! `hyloc sweep`: Monte Carlo over a grid of scenario keys and settings, in this process, on all cores or on many machines. The figures of
//! the report are plans as well; `hyloc figures` runs them by the same engine.
//!
//! ```text
//! plan -> points -> units of trials -> shard files -> merge -> rows -> CSV, Parquet, plots, summary
//! ```
//!
//! Randomness is addressed by seed and frame, and statistics are made from all outcomes in the order of the plan, so that the files
//! are the same to the byte for any number of threads, shards and interruptions.

pub(crate) mod chain;
pub(crate) mod engine;
mod grid;
mod measure;
mod output;
mod parquet;
pub(crate) mod plan;
mod plots;
pub(crate) mod rows;
mod settings;
pub(crate) mod store;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use telemetry::exit::{self, Failure};

use crate::commands::note;
use engine::SweepEngine;
use grid::GridAxis;
pub use measure::tracking;
use plan::PlanFile;
use store::{Shard, ShardFile, ShardHeader};

/// The plan as it was resolved, beside the results.
const PLAN_COPY: &str = "plan.json";

/// Sources that the outcome of a trial depends on.
pub(crate) const SOURCES: &str = env!("HYLOC_SOURCES");

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SweepFlags {
    #[command(subcommand)]
    command: Option<SweepCommand>,
    #[command(flatten)]
    sweep: SweepRunFlags,
}

#[derive(Debug, Subcommand)]
enum SweepCommand {
    /// Put the shards of a sweep together: the same files, to the byte, as one machine would have written.
    Merge {
        /// Directory with the files of all shards.
        directory: PathBuf,
        /// Print one JSON object instead of tables.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct SweepRunFlags {
    /// The plan, TOML: `scenario`, `set`, `trials`, `gap_interval_db`, `measure` and `[[axis]]` entries with `key` and `values` or
    /// `range`. hyloc/plans has those of the figures of the report.
    plan: Option<PathBuf>,
    /// Scenario file, instead of the plan's; by default Table I of the paper.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Override a key of the scenario at all points; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// One more axis: a list, or a range that includes its last value. Keys are those of scenarios, and method, payload,
    /// precision, max_targets, false_alarm_probability, nodes, ring, targets, channel_error_db and clock_deviation_ns; may be
    /// repeated.
    #[arg(long, value_name = "KEY=A,B,C|KEY=FROM:TO:STEP", value_parser = GridAxis::parse)]
    grid: Vec<GridAxis>,
    /// Trials per point, at most if --gap-interval-db is given; 200 unless the plan says otherwise.
    #[arg(long, value_name = "N")]
    trials: Option<u64>,
    /// End a point when the 95 % interval of its gap is at most this wide.
    #[arg(long, value_name = "DB")]
    gap_interval_db: Option<f64>,
    /// Output directory.
    #[arg(long, value_name = "DIR", default_value = "sweep")]
    out: PathBuf,
    /// Do part I of N, I from 0; `hyloc sweep merge` puts the parts together. `auto` takes both from SLURM_ARRAY_TASK_ID and
    /// SLURM_ARRAY_TASK_COUNT, `auto/N` the index from there or from JOB_COMPLETION_INDEX of Kubernetes.
    #[arg(long, value_name = "I/N")]
    shard: Option<String>,
    /// Go on with what an interrupted run of the same plan by the same build has finished.
    #[arg(long)]
    resume: bool,
    /// Threads; all cores by default.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

/// Runs a sweep or a part of it, or puts parts together.
pub fn run(flags: SweepFlags) -> anyhow::Result<ExitCode> {
    match flags.command {
        Some(SweepCommand::Merge { directory, json }) => merge(&directory, json).map(|()| ExitCode::SUCCESS),
        None => sweep(&flags.sweep),
    }
}

impl SweepRunFlags {
    fn plan_file(&self) -> anyhow::Result<PlanFile> {
        let mut plan = self.plan.as_deref().map(PlanFile::read).transpose()?.unwrap_or_default();
        plan.scenario = self.scenario.clone().or(plan.scenario);
        plan.set.extend(self.set.iter().cloned());
        if let (Some(figure), false) = (&plan.figure, self.grid.is_empty()) {
            let reason = format!(
                "--grid: the figure {figure} has its own axes; copy the plan and remove `figure` from it"
            );
            return Err(Failure::new(exit::USAGE, reason).into());
        }
        plan.axis.extend(self.grid.iter().cloned());
        plan.trials = self.trials.or(plan.trials);
        plan.gap_interval_db = self.gap_interval_db.or(plan.gap_interval_db);
        Ok(plan)
    }
}

fn sweep(flags: &SweepRunFlags) -> anyhow::Result<ExitCode> {
    let file = flags.plan_file()?;
    let plan = file.resolve()?;
    let shard = match &flags.shard {
        None => Shard::WHOLE,
        Some(text) => chosen_shard(text, |name| std::env::var(name).ok())
            .map_err(|reason| Failure::new(exit::USAGE, reason))?,
    };
    output::check_free(&flags.out, &plan)?;
    let opened = ShardFile::open(&flags.out, &ShardHeader::new(&plan, shard), flags.resume)?;
    output::write_plan(&flags.out, &file, &plan)?;
    let title = format!("{}: {} points, {} trials each", plan.name(), plan.points.len(), plan.trials);
    let [done, all] = SweepEngine::new(flags.threads)?.work(&plan, shard, opened, &title)?;
    if done < all {
        let place = flags.out.display();
        note(&format!("hyloc: interrupted; {done} of {all} units are kept in {place}: --resume goes on"));
        return Ok(ExitCode::from(130));
    }
    if shard == Shard::WHOLE {
        merge(&flags.out, flags.json)?;
    } else {
        note(&format!("{} is complete", flags.out.join(shard.file_name()).display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads all shards of a directory, checks that they are complete and belong together, and writes the results.
fn merge(directory: &Path, json: bool) -> anyhow::Result<()> {
    let plan = output::read_plan(directory)?;
    let rows = engine::rows(directory, &plan)?;
    output::write(directory, &plan, &rows).context("the results of the sweep cannot be written")?;
    output::summarise(directory, &plan, &rows, json);
    Ok(())
}

/// The shard of `I/N`, `auto` or `auto/N`.
fn chosen_shard(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Shard, String> {
    let form = "--shard must be I/N with I from 0 to N - 1, auto, or auto/N";
    let number = |name: &str| variable(name).and_then(|text| text.parse::<u64>().ok());
    let (index, count) = match text.split_once('/') {
        Some((index, count)) => (index, Some(count.parse::<u64>().map_err(|_| form)?)),
        None => (text, None),
    };
    let (index, count) = match (index, count) {
        ("auto", count) => {
            let slurm = number("SLURM_ARRAY_TASK_ID")
                .map(|id| id.saturating_sub(number("SLURM_ARRAY_TASK_MIN").unwrap_or(0)));
            let index = slurm.or(number("JOB_COMPLETION_INDEX"));
            let count = count.or(number("SLURM_ARRAY_TASK_COUNT"));
            index.zip(count).ok_or(
                "--shard auto needs SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT; in Kubernetes give auto/N with JOB_COMPLETION_INDEX",
            )?
        }
        (index, Some(count)) => (index.parse().map_err(|_| form)?, count),
        _ => return Err(form.into()),
    };
    if index < count { Ok(Shard { index, count }) } else { Err(form.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_by_number_and_by_environment() {
        let none = |_: &str| None;
        assert_eq!(chosen_shard("2/7", none), Ok(Shard { index: 2, count: 7 }));
        for bad in ["7/7", "a/7", "2", "2/0", "-1/7", "auto", "auto/x"] {
            assert!(chosen_shard(bad, none).is_err(), "{bad}");
        }
        let slurm = |name: &str| match name {
            "SLURM_ARRAY_TASK_ID" => Some("5".into()),
            "SLURM_ARRAY_TASK_MIN" => Some("1".into()),
            "SLURM_ARRAY_TASK_COUNT" => Some("8".into()),
            _ => None,
        };
        assert_eq!(chosen_shard("auto", slurm), Ok(Shard { index: 4, count: 8 }));
        let kubernetes = |name: &str| (name == "JOB_COMPLETION_INDEX").then(|| "3".into());
        assert_eq!(chosen_shard("auto/4", kubernetes), Ok(Shard { index: 3, count: 4 }));
        assert!(chosen_shard("auto", kubernetes).is_err());
    }
}
