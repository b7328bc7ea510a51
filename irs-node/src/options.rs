//! NodeOptions of a node.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use estimation::fusion::PayloadKind;
use proto::samples::Precision;
use proto::site::SharedSite;
use settings::check::{Checked, address_or_none, auto_or, host_and_port, seconds, within};
use settings::{OrNone, ScenarioChoice, SettingsError};

/// The name of this process in logs and announcements.
pub const ROLE: &str = "irs-node";

/// NodeOptions of a node.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct NodeOptions {
    /// Host and port of the fusion center.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400", value_parser = host_and_port)]
    pub fusion: String,
    /// Host and port at which the simulator hands out echo frames.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7500", value_parser = host_and_port)]
    pub simulator: String,
    /// Name under which the node registers, the host's by default; the same name gets the same index back.
    #[arg(long, value_name = "NAME", default_value_t = host_name(), hide_default_value = true, value_parser = identity)]
    pub identity: String,
    /// IRS index to claim, or `auto` to be given one.
    #[arg(long, value_name = "INDEX", default_value = "auto", value_parser = index)]
    pub index: OrNone<u32>,
    /// The site to insist on; without any of these, the node takes the fusion center's.
    #[command(flatten)]
    pub scenario: ScenarioChoice,
    /// What is sent of every path: parameters (delay and angle only), block, or spectrum; `auto` sends what the fusion
    /// center asks for.
    #[arg(long, default_value = "auto", value_parser = payload)]
    pub payload: OrNone<PayloadKind>,
    /// Its precision: f64, f32, or q16, q8, q4, q2 for so many bits per real; `auto` as the fusion center asks.
    #[arg(long, default_value = "auto", value_parser = precision)]
    pub precision: OrNone<Precision>,
    /// Frames averaged coherently into one report.
    #[arg(long, value_name = "F", default_value = "1", value_parser = within::<u64>(1, 1000))]
    pub frames_per_fix: u64,
    /// Echo frames held at most.
    #[arg(long, value_name = "N", default_value_t = proto::echo::DEFAULT_WINDOW, value_parser = within::<u32>(1, 4096))]
    pub window: u32,
    /// Reports that wait for credit at most; then the oldest is dropped.
    #[arg(long, value_name = "N", default_value = "64", value_parser = within::<usize>(1, 4096))]
    pub queue: usize,
    /// Where /metrics and /health are served; port 0 takes any, `none` serves nothing.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = address_or_none)]
    pub http_listen: OrNone<SocketAddr>,
    /// Where gRPC health is served.
    #[arg(long, value_name = "ADDRESS", default_value = "none", value_parser = address_or_none)]
    pub health_listen: OrNone<SocketAddr>,
    /// How long to ask again for an index that is taken.
    #[arg(long = "claim-timeout-s", id = "claim_timeout_s", value_name = "SECONDS", default_value = "5",
          value_parser = seconds)]
    pub claim_timeout: Duration,
    /// How long to wait for acknowledgements when stopped.
    #[arg(long = "drain-timeout-s", id = "drain_timeout_s", value_name = "SECONDS", default_value = "5",
          value_parser = seconds)]
    pub drain_timeout: Duration,
    /// Hash of the site to insist on, if any.
    #[arg(skip)]
    pub site_sha256: Option<[u8; 32]>,
}

impl settings::Options for NodeOptions {
    const ROLE: &'static str = "node";
}

impl NodeOptions {
    /// Loads the site to insist on.
    pub fn check(mut self) -> Result<Self, SettingsError> {
        if self.scenario != ScenarioChoice::default() {
            let site = SharedSite::new(self.scenario.load_site()?);
            let site = site.map_err(|error| SettingsError::Options(error.to_string()))?;
            self.site_sha256 = Some(site.sha256);
        }
        Ok(self)
    }
}

/// The name of a payload, or `auto`.
pub fn payload(text: &str) -> Checked<Option<PayloadKind>> {
    auto_or("parameters, block or spectrum")(text)
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
    let valid = (1..=128).contains(&text.len()).then(|| text.to_owned());
    valid.ok_or_else(|| "must be a name of 1 to 128 bytes".into())
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
        assert_eq!((options.http_listen, options.health_listen), (None, None));
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
