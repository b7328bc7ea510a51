//! `hyloc figures`: every figure of Section VI and additional ones, as data and plots, and a verdict on every claim.
//!
//! For each requested figure: its plan ([`catalogue`]) run by the engine of sweeps, rows ([`rows`]), plot (`layouts`, `plot`), files
//! (`store`); then the claims are judged by the rows ([`claims`]) and reported (`report`, [`tables`]). Everything after the rows is made from
//! the CSV files alone and can be made again from them (`--redraw`).

pub mod catalogue;
pub mod claims;
mod layouts;
pub(crate) mod plot;
mod report;
pub mod rows;
pub mod statistics;
mod store;
pub mod tables;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::commands::{note, say};
use crate::sweep::SOURCES;
use crate::sweep::engine::{self, SweepEngine};
use crate::sweep::plan::SweepPlan;
use crate::sweep::rows::SweepRow;
use crate::sweep::store::{Shard, ShardFile, ShardHeader};
use catalogue::Figure;
use rows::{Row, from_csv, to_csv};
use store::{FigureFiles, FigureStore, Recipe};

/// Scores of Stone Soup on the detections of the runs of `tracking-power` (seed 1), which `benchmarks/tracking.py --signals` wrote.
const STONE_SOUP: &str = include_str!("stone-soup.csv");

#[derive(Debug, Clone, Args)]
pub struct FigureFlags {
    #[arg(long, value_name = "NAME", num_args = 1.., help = format!("Figures to make, all by default: {}", Figure::names()))]
    only: Vec<String>,
    /// Trials per point, instead of those of each plan.
    #[arg(long, value_name = "N")]
    trials: Option<u64>,
    /// Seed of all random numbers.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Output directory.
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Fewer trials: the shapes of all curves within a minute on two cores.
    #[arg(long)]
    quick: bool,
    /// Keep what an earlier run with the same seed, trials and code finished: figures, and units of an interrupted one.
    #[arg(long)]
    resume: bool,
    /// Run no trials: draw plots and report again from the CSV files in DIR.
    #[arg(long, conflicts_with_all = ["only", "trials", "quick", "resume", "seed", "threads"])]
    redraw: bool,
    /// Threads; all cores by default.
    #[arg(long, value_name = "N", hide = true)]
    threads: Option<usize>,
}

/// Makes the figures and the report, and prints a summary.
pub fn run(flags: &FigureFlags) -> anyhow::Result<ExitCode> {
    if flags.quick && flags.trials.is_some() {
        note("hyloc: warning: --quick has no effect: --trials sets the number of trials");
    }
    let named = flags.only.iter().map(|name| Figure::named(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let chosen = |figure: &Figure| !flags.redraw && (named.is_empty() || named.contains(figure));
    let chosen = Figure::ALL.into_iter().filter(chosen);
    let plans = chosen.map(|figure| Ok((figure, flags.plan(figure)?))).collect::<anyhow::Result<Vec<_>>>()?;
    let mut store = FigureStore::open(&flags.out)?;
    let outcome = if flags.redraw { store.redraw(files)? } else { make(flags, &plans, &mut store)? };
    let Some([made, kept]) = outcome else { return Ok(ExitCode::from(130)) };
    let [reproduced, partly, not_reproduced, not_measured] = report::write(&store)?;
    say(&format!(
        "Figures: {made} made, {kept} taken over. Claims: {reproduced} reproduced, {partly} partly, {not_reproduced} not \
         reproduced, {not_measured} not measured. Report: {}",
        store.path("report.html").display()
    ));
    Ok(ExitCode::SUCCESS)
}

impl FigureFlags {
    /// The plan of a figure with the seed and the trials of these flags.
    fn plan(&self, figure: Figure) -> anyhow::Result<SweepPlan> {
        let mut plan = figure.plan().clone();
        plan.set.push(format!("seed={}", self.seed));
        plan.trials = self.trials.or(if self.quick { plan.quick_trials } else { plan.trials });
        plan.resolve()
    }
}

/// Runs the plans; returns how many figures were made, and how many were kept from an earlier run; none if interrupted.
fn make(
    flags: &FigureFlags,
    plans: &[(Figure, SweepPlan)],
    store: &mut FigureStore,
) -> anyhow::Result<Option<[usize; 2]>> {
    let [mut made, mut kept] = [0, 0];
    let engine = SweepEngine::new(flags.threads)?;
    for (figure, plan) in plans {
        let figure = *figure;
        let recipe = Recipe { seed: flags.seed, trials: plan.trials, sources: SOURCES.into() };
        if flags.resume && store.has(figure, &recipe) {
            kept += 1;
            continue;
        }
        let units = store.units(figure);
        let header = ShardHeader::new(plan, Shard::WHOLE);
        // Units of another plan or build are of no use.
        let opened = match ShardFile::open(&units, &header, flags.resume) {
            Err(_) if units.exists() => {
                std::fs::remove_dir_all(&units)?;
                ShardFile::open(&units, &header, false)?
            }
            opened => opened?,
        };
        let place = format!("figure {} of {}", made + kept + 1, plans.len());
        let title = format!("{figure}: {} trials per point, {place}", plan.trials);
        let [done, all] = engine.work(plan, Shard::WHOLE, opened, &title)?;
        if done < all {
            let kept = format!("{done} of {all} units of {figure} are kept in {}", units.display());
            note(&format!("hyloc: interrupted; {kept}: --resume goes on"));
            return Ok(None);
        }
        store.install(figure, &recipe, &files(figure, csv(figure, engine::rows(&units, plan)?)?)?)?;
        std::fs::remove_dir_all(&units).with_context(|| format!("cannot remove {}", units.display()))?;
        made += 1;
    }
    Ok(Some([made, kept]))
}

/// The data of a figure from the rows of its plan.
pub(crate) fn csv(figure: Figure, rows: Vec<SweepRow>) -> anyhow::Result<String> {
    let row = |row: SweepRow| {
        let SweepRow { x, scheme, metric, estimate, trials, .. } = row;
        Row { figure, x, scheme, metric, estimate, trials }
    };
    let beside = if figure == Figure::TrackingPower { from_csv(STONE_SOUP)? } else { Vec::new() };
    Ok(to_csv(&rows.into_iter().map(row).chain(beside).collect::<Vec<_>>()))
}

/// The files of a figure by their endings; the plot shows the rows as the data hold them.
pub(crate) fn files(figure: Figure, csv: String) -> anyhow::Result<FigureFiles> {
    let plot = layouts::plot(figure, &from_csv(&csv)?);
    Ok([("csv", csv.into()), ("svg", plot::to_svg(&plot).into()), ("png", plot::to_png(&plot)?)])
}

/// The figure that these rows make.
pub fn svg(figure: Figure, rows: &[Row]) -> String {
    plot::to_svg(&layouts::plot(figure, rows))
}
