//! Files of fixes: JSON lines, CSV, or a fix log of hyloc.

use std::collections::BTreeMap;
use std::path::Path;

use fusion_center::fix::FixRecord;
use fusion_center::place::FixPlace;
use fusion_center::score::stated_fix;
use fusion_center::targets::FixTarget;
use proto::convert::FrameId;
use serde::Deserialize;
use telemetry::exit::Failure;

use super::lines::{line_error, lines, meaning, object};

/// Columns of a CSV file; those of the covariance are either all there or none, those with a z only with `z_m`.
const COLUMNS: [&str; 12] =
    ["frame", "run", "status", "x_m", "y_m", "z_m", "xx_m2", "xy_m2", "xz_m2", "yy_m2", "yz_m2", "zz_m2"];

/// Columns of the covariance as its upper triangle, row by row.
const FLAT: [&str; 3] = ["xx_m2", "xy_m2", "yy_m2"];
const SPACE: [&str; 6] = ["xx_m2", "xy_m2", "xz_m2", "yy_m2", "yz_m2", "zz_m2"];

const STATUSES: [&str; 4] = ["nominal", "degraded", "doubtful", "unobservable"];

/// A fix with its line and its run, if it names one.
pub type StatedFix = (usize, Option<u64>, FixRecord);

/// A line by others.
#[derive(Deserialize)]
struct FixLine {
    frame: u64,
    run: Option<u64>,
    status: Option<String>,
    position_m: Option<FixPlace>,
    covariance_m2: Option<Vec<f64>>,
    targets: Option<Vec<TargetLine>>,
}

#[derive(Deserialize)]
struct TargetLine {
    position_m: FixPlace,
    covariance_m2: Option<Vec<f64>>,
}

/// Reads a file of fixes.
pub fn read(path: &Path) -> anyhow::Result<Vec<StatedFix>> {
    let mut all = lines(path)?.peekable();
    let json =
        all.peek().is_none_or(|line| line.as_ref().is_ok_and(|(_, line)| line.trim_start().starts_with('{')));
    let mut fixes = FixTable::default();
    if json {
        for line in all {
            let (line, text) = line?;
            fixes.add(path, json_fix(path, line, &text)?)?;
        }
        return Ok(fixes.0);
    }
    let Some((line, header)) = all.next().transpose()? else { return Ok(Vec::new()) };
    let columns = Columns::new(path, line, &header)?;
    for row in all {
        let (line, text) = row?;
        fixes.add(path, columns.fix(path, line, &text)?)?;
    }
    Ok(fixes.0)
}

/// Fixes in the order of the file.
#[derive(Default)]
struct FixTable(Vec<StatedFix>, BTreeMap<(Option<u64>, u64), usize>);

impl FixTable {
    /// Adds a line. Several lines of one frame are its targets, unless they have more to say.
    fn add(&mut self, path: &Path, (line, run, fix): StatedFix) -> Result<(), Failure> {
        let Self(fixes, places) = self;
        let Some(place) = places.get(&(run, fix.frame)) else {
            places.insert((run, fix.frame), fixes.len());
            fixes.push((line, run, fix));
            return Ok(());
        };
        let (first_line, _, before) = &mut fixes[*place];
        let own = |fix: &FixRecord| fix.timing.time_ns > 0;
        if own(before) || own(&fix) || before.status != fix.status {
            let problem = format!("{} occurs before, in line {first_line}", fix.frame);
            return Err(line_error(path, line, "frame", problem));
        }
        before.targets.extend(fix.targets);
        Ok(())
    }
}

fn json_fix(path: &Path, line: usize, text: &str) -> Result<StatedFix, Failure> {
    let value = object(path, line, text)?;
    // A fix log of hyloc, which may be of a release that did not name the run.
    if value.get("timing").is_some() && value.get("source").is_some() {
        let fix: FixRecord = meaning(path, line, &value)?;
        return Ok((line, value.get("run").map(|_| fix.run), fix));
    }
    let FixLine { frame, run, status, position_m, covariance_m2, targets } = meaning(path, line, &value)?;
    let targets = match (targets, position_m) {
        (Some(_), Some(_)) => {
            return Err(line_error(path, line, "position_m", "cannot be stated beside targets"));
        }
        (Some(targets), None) => targets,
        (None, Some(position_m)) => vec![TargetLine { position_m, covariance_m2 }],
        (None, None) => Vec::new(),
    };
    let several = value.get("targets").is_some();
    let targets = targets.into_iter().enumerate().map(|(i, TargetLine { position_m, covariance_m2 })| {
        let key = if several { format!("targets[{i}].covariance_m2") } else { "covariance_m2".into() };
        target(position_m, covariance_m2.unwrap_or_default())
            .map_err(|problem| line_error(path, line, &key, problem))
    });
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    fix(path, line, (frame, run), status, targets)
}

