//! The options of the simulator.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use model::Scenario;
use proto::echo::EchoFrame;
use proto::echo::file::EchoFileFormat;
use settings::check::{
    address, address_or_none, host_and_port, host_and_port_or_none, named, seconds, within,
};
use settings::{EndpointOptions, OrNone, ScenarioChoice, SettingsError};
use trust::{Identity, Listen, Role, TlsOptions};

/// The name of this process in logs, announcements and variables.
pub const ROLE: &str = "simulator";

/// Most frames of files: those of a node are read back with one number per frame.
const MOST_FILE_FRAMES: u64 = 1 << 21;

#[derive(Debug, Clone, PartialEq, Args)]
pub struct SimulatorOptions {
    #[command(flatten)]
    pub scenario: ScenarioChoice,
    /// Frames to send; 0 sends until stopped.
    #[arg(long, value_name = "N", default_value = "0")]
    pub frames: u64,
    /// Frames per second.
    #[arg(long = "rate", id = "rate", value_name = "HZ", default_value = "50", value_parser = within(1e-3, 1e5))]
    pub rate_hz: f64,
    /// Where nodes subscribe to echo frames over ZeroMQ; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7500", value_parser = address)]
    pub echo_listen: SocketAddr,
    /// Host and port of a node that takes echo frames by gRPC; given for every node, in any order, frames are pushed to
    /// them and ZeroMQ is not used.
    #[arg(long, value_name = "ADDRESS", value_parser = host_and_port)]
    pub push: Vec<String>,
    /// Write the echo frames of every node to a file in this directory, and the truth to truth.jsonl, instead of sending them. Needs
    /// `frames`; neither nodes nor a fusion center are needed.
    #[arg(long, value_name = "DIR")]
    pub echoes_out: Option<PathBuf>,
    /// Format of these files: sigmf or npz.
    #[arg(long, value_name = "FORMAT", default_value = "sigmf", value_parser = named::<EchoFileFormat>("sigmf or npz"))]
    pub echoes_format: EchoFileFormat,
    /// Host and port of the fusion center that receives the truth, or `none`.
    #[arg(long, value_name = "ADDRESS", default_value = "none", value_parser = host_and_port_or_none)]
    pub fusion: OrNone<String>,
    /// Start after this time even if not all nodes have subscribed; 0 waits for all.
    #[arg(long = "start-after-s", id = "start_after_s", value_name = "SECONDS", default_value = "0",
          value_parser = seconds)]
    pub start_after: Duration,
    /// How long to wait for the last acknowledgements at the end.
    #[arg(long = "settle-timeout-s", id = "settle_timeout_s", value_name = "SECONDS", default_value = "5",
          value_parser = seconds)]
    pub settle_timeout: Duration,
    #[command(flatten)]
    pub endpoints: EndpointOptions,
    /// Allow targets, power and clocks to be changed while the simulator runs.
    #[arg(long)]
    pub allow_control: bool,
    /// Where these are changed, if that is allowed: on loopback by every process, elsewhere by an operator.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7501", value_parser = address_or_none)]
    pub control_listen: OrNone<SocketAddr>,
    #[command(flatten)]
    pub tls: TlsOptions,
}

impl settings::Options for SimulatorOptions {
    const ROLE: &'static str = ROLE;
}

impl SimulatorOptions {
    /// Loads the scenario; its frames must fit into an echo message.
    pub fn load(&self) -> Result<Scenario, SettingsError> {
        self.tls.check(&self.listens())?;
        self.identity()?;
        if self.echoes_out.is_some() && !(1..=MOST_FILE_FRAMES).contains(&self.frames) {
            let reason = format!("frames = {}: echoes_out needs 1 to {MOST_FILE_FRAMES} frames", self.frames);
            return Err(SettingsError::Options(reason));
        }
        let scenario = self.scenario.load()?;
        let (sensors, subcarriers) = (scenario.surface.sensors.count(), scenario.signal.subcarriers);
        if EchoFrame::fits(sensors, subcarriers) {
            return Ok(scenario);
        }
        let reason = format!("{sensors} sensors x {subcarriers} subcarriers: a frame has at most 64 MiB");
        Err(self.scenario.unusable(reason))
    }

    /// The addresses that it listens on.
    pub fn listens(&self) -> Vec<Listen> {
        let EndpointOptions { http_listen, health_listen, .. } = self.endpoints.clone();
        let control_listen = self.control_listen.filter(|_| self.allow_control);
        let optional = [
            ("http_listen", http_listen),
            ("health_listen", health_listen),
            ("control_listen", control_listen),
        ];
        let optional = optional.into_iter().filter_map(|(key, address)| Some(Listen::new(key, address?)));
        // ZeroMQ has no TLS.
        let echo = self.push.is_empty().then(|| Listen::plain("echo_listen", self.echo_listen));
        echo.into_iter().chain(optional).collect()
    }

    /// The certificate that it proves itself with; none without TLS.
    pub fn identity(&self) -> Result<Option<Identity>, SettingsError> {
        self.tls.load("the simulator", None, |role| role == Role::Simulator)
    }
}

#[cfg(test)]
mod tests {
    use settings::options::from_flags;

    use super::*;

    #[test]
    fn values_are_checked() {
        let options: SimulatorOptions = from_flags(&["--nodes=4", "--power-dbm=40", "--frames=10"]).unwrap();
        let scenario = options.load().unwrap();
        assert_eq!((scenario.irs.len(), scenario.base_station.power_dbm), (4, 40.0));
        assert_eq!((options.frames, options.fusion, options.start_after), (10, None, Duration::ZERO));
        assert!(!options.allow_control && options.control_listen.is_some_and(|at| at.ip().is_loopback()));
        for bad in ["--rate=0", "--fusion=:1", "--echo-listen=none"] {
            assert!(
                from_flags::<SimulatorOptions>(&[bad]).unwrap_err().to_string().contains("must be "),
                "{bad}"
            );
        }
        let many: SimulatorOptions = from_flags(&["--nodes=99"]).unwrap();
        assert!(many.load().unwrap_err().to_string().contains("nodes = 99"));
    }
}
