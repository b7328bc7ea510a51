//! Scenarios and sites from layered settings.

use std::path::{Path, PathBuf};

use model::scenario::{Coverage, Motion, Phases, ScenarioError};
use model::{MOST_TARGETS, Scenario, System};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::measured::read_measured;
use crate::{Layers, SettingsError};

/// Frames of one round of a target whose motion is set by its name: ten seconds at the demo's 50 frames a second.
const FRAMES_PER_ROUND: u64 = 500;

/// Loads and checks a scenario.
///
/// Two keys have short forms, which are expanded to fit the coverage area: `target.motion=circle` (or `fixed`, `line`,
/// `waypoints`, `walk`), for each of several targets, and `surface.phases=aligned`, which aims at its centre.
pub fn load_scenario(layers: &Layers) -> Result<Scenario, SettingsError> {
    resolve(layers).map_err(|error| match (error, &layers.file) {
        // The file is at fault if it is invalid without the layers above it.
        (SettingsError::Layers { reason, .. }, Some(file)) if resolve(&Layers::file_alone(file)).is_err() => {
            SettingsError::content(file, reason)
        }
        (error, _) => error,
    })
}

/// A key of earlier releases.
const CLOCK_OFFSET: (&str, &str) = ("imperfections", "clock_offset_s");

/// The scenario of a text in TOML, without overrides from the environment; what it does not name is as in Table I.
pub fn scenario_of_text(text: &str) -> Result<Scenario, SettingsError> {
    let layers = Layers::default();
    current(layers.resolve_text::<Scenario>(text)?, &layers)
}

/// A scenario with `key=value` pairs applied, as by `--set`, and checked.
pub fn changed_scenario(scenario: &Scenario, pairs: Vec<String>) -> Result<Scenario, SettingsError> {
    let layers = Layers { overrides: pairs, ..Layers::default() };
    let table = Table::try_from(scenario).map_err(|error| layers.refuse(error))?;
    current(layers.overridden(table)?, &layers)
}

fn resolve(layers: &Layers) -> Result<Scenario, SettingsError> {
    current(layers.resolve::<Scenario>()?, layers)
}

/// The scenario of a table that has no keys of earlier releases.
fn current(mut table: Table, layers: &Layers) -> Result<Scenario, SettingsError> {
    if take(&mut table, CLOCK_OFFSET).is_some() {
        return Err(layers.refuse(
            "imperfections.clock_offset_s is now clocks.offset_ns, in nanoseconds: offsets are drawn from plus or minus this; \
             clocks.prior_ns is the deviation that estimators assume, 0 for trusted clocks",
        ));
    }
    scenario_of(table, layers)
}

fn take(table: &mut Table, (section, key): (&str, &str)) -> Option<Value> {
    table.get_mut(section)?.as_table_mut()?.remove(key)
}

fn scenario_of(mut table: Table, layers: &Layers) -> Result<Scenario, SettingsError> {
    expand_short_forms(&mut table);
    // The error names the table of the key on a separate line.
    let one_line = |error: toml::de::Error| error.to_string().trim().replace('\n', " ");
    let mut scenario =
        Scenario::deserialize(Value::Table(table)).map_err(|error| layers.refuse(one_line(error)))?;
    read_measured(&mut scenario, layers.file.as_deref())?;
    scenario.validate().map_err(|error| layers.refuse(error))?;
    if let Some(measured) = &scenario.measured {
        // What was measured must make a site: shapes, subcarriers and codes are those of the file.
        let file = Path::new(&measured.file);
        System::new(&scenario).map_err(|error| SettingsError::content(file, measured_key(error)))?;
    }
    Ok(scenario)
}

/// An error about the site of measured signals, with the name of the array: `irs[K].codes` is `codes_K`.
fn measured_key(mut error: ScenarioError) -> ScenarioError {
    let array = error.key.strip_prefix("irs[").and_then(|rest| rest.split_once("].")).map(|(k, name)| {
        let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
        format!("{}_{k}{}", &name[..end], &name[end..])
    });
    error.key = array.unwrap_or(error.key);
    error
}

