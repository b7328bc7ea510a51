//! Settings of the simulator: raw from defaults, file, environment and flags; checked before any port is
//! bound.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use model::Scenario;
use proto::echo::EchoFrame;
use serde::{Deserialize, Serialize};
use settings::check::{address, address_or_none, host_and_port_or_none, refuse, seconds, within};
use settings::{ScenarioChoice, SettingsError, load_role};

/// The name of this process in logs, announcements and variables.
pub const ROLE: &str = "simulator";

/// Flags of the simulator; each is also a key of the settings file and an environment variable
/// HYLOC_SIMULATOR_KEY.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct Flags {
    /// Settings file, TOML; flags and HYLOC_SIMULATOR_KEY override it.
    #[arg(long, value_name = "FILE", env = "HYLOC_CONFIG_SIMULATOR")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Print the settings that would be used, as TOML, and exit.
    #[arg(long)]
    #[serde(skip)]
    pub print_config: bool,
    /// Scenario file; Table I without one.
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<PathBuf>,
    /// Override one key of the scenario; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// Number of IRSs, where it differs from the scenario's.
    #[arg(long, value_name = "K")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// Transmit power, where it differs from the scenario's.
    #[arg(long, value_name = "DBM")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_dbm: Option<f64>,
    /// Frames to send; 0 goes on until stopped [default: 0].
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// Frames a second [default: 50].
    #[arg(long, value_name = "HZ")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Where nodes subscribe to echo frames; port 0 takes any [default: 127.0.0.1:7500].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub echo_listen: Option<String>,
    /// Host and port of the fusion center that is told the truth, or `none` [default: none].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<String>,
    /// Start after this time even if not all nodes have subscribed; 0 waits for all [default: 0].
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_after_s: Option<f64>,
    /// How long to wait for the last acknowledgements at the end [default: 5].
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_timeout_s: Option<f64>,
    /// Where /metrics and /health are served; port 0 takes any, `none` serves nothing [default: 127.0.0.1:0].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_listen: Option<String>,
    /// Where gRPC health is served [default: none].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_listen: Option<String>,
    /// Let the target's path be changed while it runs [default: no].
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_control: bool,
    /// Where it is changed, if that is allowed; whoever reaches it can [default: 127.0.0.1:7501].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_listen: Option<String>,
}

/// Settings as they are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    /// Scenario file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<PathBuf>,
    /// Overrides of the scenario.
    pub set: Vec<String>,
    /// Number of IRSs, where it differs from the scenario's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// Transmit power, where it differs from the scenario's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_dbm: Option<f64>,
    /// Frames to send; 0 is no end.
    pub frames: u64,
    /// Frames a second.
    pub rate: f64,
    /// Where nodes subscribe.
    pub echo_listen: String,
    /// Host and port of the fusion center, or `none`.
    pub fusion: String,
    /// When to start without all nodes; 0 is never.
    pub start_after_s: f64,
    /// How long to wait for the last acknowledgements.
    pub settle_timeout_s: f64,
    /// Where `/metrics` and `/health` are served, or `none`.
    pub http_listen: String,
    /// Where gRPC health is served, or `none`.
    pub health_listen: String,
    /// Whether the target's path may be changed.
    pub allow_control: bool,
    /// Where it is changed.
    pub control_listen: String,
}

impl Default for RawConfig {
    fn default() -> Self {
        Self {
            scenario: None,
            set: Vec::new(),
            nodes: None,
            power_dbm: None,
            frames: 0,
            rate: 50.0,
            echo_listen: "127.0.0.1:7500".into(),
            fusion: "none".into(),
            start_after_s: 0.0,
            settle_timeout_s: 5.0,
            http_listen: "127.0.0.1:0".into(),
            health_listen: "none".into(),
            allow_control: false,
            control_listen: "127.0.0.1:7501".into(),
        }
    }
}

/// Checked settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The scenario.
    pub scenario: Scenario,
    /// Frames to send; none is no end.
    pub frames: Option<u64>,
    /// Frames a second.
    pub rate_hz: f64,
    /// Where nodes subscribe.
    pub echo_listen: SocketAddr,
    /// Host and port of the fusion center.
    pub fusion: Option<String>,
    /// When to start without all nodes.
    pub start_after: Option<Duration>,
    /// How long to wait for the last acknowledgements.
    pub settle_timeout: Duration,
    /// Where `/metrics` and `/health` are served.
    pub http_listen: Option<SocketAddr>,
    /// Where gRPC health is served.
    pub health_listen: Option<SocketAddr>,
    /// Where the target's path is changed; none if that is not allowed.
    pub control_listen: Option<SocketAddr>,
}

impl RawConfig {
    /// Resolves the layers.
    pub fn load(flags: &Flags) -> Result<Self, SettingsError> {
        load_role(ROLE, flags.config.as_deref(), flags)
    }

    /// Checks every value and loads the scenario.
    pub fn check(self) -> Result<Config, SettingsError> {
        let choice = ScenarioChoice {
            file: self.scenario,
            set: self.set,
            nodes: self.nodes,
            power_dbm: self.power_dbm,
        };
        let scenario = choice.load()?;
        if !EchoFrame::fits(scenario.surface.sensors, scenario.signal.subcarriers) {
            let shape = format!("{} x {}", scenario.surface.sensors, scenario.signal.subcarriers);
            return Err(refuse("sensors x subcarriers", shape, "a frame of at most 64 MiB"));
        }
        let rate = within("rate", self.rate, 1e-3, 1e5)?;
        let start_after = seconds("start_after_s", self.start_after_s)?;
        Ok(Config {
            scenario,
            frames: (self.frames > 0).then_some(self.frames),
            rate_hz: rate,
            echo_listen: address("echo_listen", &self.echo_listen)?,
            fusion: host_and_port_or_none("fusion", self.fusion)?,
            start_after: (!start_after.is_zero()).then_some(start_after),
            settle_timeout: seconds("settle_timeout_s", self.settle_timeout_s)?,
            http_listen: address_or_none("http_listen", &self.http_listen)?,
            health_listen: address_or_none("health_listen", &self.health_listen)?,
            control_listen: address_or_none("control_listen", &self.control_listen)?
                .filter(|_| self.allow_control),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_strongest_layer() {
        let flags = Flags {
            nodes: Some(4),
            power_dbm: Some(40.0),
            frames: Some(10),
            rate: Some(4.0),
            ..Flags::default()
        };
        let config = RawConfig::load(&flags).unwrap().check().unwrap();
        assert_eq!((config.scenario.irs.len(), config.scenario.base_station.power_dbm), (4, 40.0));
        assert_eq!((config.frames, config.rate_hz), (Some(10), 4.0));
        assert_eq!((config.fusion, config.start_after), (None, None));
        assert_eq!(config.control_listen, None, "off unless allowed");
        let flags = Flags { allow_control: true, ..Flags::default() };
        let config = RawConfig::load(&flags).unwrap().check().unwrap();
        assert!(config.control_listen.is_some_and(|address| address.ip().is_loopback()));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let refused = |change: fn(&mut RawConfig)| {
            let mut raw = RawConfig::default();
            change(&mut raw);
            raw.check().unwrap_err().to_string()
        };
        assert_eq!(refused(|raw| raw.rate = 0.0), "rate = 0: must be between 0.001 and 100000");
        assert_eq!(refused(|raw| raw.fusion = ":1".into()), "fusion = :1: must be host:port or none");
        assert!(refused(|raw| raw.echo_listen = "none".into()).contains("must be address:port"));
        assert!(refused(|raw| raw.nodes = Some(99)).contains("nodes = 99"));
    }
}
