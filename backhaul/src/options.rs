//! RelayOptions of the relay.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use settings::check::{Checked, address, address_or_none, host_and_port};
use settings::{Layered, OrNone, SettingsError};

use crate::control::Action;
use crate::measure::Trust;
use crate::plan::{MOST_LINKS, Plan};

/// The name of this process in logs, announcements and variables.
pub const ROLE: &str = "backhaul";

/// RelayArguments of the relay.
#[derive(Debug, Clone, Args)]
pub struct RelayArguments {
    /// The options.
    #[command(flatten)]
    pub layered: Layered<RelayOptions>,
    /// What to ask of a relay that runs, or to measure, in place of running one.
    #[command(subcommand)]
    pub action: Option<Action>,
}

/// RelayOptions of the relay.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct RelayOptions {
    /// Where nodes connect, told apart by their source address; `none` for links with ports of their own only.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7410", value_parser = address_or_none)]
    pub listen: OrNone<SocketAddr>,
    /// A link with a port of its own, as in west=127.0.0.1:7420; may be repeated.
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = link)]
    pub link: Vec<(String, SocketAddr)>,
    /// Host and port of the fusion center.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400", value_parser = host_and_port)]
    pub fusion: String,
    /// Profile of all links that the plan gives none: clear, fibre, microwave, 5g-fronthaul, congested or flaky.
    #[arg(long, value_name = "NAME", default_value = "clear")]
    pub profile: String,
    /// Plan for links and directions, TOML; read again when it changes and on SIGHUP.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Where the relay is controlled; whoever reaches it can cut links.
    #[arg(long, value_name = "ADDRESS", global = true, default_value = "127.0.0.1:7411", value_parser = address)]
    pub control_listen: SocketAddr,
    /// Where /metrics and /health alone are served, for others to reach.
    #[arg(long, value_name = "ADDRESS", default_value = "none", value_parser = address_or_none)]
    pub http_listen: OrNone<SocketAddr>,
    /// Do not measure first whether this machine keeps the plan: for one that is too busy to tell.
    #[arg(long)]
    pub unmeasured: bool,
}

impl settings::Options for RelayOptions {
    const ROLE: &'static str = ROLE;
}

impl RelayOptions {
    /// Reads the plan.
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
        read_plan(self.plan.as_deref(), &self.profile)
    }

    /// Whether the plan is measured before it is followed.
    pub fn trust(&self) -> Trust {
        if self.unmeasured { Trust::Unmeasured } else { Trust::Measured }
    }
}

fn link(text: &str) -> Checked<(String, SocketAddr)> {
    let parts = text.split_once('=').and_then(|(name, at)| Some((name.to_owned(), at.parse().ok()?)));
    parts.ok_or_else(|| "must be a name and an address, as in west=127.0.0.1:7420".into())
}

/// Reads the plan's file; without one, `profile` is the plan.
pub fn read_plan(file: Option<&Path>, profile: &str) -> Result<Plan, SettingsError> {
    let (origin, text) = match file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| SettingsError::File { path: path.to_path_buf(), source })?;
            (path.display().to_string(), text)
        }
        None => ("profile".into(), String::new()),
    };
    Plan::parse(&text, profile).map_err(|error| SettingsError::Layers { origin, reason: error.to_string() })
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
