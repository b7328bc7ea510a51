//! Settings in layers: defaults, then a TOML file, then environment variables, then flags.
//!
//! A variable names a key of a scenario by its path, with two underscores for each dot:
//! `HYLOC__BASE_STATION__POWER_DBM=40`. Unknown keys are refused in every layer. Scenarios are read with `toml` only:
//! their enumerations have fields, and the `config` crate panics if it finds a bare name for such a variant. The options
//! of a process ([`options`]), which are read with `config`, have no such enumerations.

pub mod check;
mod layers;
mod measured;
pub mod options;
mod scenario;
mod site_file;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use layers::Layers;
pub use options::{EndpointOptions, HostNameOptions, Layered, Options, OrNone};
pub use scenario::{ScenarioChoice, changed_scenario, load_scenario, load_site_of_file, scenario_of_text};
pub use site_file::site_toml;

/// Why settings cannot be used. An I/O error is the source only if a file is at fault.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("cannot read {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    /// The content of a file is invalid; the source is of kind [`io::ErrorKind::InvalidData`].
    #[error("{path}: {source}")]
    Content { path: PathBuf, source: io::Error },
    /// The layers do not fit the type (unknown key, wrong type of value), or a value is impossible.
    #[error("{origin}: {reason}")]
    Layers { origin: String, reason: String },
    #[error(
        "'{0}' is not of the form key=value, as in base_station.power_dbm=40 or irs[0].position_m=[10, 50]"
    )]
    Override(String),
    /// Options that contradict each other or cannot be used.
    #[error("{0}")]
    Options(String),
}

impl SettingsError {
    pub fn content(path: &Path, reason: impl ToString) -> Self {
        let source = io::Error::new(io::ErrorKind::InvalidData, reason.to_string());
        Self::Content { path: path.to_path_buf(), source }
    }
}

/// Largest text file: a device that never ends is refused.
const MOST_BYTES: u64 = 1 << 30;

/// Largest file of settings or of a scenario, before it is parsed.
const MOST_SETTINGS_BYTES: u64 = 1 << 20;

/// Reads a text file; the error names it.
pub fn read(path: &Path) -> Result<String, SettingsError> {
    read_at_most(path, MOST_BYTES)
}

fn read_at_most(path: &Path, most: u64) -> Result<String, SettingsError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text));
    read.map_err(|source| SettingsError::File { path: path.to_path_buf(), source })?;
    if text.len() as u64 > most {
        return Err(SettingsError::content(path, format!("more than {most} bytes")));
    }
    Ok(text)
}
