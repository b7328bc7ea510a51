//! Settings of the process: raw from the layers, then checked once, before any port is bound.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use estimation::fusion::Method;
use model::System;
use serde::{Deserialize, Serialize};
use settings::check::{address, host_and_port_or_none, named, refuse, within};
use settings::{ScenarioChoice, SettingsError, load_role};

use crate::dashboard::ControlSettings;
use crate::engine::EngineSettings;
use crate::method::{MOST_FRAMES, MethodSettings};

/// Name of the role in environment variables: `HYLOC_FUSION_LISTEN`, ...
pub const ROLE: &str = "fusion";

/// Longest time to wait for anything.
const LONGEST_MS: u64 = 60_000;

/// Rarest false alarm that can be asked for.
const LEAST_PROBABILITY: f64 = 1e-12;

/// Flags of the fusion center; each is also a key of the settings file and an environment variable
/// HYLOC_FUSION_KEY.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct Flags {
    /// Settings file, TOML; flags and HYLOC_FUSION_KEY override it.
    #[arg(long, value_name = "FILE", env = "HYLOC_CONFIG_FUSION")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Print the settings that result, as TOML, and exit.
    #[arg(long)]
    #[serde(skip)]
    pub print_config: bool,
    /// Where nodes, simulator and watchers connect (gRPC); port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Where /metrics, /health and the API are served (HTTP).
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_listen: Option<String>,
    /// Scenario file; Table I without one.
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<PathBuf>,
    /// Override one key of the scenario; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
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
    /// How long a frame waits for its last report.
    #[arg(long, value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Frames that are solved at once; 0 means one for each core.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// Frames that may wait for a solver before the oldest is shed.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<usize>,
    /// Reports that a node may have under way.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit: Option<usize>,
    /// File that takes one JSON line per fix.
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixes: Option<PathBuf>,
    /// Directory that takes a recording of the block stream, for `hyloc replay`.
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// How frames become fixes: three-stage, direct, or auto (three-stage where that is safe) [default: auto].
    #[arg(long, value_name = "METHOD")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Share of frames without a target in which a fix may be claimed [default: 0.0005].
    #[arg(long, value_name = "P")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_alarm_probability: Option<f64>,
    /// Frames that the direct method takes together, the last one's fix being made [default: 1].
    #[arg(long, value_name = "F")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_frames: Option<usize>,
    /// How they add up: non-coherent, or coherent where path phases hold over the batch [default: non-coherent].
    #[arg(long, value_name = "HOW")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_combination: Option<String>,
    /// Fastest target searched for over a batch, metres per frame [default: 0.5].
    #[arg(long, value_name = "M")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_speed_m: Option<f64>,
    /// Added to every solve: acts as a slower machine.
    #[arg(long, value_name = "MS", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub solver_delay_ms: Option<u64>,
    /// Let the page change what --control-simulator and --control-backhaul name [default: no].
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_control: bool,
    /// Host and port where the simulator's path is changed, or `none` [default: none].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_simulator: Option<String>,
    /// Host and port where the backhaul's profile is changed, or `none` [default: none].
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_backhaul: Option<String>,
}

/// Settings as they result from the layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    listen: String,
    http_listen: String,
    deadline_ms: u64,
    workers: usize,
    queue: usize,
    credit: usize,
    solver_delay_ms: u64,
    method: String,
    false_alarm_probability: f64,
    batch_frames: usize,
    batch_combination: String,
    batch_speed_m: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scenario: Option<PathBuf>,
    set: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    power_dbm: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fixes: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<PathBuf>,
    allow_control: bool,
    control_simulator: String,
    control_backhaul: String,
}

