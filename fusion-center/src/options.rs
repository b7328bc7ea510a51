//! The options of the fusion center.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use estimation::fusion::{FuserError, Method};
use model::System;
use settings::check::{address, within};
use settings::{HostNameOptions, ScenarioChoice, SettingsError};
use trust::{Identity, Listen, Role, TlsOptions};

use crate::dashboard::ControlSettings;
use crate::engine::EngineSettings;
use crate::method::MethodSettings;

#[derive(Debug, Clone, PartialEq, Args)]
pub struct FusionOptions {
    /// Where nodes, simulator and watchers connect (gRPC); port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400", value_parser = address)]
    pub listen: SocketAddr,
    /// Where /metrics, /health and the API are served (HTTP).
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7401", value_parser = address)]
    pub http_listen: SocketAddr,
    #[command(flatten)]
    pub names: HostNameOptions,
    #[command(flatten)]
    pub scenario: ScenarioChoice,
    #[command(flatten)]
    pub engine: EngineSettings,
    /// Reports that a node may have in flight.
    #[arg(long, value_name = "N", default_value = "64", value_parser = within::<usize>(1, 256))]
    pub credit: usize,
    /// File that receives one JSON line per fix; `-` is standard output, and standard error then gets the rest.
    #[arg(long, value_name = "FILE")]
    pub fixes: Option<PathBuf>,
    /// Directory that receives a recording of the reports, for `hyloc replay`.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub method: MethodSettings,
    #[command(flatten)]
    pub control: ControlSettings,
    #[command(flatten)]
    pub tls: TlsOptions,
}

impl settings::Options for FusionOptions {
    const ROLE: &'static str = "fusion";
}

impl FusionOptions {
    /// Checks what belongs together, and loads the site of the scenario; the rest of the scenario is discarded.
    pub fn load(&self) -> Result<System, SettingsError> {
        if self.method.method == Method::ThreeStage && self.method.batch_frames > 1 {
            let reason = "batch_frames must be 1 with the three-stage method: use auto or direct";
            return Err(SettingsError::Options(reason.into()));
        }
        self.tls.check(&self.listens())?;
        self.identity()?;
        let site = self.scenario.load_site()?;
        if self.method.batch_frames > 1 && site.clock_prior_s > 0.0 {
            let reason = "batch_frames must be 1 where clocks are not trusted (clocks.prior_ns above 0)";
            return Err(SettingsError::Options(reason.into()));
        }
        match (self.method.method, site.beyond_the_plane()) {
            (Method::ThreeStage, Some(reason)) => {
                Err(SettingsError::Options(FuserError::ThreeStage(reason).to_string()))
            }
            _ => Ok(site),
        }
    }

    /// The addresses that it listens on.
    pub fn listens(&self) -> [Listen; 2] {
        [Listen::new("listen", self.listen), Listen::new("http_listen", self.http_listen)]
    }

    /// The certificate that it proves itself with; none without TLS.
    pub fn identity(&self) -> Result<Option<Identity>, SettingsError> {
        self.tls.load("the fusion center", None, |role| role == Role::FusionCenter)
    }
}

#[cfg(test)]
mod tests {
    use settings::options::from_flags;

    use super::*;

    #[test]
    fn nobody_elsewhere_reaches_it_and_nothing_changes_unless_told() {
        let options: FusionOptions = from_flags(&[]).unwrap();
        assert!(options.listen.ip().is_loopback() && options.http_listen.ip().is_loopback());
        assert_eq!(
            (&options.control, options.method),
            (&ControlSettings::default(), MethodSettings::default())
        );
        assert!(options.load().is_ok() && options.engine.workers() > 0);
        let refused = from_flags::<FusionOptions>(&["--control-backhaul=relay"]).unwrap_err().to_string();
        assert!(refused.contains("must be host:port or none"), "{refused}");
        let batches: FusionOptions = from_flags(&["--method=three-stage", "--batch-frames=4"]).unwrap();
        assert!(batches.load().unwrap_err().to_string().contains("batch_frames must be 1"));
        let open: FusionOptions = from_flags(&["--http-listen=0.0.0.0:7401"]).unwrap();
        let refused = open.load().unwrap_err().to_string();
        assert!(refused.starts_with("http_listen = 0.0.0.0:7401: others can reach"), "{refused}");
    }
}
