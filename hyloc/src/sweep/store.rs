//! What a sweep has done so far: one file per shard, in which every finished unit of work is one line with its checksum.
//!
//! A unit is a number of consecutive trials of one point, or a whole point where points end by themselves. Units are addressed
//! by the plan, so that any number of shards, threads and interruptions gives the same outcomes. The first line names plan,
//! sources and shard; a line that an interruption cut off is dropped when the file is opened again.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use telemetry::exit::{self, Failure};

use super::SOURCES;
use super::measure::KeptOutcome;
use super::plan::SweepPlan;

/// One part of a sweep, `index` of `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    pub index: u64,
    pub count: u64,
}

impl Shard {
    /// The whole sweep.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Whether a unit belongs to it.
    pub fn has(self, unit: u64) -> bool {
        unit % self.count == self.index
    }

    /// The name of its file.
    pub fn file_name(self) -> String {
        format!("shard-{}-of-{}.jsonl", self.index, self.count)
    }
}

/// What identifies results: only those of the same plan and the same sources belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardHeader {
    pub plan: String,
    pub sources: String,
    pub shard: Shard,
}

impl ShardHeader {
    /// Of this build.
    pub fn new(plan: &SweepPlan, shard: Shard) -> Self {
        Self { plan: plan.identity.clone(), sources: SOURCES.into(), shard }
    }
}

/// One finished unit.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnitLine {
    unit: u64,
    checksum: String,
    outcomes: Vec<KeptOutcome>,
}

/// Outcomes of finished units, by unit.
pub type Finished = BTreeMap<u64, Vec<KeptOutcome>>;

/// Number of units of a plan.
pub fn unit_count(plan: &SweepPlan) -> u64 {
    plan.points.len() as u64 * units_per_point(plan)
}

/// Units of every point: one where a point ends by itself.
pub fn units_per_point(plan: &SweepPlan) -> u64 {
    if plan.gap_interval_db.is_some() { 1 } else { plan.trials.div_ceil(plan.measure.unit_trials) }
}

/// The file of a shard, open for appending.
#[derive(Debug)]
pub struct ShardFile {
    file: File,
    path: PathBuf,
}

impl ShardFile {
    /// Opens the file of a shard in `folder` and returns what is finished. A file that exists is taken over only if `resume`
    /// says so, and only if it belongs to the same plan, sources and shard.
    pub fn open(folder: &Path, header: &ShardHeader, resume: bool) -> anyhow::Result<(Self, Finished)> {
        let unwritable = || format!("cannot write to the output directory {}", folder.display());
        std::fs::create_dir_all(folder).with_context(unwritable)?;
        let path = folder.join(header.shard.file_name());
        let mut finished = Finished::new();
        let mut whole = 0;
        if path.exists() {
            let reason = format!(
                "{} exists: --resume goes on with it, or give another directory with --out",
                path.display()
            );
            ensure!(resume, Failure::new(exit::USAGE, reason));
            let (found, units, length) = read(&path)?;
            same(&path, &found, header)?;
            (finished, whole) = (units, length);
        }
        let open = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            file.set_len(whole)?;
            std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().with_context(|| format!("cannot write {}", path.display()))?;
        let mut shard = Self { file, path };
        if whole == 0 {
            shard.append(&serde_json::to_string(header)?)?;
        }
        Ok((shard, finished))
    }

    /// Appends a finished unit.
    pub fn add(&mut self, unit: u64, outcomes: Vec<KeptOutcome>) -> anyhow::Result<()> {
        let checksum = checksum(unit, &outcomes)?;
        self.append(&serde_json::to_string(&UnitLine { unit, checksum, outcomes })?)
    }

