//! Settings in layers: defaults, then a TOML file, then environment variables, then flags.
//!
//! A variable names a key of a scenario by its path, with two underscores for each dot:
//! `HYLOC__BASE_STATION__POWER_DBM=40`. Unknown keys are refused whatever layer they come from. Scenarios are read
//! with `toml` alone: the enumerations of a scenario have content, on which the `config` crate panics where it finds
//! a bare name. The options of a process ([`options`]), which it reads, have none.

pub mod check;
mod layers;
pub mod options;
mod scenario;

use std::path::PathBuf;

use model::scenario::ScenarioError;

pub use layers::Layers;
pub use options::{Layered, Options, OrNone};
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
    /// Options that do not go together, or that cannot be used.
    #[error("{0}")]
    Options(String),
    /// The values are of the right kind but impossible.
    #[error("{origin}: {error}")]
    Scenario {
        /// Where the settings came from.
        origin: String,
        /// What is impossible.
        error: ScenarioError,
    },
}
