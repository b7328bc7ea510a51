//! The directory of a sweep: the plan, the files of the shards, and the results.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use telemetry::exit::{self, Failure};

use super::PLAN_COPY;
use super::parquet::to_parquet;
use super::plan::{PlanFile, SweepPlan};
use super::plots::over_axis;
use super::rows::{SweepRow, to_csv};
use super::store::{Finished, Shard, ShardHeader, read, same, unit_count};
use crate::commands::{say, write_file, written};
use crate::figures::plot::{to_png, to_svg};

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
    replace(&folder.join(PLAN_COPY), serde_json::to_string_pretty(&stored)?.as_bytes())
}

fn stored(path: &Path) -> anyhow::Result<StoredPlan> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let damaged = |error| Failure::new(exit::DATA, format!("{}: {error}", path.display()));
    Ok(serde_json::from_str(&text).map_err(damaged)?)
}

/// The plan of a directory.
pub fn read_plan(folder: &Path) -> anyhow::Result<PlanFile> {
    let path = folder.join(PLAN_COPY);
    let reason = format!("{} is no directory of a sweep: it has no {PLAN_COPY}", folder.display());
    ensure!(path.exists(), Failure::new(exit::DATA, reason));
    let StoredPlan { identity, plan } = stored(&path)?;
    let now = plan.resolve()?.identity;
    let reason = format!(
        "{}: the scenario file of the plan has changed since, or this is another build; nothing was changed",
        path.display()
    );
    ensure!(now == identity, Failure::new(exit::DATA, reason));
    Ok(plan)
}

/// The outcomes of all shards of a directory. A shard that is missing, incomplete, damaged, or of another plan or build is refused by
/// its name.
pub fn gather(folder: &Path, plan: &SweepPlan, sources: &str) -> anyhow::Result<Finished> {
    let paths = shard_files(folder)?;
    let count = paths.iter().find_map(|path| Some(read(path).ok()?.0.shard.count));
    let count = match count {
        Some(count) => count,
        None => match paths.first() {
            // The error says what is wrong with it.
            Some(path) => read(path)?.0.shard.count,
            None => bail!(Failure::new(exit::DATA, format!("{} has no shard", folder.display()))),
        },
    };
    let mut all = Finished::new();
    for index in 0..count {
        let shard = Shard { index, count };
        let path = folder.join(shard.file_name());
        let missing = || {
            Failure::new(exit::DATA, format!("{} is missing: run --shard {index}/{count}", path.display()))
        };
        ensure!(path.exists(), missing());
        let (found, finished, _) = read(&path)?;
        same(&path, &found, &ShardHeader { plan: plan.identity.clone(), sources: sources.into(), shard })?;
        let units: Vec<u64> = (0..unit_count(plan)).filter(|&unit| shard.has(unit)).collect();
        let done = units.iter().filter(|unit| finished.contains_key(unit)).count();
        let incomplete = || {
            let all = units.len();
            let reason = format!("{} is incomplete: {done} of {all} units", path.display());
            Failure::new(exit::DATA, format!("{reason}; run --shard {index}/{count} --resume"))
        };
        ensure!(done == units.len(), incomplete());
        all.extend(finished.into_iter().filter(|(unit, _)| shard.has(*unit)));
    }
    let expected =
        |path: &&PathBuf| !(0..count).any(|index| path.ends_with(Shard { index, count }.file_name()));
    if let Some(foreign) = paths.iter().find(expected) {
        let reason = format!(
            "{} does not belong to the {count} shards of this sweep: move it away",
            foreign.display()
        );
        bail!(Failure::new(exit::DATA, reason));
    }
    Ok(all)
}

fn shard_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read {}", folder.display());
    let entries = fs::read_dir(folder).with_context(unreadable)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("shard-") && name.ends_with(".jsonl")
    });
    paths.sort();
    Ok(paths)
}

/// Writes CSV, Parquet and plots.
pub fn write(folder: &Path, plan: &SweepPlan, rows: &[SweepRow]) -> anyhow::Result<()> {
    let (csv, columns) = (folder.join("sweep.csv"), folder.join("sweep.parquet"));
    replace(&csv, to_csv(plan, rows).as_bytes())?;
    replace(&columns, &to_parquet(&columns, plan, rows)?)?;
    for (axis, key) in plan.axes.iter().enumerate() {
        let plot = over_axis(plan, axis, rows);
        let name: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        replace(&folder.join(format!("plot-{name}.svg")), to_svg(&plot).as_bytes())?;
        replace(&folder.join(format!("plot-{name}.png")), &to_png(&plot)?)?;
    }
    Ok(())
}

/// Writes a file under a temporary name and renames it.
fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let partial = path.with_added_extension("partial");
    write_file(&partial, content)?;
    fs::rename(&partial, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints the main figures of every point.
pub fn summarise(folder: &Path, plan: &SweepPlan, rows: &[SweepRow], as_json: bool) {
    let of = |point: usize, metric: &str| rows.iter().find(|row| row.point == point && row.metric == metric);
    if as_json {
        let value = |row: &SweepRow| json!([row.estimate.value, row.estimate.low, row.estimate.high]);
        let point = |index: usize| {
            let axes: serde_json::Map<_, _> =
                plan.axes.iter().cloned().zip(plan.points[index].values.iter().map(|v| json!(v))).collect();
            let own = rows.iter().filter(|row| row.point == index);
            let metrics: serde_json::Map<_, _> = own.map(|row| (row.metric.to_owned(), value(row))).collect();
            json!({"axes": axes, "metrics": metrics})
        };
        let points: Vec<_> = (0..plan.points.len()).map(point).collect();
        say(&json!({"directory": folder, "points": points}).to_string());
        return;
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