fn target(position_m: FixPlace, covariance_m2: Vec<f64>) -> Result<FixTarget, String> {
    let most = if position_m.len() == 2 { 3 } else { 6 };
    if ![0, 3, most].contains(&covariance_m2.len()) {
        let entries = covariance_m2.len();
        return Err(format!(
            "has {entries} entries: the upper triangle row by row has 3 (xx, xy, yy) or, with a height, 6"
        ));
    }
    Ok(FixTarget { position_m, covariance_m2, false_alarm_probability: None, unresolved: false })
}

fn fix(
    path: &Path,
    line: usize,
    (frame, run): (u64, Option<u64>),
    status: Option<String>,
    targets: Vec<FixTarget>,
) -> Result<StatedFix, Failure> {
    if let Some(status) = status.as_ref().filter(|status| !STATUSES.contains(&status.as_str())) {
        let problem = format!("'{status}' is not one of {}", STATUSES.join(", "));
        return Err(line_error(path, line, "status", problem));
    }
    let id = FrameId { run: run.unwrap_or(0), frame };
    Ok((line, run, stated_fix(id, status, targets)))
}

/// Places of the columns of a CSV file, by name.
struct Columns(BTreeMap<String, usize>);

impl Columns {
    fn new(path: &Path, line: usize, header: &str) -> Result<Self, Failure> {
        let mut places = BTreeMap::new();
        for (place, name) in header.split(',').map(str::trim).enumerate() {
            if !COLUMNS.contains(&name) {
                let problem = format!("is no column of fixes: expected are {}", COLUMNS.join(", "));
                return Err(line_error(path, line, &format!("'{name}'"), problem));
            }
            if places.insert(name.to_owned(), place).is_some() {
                return Err(line_error(path, line, name, "occurs twice"));
            }
        }
        if let Some(missing) = ["frame", "x_m", "y_m"].iter().find(|name| !places.contains_key(**name)) {
            return Err(line_error(path, line, missing, "the column is missing"));
        }
        Ok(Self(places))
    }

