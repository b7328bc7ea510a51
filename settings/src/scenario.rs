//! Scenarios from their layers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use model::scenario::{Coverage, Motion, Phases};
use model::{Scenario, System};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::{Layers, SettingsError};

/// Frames in which a target that is set by the name of its motion goes once along its way: ten seconds at the
/// demo's 50 frames a second.
const FRAMES_PER_ROUND: u64 = 500;

/// A scenario from its layers, checked.
///
/// Two keys have short forms, which fit the coverage area: `target.motion=circle` (or `fixed`, `line`, `waypoints`),
/// and `surface.phases=aligned`, which aims at its centre.
pub fn load_scenario(layers: &Layers) -> Result<Scenario, SettingsError> {
    let mut table = layers.resolve::<Scenario>()?;
    expand_short_forms(&mut table);
    // The error names the key's table on a line of its own.
    let one_line = |error: toml::de::Error| error.to_string().trim().replace('\n', " ");
    let scenario =
        Scenario::deserialize(Value::Table(table)).map_err(|error| layers.refuse(one_line(error)))?;
    scenario.validate().map_err(|error| SettingsError::Scenario { origin: layers.origin(), error })?;
    Ok(scenario)
}

/// Replaces short forms by what they stand for. What cannot be read is left as it is, to be refused by name.
fn expand_short_forms(table: &mut Table) {
    let coverage = table.get("coverage").cloned().and_then(|value| Coverage::deserialize(value).ok());
    let Some(coverage) = coverage else { return };
    expand(table, "target", "motion", |name| Motion::named(name, &coverage, FRAMES_PER_ROUND));
    expand(table, "surface", "phases", |name| {
        (name == "aligned").then(|| Phases::Aligned { toward_m: coverage.centre().into() })
    });
}

fn expand<T: Serialize>(table: &mut Table, section: &str, key: &str, named: impl Fn(&str) -> Option<T>) {
    let place = table.get_mut(section).and_then(|section| section.get_mut(key));
    let Some((place, name)) = place.and_then(|place| place.as_str().map(str::to_owned).map(|n| (place, n)))
    else {
        return;
    };
    if let Some(meant) = named(&name).and_then(|meant| Value::try_from(meant).ok()) {
        *place = meant;
    }
}

/// Which scenario a process works with: a file (or Table I), changes to it, and a number of IRSs.
#[derive(Debug, Clone, PartialEq, Default, clap::Args)]
pub struct ScenarioChoice {
    /// Scenario file; Table I of the paper without one.
    #[arg(long = "scenario", id = "scenario", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Override one key of the scenario; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Number of IRSs, where it differs from the scenario's: on a ring around the coverage area.
    #[arg(long, value_name = "K")]
    pub nodes: Option<usize>,
    /// Transmit power, where it differs from the scenario's.
    #[arg(long, value_name = "DBM")]
    pub power_dbm: Option<f64>,
    /// Seed of everything random, where it differs from the scenario's.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl ScenarioChoice {
    /// The scenario, checked.
    pub fn load(&self) -> Result<Scenario, SettingsError> {
        let mut overrides = self.set.clone();
        overrides.extend(self.power_dbm.map(|power| format!("base_station.power_dbm={power}")));
        overrides.extend(self.seed.map(|seed| format!("seed={seed}")));
        let layers = Layers { file: self.file.clone(), overrides, environment: None };
        let scenario = load_scenario(&layers)?;
        match self.nodes {
            Some(nodes) if nodes != scenario.irs.len() => model::scenario::ring(&scenario, nodes)
                .map_err(|error| SettingsError::Scenario { origin: layers.origin(), error }),
            _ => Ok(scenario),
        }
    }

    /// The site of the scenario, which is all that a node or a fusion center may know of it.
    pub fn load_site(&self) -> Result<System, SettingsError> {
        site(&self.load()?, || Layers { file: self.file.clone(), ..Layers::default() }.origin())
    }
}

/// The site of a scenario file, with nothing from the environment: as it was written.
pub fn load_site_of_file(file: &Path) -> Result<System, SettingsError> {
    let layers = Layers { environment: Some(HashMap::new()), ..Layers::from_file(file) };
    site(&load_scenario(&layers)?, || layers.origin())
}

fn site(scenario: &Scenario, origin: impl Fn() -> String) -> Result<System, SettingsError> {
    System::new(scenario).map_err(|error| SettingsError::Scenario { origin: origin(), error })
}
