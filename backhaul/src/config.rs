//! Settings of the relay: raw from the layers, then checked once, before any port is bound.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use settings::check::{address, address_or_none, host_and_port, refuse};
use settings::{SettingsError, load_role};

use crate::control::Action;
use crate::measure::Trust;
use crate::plan::{MOST_LINKS, Plan, PlanError};

/// Name of the role in environment variables: `HYLOC_BACKHAUL_FUSION`, ...
pub const ROLE: &str = "backhaul";

/// Flags of the relay; each is also a key of the settings file and an environment variable
/// HYLOC_BACKHAUL_KEY.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct Flags {
    /// Settings file, TOML; flags and HYLOC_BACKHAUL_KEY override it.
    #[arg(long, value_name = "FILE", env = "HYLOC_CONFIG_BACKHAUL")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Print the settings that result, as TOML, and exit.
    #[arg(long)]
    #[serde(skip)]
    pub print_config: bool,
    /// Where nodes connect, told apart by their source address; `none` for links with ports of their own only
    /// [default: 127.0.0.1:7410].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// A link with a port of its own, as in west=127.0.0.1:7420; may be repeated.
    #[arg(long, value_name = "NAME=ADDRESS")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link: Vec<String>,
    /// Host and port of the fusion center [default: 127.0.0.1:7400].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<String>,
    /// Profile of all links that the plan gives none: clear, fibre, microwave, 5g-fronthaul, congested or flaky
    /// [default: clear].
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Plan for links and directions, TOML; read again when it changes and on SIGHUP.
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PathBuf>,
    /// Seed of all chance [default: 1].
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Where the relay is controlled; whoever reaches it can cut links [default: 127.0.0.1:7411].
    #[arg(long, value_name = "ADDRESS", global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_listen: Option<String>,
    /// Where /metrics and /health alone are served, for others to reach [default: none].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_listen: Option<String>,
    /// Do not measure first whether this machine keeps the plan: for one that is too busy to tell [default: no].
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unmeasured: bool,
    /// What to ask of a relay that runs, or to measure, in place of running one.
    #[command(subcommand)]
    #[serde(skip)]
    pub action: Option<Action>,
}

/// Settings as they result from the layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    listen: String,
    link: Vec<String>,
    fusion: String,
    profile: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<PathBuf>,
    seed: u64,
    control_listen: String,
    http_listen: String,
    unmeasured: bool,
}

impl Default for RawConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7410".into(),
            link: Vec::new(),
            fusion: "127.0.0.1:7400".into(),
            profile: "clear".into(),
            plan: None,
            seed: 1,
            control_listen: "127.0.0.1:7411".into(),
            http_listen: "none".into(),
            unmeasured: false,
        }
    }
}

/// Checked settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The common port.
    pub listen: Option<SocketAddr>,
    /// Links with ports of their own.
    pub links: Vec<(String, SocketAddr)>,
    /// Host and port of the fusion center.
    pub fusion: String,
    /// Profile where the plan names none.
    pub profile: String,
    /// The file of the plan.
    pub plan_file: Option<PathBuf>,
    /// The plan.
    pub plan: Plan,
    /// Seed of all chance.
    pub seed: u64,
    /// Where the relay is controlled.
    pub control_listen: SocketAddr,
    /// Where `/metrics` and `/health` alone are served.
    pub http_listen: Option<SocketAddr>,
    /// Whether the plan is measured before it is followed.
    pub trust: Trust,
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The layers.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The plan.
    #[error("{origin}: {error}")]
    Plan {
        /// Where it came from.
        origin: String,
        /// What is wrong.
        error: PlanError,
    },
    /// The plan cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Reads the plan's file; without one, `profile` is the plan.
pub fn read_plan(file: Option<&PathBuf>, profile: &str) -> Result<Plan, ConfigError> {
    let (origin, text) = match file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::File { path: path.clone(), source })?;
            (path.display().to_string(), text)
        }
        None => ("profile".into(), String::new()),
    };
    Plan::parse(&text, profile).map_err(|error| ConfigError::Plan { origin, error })
}

impl RawConfig {
    /// From the layers.
    pub fn load(flags: &Flags) -> Result<Self, ConfigError> {
        Ok(load_role(ROLE, flags.config.as_deref(), flags)?)
    }

    /// Where a relay with these settings is controlled.
    pub fn control(&self) -> Result<SocketAddr, ConfigError> {
        Ok(address("control_listen", &self.control_listen)?)
    }

    /// Checks every setting and reads the plan.
    pub fn check(self) -> Result<Config, ConfigError> {
        let form = "a name and an address, as in west=127.0.0.1:7420";
        let link = |pair: &String| {
            let (name, value) = pair.split_once('=').ok_or_else(|| refuse("link", pair, form))?;
            Ok((name.to_owned(), address("link", value)?))
        };
        let links: Vec<_> = self.link.iter().map(link).collect::<Result<_, ConfigError>>()?;
        let listen = address_or_none("listen", &self.listen)?;
        if listen.is_none() && links.is_empty() {
            let allowed = "an address, unless there is a link with a port of its own";
            return Err(refuse("listen", "none", allowed).into());
        }
        if links.len() > MOST_LINKS {
            return Err(refuse("link", links.len(), "given at most 64 times").into());
        }
        let plan = read_plan(self.plan.as_ref(), &self.profile)?;
        Ok(Config {
            listen,
            links,
            control_listen: self.control()?,
            http_listen: address_or_none("http_listen", &self.http_listen)?,
            plan,
            plan_file: self.plan,
            fusion: host_and_port("fusion", self.fusion)?,
            profile: self.profile,
            seed: self.seed,
            trust: if self.unmeasured { Trust::Unmeasured } else { Trust::Measured },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named() {
        let refused = |change: fn(&mut RawConfig)| {
            let mut raw = RawConfig::default();
            change(&mut raw);
            raw.check().unwrap_err().to_string()
        };
        assert!(RawConfig::default().check().is_ok());
        assert_eq!(refused(|raw| raw.fusion = "somewhere".into()), "fusion = somewhere: must be host:port");
        assert!(refused(|raw| raw.link = vec!["west".into()]).starts_with("link = west: must be a name"));
        assert!(refused(|raw| raw.listen = "none".into()).starts_with("listen = none: must be an address"));
        assert!(refused(|raw| raw.profile = "carrier-pigeon".into()).contains("no profile 'carrier-pigeon'"));
        assert!(refused(|raw| raw.plan = Some("nowhere.toml".into())).contains("nowhere.toml"));
        assert!(refused(|raw| raw.control_listen = "none".into()).starts_with("control_listen = none"));
    }
}