impl Default for RawConfig {
    fn default() -> Self {
        let method = MethodSettings::default();
        Self {
            method: "auto".into(),
            false_alarm_probability: method.false_alarm_probability,
            batch_frames: method.batch_frames,
            batch_combination: "non-coherent".into(),
            batch_speed_m: method.batch_speed_m,
            listen: "127.0.0.1:7400".into(),
            http_listen: "127.0.0.1:7401".into(),
            deadline_ms: 250,
            workers: 0,
            queue: 16,
            credit: 64,
            solver_delay_ms: 0,
            scenario: None,
            set: Vec::new(),
            nodes: None,
            power_dbm: None,
            fixes: None,
            record: None,
            allow_control: false,
            control_simulator: "none".into(),
            control_backhaul: "none".into(),
        }
    }
}

/// Checked settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// gRPC address.
    pub listen: SocketAddr,
    /// HTTP address.
    pub http_listen: SocketAddr,
    /// What is known of the site; the scenario that it was made of is dropped at once.
    pub site: System,
    /// Of the engine.
    pub engine: EngineSettings,
    /// How frames become fixes.
    pub method: MethodSettings,
    /// Reports that a node may have under way.
    pub credit: usize,
    /// Fix log.
    pub fixes: Option<PathBuf>,
    /// Recording.
    pub record: Option<PathBuf>,
    /// What the page may change.
    pub control: ControlSettings,
}

impl RawConfig {
    /// From the layers.
    pub fn load(flags: &Flags) -> Result<Self, SettingsError> {
        load_role(ROLE, flags.config.as_deref(), flags)
    }

    /// Checks every setting and makes the site of the scenario.
    pub fn check(self) -> Result<Config, SettingsError> {
        let method = MethodSettings {
            method: named("method", &self.method, "auto, three-stage or direct")?,
            false_alarm_probability: within(
                "false_alarm_probability",
                self.false_alarm_probability,
                LEAST_PROBABILITY,
                1.0,
            )?,
            batch_frames: within("batch_frames", self.batch_frames, 1, MOST_FRAMES)?,
            batch_combination: named(
                "batch_combination",
                &self.batch_combination,
                "non-coherent or coherent",
            )?,
            batch_speed_m: within("batch_speed_m", self.batch_speed_m, 0.0, 1000.0)?,
        };
        if method.method == Method::ThreeStage && method.batch_frames > 1 {
            return Err(refuse("batch_frames", self.batch_frames, "1 with the three-stage method"));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = within("workers", self.workers, 0, 256)?;
        let choice = ScenarioChoice {
            file: self.scenario,
            set: self.set,
            nodes: self.nodes,
            power_dbm: self.power_dbm,
        };
        Ok(Config {
            listen: address("listen", &self.listen)?,
            http_listen: address("http_listen", &self.http_listen)?,
            engine: EngineSettings {
                deadline: Duration::from_millis(within("deadline_ms", self.deadline_ms, 1, LONGEST_MS)?),
                workers: if workers == 0 { cores } else { workers },
                most_waiting: within("queue", self.queue, 1, 4096)?,
                solver_delay: Duration::from_millis(within(
                    "solver_delay_ms",
                    self.solver_delay_ms,
                    0,
                    LONGEST_MS,
                )?),
            },
            method,
            credit: within("credit", self.credit, 1, 256)?,
            fixes: self.fixes,
            record: self.record,
            site: choice.load_site()?,
            control: ControlSettings {
                allowed: self.allow_control,
                simulator: host_and_port_or_none("control_simulator", self.control_simulator)?,
                backhaul: host_and_port_or_none("control_backhaul", self.control_backhaul)?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_elsewhere_reaches_it_and_nothing_changes_unless_told() {
        let config = RawConfig::default().check().unwrap();
        assert!(config.listen.ip().is_loopback() && config.http_listen.ip().is_loopback());
        assert_eq!(config.control, ControlSettings::default());
        assert!(!config.control.allowed);
        let raw = RawConfig { control_backhaul: "relay".into(), ..RawConfig::default() };
        let refused = raw.check().unwrap_err().to_string();
        assert_eq!(refused, "control_backhaul = relay: must be host:port or none");
    }
}