/// Expands short forms. A value that cannot be parsed stays unchanged, so that deserialization refuses it by name.
fn expand_short_forms(table: &mut Table) {
    let coverage = table.get("coverage").cloned().and_then(|value| Coverage::deserialize(value).ok());
    let Some(coverage) = coverage else { return };
    let targets: Vec<&mut Value> = match table.get_mut("target") {
        Some(Value::Array(items)) => items.iter_mut().collect(),
        one => one.into_iter().collect(),
    };
    for target in targets {
        expand(target, "motion", |name| Motion::named(name, &coverage, FRAMES_PER_ROUND));
    }
    if let Some(surface) = table.get_mut("surface") {
        expand(surface, "phases", |name| {
            (name == "aligned").then(|| Phases::Aligned { toward_m: coverage.centre().into() })
        });
    }
}

fn expand<T: Serialize>(section: &mut Value, key: &str, named: impl Fn(&str) -> Option<T>) {
    let Some(place) = section.get_mut(key) else { return };
    if let Some(expanded) = place.as_str().and_then(named).and_then(|value| Value::try_from(value).ok()) {
        *place = expanded;
    }
}

/// The scenario of a process: a file (or Table I) with changes.
#[derive(Debug, Clone, PartialEq, Default, clap::Args)]
pub struct ScenarioChoice {
    /// Scenario file; by default Table I of the paper.
    #[arg(long = "scenario", id = "scenario", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Override a key of the scenario; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Number of IRSs, if it differs from the scenario; they are placed on a ring around the coverage area.
    #[arg(long, value_name = "K")]
    pub nodes: Option<usize>,
    /// Number of targets, if it differs from the scenario; several walk at random.
    #[arg(long, value_name = "T")]
    pub targets: Option<usize>,
    /// Transmit power, if it differs from the scenario.
    #[arg(long, value_name = "DBM")]
    pub power_dbm: Option<f64>,
    /// Seed of all random numbers, if it differs from the scenario.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl ScenarioChoice {
    pub fn load(&self) -> Result<Scenario, SettingsError> {
        let mut overrides = self.set.clone();
        overrides.extend(self.power_dbm.map(|power| format!("base_station.power_dbm={power}")));
        overrides.extend(self.seed.map(|seed| format!("seed={seed}")));
        let layers = Layers { file: self.file.clone(), overrides, environment: None };
        let mut scenario = load_scenario(&layers)?;
        if let Some(nodes) = self.nodes.filter(|&nodes| nodes != scenario.irs.len()) {
            scenario = model::scenario::ring(&scenario, nodes).map_err(|error| layers.refuse(error))?;
        }
        if let Some(targets) = self.targets.filter(|&targets| targets != scenario.targets.len()) {
            if targets > MOST_TARGETS {
                return Err(layers.refuse(format!("targets = {targets}: must be at most {MOST_TARGETS}")));
            }
            scenario = scenario.with_targets(targets);
        }
        Ok(scenario)
    }

    /// The site of the scenario, which is all that a node or a fusion center may know of it.
    pub fn load_site(&self) -> Result<System, SettingsError> {
        System::new(&self.load()?).map_err(|error| self.unusable(error))
    }

    /// The error for a scenario that is valid but cannot be used.
    pub fn unusable(&self, reason: impl ToString) -> SettingsError {
        match &self.file {
            Some(file) => SettingsError::content(file, reason),
            None => Layers::default().refuse(reason),
        }
    }
}

/// The site of a scenario file, without overrides from the environment. The file may be of an earlier release: the site does not
/// depend on what the clocks were.
pub fn load_site_of_file(file: &Path) -> Result<System, SettingsError> {
    let layers = Layers::file_alone(file);
    let mut table = layers.resolve::<Scenario>()?;
    take(&mut table, CLOCK_OFFSET);
    let scenario = scenario_of(table, &layers)?;
    System::new(&scenario).map_err(|error| SettingsError::content(file, error))
}
