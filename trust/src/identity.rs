//! The certificate of a process, replaced while it is in use.
//!
//! The files are read every two seconds and on SIGHUP. A change takes effect when two successive readings agree, because
//! certificate and key are replaced one after the other. Connections that exist go on with what they were made with;
//! new ones use the new certificate. Files that cannot be used change nothing: what is in force stays, and log and
//! health say so.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::accept::{Acceptor, HANDSHAKE_TIMEOUT, Protocol};
use crate::material::{self, Files, Material, MaterialError, date};
use crate::role::{Name, Role};

pub use crate::material::Paths;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(2);

/// The certificate of a process; shared, cheap to clone.
#[derive(Debug, Clone)]
pub struct Identity(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    paths: Paths,
    current: watch::Sender<Arc<Material>>,
    /// Why the files are not, or no longer, usable.
    problem: watch::Sender<Option<String>>,
}

impl Identity {
    /// Loads the files; they must be usable.
    pub fn load(paths: Paths) -> Result<Self, MaterialError> {
        Self::load_at(paths, SystemTime::now())
    }

    /// The same at another time.
    pub(crate) fn load_at(paths: Paths, now: SystemTime) -> Result<Self, MaterialError> {
        let files = Files::read(&paths)?;
        let material = Arc::new(Material::new(&paths, &files, now)?);
        let current = watch::Sender::new(material);
        Ok(Self(Arc::new(Shared { paths, current, problem: watch::Sender::new(None) })))
    }

    pub(crate) fn current(&self) -> Arc<Material> {
        self.0.current.borrow().clone()
    }

    /// The name that the certificate in force proves.
    pub fn name(&self) -> Name {
        self.current().name.clone()
    }

    /// When the certificate in force expires.
    pub fn not_after(&self) -> SystemTime {
        self.current().not_after
    }

    /// The server side of connections.
    pub fn acceptor(&self, protocol: Protocol) -> Acceptor {
        Acceptor::tls(self.clone(), protocol)
    }

    /// The client side of connections to servers of this role, any if none.
    pub fn client(&self, role: Option<Role>) -> ClientTls {
        ClientTls { identity: ClientIdentity::Identity(self.clone()), role }
    }

    /// What is wrong with the files, for health; none while they are in force.
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.0.problem.subscribe()
    }

    /// Follows the files until `stop`.
    pub async fn follow(self, stop: CancellationToken) {
        let mut hangup = match signal(SignalKind::hangup()) {
            Ok(hangup) => hangup,
            Err(error) => return tracing::error!(%error, "changes of the certificate will not be noticed"),
        };
        let mut reading = Reading::new(Files::read(&self.0.paths).ok());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = hangup.recv() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
            self.check_files(&mut reading, SystemTime::now());
        }
    }

    /// Reads the files once and applies a change that has settled.
    fn check_files(&self, reading: &mut Reading, now: SystemTime) {
        let read = Files::read(&self.0.paths);
        let problem = match read.and_then(|files| {
            let Some(files) = reading.settled(files) else { return Ok(None) };
            Material::new(&self.0.paths, &files, now).map(Some)
        }) {
            // What was wrong with files that are there as before is still wrong; that they could not be read is not.
            Ok(None) if reading.taken => return self.report(reading.refused.clone().or(self.expiry(now))),
            Ok(None) => return,
            Ok(Some(material)) if material.name != self.name() => {
                let (new, own) = (material.name, self.name());
                Some(format!("{}: for {new}, but this process is {own}", self.0.paths.cert.display()))
            }
            Ok(Some(material)) => {
                let until = date(material.not_after);
                tracing::info!(name = %material.name, until, "a new certificate is in force");
                self.0.current.send_replace(Arc::new(material));
                None
            }
            Err(error @ MaterialError::File { .. }) => return self.report(Some(error.to_string())),
            Err(error) => Some(error.to_string()),
        };
        reading.refused.clone_from(&problem);
        self.report(problem);
    }

    /// A certificate that expires while it is in force is as useless as one that cannot be read.
    fn expiry(&self, now: SystemTime) -> Option<String> {
        let until = self.not_after();
        (until < now).then(|| format!("the certificate expired on {}", date(until)))
    }

    fn report(&self, problem: Option<String>) {
        self.0.problem.send_if_modified(|known| {
            let changed = *known != problem;
            if let (true, Some(reason)) = (changed, &problem) {
                tracing::error!(reason, "the certificate files cannot be used; what is in force stays");
            }
            *known = problem;
            changed
        });
    }
}

/// Tells when files that have changed have settled.
struct Reading {
    /// What was read last, and whether it has been taken.
    last: Option<Files>,
    taken: bool,
    /// Why what was taken last is not in force.
    refused: Option<String>,
}

impl Reading {
    fn new(in_force: Option<Files>) -> Self {
        Self { last: in_force, taken: true, refused: None }
    }

    /// Takes what was read now; returns it if it is new and the second reading agrees with the first.
    fn settled(&mut self, files: Files) -> Option<Files> {
        if self.last.as_ref() != Some(&files) {
            (self.last, self.taken) = (Some(files), false);
            return None;
        }
        (!std::mem::replace(&mut self.taken, true)).then_some(files)
    }
}

/// The client side of TLS connections to servers of one role; cheap to clone.
#[derive(Debug, Clone)]
pub struct ClientTls {
    identity: ClientIdentity,
    role: Option<Role>,
}

