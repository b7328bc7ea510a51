//! Settings of a node: raw from defaults, file, environment and flags; checked before any port is bound.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use estimation::fusion::PayloadKind;
use proto::echo::DEFAULT_WINDOW;
use proto::samples::Precision;
use proto::site::{SharedSite, SiteError};
use serde::{Deserialize, Serialize};
use settings::check::{address_or_none, host_and_port, named, refuse, seconds, within};
use settings::{ScenarioChoice, SettingsError, load_role};

/// The name of this process in logs and announcements.
pub const ROLE: &str = "irs-node";

/// Left to the fusion center.
const AUTO: &str = "auto";

/// The name of this role in environment variables: `HYLOC_NODE_FUSION`, ...
const VARIABLES: &str = "node";

/// Flags of a node; each is also a key of the settings file and an environment variable HYLOC_NODE_KEY.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct Flags {
    /// Settings file, TOML; flags and HYLOC_NODE_KEY override it.
    #[arg(long, value_name = "FILE", env = "HYLOC_CONFIG_NODE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Print the settings that would be used, as TOML, and exit.
    #[arg(long)]
    #[serde(skip)]
    pub print_config: bool,
    /// Host and port of the fusion center [default: 127.0.0.1:7400].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<String>,
    /// Host and port at which the simulator hands out echo frames [default: 127.0.0.1:7500].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulator: Option<String>,
    /// Name under which the node registers; the same name gets the same index back [default: the host's].
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// IRS index to claim, or `auto` to be given one [default: auto].
    #[arg(long, value_name = "INDEX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Scenario whose site to insist on; without one, the node takes the fusion center's site.
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<PathBuf>,
    /// Override one key of that scenario; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// Number of IRSs, where it differs from that scenario's.
    #[arg(long, value_name = "K")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// Transmit power, where it differs from that scenario's.
    #[arg(long, value_name = "DBM")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_dbm: Option<f64>,
    /// What is sent of every path: parameters (delay and angle only), block, or spectrum; `auto` sends what the fusion
    /// center asks for [default: auto].
    #[arg(long, value_name = "PAYLOAD")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Its precision: f64, f32, or q16, q8, q4, q2 for so many bits per real; `auto` as the fusion center asks
    /// [default: auto].
    #[arg(long, value_name = "PRECISION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Frames averaged coherently into one report [default: 1].
    #[arg(long, value_name = "F")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_per_fix: Option<u64>,
    /// Echo frames held at most [default: 64].
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Reports that wait for credit at most; then the oldest is dropped [default: 64].
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<usize>,
    /// Where /metrics and /health are served; port 0 takes any, `none` serves nothing [default: 127.0.0.1:0].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_listen: Option<String>,
    /// Where gRPC health is served [default: none].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_listen: Option<String>,
    /// How long to ask again for an index that is taken [default: 5].
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_timeout_s: Option<f64>,
    /// How long to wait for acknowledgements when stopped [default: 5].
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout_s: Option<f64>,
}

/// Settings as they are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    /// Host and port of the fusion center.
    pub fusion: String,
    /// Host and port of the simulator.
    pub simulator: String,
    /// Name under which the node registers.
    pub identity: String,
    /// `auto` or an IRS index.
    pub index: String,
    /// Scenario to insist on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<PathBuf>,
    /// Overrides of that scenario.
    pub set: Vec<String>,
    /// Number of IRSs, where it differs from that scenario's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// Transmit power, where it differs from that scenario's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_dbm: Option<f64>,
    /// `auto`, `parameters`, `block` or `spectrum`.
    pub payload: String,
    /// `auto`, `f64`, `f32`, `q16`, `q8`, `q4` or `q2`.
    pub precision: String,
    /// Frames averaged into one report.
    pub frames_per_fix: u64,
    /// Echo frames held at most.
    pub window: u32,
    /// Reports that wait for credit at most.
    pub queue: usize,
    /// Where `/metrics` and `/health` are served, or `none`.
    pub http_listen: String,
    /// Where gRPC health is served, or `none`.
    pub health_listen: String,
    /// How long to ask again for an index that is taken.
    pub claim_timeout_s: f64,
    /// How long to wait for acknowledgements when stopped.
    pub drain_timeout_s: f64,
}

