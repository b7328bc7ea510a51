//! Assigns IRS indices to nodes.
//!
//! A node asks for an index or takes the first free one. An identity keeps its index, also while it is disconnected,
//! as long as no other identity claims it: a restarted node gets its index back, and after a
//! restart of the fusion center the nodes claim the indices that they had.
//!
//! A registration is a session: a secret that opens one stream of reports. A session whose stream is not opened
//! within [`LEASE_NS`] expires, so that a node that died in between, or a stranger that only registers, blocks an index for
//! seconds at most. An index whose session is in force is given only to who proves to be its holder: by the certificate
//! ([`Application::proven_index`]) or by the incarnation, a secret that only the holder's process knows. After a stream
//! has broken, its holder has the index to itself for another lease; after it was ended in order, the index is free.
//!
//! Pure: time and secrets are passed in.

use proto::PROTOCOL_VERSION;
use proto::identity::is_identity;
use proto::secret::same_secret;
use proto::site::short_hash;

/// How long an index stays reserved without a stream: longer than a node takes to open one, or to come back after a
/// broken connection.
pub const LEASE_NS: u64 = 2_000_000_000;

/// Why a node is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    #[error(
        "protocol version {found}, this fusion center speaks {PROTOCOL_VERSION}: use binaries of one release"
    )]
    Protocol { found: u32 },
    #[error(
        "site {found} differs from {expected} here: start both with the same scenario file, or the node without one"
    )]
    Site { found: String, expected: String },
    #[error("index {index} is taken by '{holder}', which is connected or was seconds ago")]
    Taken { index: usize, holder: String },
    #[error("index {index} does not exist: the site has {count} IRSs")]
    NoSuchIndex { index: usize, count: usize },
    #[error("all {count} indices are taken")]
    Full { count: usize },
    #[error("the identity must have 1 to 128 bytes of printable characters")]
    Identity,
    #[error("index {index} was claimed with a certificate of index {proven}")]
    Unproven { index: usize, proven: usize },
}

/// Why a stream of reports is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error("this session is not known or has expired: register again")]
    Unknown,
    #[error("this session has a stream already")]
    Open,
}

/// What a node asks for.
#[derive(Debug, Clone)]
pub struct Application {
    pub protocol_version: u32,
    pub identity: String,
    pub index: Option<usize>,
    /// Hash of the node's site; empty if it takes the one of the fusion center.
    pub site_sha256: Vec<u8>,
    /// A secret that is constant for the lifetime of the node's process; empty if it has none.
    pub incarnation: String,
    /// The index that the node's certificate names; none without a certificate.
    pub proven_index: Option<usize>,
}

/// Whether and how long a session is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Session {
    /// None, or its stream was ended in order.
    #[default]
    Ended,
    /// Registered, without a stream until then.
    Registered { until_ns: u64 },
    /// Its stream is open.
    Streaming,
    /// Its stream broke: only its holder may register until then.
    Broken { until_ns: u64 },
}

/// The latest registration for one index; the identity is empty before the first.
#[derive(Debug, Clone, Default)]
struct Registration {
    identity: String,
    incarnation: String,
    secret: String,
    proven: bool,
    session: Session,
}

impl Registration {
    fn is_in_force(&self, now_ns: u64) -> bool {
        match self.session {
            Session::Ended => false,
            Session::Registered { until_ns } | Session::Broken { until_ns } => now_ns < until_ns,
            Session::Streaming => true,
        }
    }

    /// Whether an applicant may take the index: it is free, or the applicant is its holder. A certificate proves the
    /// holder, but does not end the stream of a process that has shown the same.
    fn may_go_to(&self, application: &Application, now_ns: u64) -> bool {
        let same_process = self.identity == application.identity
            && !self.incarnation.is_empty()
            && same_secret(&self.incarnation, &application.incarnation);
        let proven =
            application.proven_index.is_some() && !(self.proven && self.session == Session::Streaming);
        !self.is_in_force(now_ns) || same_process || proven
    }
}

#[derive(Debug, Clone)]
pub struct Registry {
    site_sha256: Vec<u8>,
    /// By index.
    registrations: Vec<Registration>,
}

impl Registry {
    pub fn new(irs_count: usize, site_sha256: &[u8]) -> Self {
        Self { site_sha256: site_sha256.to_vec(), registrations: vec![Registration::default(); irs_count] }
    }