    fn append(&mut self, line: &str) -> anyhow::Result<()> {
        // One call, so that an interruption leaves at most one partial line.
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The header of a shard's file, its finished units, and the length of its complete lines.
pub fn read(path: &Path) -> anyhow::Result<(ShardHeader, Finished, u64)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let damaged = |line: usize, reason: String| {
        Failure::new(exit::DATA, format!("{}, line {line}: {reason}", path.display()))
    };
    let complete = text.rfind('\n').map_or(0, |end| end + 1);
    let mut lines = text[..complete].lines();
    let first = lines.next().ok_or_else(|| damaged(1, "the file is empty: remove it".into()))?;
    let header: ShardHeader =
        serde_json::from_str(first).map_err(|_| damaged(1, "this is not a shard of a sweep".into()))?;
    let mut finished = Finished::new();
    for (i, line) in lines.enumerate() {
        let unit: UnitLine =
            serde_json::from_str(line).map_err(|error| damaged(i + 2, format!("damaged: {error}")))?;
        if checksum(unit.unit, &unit.outcomes)? != unit.checksum {
            bail!(damaged(i + 2, "damaged: the checksum does not match".into()));
        }
        finished.insert(unit.unit, unit.outcomes);
    }
    Ok((header, finished, complete as u64))
}

/// Refuses results of another plan, other sources or another shard, by name.
pub fn same(path: &Path, found: &ShardHeader, expected: &ShardHeader) -> anyhow::Result<()> {
    let other = match () {
        () if found.plan != expected.plan => "of another plan",
        () if found.sources != expected.sources => "made by a build of other sources",
        () if found.shard != expected.shard => "of another shard",
        () => return Ok(()),
    };
    bail!(Failure::new(
        exit::DATA,
        format!("{} is {other}: nothing was changed; give another directory with --out", path.display())
    ))
}

fn checksum(unit: u64, outcomes: &[KeptOutcome]) -> anyhow::Result<String> {
    let text = serde_json::to_string(&(unit, outcomes))?;
    Ok(format!("{:016x}", model::random::index_of(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(plan: &str) -> ShardHeader {
        ShardHeader { plan: plan.into(), sources: "s".into(), shard: Shard { index: 1, count: 3 } }
    }

    fn outcome(value: f64) -> KeptOutcome {
        serde_json::value::to_raw_value(&[value, 0.1 + 0.2]).unwrap()
    }

    #[test]
    fn finished_units_survive_and_a_cut_line_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, none) = ShardFile::open(folder.path(), &header("p"), false).unwrap();
        assert!(none.is_empty());
        file.add(4, vec![outcome(1.0 / 3.0)]).unwrap();
        drop(file);
        let path = folder.path().join("shard-1-of-3.jsonl");
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"unit\":7,")).unwrap();
        let refused = ShardFile::open(folder.path(), &header("p"), false).unwrap_err().to_string();
        assert!(refused.contains("--resume") && refused.contains("shard-1-of-3.jsonl"), "{refused}");
        let (mut file, kept) = ShardFile::open(folder.path(), &header("p"), true).unwrap();
        assert_eq!(kept.keys().copied().collect::<Vec<_>>(), [4]);
        assert_eq!(kept[&4][0].get(), outcome(1.0 / 3.0).get());
        file.add(7, vec![]).unwrap();
        assert_eq!(read(&path).unwrap().1.keys().copied().collect::<Vec<_>>(), [4, 7]);
    }

    #[test]
    fn other_plans_and_damage_are_refused_by_name_and_nothing_changes() {
        let folder = tempfile::tempdir().unwrap();
        ShardFile::open(folder.path(), &header("p"), false).unwrap().0.add(4, vec![outcome(0.25)]).unwrap();
        let path = folder.path().join("shard-1-of-3.jsonl");
        let before = std::fs::read_to_string(&path).unwrap();
        let refused = ShardFile::open(folder.path(), &header("q"), true).unwrap_err().to_string();
        assert!(refused.contains("another plan") && refused.contains("shard-1-of-3"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
        std::fs::write(&path, before.replace("0.25", "0.26")).unwrap();
        let refused = ShardFile::open(folder.path(), &header("p"), true).unwrap_err().to_string();
        assert!(refused.contains("line 2") && refused.contains("checksum"), "{refused}");
    }

    #[test]
    fn every_unit_has_one_shard() {
        for unit in 0..30 {
            let owners = (0..7).filter(|&index| Shard { index, count: 7 }.has(unit)).count();
            assert_eq!(owners, 1);
        }
    }
}
