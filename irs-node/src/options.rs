//! The options of a node.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use estimation::fusion::PayloadKind;
use proto::echo::file::{EchoFault, read_header};
use proto::identity::is_identity;
use proto::samples::Precision;
use proto::site::SharedSite;
use settings::check::{Checked, address_or_none, auto_or, host_and_port, or_none, seconds, within};
use settings::{EndpointOptions, OrNone, ScenarioChoice, SettingsError};
use trust::{Listen, TlsOptions};

use crate::credentials::Credentials;

/// The name of this process in logs and announcements.
pub const ROLE: &str = "irs-node";

#[derive(Debug, Clone, PartialEq, Args)]
pub struct NodeOptions {
    /// Host and port of the fusion center.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400", value_parser = host_and_port)]
    pub fusion: String,
    /// Host and port at which the simulator serves echo frames over ZeroMQ.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7500", value_parser = host_and_port)]
    pub simulator: String,
    /// Where echo frames are pushed into this node by gRPC, instead of ZeroMQ; port 0 selects a free port, `none` takes
    /// frames from the simulator over ZeroMQ.
    #[arg(long, value_name = "ADDRESS", default_value = "none", value_parser = address_or_none)]
    pub echo_listen: OrNone<SocketAddr>,
    /// File with the echo frames of this node, instead of simulator and pushers: SigMF (.sigmf-meta beside .sigmf-data, or an
    /// archive .sigmf) or .npz. The node starts when all nodes are connected, drops nothing, and ends with the file.
    #[arg(long, value_name = "FILE")]
    pub echoes: Option<PathBuf>,
    /// Frames of the file that are taken per second, or `none`: as fast as they are fused.
    #[arg(long = "rate", id = "rate", value_name = "HZ", default_value = "none", value_parser = rate_or_none)]
    pub rate_hz: OrNone<f64>,
    /// Start with the file after this time even if not all nodes are connected; 0 waits for all.
    #[arg(long = "start-after-s", id = "start_after_s", value_name = "SECONDS", default_value = "0",
          value_parser = seconds)]
    pub start_after: Duration,
    /// Name under which the node registers, by default the host name; a restarted node gets the index of its name back.
    #[arg(long, value_name = "NAME", default_value_t = host_name(), hide_default_value = true, value_parser = identity)]
    pub identity: String,
    /// IRS index to claim, or `auto` to be assigned one; with TLS, the certificate has it. `{index}` in the paths of
    /// certificate and key stands for it: with `auto`, the node takes the first of those that exist and are free.
    #[arg(long, value_name = "INDEX", default_value = "auto", value_parser = index)]
    pub index: OrNone<u32>,
    /// The site to require; by default the node takes that of the fusion center.
    #[command(flatten)]
    pub scenario: ScenarioChoice,
    #[arg(long, default_value = "auto", value_parser = payload,
          help = format!("What is sent of every path: {}; `auto` sends what the fusion center asks for", payloads()))]
    pub payload: OrNone<PayloadKind>,
    /// Precision of the payload: f64, f32, or q16, q8, q4, q2 for that many bits per real number; `auto` is what the
    /// fusion center asks for.
    #[arg(long, default_value = "auto", value_parser = precision)]
    pub precision: OrNone<Precision>,
    /// Frames averaged coherently into one report.
    #[arg(long, value_name = "F", default_value = "1", value_parser = within::<u64>(1, 1000))]
    pub frames_per_fix: u64,
    /// Largest number of echo frames in flight.
    #[arg(long, value_name = "N", default_value_t = proto::echo::DEFAULT_WINDOW, value_parser = within::<u32>(1, 4096))]
    pub window: u32,
    /// Largest number of reports that wait for credit; beyond it the oldest is dropped.
    #[arg(long, value_name = "N", default_value = "64", value_parser = within::<usize>(1, 4096))]
    pub queue: usize,
    #[command(flatten)]
    pub endpoints: EndpointOptions,
    /// How long to retry to claim an index that is taken before the node ends, or `none` to retry for ever.
    #[arg(long = "claim-timeout-s", id = "claim_timeout_s", value_name = "SECONDS", default_value = "none",
          value_parser = seconds_or_none)]
    pub claim_timeout: OrNone<Duration>,
    /// How long to wait for acknowledgements when stopped.
    #[arg(long = "drain-timeout-s", id = "drain_timeout_s", value_name = "SECONDS", default_value = "5",
          value_parser = seconds)]
    pub drain_timeout: Duration,
    #[command(flatten)]
    pub tls: TlsOptions,
    /// Hash of the required site, if any; set by [`Self::check`].
    #[arg(skip)]
    pub site_sha256: Option<[u8; 32]>,
}

