//! `hyloc figures`: every figure of Section VI and additional ones, as data and plots, and a verdict on every claim.
//!
//! For each requested figure: Monte Carlo (`study`), rows ([`rows`]), plot (`layouts`, `plot`), files (`store`); then the
//! claims are judged by the rows ([`claims`]) and reported (`report`, [`tables`]). Everything after the rows is made from
//! the CSV files alone and can be made again from them (`--redraw`).

pub mod catalogue;
pub mod claims;
mod layouts;
pub(crate) mod plot;
mod report;
pub mod rows;
pub mod statistics;
mod store;
mod study;
pub mod tables;

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use telemetry::exit::{self, Failure};

use crate::commands::{note, say};
use catalogue::Figure;
use rows::{Row, from_csv, to_csv};
use store::{Drawing, FigureStore, Recipe};
use study::Study;
pub(crate) use study::chain::{GROSS_M, nodes};
pub use study::tracking_power;

#[derive(Debug, Clone, Args)]
pub struct FigureFlags {
    #[arg(long, value_name = "NAME", num_args = 1.., help = format!("Figures to make, all by default: {}", names()))]
    only: Vec<String>,
    /// Trials per point, instead of the default of each figure.
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
    /// Keep figures that an earlier run with the same seed, trials and code finished.
    #[arg(long)]
    resume: bool,
    /// Run no trials: draw plots and report again from the CSV files in DIR.
    #[arg(long, conflicts_with_all = ["only", "trials", "quick", "resume", "seed", "threads"])]
    redraw: bool,
    /// Threads; all cores by default.
    #[arg(long, value_name = "N", hide = true)]
    threads: Option<usize>,
}

/// Maximum number of trials per point; limits the memory of the resamples.
const MOST_TRIALS: u64 = 100_000;

/// Makes the figures and the report, and prints a summary.
pub fn run(flags: &FigureFlags) -> anyhow::Result<()> {
    let figures = chosen_figures(&flags.only)?;
    if let Some(trials) = flags.trials.filter(|trials| !(1..=MOST_TRIALS).contains(trials)) {
        let reason = format!("--trials {trials}: give between 1 and {MOST_TRIALS} trials per point");
        bail!(Failure::new(exit::USAGE, reason));
    }
    if flags.quick && flags.trials.is_some() {
        note("hyloc: warning: --quick has no effect: --trials sets the number of trials");
    }
    let threads = flags.threads.unwrap_or(0);
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().context("cannot start threads")?;
    let mut store = FigureStore::open(&flags.out)?;
    let [made, kept] = if flags.redraw {
        store.redraw(drawing)?;
        [0, 0]
    } else {
        pool.install(|| make(flags, &figures, &mut store))?
    };
    let [reproduced, partly, not_reproduced, not_measured] = report::write(&store)?;
    say(&format!(
        "Figures: {made} made, {kept} taken over. Claims: {reproduced} reproduced, {partly} partly, {not_reproduced} not \
         reproduced, {not_measured} not measured. Report: {}",
        store.path("report.html").display()
    ));
    Ok(())
}

fn names() -> String {
    Figure::ALL.map(Figure::name).join(", ")
}

fn chosen_figures(names: &[String]) -> anyhow::Result<Vec<Figure>> {
    if let Some(name) = names.iter().find(|name| Figure::parse(name).is_none()) {
        let reason = format!("there is no figure `{name}`; there are {}", self::names());
        bail!(Failure::new(exit::USAGE, reason));
    }
    let chosen = |figure: &Figure| names.is_empty() || names.iter().any(|name| name == figure.name());
    Ok(Figure::ALL.into_iter().filter(chosen).collect())
}

/// Makes the figures; returns how many were made, and how many were kept from an earlier run.
fn make(flags: &FigureFlags, figures: &[Figure], store: &mut FigureStore) -> anyhow::Result<[usize; 2]> {
    let bars = MultiProgress::new();
    let [mut made, mut kept] = [0, 0];
    for &figure in figures {
        let recipe = Recipe {
            seed: flags.seed,
            trials: flags.trials.unwrap_or(figure.default_trials(flags.quick)),
            sources: env!("HYLOC_FIGURE_SOURCES").into(),
        };
        if flags.resume && store.has(figure, &recipe) {
            kept += 1;
            continue;
        }
        let bar = bars.add(progress_bar(figure)?);
        if bar.is_hidden() {
            note(&format!(
                "{figure}: {} trials per point, figure {} of {}",
                recipe.trials,
                made + kept + 1,
                figures.len()
            ));
        }
        let rows = Study { figure, seed: recipe.seed, trials: recipe.trials, progress: &bar }.rows()?;
        // The plot shows the rows as the file holds them.
        let csv = to_csv(&rows);
        store.install(figure, &recipe, &csv, &drawing(figure, &from_csv(&csv)?)?)?;
        bar.finish();
        made += 1;
    }
    Ok([made, kept])
}

fn drawing(figure: Figure, rows: &[Row]) -> anyhow::Result<Drawing> {
    let plot = layouts::plot(figure, rows);
    Ok(Drawing { svg: plot::to_svg(&plot), png: plot::to_png(&plot)? })
}

/// The figure that these rows make.
pub fn svg(figure: Figure, rows: &[Row]) -> String {
    plot::to_svg(&layouts::plot(figure, rows))
}

/// Progress bar of a figure; hidden if standard error is not a terminal. The study sets its length.
fn progress_bar(figure: Figure) -> anyhow::Result<ProgressBar> {
    let style =
        ProgressStyle::with_template("{msg:18} {bar:30} {percent:>3} %  {elapsed} elapsed, {eta} left")
            .context("the progress bar has a bad template")?;
    Ok(ProgressBar::new(0).with_style(style).with_message(figure.name()))
}
