//! The options that every process has for TLS.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use settings::SettingsError;

use crate::accept::{Acceptor, Protocol};
use crate::identity::{Identity, Paths};
use crate::role::Role;

/// Stands for the index of a node in the paths of certificate and key.
pub const INDEX: &str = "{index}";

#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct TlsOptions {
    /// Certificates of the authorities that peers are verified by, PEM; with --tls-cert and --tls-key, every gRPC
    /// connection is encrypted and proves its role on both sides, and so is HTTP on addresses other than loopback.
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Certificate of this process, PEM; reloaded when it changes and on SIGHUP.
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM.
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Listen without TLS on addresses other than loopback, where whoever reaches them can read and forge everything.
    #[arg(long)]
    pub insecure: bool,
}

/// An address that a process listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The key of the option.
    pub key: &'static str,
    pub address: SocketAddr,
    /// Whether TLS options encrypt it.
    pub encrypted: bool,
}

impl Listen {
    pub fn new(key: &'static str, address: SocketAddr) -> Self {
        Self { key, address, encrypted: true }
    }

    /// An address that stays without TLS.
    pub fn plain(key: &'static str, address: SocketAddr) -> Self {
        Self { encrypted: false, ..Self::new(key, address) }
    }
}

impl TlsOptions {
    /// The three paths, if TLS is configured. With `index`, `{index}` in the paths stands for it.
    pub fn paths(&self, index: Option<u32>) -> Result<Option<Paths>, SettingsError> {
        let refuse = |reason: &str| Err(SettingsError::Options(reason.into()));
        match (&self.tls_ca, &self.tls_cert, &self.tls_key) {
            (None, None, None) => Ok(None),
            (Some(ca), Some(cert), Some(key)) => {
                let place = |path: &PathBuf| match (index, path.to_str()) {
                    (Some(index), Some(text)) => text.replace(INDEX, &index.to_string()).into(),
                    _ => path.clone(),
                };
                Ok(Some(Paths { ca: place(ca), cert: place(cert), key: place(key) }))
            }
            _ => refuse("tls_ca, tls_cert and tls_key belong together: give all three or none"),
        }
    }

    /// Whether the paths depend on the index of a node.
    pub fn depends_on_index(&self) -> bool {
        let depends = |path: &Option<PathBuf>| {
            path.as_ref().and_then(|path| path.to_str()).is_some_and(|text| text.contains(INDEX))
        };
        depends(&self.tls_ca) || depends(&self.tls_cert) || depends(&self.tls_key)
    }

    /// Loads the certificate, which must be of a role that `fits`; none without TLS.
    pub fn load(
        &self,
        process: &str,
        index: Option<u32>,
        fits: impl Fn(Role) -> bool,
    ) -> Result<Option<Identity>, SettingsError> {
        let Some(paths) = self.paths(index)? else { return Ok(None) };
        let cert = paths.cert.clone();
        let identity = Identity::load(paths)?;
        let name = identity.name();
        if !fits(name.role) {
            let reason = format!("{name} cannot be used by this process, {process}");
            return Err(SettingsError::content(&cert, reason));
        }
        Ok(Some(identity))
    }

    /// Refuses addresses that others could reach without TLS, unless `--insecure` allows it.
    pub fn check(&self, listens: &[Listen]) -> Result<(), SettingsError> {
        let tls = self.paths(None)?.is_some();
        let exposed = |listen: &&Listen| !(listen.address.ip().is_loopback() || tls && listen.encrypted);
        let Some(listen) = listens.iter().find(exposed).filter(|_| !self.insecure) else { return Ok(()) };
        let Listen { key, address, .. } = listen;
        let remedy = if listen.encrypted {
            "give --tls-ca, --tls-cert and --tls-key (`hyloc certs init` makes them), or listen on 127.0.0.1"
        } else {
            "it has no TLS: listen on 127.0.0.1"
        };
        let reason = format!(
            "{key} = {address}: others can reach this address: {remedy}; --insecure allows it as it is"
        );
        Err(SettingsError::Options(reason))
    }

    /// Says once, at the start, which addresses others can reach without TLS.
    pub fn warn(&self, listens: &[Listen]) {
        let tls = self.tls_cert.is_some();
        let exposed = listens.iter().filter(|listen| !listen.address.ip().is_loopback());
        let exposed: Vec<String> = exposed
            .filter(|listen| !(tls && listen.encrypted))
            .map(|Listen { key, address, .. }| format!("{key} = {address}"))
            .collect();
        if !exposed.is_empty() {
            let addresses = exposed.join(", ");
            tracing::warn!(
                addresses,
                "--insecure: whoever reaches these addresses can read and forge everything"
            );
        }
    }
}

/// The acceptor of an HTTP address: TLS unless it is known to be on loopback.
pub fn http_acceptor(identity: Option<&Identity>, address: std::io::Result<SocketAddr>) -> Acceptor {
    let is_loopback = address.is_ok_and(|address| address.ip().is_loopback());
    let identity = identity.filter(|_| !is_loopback);
    identity.map_or_else(Acceptor::plain, |identity| identity.acceptor(Protocol::Http))
}

/// The acceptor of a gRPC address: TLS wherever it is.
pub fn grpc_acceptor(identity: Option<&Identity>) -> Acceptor {
    identity.map_or_else(Acceptor::plain, |identity| identity.acceptor(Protocol::Grpc))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(tls: bool, insecure: bool) -> TlsOptions {
        let path = |name: &str| tls.then(|| PathBuf::from(name));
        TlsOptions {
            tls_ca: path("ca"),
            tls_cert: path("n/{index}/c"),
            tls_key: path("n/{index}/k"),
            insecure,
        }
    }

    #[test]
    fn without_tls_others_reach_nothing_unless_it_is_insecure() {
        let (here, there) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        let check = |tls, insecure, listen| options(tls, insecure).check(&[listen]);
        assert!(check(false, false, Listen::new("listen", here)).is_ok());
        assert!(check(true, false, Listen::new("listen", there)).is_ok());
        assert!(check(false, true, Listen::new("listen", there)).is_ok());
        let refused = check(false, false, Listen::new("listen", there)).unwrap_err().to_string();
        for part in ["listen = 0.0.0.0:1", "--tls-cert", "hyloc certs init", "--insecure"] {
            assert!(refused.contains(part), "{refused}");
        }
        // What TLS does not cover stays refused with it.
        assert!(check(true, false, Listen::plain("echo_listen", there)).is_err());
        assert!(check(true, true, Listen::plain("echo_listen", there)).is_ok());
    }

    #[test]
    fn the_three_files_belong_together() {
        let mut some = options(true, false);
        let paths = some.paths(Some(3)).unwrap().unwrap();
        assert_eq!((paths.ca.to_str(), paths.key.to_str()), (Some("ca"), Some("n/3/k")));
        assert!(some.depends_on_index());
        some.tls_key = None;
        assert!(some.paths(None).unwrap_err().to_string().contains("all three or none"));
        assert_eq!(TlsOptions::default().paths(None).unwrap(), None);
    }
}
