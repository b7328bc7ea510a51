//! Runs the units of a plan on all cores, and makes rows from the outcomes of all units. The only loop over trials.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use indicatif::ProgressBar;
use rayon::prelude::*;

use super::measure::{KeptOutcome, Trials};
use super::output::gather;
use super::plan::SweepPlan;
use super::rows::SweepRow;
use super::store::{Finished, Shard, ShardFile, unit_count, units_per_point};
use crate::commands::{note, progress_bar};

/// Threads, and the signal that stops them.
pub struct SweepEngine {
    pool: rayon::ThreadPool,
    stop: Arc<AtomicBool>,
}

impl SweepEngine {
    /// With this many threads, or as many as there are cores.
    pub fn new(threads: Option<usize>) -> anyhow::Result<Self> {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0));
        Ok(Self { pool: threads.build().context("cannot start threads")?, stop: stop_signal()? })
    }

    /// Does the units of a shard that are not finished yet, and adds them to its file. Returns how many are finished, and of how many:
    /// fewer if a signal ended the work.
    pub fn work(
        &self,
        plan: &SweepPlan,
        shard: Shard,
        (file, finished): (ShardFile, Finished),
        title: &str,
    ) -> anyhow::Result<[u64; 2]> {
        let units = (0..unit_count(plan)).filter(|&unit| shard.has(unit));
        let (kept, open): (Vec<u64>, Vec<u64>) = units.partition(|unit| finished.contains_key(unit));
        let all = (kept.len() + open.len()) as u64;
        let points = PreparedPoints {
            plan,
            kept: Mutex::default(),
            stop: &self.stop,
            bar: progress(plan, open.len(), title),
        };
        let (file, done) = (Mutex::new(file), AtomicU64::new(kept.len() as u64));
        let outcome = self.pool.install(|| {
            open.into_par_iter().try_for_each(|unit| {
                let Some(outcomes) = points.run_unit(unit)? else { return Ok(()) };
                done.fetch_add(1, Ordering::Relaxed);
                file.lock().unwrap_or_else(PoisonError::into_inner).add(unit, outcomes)
            })
        });
        points.bar.finish_and_clear();
        outcome?;
        Ok([done.into_inner(), all])
    }
}

/// The points of a plan; what the trials of a point share is made once for the units that come close to each other.
struct PreparedPoints<'a> {
    plan: &'a SweepPlan,
    /// The latest points, as many as there are threads.
    kept: Mutex<VecDeque<(usize, Arc<Trials>)>>,
    stop: &'a AtomicBool,
    bar: ProgressBar,
}

impl PreparedPoints<'_> {
    fn at(&self, point: usize) -> anyhow::Result<Arc<Trials>> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, trials)) = kept().iter().find(|(index, _)| *index == point) {
            return Ok(trials.clone());
        }
        // Without the lock: two threads may make the same one.
        let values = || format!("point {}", self.plan.points[point].values.join(", "));
        let made = Arc::new((self.plan.measure.trials)(&self.plan.points[point]).with_context(values)?);
        let mut kept = kept();
        kept.push_back((point, made.clone()));
        while kept.len() > rayon::current_num_threads() {
            kept.pop_front();
        }
        Ok(made)
    }

    /// The outcomes of a unit, in the order of its trials; none if it was interrupted.
    fn run_unit(&self, unit: u64) -> anyhow::Result<Option<Vec<KeptOutcome>>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let plan = self.plan;
        let (per_point, unit_trials) = (units_per_point(plan), plan.measure.unit_trials);
        let point = (unit / per_point) as usize;
        let prepared = self.at(point)?;
        let trials = |from: u64| {
            let each = (from..plan.trials.min(from + unit_trials)).into_par_iter().map(|trial| {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let outcome = prepared(trial).map(Some);
                self.bar.inc(1);
                outcome
            });
            each.collect::<anyhow::Result<Option<Vec<KeptOutcome>>>>()
        };
        let Some(width_db) = plan.gap_interval_db else { return trials(unit % per_point * unit_trials) };
        // The interval is looked at after fixed numbers of trials, so that a point ends at the same one everywhere.
        let mut outcomes: Vec<KeptOutcome> = Vec::new();
        while (outcomes.len() as u64) < plan.trials {
            let Some(more) = trials(outcomes.len() as u64)? else { return Ok(None) };
            outcomes.extend(more);
            if (plan.measure.gap_interval_db)(&outcomes)? <= width_db {
                self.bar.inc(plan.trials - outcomes.len() as u64);
                break;
            }
        }
        Ok(Some(outcomes))
    }
}

/// The rows of all points, from the complete shards of a directory.
pub fn rows(folder: &Path, plan: &SweepPlan) -> anyhow::Result<Vec<SweepRow>> {
    let (outcomes, per_point) = (gather(folder, plan)?, units_per_point(plan));
    let rows = plan.points.par_iter().map(|point| {
        let units = point.index as u64 * per_point..(point.index as u64 + 1) * per_point;
        let own: Vec<KeptOutcome> =
            outcomes.range(units).flat_map(|(_, outcomes)| outcomes.clone()).collect();
        (plan.measure.rows)(point, &own)
    });
    Ok(rows.collect::<anyhow::Result<Vec<_>>>()?.concat())
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

/// Progress in trials; a note instead where standard error is no terminal.
fn progress(plan: &SweepPlan, units: usize, title: &str) -> ProgressBar {
    let per_unit =
        if plan.gap_interval_db.is_some() { plan.trials } else { plan.measure.unit_trials.min(plan.trials) };
    let bar = progress_bar(units * per_unit as usize, plan.name());
    if bar.is_hidden() {
        note(title);
    }
    bar
}
