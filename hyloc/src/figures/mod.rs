//! `hyloc figures`: every figure of Section VI and ours, as data, as plots, and as a verdict on every claim.
//!
//! A run is: resolve the request; for each figure, Monte Carlo (`study`), rows ([`rows`]), plot (`layouts`, `plot`),
//! files (`store`); then hold the claims against the rows ([`claims`]) and report (`report`, [`tables`]). Everything behind the
//! rows is made from the CSV files alone, and can be made again from them (`--redraw`).

pub mod catalogue;
pub mod claims;
mod layouts;
pub(crate) mod plot;
mod report;
pub mod rows;
#[cfg(test)]
mod sources;
pub mod statistics;
mod store;
mod study;
pub mod tables;

use std::path::PathBuf;

use anyhow::{Context, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use catalogue::{Effort, Figure};
use rows::{Row, from_csv, to_csv};
use store::{Drawing, Recipe, Store};
use study::{Study, point_count};

/// What is asked for, as it comes from the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Names of figures; all when empty.
    pub only: Vec<String>,
    /// Trials per point; the figure's own number when none.
    pub trials: Option<u64>,
    /// Seed of everything random.
    pub seed: u64,
    /// Where the files go.
    pub out: PathBuf,
    /// Fewer trials: the shapes within a minute.
    pub quick: bool,
    /// Take over what an earlier run with the same settings and the same code finished.
    pub resume: bool,
    /// No trials: draw plots and report again from the data that are there.
    pub redraw: bool,
    /// Threads; all cores when none.
    pub threads: Option<usize>,
}

/// What a run left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Figures made anew.
    pub made: Vec<Figure>,
    /// Figures taken over.
    pub resumed: Vec<Figure>,
    /// Verdicts: reproduced, partly, not reproduced, not measured.
    pub verdicts: [usize; 4],
    /// The report.
    pub report: PathBuf,
}

/// Most trials per point: keeps tables of resamples in memory.
const MOST_TRIALS: u64 = 100_000;

/// Makes the figures and the report.
pub fn run(request: &Request) -> anyhow::Result<Outcome> {
    let figures = chosen_figures(&request.only)?;
    if let Some(trials) = request.trials.filter(|trials| !(1..=MOST_TRIALS).contains(trials)) {
        bail!("--trials {trials}: give between 1 and {MOST_TRIALS} trials per point");
    }
    let threads = request.threads.unwrap_or(0);
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().context("cannot start threads")?;
    let mut store = Store::open(&request.out)?;
    if request.redraw {
        store.redraw(drawing)?;
        return Ok(Outcome::new(&store, Vec::new(), Vec::new(), report::write(&store)?));
    }
    pool.install(|| make(request, &figures, store))
}

fn chosen_figures(names: &[String]) -> anyhow::Result<Vec<Figure>> {
    if names.is_empty() {
        return Ok(Figure::ALL.to_vec());
    }
    let known = || Figure::ALL.map(Figure::name).join(", ");
    let mut chosen = names
        .iter()
        .map(|name| {
            Figure::parse(name).with_context(|| format!("there is no figure `{name}`; there are {}", known()))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

fn make(request: &Request, figures: &[Figure], mut store: Store) -> anyhow::Result<Outcome> {
    let effort = if request.quick { Effort::Quick } else { Effort::Full };
    let bars = MultiProgress::new();
    let (mut made, mut resumed) = (Vec::new(), Vec::new());
    for &figure in figures {
        let recipe = Recipe {
            seed: request.seed,
            trials: request.trials.unwrap_or(figure.default_trials(effort)),
            sources: env!("HYLOC_FIGURE_SOURCES").into(),
        };
        if request.resume && store.matching(figure, &recipe).is_some() {
            resumed.push(figure);
            continue;
        }
        let bar = bars.add(progress_bar(figure, &recipe)?);
        let rows = Study { figure, seed: recipe.seed, trials: recipe.trials, progress: &bar }.rows()?;
        install(&mut store, figure, &recipe, &rows)?;
        bar.finish();
        made.push(figure);
    }
    let verdicts = report::write(&store)?;
    Ok(Outcome::new(&store, made, resumed, verdicts))
}

impl Outcome {
    fn new(store: &Store, made: Vec<Figure>, resumed: Vec<Figure>, verdicts: [usize; 4]) -> Self {
        Self { made, resumed, verdicts, report: store.path("report.html") }
    }
}

/// Installs rows with the plot of what their file holds.
fn install(store: &mut Store, figure: Figure, recipe: &Recipe, rows: &[Row]) -> anyhow::Result<()> {
    let csv = to_csv(rows);
    let drawing = drawing(figure, &from_csv(&csv)?)?;
    store.install(figure, recipe, &csv, &drawing)
}

fn drawing(figure: Figure, rows: &[Row]) -> anyhow::Result<Drawing> {
    let svg = svg(figure, rows);
    let png = plot::to_png(&svg)?;
    Ok(Drawing { svg, png })
}

/// The plot of a figure from its rows.
pub fn svg(figure: Figure, rows: &[Row]) -> String {
    plot::to_svg(&layouts::plot(figure, rows))
}

/// One bar per figure, with the time left; hidden where standard error is not a terminal.
fn progress_bar(figure: Figure, recipe: &Recipe) -> anyhow::Result<ProgressBar> {
    let style = ProgressStyle::with_template("{msg:18} {bar:30} {percent:>3} %  {elapsed} gone, {eta} left")
        .context("the progress bar has a bad template")?;
    let bar = ProgressBar::new(recipe.trials * point_count(figure) as u64).with_style(style);
    bar.set_message(figure.name());
    Ok(bar)
}