impl settings::Options for NodeOptions {
    const ROLE: &'static str = "node";
}

impl NodeOptions {
    /// Checks addresses and certificates, and loads the required site.
    pub fn check(mut self) -> Result<Self, SettingsError> {
        self.tls.check(&self.listens())?;
        self.check_echoes()?;
        Credentials::load(&self)?;
        if self.scenario != ScenarioChoice::default() {
            let site = SharedSite::new(self.scenario.load_site()?);
            let site = site.map_err(|error| self.scenario.unusable(error))?;
            self.site_sha256 = Some(site.sha256);
        }
        Ok(self)
    }

    /// Reads what the file of echoes says about itself. The node claims the index that the file names.
    fn check_echoes(&mut self) -> Result<(), SettingsError> {
        let Some(file) = &self.echoes else { return Ok(()) };
        if self.echo_listen.is_some() {
            let reason = "echoes and echo_listen exclude each other: frames come from a file or are pushed";
            return Err(SettingsError::Options(reason.into()));
        }
        let header = read_header(file).map_err(|error| match error.fault {
            EchoFault::Io { kind, reason } => {
                SettingsError::File { path: error.file, source: io::Error::new(kind, reason) }
            }
            fault => SettingsError::content(&error.file, fault),
        })?;
        if let (Some(claimed), Some(named)) = (self.index, header.node)
            && claimed != named
        {
            return Err(SettingsError::content(
                file,
                format!("has the frames of node {named}, and index = {claimed}"),
            ));
        }
        self.index = self.index.or(header.node);
        Ok(())
    }

    /// The addresses that it listens on.
    pub fn listens(&self) -> Vec<Listen> {
        let EndpointOptions { http_listen, health_listen, .. } = &self.endpoints;
        let all = [
            ("http_listen", http_listen),
            ("health_listen", health_listen),
            ("echo_listen", &self.echo_listen),
        ];
        all.into_iter().filter_map(|(key, address)| Some(Listen::new(key, (*address)?))).collect()
    }
}

/// The name of a payload, or `auto`.
pub fn payload(text: &str) -> Checked<Option<PayloadKind>> {
    auto_or(&payloads())(text)
}

/// The names of all payloads, as in "parameters, block or spectrum".
pub fn payloads() -> String {
    let [others @ .., last] = PayloadKind::ALL.map(PayloadKind::name);
    format!("{} or {last}", others.join(", "))
}

/// The name of a precision, or `auto`.
pub fn precision(text: &str) -> Checked<Option<Precision>> {
    auto_or("f64, f32, q16, q8, q4 or q2")(text)
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { ROLE.into() } else { name.trim().into() }
}

fn identity(text: &str) -> Checked<String> {
    let valid = is_identity(text).then(|| text.to_owned());
    valid.ok_or_else(|| "must be a name of 1 to 128 bytes of printable characters".into())
}

fn seconds_or_none(text: &str) -> Checked<Option<Duration>> {
    or_none("a time in seconds", |text| seconds(text).ok())(text)
}

fn rate_or_none(text: &str) -> Checked<Option<f64>> {
    or_none("a number between 0.001 and 100000", |text| within(1e-3, 1e5)(text).ok())(text)
}

fn index(text: &str) -> Checked<Option<u32>> {
    if text == "auto" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| "must be auto or a number".into())
}

#[cfg(test)]
mod tests {
    use settings::options::from_flags;

    use super::*;

    #[test]
    fn values_are_checked() {
        let options: NodeOptions =
            from_flags(&["--index=2", "--precision=f64", "--http-listen=none"]).unwrap();
        assert_eq!(
            (options.index, options.payload, options.precision),
            (Some(2), None, Some(Precision::F64))
        );
        assert_eq!((options.endpoints.http_listen, options.endpoints.health_listen), (None, None));
        assert_eq!(options.check().unwrap().site_sha256, None);
        for bad in
            ["--index=first", "--precision=f16", "--payload=all", "--identity=", "--drain-timeout-s=NaN"]
        {
            let refused = from_flags::<NodeOptions>(&[bad]).unwrap_err().to_string();
            assert!(refused.contains("must be "), "{refused}");
        }
        let site: NodeOptions = from_flags(&["--set=base_station.power_dbm=900"]).unwrap();
        assert!(site.check().unwrap_err().to_string().contains("power_dbm"));
    }
}