    fn fix(&self, path: &Path, line: usize, row: &str) -> Result<StatedFix, Failure> {
        let cells: Vec<&str> = row.split(',').map(str::trim).collect();
        if cells.len() != self.0.len() {
            let problem = format!("{} cells in {} columns", cells.len(), self.0.len());
            return Err(line_error(path, line, "", problem));
        }
        let cell = |name: &str| self.0.get(name).map(|place| cells[*place]).filter(|cell| !cell.is_empty());
        let refuse = |name: &str, cell: &str| line_error(path, line, name, format!("'{cell}' is no number"));
        let count = |name: &str| {
            cell(name).map(|cell| cell.parse::<u64>().map_err(|_| refuse(name, cell))).transpose()
        };
        let value = |name: &str| {
            let number = |cell: &str| cell.parse::<f64>().ok().filter(|value| value.is_finite());
            cell(name).map(|cell| number(cell).ok_or_else(|| refuse(name, cell))).transpose()
        };
        let missing = |name: &str| line_error(path, line, name, "is missing");
        let frame = count("frame")?.ok_or_else(|| missing("frame"))?;
        let status = cell("status").map(str::to_owned);
        let mut targets = Vec::new();
        if let Some(x_m) = value("x_m")? {
            let y_m = value("y_m")?.ok_or_else(|| missing("y_m"))?;
            let position_m: Vec<f64> = [x_m, y_m].into_iter().chain(value("z_m")?).collect();
            let names: &[&str] =
                if position_m.len() == 3 && cell("zz_m2").is_some() { &SPACE } else { &FLAT };
            let entries = names.iter().map(|name| Ok((*name, value(name)?)));
            let entries = entries.collect::<Result<Vec<_>, Failure>>()?;
            let any = entries.iter().any(|(_, entry)| entry.is_some());
            let entries = entries.into_iter().filter(|_| any);
            let covariance_m2 = entries.map(|(name, entry)| entry.ok_or_else(|| missing(name)));
            let covariance_m2 = covariance_m2.collect::<Result<Vec<_>, _>>()?;
            let position_m =
                FixPlace::try_from(position_m).map_err(|problem| line_error(path, line, "x_m", problem))?;
            targets.push(
                target(position_m, covariance_m2)
                    .map_err(|problem| line_error(path, line, "xx_m2", problem))?,
            );
        }
        fix(path, line, (frame, count("run")?), status, targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<StatedFix>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fixes");
        std::fs::write(&path, text).unwrap();
        read(&path).map_err(|error| error.to_string().split_once("fixes, ").unwrap().1.to_owned())
    }

    #[test]
    fn both_forms_say_the_same() {
        let json = "{\"frame\": 3, \"position_m\": [1, 2], \"covariance_m2\": [0.1, 0, 0.2]}\n\n{\"frame\": 4, \"targets\": [{\"position_m\": [3, 4]}, {\"position_m\": [5, 6]}]}\n{\"frame\": 5}\n";
        let csv = "frame,x_m,y_m,xx_m2,xy_m2,yy_m2\n3, 1, 2, 0.1, 0, 0.2\n4,3,4,,,\n4,5,6,,,\n5,,,,,\n";
        let (json, csv) = (read_text(json).unwrap(), read_text(csv).unwrap());
        let fixes = |all: Vec<StatedFix>| all.into_iter().map(|(_, run, fix)| (run, fix)).collect::<Vec<_>>();
        let (json, csv) = (fixes(json), fixes(csv));
        assert_eq!(json, csv);
        assert_eq!(json.iter().map(|(_, fix)| fix.targets.len()).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!((json[0].1.status.as_str(), json[2].1.status.as_str()), ("nominal", "unobservable"));
        let space = read_text("x_m,y_m,z_m,frame,run\n1,2,3,4,5\n").unwrap();
        assert_eq!((space[0].1, space[0].2.position_m.unwrap().to_vec()), (Some(5), vec![1.0, 2.0, 3.0]));
    }

    #[test]
    fn errors_name_line_and_key() {
        let cases = [
            ("{\"frame\": 1}\n{\"frame\": \"x\"}", "line 2: frame: invalid type: string \"x\", expected u64"),
            ("{\"position_m\": [1, 2]}", "line 1: missing field `frame`"),
            (
                "{\"frame\": 1, \"position_m\": [1]}",
                "line 1: position_m: 1 coordinates: a position has 2 (height 0) or 3",
            ),
            (
                "{\"frame\": 1, \"targets\": [{\"position_m\": [1, null]}]}",
                "line 1: targets[0].position_m[1]: invalid type: null, expected f64",
            ),
            (
                "{\"frame\": 1, \"position_m\": [1, 2], \"covariance_m2\": [1]}",
                "line 1: covariance_m2: has 1 entries",
            ),
            (
                "{\"frame\": 1, \"status\": \"good\"}",
                "line 1: status: 'good' is not one of nominal, degraded",
            ),
            ("{\"frame\": 1", "line 1: EOF while parsing an object"),
            ("{\"frame\": 1}\n[1, 2]", "line 2: is not a JSON object"),
            ("frame,x_m,y_m\n1,2", "line 2: 2 cells in 3 columns"),
            ("frame,x_m,y_m\n1,2,inf", "line 2: y_m: 'inf' is no number"),
            ("frame,x,y_m\n", "line 1: 'x': is no column of fixes: expected are frame, run"),
            ("frame,x_m\n", "line 1: y_m: the column is missing"),
            ("frame,x_m,y_m,xx_m2\n1,2,3,4", "line 2: xy_m2: is missing"),
            ("frame,x_m,y_m\n,2,3", "line 2: frame: is missing"),
        ];
        for (text, expected) in cases {
            let found = read_text(text).unwrap_err();
            assert!(found.starts_with(expected), "{text}: {found}");
        }
        assert!(read_text("").unwrap().is_empty());
    }
}