#[derive(Debug, Clone)]
enum ClientIdentity {
    Identity(Identity),
    /// Without a certificate of its own.
    Anonymous(Arc<RootCertStore>),
}

impl ClientTls {
    /// A client without a certificate, which only health answers, of servers that the authorities in `ca` vouch for.
    pub fn anonymous(ca: &Path) -> Result<Self, MaterialError> {
        Ok(Self { identity: ClientIdentity::Anonymous(material::authorities(ca)?), role: None })
    }

    /// The configuration in force.
    pub fn config(&self, protocol: Protocol) -> Result<Arc<ClientConfig>, rustls::Error> {
        match &self.identity {
            ClientIdentity::Identity(identity) => identity.current().client(self.role, protocol.alpn()),
            ClientIdentity::Anonymous(roots) => {
                material::client(roots.clone(), self.role, None, None, protocol.alpn())
            }
        }
    }

    /// Speaks TLS over a connection. The server proves its role, so that its host name does not matter.
    pub async fn connect<S>(&self, stream: S, protocol: Protocol) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.config(protocol).map_err(io::Error::other)?;
        let connect = TlsConnector::from(config).connect(unnamed(), stream);
        let connected = tokio::time::timeout(HANDSHAKE_TIMEOUT, connect).await;
        connected.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake in time"))?
    }
}

/// A server name that is neither sent nor verified: an address.
pub fn unnamed() -> ServerName<'static> {
    ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority;
    use crate::lab::{DAY, Lab};

    #[test]
    fn a_new_certificate_is_taken_when_it_has_settled() {
        let (lab, now) = (Lab::new("lab"), SystemTime::now());
        lab.write(&lab.pair(Role::Simulator, now));
        let identity = Identity::load(lab.paths()).unwrap();
        let mut reading = Reading::new(Files::read(&lab.paths()).ok());
        let first = identity.not_after();

        // The certificate is there, its key not yet: neither is taken, nor is anything said.
        let second = lab.pair(Role::Simulator, now + DAY / 2);
        std::fs::write(lab.paths().cert, &second.certificate).unwrap();
        identity.check_files(&mut reading, now + DAY);
        assert_eq!((identity.not_after(), identity.problem().borrow().clone()), (first, None));
        lab.write(&second);
        identity.check_files(&mut reading, now + DAY);
        assert_eq!(identity.not_after(), first, "not settled");
        identity.check_files(&mut reading, now + DAY);
        assert_eq!(identity.not_after(), first + DAY / 2);
        assert_eq!(identity.problem().borrow().clone(), None);
    }

    #[test]
    fn what_cannot_be_used_changes_nothing_and_is_said_until_it_is_mended() {
        let (lab, now) = (Lab::new("lab"), SystemTime::now());
        let good = lab.pair(Role::Node(1), now);
        lab.write(&good);
        let identity = Identity::load(lab.paths()).unwrap();
        let in_force = identity.not_after();
        let mut reading = Reading::new(Files::read(&lab.paths()).ok());
        let mut look = |what: &str| {
            identity.check_files(&mut reading, now + DAY);
            identity.check_files(&mut reading, now + DAY);
            assert_eq!((identity.not_after(), identity.name().role), (in_force, Role::Node(1)), "{what}");
            identity.problem().borrow().clone().unwrap_or_default()
        };
        std::fs::write(lab.paths().cert, "no certificate").unwrap();
        assert!(look("garbage").contains("no certificate"));
        lab.write(&authority::Pair { key: lab.pair(Role::Node(1), now).key, ..lab.pair(Role::Node(1), now) });
        assert!(look("the key of another").contains("key.pem: "), "names the file");
        lab.write(&lab.pair(Role::Node(2), now));
        assert!(look("another role").contains("spiffe://lab/hyloc/node/2"));
        lab.write(&lab.pair(Role::Node(1), now - 20 * DAY));
        assert!(look("expired").contains("not now"));
        std::fs::remove_file(lab.paths().key).unwrap();
        assert!(look("missing").starts_with("cannot read "));
        lab.write(&good);
        assert_eq!(look("mended"), "");
        // A file that is away for a moment and comes back as it was.
        std::fs::remove_file(lab.paths().key).unwrap();
        assert!(look("away").starts_with("cannot read "));
        lab.write(&good);
        assert_eq!(look("back"), "");
        // What was refused stays refused when it is read again.
        let other = lab.pair(Role::Node(2), now);
        lab.write(&other);
        let refused = look("another role");
        std::fs::remove_file(lab.paths().key).unwrap();
        assert!(look("away").starts_with("cannot read "));
        lab.write(&other);
        assert_eq!(look("back, and still another role"), refused);
    }

    #[test]
    fn a_certificate_that_expires_in_force_is_said() {
        let (lab, now) = (Lab::new("lab"), SystemTime::now());
        lab.write(&lab.pair(Role::Watcher, now));
        let identity = Identity::load(lab.paths()).unwrap();
        let mut reading = Reading::new(Files::read(&lab.paths()).ok());
        identity.check_files(&mut reading, now + 9 * DAY);
        assert_eq!(identity.problem().borrow().clone(), None);
        identity.check_files(&mut reading, now + 11 * DAY);
        assert!(identity.problem().borrow().clone().unwrap().starts_with("the certificate expired on "));
    }
}
