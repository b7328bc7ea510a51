//! Runs the units of a sweep on all cores, and makes rows from the outcomes of all units.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use super::plan::SweepPlan;
use super::rows::{PointErrors, SweepRow, rows_of};
use super::store::{Finished, Shard, ShardFile, UNIT_TRIALS, unit_count, units_per_point};
use super::trial::{TrialChain, TrialOutcome};
use crate::commands::note;

/// How the work ended.
#[derive(Debug, PartialEq, Eq)]
pub enum SweepEnd {
    Complete,
    /// By a signal, after so many units.
    Interrupted {
        done: u64,
    },
}

/// Does the units of a shard that are not finished yet, and adds them to its file.
pub fn work(
    plan: &SweepPlan,
    shard: Shard,
    finished: &Finished,
    threads: Option<usize>,
    file: &mut ShardFile,
) -> anyhow::Result<SweepEnd> {
    let threads = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0));
    let pool = threads.build().context("cannot start threads")?;
    let stop = stop_signal()?;
    let open: Vec<u64> =
        (0..unit_count(plan)).filter(|unit| shard.has(*unit) && !finished.contains_key(unit)).collect();
    let bar = progress_bar(plan, open.len())?;
    let (file, done) = (Mutex::new(file), AtomicU64::new(finished.len() as u64));
    let outcome = pool.install(|| {
        open.into_par_iter().try_for_each(|unit| {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let Some(outcomes) = run_unit(plan, unit, &bar, &stop)? else { return Ok(()) };
            done.fetch_add(1, Ordering::Relaxed);
            file.lock().unwrap_or_else(PoisonError::into_inner).add(unit, outcomes)
        })
    });
    bar.finish_and_clear();
    outcome?;
    let done = done.into_inner();
    let all = (0..unit_count(plan)).filter(|&unit| shard.has(unit)).count() as u64;
    Ok(if done == all { SweepEnd::Complete } else { SweepEnd::Interrupted { done } })
}

/// The outcomes of a unit, in the order of its trials; none if it was interrupted.
fn run_unit(
    plan: &SweepPlan,
    unit: u64,
    bar: &ProgressBar,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Vec<TrialOutcome>>> {
    let per_point = units_per_point(plan);
    let point = &plan.points[(unit / per_point) as usize];
    let chain = TrialChain::new(point).with_context(|| format!("point {}", point.values.join(", ")))?;
    let trials = |from: u64, to: u64| {
        let each = (from..to).into_par_iter().map(|trial| {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let outcome = chain.run(trial).map(Some);
            bar.inc(1);
            outcome
        });
        each.collect::<anyhow::Result<Option<Vec<TrialOutcome>>>>()
    };
    let Some(width_db) = plan.gap_interval_db else {
        let from = unit % per_point * UNIT_TRIALS;
        return trials(from, plan.trials.min(from + UNIT_TRIALS));
    };
    // The interval is looked at after fixed numbers of trials, so that a point ends at the same one everywhere.
    let mut outcomes: Vec<TrialOutcome> = Vec::new();
    while (outcomes.len() as u64) < plan.trials {
        let from = outcomes.len() as u64;
        let Some(more) = trials(from, plan.trials.min(from + UNIT_TRIALS))? else { return Ok(None) };
        outcomes.extend(more);
        let errors = PointErrors::new(&outcomes);
        let gap = errors.gap_db(|_| true);
        if errors.trials() as u64 >= UNIT_TRIALS && gap.high - gap.low <= width_db {
            bar.inc(plan.trials - outcomes.len() as u64);
            break;
        }
    }
    Ok(Some(outcomes))
}

/// The rows of all points; `outcomes` holds all units.
pub fn rows(plan: &SweepPlan, outcomes: &Finished) -> anyhow::Result<Vec<SweepRow>> {
    let per_point = units_per_point(plan);
    let rows = (0..plan.points.len()).into_par_iter().map(|index| {
        let units = index as u64 * per_point..(index as u64 + 1) * per_point;
        let all: Vec<TrialOutcome> =
            units.filter_map(|unit| outcomes.get(&unit)).flatten().cloned().collect();
        let point = &plan.points[index];
        let several = point.scenario.targets.len() != 1 || point.method.max_targets > 1;
        rows_of(index, point.scenario.coverage.axes().len(), several, &all)
    });
    Ok(rows.collect::<Vec<_>>().concat())
}

/// Becomes true when the process is told to stop; the second signal ends it at once.
fn stop_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let wait = move || {
        runtime.block_on(async {
            let Ok(signal) = telemetry::shutdown_signal() else { return };
            signal.cancelled().await;
            told.store(true, Ordering::Relaxed);
            note("hyloc: finishing the trials under way");
            // The runtime stays for the second signal.
            std::future::pending::<()>().await;
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread")?;
    Ok(stop)
}

/// Progress in trials, with the time that is left; a note instead where standard error is no terminal.
fn progress_bar(plan: &SweepPlan, units: usize) -> anyhow::Result<ProgressBar> {
    let per_unit = if plan.gap_interval_db.is_some() { plan.trials } else { UNIT_TRIALS.min(plan.trials) };
    let style = ProgressStyle::with_template("{msg} {bar:30} {percent:>3} %  {elapsed} elapsed, {eta} left")
        .context("the progress bar has a bad template")?;
    let bar = ProgressBar::new(units as u64 * per_unit).with_style(style).with_message("sweep");
    if bar.is_hidden() {
        note(&format!("sweep: {} points, {} trials each", plan.points.len(), plan.trials));
    }
    Ok(bar)
}