impl Default for RawConfig {
    fn default() -> Self {
        Self {
            fusion: "127.0.0.1:7400".into(),
            simulator: "127.0.0.1:7500".into(),
            identity: host_name(),
            index: AUTO.into(),
            scenario: None,
            set: Vec::new(),
            nodes: None,
            power_dbm: None,
            payload: AUTO.into(),
            precision: AUTO.into(),
            frames_per_fix: 1,
            window: DEFAULT_WINDOW,
            queue: 64,
            http_listen: "127.0.0.1:0".into(),
            health_listen: "none".into(),
            claim_timeout_s: 5.0,
            drain_timeout_s: 5.0,
        }
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { ROLE.into() } else { name.trim().into() }
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The layers do not fit.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The site cannot be shared.
    #[error(transparent)]
    Site(#[from] SiteError),
}

/// Checked settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Host and port of the fusion center.
    pub fusion: String,
    /// Host and port of the simulator.
    pub simulator: String,
    /// Name under which the node registers.
    pub identity: String,
    /// The index claimed, if any.
    pub index: Option<u32>,
    /// Hash of the site to insist on, if any.
    pub site_sha256: Option<[u8; 32]>,
    /// What is sent of every path, if the fusion center is not to choose.
    pub payload: Option<PayloadKind>,
    /// How finely, if the fusion center is not to choose.
    pub precision: Option<Precision>,
    /// Frames averaged into one report.
    pub frames_per_fix: u64,
    /// Echo frames held at most.
    pub window: u32,
    /// Reports that wait for credit at most.
    pub queue: usize,
    /// Where `/metrics` and `/health` are served.
    pub http_listen: Option<SocketAddr>,
    /// Where gRPC health is served.
    pub health_listen: Option<SocketAddr>,
    /// How long to ask again for an index that is taken.
    pub claim_timeout: Duration,
    /// How long to wait for acknowledgements when stopped.
    pub drain_timeout: Duration,
}

impl RawConfig {
    /// Resolves the layers.
    pub fn load(flags: &Flags) -> Result<Self, SettingsError> {
        load_role(VARIABLES, flags.config.as_deref(), flags)
    }

    /// Checks every value.
    pub fn check(self) -> Result<Config, ConfigError> {
        let choice = ScenarioChoice {
            file: self.scenario,
            set: self.set,
            nodes: self.nodes,
            power_dbm: self.power_dbm,
        };
        let insists = choice != ScenarioChoice::default();
        let site = insists.then(|| choice.load_site()).transpose()?;
        let site = site.map(SharedSite::new).transpose()?;
        if self.identity.is_empty() || self.identity.len() > 128 {
            return Err(refuse("identity", &self.identity, "a name of 1 to 128 bytes").into());
        }
        Ok(Config {
            fusion: host_and_port("fusion", self.fusion)?,
            simulator: host_and_port("simulator", self.simulator)?,
            identity: self.identity,
            index: index(&self.index)?,
            site_sha256: site.map(|site| site.sha256),
            payload: auto_or("payload", &self.payload, "auto, parameters, block or spectrum")?,
            precision: auto_or("precision", &self.precision, "auto, f64, f32, q16, q8, q4 or q2")?,
            frames_per_fix: within("frames_per_fix", self.frames_per_fix, 1, 1000)?,
            window: within("window", self.window, 1, 4096)?,
            queue: within("queue", self.queue, 1, 4096)?,
            http_listen: address_or_none("http_listen", &self.http_listen)?,
            health_listen: address_or_none("health_listen", &self.health_listen)?,
            claim_timeout: seconds("claim_timeout_s", self.claim_timeout_s)?,
            drain_timeout: seconds("drain_timeout_s", self.drain_timeout_s)?,
        })
    }
}

/// A name, or none where the fusion center chooses.
fn auto_or<'a, T: Deserialize<'a>>(
    key: &'static str,
    value: &'a str,
    allowed: &str,
) -> Result<Option<T>, SettingsError> {
    if value == AUTO { Ok(None) } else { named(key, value, allowed).map(Some) }
}

fn index(value: &str) -> Result<Option<u32>, SettingsError> {
    match value {
        AUTO => Ok(None),
        number => number.parse().map(Some).map_err(|_| refuse("index", value, "auto or a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_strongest_layer() {
        let flags = Flags {
            index: Some("2".into()),
            precision: Some("f64".into()),
            frames_per_fix: Some(4),
            http_listen: Some("none".into()),
            ..Flags::default()
        };
        let config = RawConfig::load(&flags).unwrap().check().unwrap();
        assert_eq!((config.index, config.frames_per_fix), (Some(2), 4));
        assert_eq!((config.payload, config.precision), (None, Some(Precision::F64)));
        assert_eq!((config.http_listen, config.health_listen), (None, None));
        assert_eq!(config.window, DEFAULT_WINDOW);
        assert_eq!(config.site_sha256, None);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let refused = |change: fn(&mut RawConfig)| {
            let mut raw = RawConfig::default();
            change(&mut raw);
            raw.check().unwrap_err().to_string()
        };
        assert_eq!(refused(|raw| raw.index = "first".into()), "index = first: must be auto or a number");
        assert_eq!(
            refused(|raw| raw.precision = "f16".into()),
            "precision = f16: must be auto, f64, f32, q16, q8, q4 or q2"
        );
        assert_eq!(
            refused(|raw| raw.payload = "all".into()),
            "payload = all: must be auto, parameters, block or spectrum"
        );
        assert_eq!(refused(|raw| raw.fusion = "somewhere".into()), "fusion = somewhere: must be host:port");
        assert_eq!(refused(|raw| raw.frames_per_fix = 0), "frames_per_fix = 0: must be between 1 and 1000");
        assert_eq!(
            refused(|raw| raw.drain_timeout_s = f64::NAN),
            "drain_timeout_s = NaN: must be between 0 and 3600"
        );
        assert!(refused(|raw| raw.set = vec!["base_station.power_dbm=900".into()]).contains("power_dbm"));
    }
}