    /// Registers a node under the session `secret`; returns its index.
    pub fn register(
        &mut self,
        application: &Application,
        secret: &str,
        now_ns: u64,
    ) -> Result<usize, RegistrationError> {
        if application.protocol_version != PROTOCOL_VERSION {
            return Err(RegistrationError::Protocol { found: application.protocol_version });
        }
        if !is_identity(&application.identity) {
            return Err(RegistrationError::Identity);
        }
        if !application.site_sha256.is_empty() && application.site_sha256 != self.site_sha256 {
            return Err(RegistrationError::Site {
                found: short_hash(&application.site_sha256),
                expected: short_hash(&self.site_sha256),
            });
        }
        let index = self.choose(application, now_ns)?;
        self.registrations[index] = Registration {
            identity: application.identity.clone(),
            incarnation: application.incarnation.clone(),
            secret: secret.to_owned(),
            proven: application.proven_index.is_some(),
            session: Session::Registered { until_ns: now_ns.saturating_add(LEASE_NS) },
        };
        Ok(index)
    }

    fn choose(&self, application: &Application, now_ns: u64) -> Result<usize, RegistrationError> {
        let count = self.registrations.len();
        let position = |wanted: &dyn Fn(&Registration) -> bool| self.registrations.iter().position(wanted);
        if let Some((index, proven)) = application.index.zip(application.proven_index)
            && index != proven
        {
            return Err(RegistrationError::Unproven { index, proven });
        }
        let own = || position(&|known| known.identity == application.identity);
        if let Some(index) = application.index.or(application.proven_index).or_else(own) {
            let known =
                self.registrations.get(index).ok_or(RegistrationError::NoSuchIndex { index, count })?;
            let holder = || known.identity.clone();
            let free = known.may_go_to(application, now_ns);
            return free.then_some(index).ok_or_else(|| RegistrationError::Taken { index, holder: holder() });
        }
        // An index that was never assigned is preferred to one whose node is disconnected.
        position(&|known| known.identity.is_empty())
            .or_else(|| position(&|known| !known.is_in_force(now_ns)))
            .ok_or(RegistrationError::Full { count })
    }

    /// The index of a session. All are compared, so that the time does not depend on which one it is.
    fn find(&self, secret: &str) -> Option<usize> {
        self.registrations.iter().enumerate().fold(None, |found, (index, known)| {
            let same = same_secret(&known.secret, secret) && !known.secret.is_empty();
            if same { Some(index) } else { found }
        })
    }

    /// Whether a session is the current one of `index`.
    pub fn belongs(&self, secret: &str, index: usize) -> bool {
        self.find(secret) == Some(index)
    }

    /// Opens the stream of a session; returns its index.
    pub fn connect(&mut self, secret: &str, now_ns: u64) -> Result<usize, StreamError> {
        let index = self.find(secret).ok_or(StreamError::Unknown)?;
        let known = &mut self.registrations[index];
        match known.session {
            Session::Streaming => Err(StreamError::Open),
            Session::Registered { until_ns } if now_ns < until_ns => {
                known.session = Session::Streaming;
                Ok(index)
            }
            _ => Err(StreamError::Unknown),
        }
    }

    /// The stream of a session has ended, in order or because the connection broke; returns false if the session has
    /// been replaced in the meantime.
    pub fn disconnect(&mut self, secret: &str, in_order: bool, now_ns: u64) -> bool {
        let Some(index) = self.find(secret) else { return false };
        self.registrations[index].session = match in_order {
            true => Session::Ended,
            false => Session::Broken { until_ns: now_ns.saturating_add(LEASE_NS) },
        };
        true
    }

    /// Identity of the node that holds an index, and whether its stream is open.
    pub fn holder(&self, index: usize) -> (&str, bool) {
        let known = &self.registrations[index];
        (&known.identity, known.session == Session::Streaming)
    }

    /// The secret of the process that holds an index.
    pub fn incarnation(&self, index: usize) -> &str {
        &self.registrations[index].incarnation
    }

    /// Number of nodes whose stream is open.
    pub fn connected(&self) -> usize {
        self.registrations.iter().filter(|known| known.session == Session::Streaming).count()
    }

    /// Whether a session is the current one of its index.
    pub fn is_current(&self, secret: &str) -> bool {
        self.find(secret).is_some()
    }
}

#[cfg(test)]
mod tests;
