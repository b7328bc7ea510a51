//! The options of the relay.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use settings::check::{Checked, address, address_or_none, host_and_port};
use settings::{HostNameOptions, Layered, OrNone, SettingsError};
use trust::{ClientTls, Identity, Listen, Role, TlsOptions};

use crate::control::Action;
use crate::measure::Trust;
use crate::plan::{MOST_LINKS, Plan, PlanError};

/// Name of this process in logs, announcements and environment variables.
pub const ROLE: &str = "backhaul";

/// Command line of the relay.
#[derive(Debug, Clone, Args)]
pub struct RelayArguments {
    #[command(flatten)]
    pub layered: Layered<RelayOptions>,
    /// Host and port of the control interface that a request is sent to [default: the address of --control-listen].
    #[arg(long, value_name = "ADDRESS", global = true, value_parser = host_and_port)]
    pub control: Option<String>,
    /// Request to a running relay, or measurement, instead of running a relay.
    #[command(subcommand)]
    pub action: Option<Action>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub struct RelayOptions {
    /// Where nodes connect, distinguished by their source address; `none` if every link has its own port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7410", value_parser = address_or_none)]
    pub listen: OrNone<SocketAddr>,
    /// A link with its own port, as in west=127.0.0.1:7420; may be repeated.
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = link)]
    pub link: Vec<(String, SocketAddr)>,
    /// Host and port of the fusion center.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400", value_parser = host_and_port)]
    pub fusion: String,
    /// Profile of all links without one in the plan: clear, fibre, microwave, 5g-fronthaul, congested or flaky.
    #[arg(long, value_name = "NAME", default_value = "clear")]
    pub profile: String,
    /// Plan for links and directions, TOML; reloaded when it changes and on SIGHUP.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Allow links to be cut and profiles to be changed while the relay runs.
    #[arg(long)]
    pub allow_control: bool,
    /// Address of the control interface, if that is allowed: on loopback for every process, elsewhere for an operator.
    #[arg(long, value_name = "ADDRESS", global = true, default_value = "127.0.0.1:7411", value_parser = address)]
    pub control_listen: SocketAddr,
    /// Address that serves only /metrics and /health, for other hosts.
    #[arg(long, value_name = "ADDRESS", default_value = "none", value_parser = address_or_none)]
    pub http_listen: OrNone<SocketAddr>,
    #[command(flatten)]
    pub names: HostNameOptions,
    /// Apply the plan without measuring whether this machine keeps it, for machines that are too busy to measure.
    #[arg(long)]
    pub unmeasured: bool,
    #[command(flatten)]
    pub tls: TlsOptions,
}

impl settings::Options for RelayOptions {
    const ROLE: &'static str = ROLE;
}

impl RelayOptions {
    /// Checks combinations of options and reads the plan.
    pub fn load(&self) -> Result<Plan, SettingsError> {
        let refuse = |reason: &str| Err(SettingsError::Options(reason.into()));
        if self.listen.is_none() && self.link.is_empty() {
            return refuse(
                "listen = none: must be an address, unless there is a link with a port of its own",
            );
        }
        if self.link.len() > MOST_LINKS {
            return refuse("link: must be given at most 64 times");
        }
        self.tls.check(&self.listens())?;
        self.identity()?;
        read_plan(self.plan.as_deref(), &self.profile)
    }

    /// The addresses that it serves. What it relays is encrypted from end to end, or not at all.
    pub fn listens(&self) -> Vec<Listen> {
        let control = self.allow_control.then(|| Listen::new("control_listen", self.control_listen));
        let http = self.http_listen.map(|address| Listen::new("http_listen", address));
        control.into_iter().chain(http).collect()
    }

    /// The certificate that it proves itself with; none without TLS.
    pub fn identity(&self) -> Result<Option<Identity>, SettingsError> {
        self.tls.load("the backhaul emulator", None, |role| role == Role::Backhaul)
    }

    /// The client side of the control interface; none without TLS.
    pub fn client(&self) -> Result<Option<ClientTls>, SettingsError> {
        let identity = self.tls.load("a request to the control", None, |_| true)?;
        Ok(identity.map(|identity| identity.client(Some(Role::Backhaul))))
    }

    pub fn trust(&self) -> Trust {
        if self.unmeasured { Trust::Unmeasured } else { Trust::Measured }
    }
}

fn link(text: &str) -> Checked<(String, SocketAddr)> {
    let parts = text.split_once('=').and_then(|(name, at)| Some((name.to_owned(), at.parse().ok()?)));
    parts.ok_or_else(|| "must be a name and an address, as in west=127.0.0.1:7420".into())
}

/// Reads the plan file; without one, all links have `profile`.
pub fn read_plan(file: Option<&Path>, profile: &str) -> Result<Plan, SettingsError> {
    let text = file.map(settings::read).transpose()?.unwrap_or_default();
    Plan::parse(&text, profile).map_err(|error| match file {
        Some(path) if error != PlanError::Profile(profile.into()) => SettingsError::content(path, error),
        _ => SettingsError::Options(format!("profile: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use settings::options::from_flags;

    use super::*;

    #[test]
    fn what_cannot_be_used_is_named() {
        let load = |flags: &[&str]| from_flags::<RelayOptions>(flags).unwrap().load();
        assert!(load(&[]).is_ok() && load(&["--listen=none", "--link=west=127.0.0.1:7420"]).is_ok());
        let refused = |flags: &[&str]| load(flags).unwrap_err().to_string();
        assert!(refused(&["--listen=none"]).starts_with("listen = none: must be an address"));
        assert!(refused(&["--profile=carrier-pigeon"]).contains("no profile 'carrier-pigeon'"));
        assert!(refused(&["--plan=nowhere.toml"]).contains("nowhere.toml"));
        for bad in ["--fusion=somewhere", "--link=west", "--control-listen=none"] {
            assert!(
                from_flags::<RelayOptions>(&[bad]).unwrap_err().to_string().contains("must be "),
                "{bad}"
            );
        }
    }
}
