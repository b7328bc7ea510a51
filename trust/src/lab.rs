//! Certificates for tests.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::authority::{self, Authority, Pair};
use crate::identity::{Identity, Paths};
use crate::role::{Name, Role};

pub const DAY: Duration = Duration::from_secs(86_400);

/// An authority and a directory.
pub struct Lab {
    directory: tempfile::TempDir,
    authority: Authority,
}

impl Lab {
    pub fn new(domain: &str) -> Self {
        let ca = authority::make(domain, SystemTime::now(), 30).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), &ca.certificate).unwrap();
        Self { directory, authority: Authority::from_pem(&ca.certificate, &ca.key).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn paths(&self) -> Paths {
        Paths { ca: self.path("ca.pem"), cert: self.path("cert.pem"), key: self.path("key.pem") }
    }

    /// A certificate for ten days from `from`.
    pub fn pair(&self, role: Role, from: SystemTime) -> Pair {
        self.pair_of(self.authority.domain(), role, from)
    }

    pub fn pair_of(&self, domain: &str, role: Role, from: SystemTime) -> Pair {
        self.authority.issue(&Name::new(domain, role).unwrap(), &[], from, 10).unwrap()
    }

    pub fn write(&self, pair: &Pair) {
        std::fs::write(self.paths().cert, &pair.certificate).unwrap();
        std::fs::write(self.paths().key, &pair.key).unwrap();
    }

    /// An identity as it was loaded at `from`.
    pub fn identity(&self, pair: &Pair, from: SystemTime) -> Identity {
        self.write(pair);
        Identity::load_at(self.paths(), from).unwrap()
    }

    pub fn valid(&self, role: Role) -> Identity {
        let now = SystemTime::now();
        self.identity(&self.pair(role, now), now)
    }
}
