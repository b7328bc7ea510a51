//! The directory of a sweep: the plan, the files of the shards, and the results.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use telemetry::exit::{self, Failure};

use super::PLAN_COPY;
use super::measure::FIX;
use super::parquet::to_parquet;
use super::plan::{PlanFile, SweepPlan};
use super::plots::over_axis;
use super::rows::{SweepRow, to_csv};
use super::store::{Finished, Shard, ShardHeader, read, same, unit_count};
use crate::commands::{replace_file, say, written};
use crate::figures::plot::{to_png, to_svg};
use crate::figures::{csv, files};

/// The plan of a directory, with its identity.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPlan {
    identity: String,
    plan: PlanFile,
}

/// Refuses a directory that has the plan of another sweep.
pub fn check_free(folder: &Path, plan: &SweepPlan) -> anyhow::Result<()> {
    let path = folder.join(PLAN_COPY);
    if path.exists() && stored(&path)?.identity != plan.identity {
        let reason = format!(
            "{} holds a sweep of another plan: nothing was changed; give another directory with --out",
            folder.display()
        );
        bail!(Failure::new(exit::USAGE, reason));
    }
    Ok(())
}

/// Writes the plan beside the results, so that a merge needs nothing else.
pub fn write_plan(folder: &Path, file: &PlanFile, plan: &SweepPlan) -> anyhow::Result<()> {
    let mut file = file.clone();
    // The plan may be merged from another directory.
    file.scenario = file.scenario.map(|path| std::path::absolute(&path).unwrap_or(path));
    let stored = StoredPlan { identity: plan.identity.clone(), plan: file };
    replace_file(&folder.join(PLAN_COPY), serde_json::to_string_pretty(&stored)?.as_bytes())
}

fn stored(path: &Path) -> anyhow::Result<StoredPlan> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let damaged = |error| Failure::new(exit::DATA, format!("{}: {error}", path.display()));
    Ok(serde_json::from_str(&text).map_err(damaged)?)
}

/// The plan of a directory.
pub fn read_plan(folder: &Path) -> anyhow::Result<SweepPlan> {
    let path = folder.join(PLAN_COPY);
    let reason = format!("{} is no directory of a sweep: it has no {PLAN_COPY}", folder.display());
    ensure!(path.exists(), Failure::new(exit::DATA, reason));
    let StoredPlan { identity, plan } = stored(&path)?;
    let plan = plan.resolve()?;
    let reason = format!(
        "{}: the scenario file of the plan has changed since, or this is another build; nothing was changed",
        path.display()
    );
    ensure!(plan.identity == identity, Failure::new(exit::DATA, reason));
    Ok(plan)
}

/// The outcomes of all shards of a directory. A shard that is missing, incomplete, damaged, or of another plan or build is refused by
/// its name.
pub fn gather(folder: &Path, plan: &SweepPlan) -> anyhow::Result<Finished> {
    let refused = |reason: String| Failure::new(exit::DATA, reason);
    let mut shards = BTreeMap::new();
    for path in shard_files(folder)? {
        let (found, finished, _) = read(&path)?;
        let Shard { index, count } = found.shard;
        let belongs =
            path.ends_with(found.shard.file_name()) && shards.keys().all(|&(_, other)| other == count);
        let reason =
            format!("{} does not belong to the other shards of this sweep: move it away", path.display());
        ensure!(belongs, refused(reason));
        same(&path, &found, &ShardHeader::new(plan, found.shard))?;
        shards.insert((index, count), (path, finished));
    }
    let Some(&(_, count)) = shards.keys().next() else {
        bail!(refused(format!("{} has no shard", folder.display())))
    };
    let mut all = Finished::new();
    for index in 0..count {
        let shard = Shard { index, count };
        let (path, finished) = shards.remove(&(index, count)).ok_or_else(|| {
            let path = folder.join(shard.file_name());
            refused(format!("{} is missing: run --shard {index}/{count}", path.display()))
        })?;
        let units: Vec<u64> = (0..unit_count(plan)).filter(|&unit| shard.has(unit)).collect();
        let done = units.iter().filter(|unit| finished.contains_key(unit)).count();
        let reason = format!("{} is incomplete: {done} of {} units", path.display(), units.len());
        ensure!(done == units.len(), refused(format!("{reason}; run --shard {index}/{count} --resume")));
        all.extend(finished.into_iter().filter(|(unit, _)| shard.has(*unit)));
    }
    Ok(all)
}

