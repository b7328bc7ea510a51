//! The certificates that a node may prove itself with.
//!
//! Usually there is one, and its index is the node's. Replicas that an orchestrator starts alike, and that therefore
//! share their settings, name the files by `{index}` and leave the index open: each takes the first that the fusion
//! center has free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use settings::SettingsError;
use telemetry::{Health, follow_certificate};
use tokio_util::sync::CancellationToken;
use trust::{ClientTls, Identity, Role};

use crate::options::{NodeOptions, ROLE};

/// Indices that are looked for if the index is open.
const INDICES: std::ops::Range<u32> = 0..256;

/// The certificates, and which one is in use; shared, cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    candidates: Arc<Vec<Identity>>,
    current: Arc<AtomicUsize>,
}

impl Credentials {
    /// Loads all certificates that the options allow; none without TLS.
    pub fn load(options: &NodeOptions) -> Result<Self, SettingsError> {
        let tls = &options.tls;
        let load = |index: Option<u32>, claimed: Option<u32>| {
            let fits = |role| match (role, claimed) {
                (Role::Node(proven), Some(claimed)) => proven == claimed,
                (role, _) => matches!(role, Role::Node(_)),
            };
            let who = claimed.map_or(ROLE.to_owned(), |index| format!("{ROLE} of index {index}"));
            tls.load(&who, index, fits)
        };
        let candidates = match options.index {
            None if tls.depends_on_index() => {
                let exists = |index: &u32| {
                    tls.paths(Some(*index)).is_ok_and(|paths| paths.is_some_and(|paths| paths.cert.exists()))
                };
                let all: Result<Vec<_>, _> =
                    INDICES.filter(exists).map(|index| load(Some(index), Some(index))).collect();
                let all: Vec<Identity> = all?.into_iter().flatten().collect();
                if all.is_empty() && tls.paths(None)?.is_some() {
                    let reason = "tls_cert: there is no certificate for any index";
                    return Err(SettingsError::Options(reason.into()));
                }
                all
            }
            index => load(index, index)?.into_iter().collect(),
        };
        Ok(Self { candidates: Arc::new(candidates), current: Arc::default() })
    }

    /// The certificate in use; none without TLS.
    pub fn identity(&self) -> Option<&Identity> {
        self.candidates.get(self.current.load(Ordering::Relaxed))
    }

    /// The index that the certificate in use proves.
    pub fn index(&self) -> Option<u32> {
        match self.identity()?.name().role {
            Role::Node(index) => Some(index),
            _ => None,
        }
    }

    /// TLS to the fusion center.
    pub fn to_fusion(&self) -> Option<ClientTls> {
        Some(self.identity()?.client(Some(Role::FusionCenter)))
    }

    /// Takes the next certificate after one whose index is taken; returns whether there is one that was not tried since
    /// the first.
    pub fn next(&self) -> bool {
        let count = self.candidates.len().max(1);
        let next = (self.current.load(Ordering::Relaxed) + 1) % count;
        self.current.store(next, Ordering::Relaxed);
        next != 0
    }

    /// Follows the files of all certificates until `stop`.
    pub fn follow(&self, health: &Health, stop: &CancellationToken) {
        for identity in self.candidates.iter() {
            follow_certificate(identity, health, stop);
        }
    }
}
