//! Settings in layers: defaults, then a TOML file, then `HYLOC__` environment variables, then flags.
//!
//! A variable names a key by its path, with two underscores for each dot:
//! `HYLOC__BASE_STATION__POWER_DBM=40`. Unknown keys are refused whatever layer they come from.

pub mod check;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use config::builder::DefaultState;
use config::{Config, ConfigBuilder, Environment, File, FileFormat};
use model::Scenario;
use model::scenario::ScenarioError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The layers do not fit the type: unknown key, wrong kind of value, broken TOML.
    #[error("{origin}: {reason}")]
    Layers {
        /// Where the settings came from.
        origin: String,
        /// What is wrong.
        reason: String,
    },
    /// A flag of the form `key=value` is not of that form.
    #[error("'{0}' is not of the form key=value, as in base_station.power_dbm=40")]
    Override(String),
    /// A single value cannot be used.
    #[error("{key} = {value}: must be {allowed}")]
    Value {
        /// Its key.
        key: &'static str,
        /// The value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// The values are of the right kind but impossible.
    #[error("{origin}: {error}")]
    Scenario {
        /// Where the settings came from.
        origin: String,
        /// What is impossible.
        error: ScenarioError,
    },
}

/// Where settings come from, weakest first: the defaults of the type, `file`, `environment`, `overrides`.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// Environment variables to look at; none means those of the process.
    pub environment: Option<HashMap<String, String>>,
    /// `key=value` pairs from the command line, with dots in the key.
    pub overrides: Vec<String>,
}

impl Layers {
    /// Defaults, `file`, and the environment of the process.
    pub fn from_file(file: impl AsRef<Path>) -> Self {
        Self { file: Some(file.as_ref().to_path_buf()), ..Self::default() }
    }

    fn origin(&self) -> String {
        match &self.file {
            Some(path) => path.display().to_string(),
            None => "settings".into(),
        }
    }
}

/// Resolves the layers into a `T`.
pub fn load<T: Serialize + DeserializeOwned + Default>(layers: &Layers) -> Result<T, SettingsError> {
    let refuse = |error: config::ConfigError| SettingsError::Layers {
        origin: layers.origin(),
        reason: error.to_string(),
    };
    let environment = Environment::with_prefix("HYLOC")
        .prefix_separator("__")
        .separator("__")
        .try_parsing(true)
        .source(layers.environment.clone());
    let mut builder = defaults_and_file::<T>(layers)?.add_source(environment);
    for pair in &layers.overrides {
        let (key, value) = pair.split_once('=').ok_or_else(|| SettingsError::Override(pair.clone()))?;
        builder = builder.set_override(key.trim(), parsed(value.trim())).map_err(refuse)?;
    }
    builder.build().and_then(Config::try_deserialize).map_err(refuse)
}

/// The two weakest layers.
fn defaults_and_file<T: Serialize + Default>(
    layers: &Layers,
) -> Result<ConfigBuilder<DefaultState>, SettingsError> {
    let defaults = Config::try_from(&T::default())
        .map_err(|error| SettingsError::Layers { origin: "defaults".into(), reason: error.to_string() })?;
    let builder = Config::builder().add_source(defaults);
    let Some(path) = &layers.file else { return Ok(builder) };
    let text =
        std::fs::read_to_string(path).map_err(|source| SettingsError::File { path: path.clone(), source })?;
    Ok(builder.add_source(File::from_str(&text, FileFormat::Toml)))
}

/// The key of a role that is a list; its variable holds the items with commas between them.
const LIST_KEY: &str = "set";

/// Resolves the settings of a process: the defaults of `T`, a TOML file, environment variables
/// `HYLOC_ROLE_KEY`, then flags. `flags` serialises to the keys that were given on the command line.
pub fn load_role<T, F>(role: &str, file: Option<&Path>, flags: &F) -> Result<T, SettingsError>
where
    T: Serialize + DeserializeOwned + Default,
    F: Serialize,
{
    let layers = Layers { file: file.map(Path::to_path_buf), ..Layers::default() };
    let origin = match file {
        Some(path) => path.display().to_string(),
        None => format!("settings of {role}"),
    };
    let refuse = |error: config::ConfigError| SettingsError::Layers {
        origin: origin.clone(),
        reason: error.to_string(),
    };
    let environment = Environment::with_prefix(&format!("HYLOC_{}", role.to_uppercase().replace('-', "_")))
        .prefix_separator("_")
        .separator("__")
        .try_parsing(true)
        .list_separator(",")
        .with_list_parse_key(LIST_KEY);
    defaults_and_file::<T>(&layers)?
        .add_source(environment)
        .add_source(Config::try_from(flags).map_err(refuse)?)
        .build()
        .and_then(Config::try_deserialize)
        .map_err(refuse)
}

/// A number or truth value where the text is one, as the environment layer does.
fn parsed(text: &str) -> config::ValueKind {
    if let Ok(value) = text.parse::<bool>() {
        return value.into();
    }
    if let Ok(value) = text.parse::<i64>() {
        return value.into();
    }
    match text.parse::<f64>() {
        Ok(value) => value.into(),
        Err(_) => text.into(),
    }
}

/// A scenario from its layers, checked.
pub fn load_scenario(layers: &Layers) -> Result<Scenario, SettingsError> {
    let scenario: Scenario = load(layers)?;
    scenario.validate().map_err(|error| SettingsError::Scenario { origin: layers.origin(), error })?;
    Ok(scenario)
}

/// Which scenario a process works with: a file (or Table I), changes to it, and a number of IRSs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScenarioChoice {
    /// Scenario file; none means Table I.
    pub file: Option<PathBuf>,
    /// Changes, `key=value`.
    pub set: Vec<String>,
    /// Number of IRSs, where it differs from the file's: on a ring around the coverage area.
    pub nodes: Option<usize>,
    /// Transmit power, where it differs.
    pub power_dbm: Option<f64>,
}

impl ScenarioChoice {
    /// The scenario, checked.
    pub fn load(&self) -> Result<Scenario, SettingsError> {
        let mut overrides = self.set.clone();
        overrides.extend(self.power_dbm.map(|power| format!("base_station.power_dbm={power}")));
        let layers = Layers { file: self.file.clone(), overrides, environment: None };
        let scenario = load_scenario(&layers)?;
        match self.nodes {
            Some(nodes) if nodes != scenario.irs.len() => model::scenario::ring(&scenario, nodes)
                .map_err(|error| SettingsError::Scenario { origin: layers.origin(), error }),
            _ => Ok(scenario),
        }
    }
}