fn shard_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("shard-") && name.ends_with(".jsonl")
    });
    paths.sort();
    Ok(paths)
}

/// Writes CSV, Parquet and plots: one over each axis, or the figure of the report.
pub fn write(folder: &Path, plan: &SweepPlan, rows: &[SweepRow]) -> anyhow::Result<()> {
    let columns = folder.join("sweep.parquet");
    replace_file(&folder.join("sweep.csv"), to_csv(plan, rows).as_bytes())?;
    replace_file(&columns, &to_parquet(&columns, plan, rows)?)?;
    if let Some(figure) = plan.figure {
        for (ending, content) in files(figure, csv(figure, rows.to_vec())?)? {
            replace_file(&folder.join(format!("{figure}.{ending}")), &content)?;
        }
    }
    for (axis, key) in plan.axes.iter().enumerate().filter(|_| plan.measure.name == FIX) {
        let plot = over_axis(plan, axis, rows);
        let name: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        replace_file(&folder.join(format!("plot-{name}.svg")), to_svg(&plot).as_bytes())?;
        replace_file(&folder.join(format!("plot-{name}.png")), &to_png(&plot)?)?;
    }
    Ok(())
}

/// Prints the main figures of every point; of other measures than fixes, where they are.
pub fn summarise(folder: &Path, plan: &SweepPlan, rows: &[SweepRow], as_json: bool) {
    let of = |point: usize, metric: &str| rows.iter().find(|row| row.point == point && row.metric == metric);
    if as_json {
        let value = |row: &SweepRow| json!([row.estimate.value, row.estimate.low, row.estimate.high]);
        let point = |index: usize| {
            let axes: serde_json::Map<_, _> =
                plan.axes.iter().cloned().zip(plan.points[index].values.iter().map(|v| json!(v))).collect();
            let own = rows.iter().filter(|row| row.point == index);
            let name = |row: &SweepRow| match row.scheme.as_str() {
                "" => row.metric.clone(),
                scheme => format!("{scheme} {} at {}", row.metric, row.x),
            };
            let metrics: serde_json::Map<_, _> = own.map(|row| (name(row), value(row))).collect();
            json!({"axes": axes, "metrics": metrics})
        };
        let points: Vec<_> = (0..plan.points.len()).map(point).collect();
        say(&json!({"directory": folder, "points": points}).to_string());
        return;
    }
    if plan.measure.name != FIX {
        return say(&format!("Results: {}", folder.join("sweep.csv").display()));
    }
    let text = |row: Option<&SweepRow>, places: usize| {
        row.map_or("-".to_owned(), |row| {
            let estimate = row.estimate;
            format!("{:.places$} [{:.places$}, {:.places$}]", estimate.value, estimate.low, estimate.high)
        })
    };
    say(&written(|out| {
        use std::fmt::Write;
        let keys = plan.axes.iter().map(|key| format!("{key:>24}")).collect::<String>();
        writeln!(
            out,
            "{keys}  {:>26}  {:>24}  {:>22}  {:>24}",
            "rms error (m)", "gap (dB)", "NEES", "availability"
        )?;
        for (index, point) in plan.points.iter().enumerate() {
            let values = point.values.iter().map(|value| format!("{value:>24}")).collect::<String>();
            writeln!(
                out,
                "{values}  {:>26}  {:>24}  {:>22}  {:>24}",
                text(of(index, "rms_error_m"), 4),
                text(of(index, "gap_db"), 2),
                text(of(index, "nees"), 2),
                text(of(index, "availability"), 3)
            )?;
        }
        writeln!(out, "Results: {}", folder.join("sweep.csv").display())
    }));
}
