//! Settings in layers: defaults, then a TOML file, then environment variables, then flags.
//!
//! A variable names a key of a scenario by its path, with two underscores for each dot:
//! `HYLOC__BASE_STATION__POWER_DBM=40`. Unknown keys are refused whatever layer they come from. Scenarios are read
//! with `toml` alone: the enumerations of a scenario have content, on which the `config` crate panics where it finds
//! a bare name ([`load_role`], which uses it, has none).

pub mod check;
mod layers;
mod scenario;

use std::path::{Path, PathBuf};

use config::{Config, Environment, File, FileFormat};
use model::scenario::ScenarioError;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use layers::Layers;
pub use scenario::{ScenarioChoice, load_scenario, load_site_of_file};

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
    #[error(
        "'{0}' is not of the form key=value, as in base_station.power_dbm=40 or irs[0].position_m=[10, 50]"
    )]
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

/// The key of a role that is a list; its variable holds the items with commas between them.
const LIST_KEY: &str = "set";

/// Resolves the settings of a process: the defaults of `T`, a TOML file, environment variables
/// `HYLOC_ROLE_KEY`, then flags. `flags` serialises to the keys that were given on the command line.
pub fn load_role<T, F>(role: &str, file: Option<&Path>, flags: &F) -> Result<T, SettingsError>
where
    T: Serialize + DeserializeOwned + Default,
    F: Serialize,
{
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
    let mut builder = Config::builder().add_source(Config::try_from(&T::default()).map_err(refuse)?);
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SettingsError::File { path: path.to_path_buf(), source })?;
        builder = builder.add_source(File::from_str(&text, FileFormat::Toml));
    }
    builder
        .add_source(environment)
        .add_source(Config::try_from(flags).map_err(refuse)?)
        .build()
        .and_then(Config::try_deserialize)
        .map_err(refuse)
}
