//! Assigns IRS indices to nodes.
//!
//! A node asks for an index or takes the first free one. An identity keeps its index, also while it is disconnected,
//! as long as no other identity claims it: a restarted node gets its index back, and after a
//! restart of the fusion center the nodes claim the indices that they had.

use proto::PROTOCOL_VERSION;
use proto::site::short_hash;

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
    #[error("index {index} is taken by '{holder}', which is connected")]
    Taken { index: usize, holder: String },
    #[error("index {index} does not exist: the site has {count} IRSs")]
    NoSuchIndex { index: usize, count: usize },
    #[error("all {count} indices are taken")]
    Full { count: usize },
    #[error("the identity must have 1 to 128 printable characters")]
    Identity,
}

/// What a node asks for.
#[derive(Debug, Clone)]
pub struct Application {
    pub protocol_version: u32,
    pub identity: String,
    pub index: Option<usize>,
    /// Hash of the node's site; empty if it takes the one of the fusion center.
    pub site_sha256: Vec<u8>,
    /// Random, constant for the lifetime of the node's process.
    pub incarnation: String,
}

/// The latest registration for one index; the identity is empty before the first.
#[derive(Debug, Clone, Default)]
struct Registration {
    identity: String,
    incarnation: String,
    session: String,
    /// From the registration until its stream has ended.
    active: bool,
    /// Whether its stream is open.
    connected: bool,
}

#[derive(Debug, Clone)]
pub struct Registry {
    site_sha256: Vec<u8>,
    instance: String,
    /// By index.
    registrations: Vec<Registration>,
    /// Sessions so far.
    sessions: u64,
}

impl Registry {
    pub fn new(irs_count: usize, site_sha256: &[u8], instance: &str) -> Self {
        Self {
            site_sha256: site_sha256.to_vec(),
            instance: instance.to_owned(),
            registrations: vec![Registration::default(); irs_count],
            sessions: 0,
        }
    }

    /// Registers a node; returns its index and session.
    pub fn register(&mut self, application: &Application) -> Result<(usize, String), RegistrationError> {
        if application.protocol_version != PROTOCOL_VERSION {
            return Err(RegistrationError::Protocol { found: application.protocol_version });
        }
        let printable = application.identity.chars().all(|c| !c.is_control());
        if application.identity.is_empty() || application.identity.len() > 128 || !printable {
            return Err(RegistrationError::Identity);
        }
        if !application.site_sha256.is_empty() && application.site_sha256 != self.site_sha256 {
            return Err(RegistrationError::Site {
                found: short_hash(&application.site_sha256),
                expected: short_hash(&self.site_sha256),
            });
        }
        let index = self.choose(application)?;
        self.sessions += 1;
        let session = format!("{}-{index}-{}", self.instance, self.sessions);
        self.registrations[index] = Registration {
            identity: application.identity.clone(),
            incarnation: application.incarnation.clone(),
            session: session.clone(),
            active: true,
            connected: false,
        };
        Ok((index, session))
    }

    fn choose(&self, application: &Application) -> Result<usize, RegistrationError> {
        let count = self.registrations.len();
        let position = |wanted: &dyn Fn(&Registration) -> bool| self.registrations.iter().position(wanted);
        let own = || position(&|known| known.identity == application.identity);
        if let Some(index) = application.index.or_else(own) {
            let known =
                self.registrations.get(index).ok_or(RegistrationError::NoSuchIndex { index, count })?;
            // The same process may always register again; another one only when the index is free.
            let same = known.identity == application.identity
                && known.incarnation == application.incarnation
                && !known.incarnation.is_empty();
            let free = !known.active || same;
            let holder = || known.identity.clone();
            return free.then_some(index).ok_or_else(|| RegistrationError::Taken { index, holder: holder() });
        }
        // An index that was never assigned is preferred to one whose node is disconnected.
        position(&|known| known.identity.is_empty())
            .or_else(|| position(&|known| !known.active))
            .ok_or(RegistrationError::Full { count })
    }

    /// Opens the stream of a session; returns its index, or none if the session has ended or is not known.
    pub fn connect(&mut self, session: &str) -> Option<usize> {
        let index = self.registrations.iter().position(|known| known.active && known.session == session)?;
        self.registrations[index].connected = true;
        Some(index)
    }

    /// A stream has ended; returns false if the session has been replaced in the meantime.
    pub fn disconnect(&mut self, session: &str) -> bool {
        let current = self.registrations.iter_mut().find(|known| known.session == session);
        current.map(|known| (known.active, known.connected) = (false, false)).is_some()
    }

    /// Identity of the node that holds an index, and whether it is connected.
    pub fn holder(&self, index: usize) -> (&str, bool) {
        let known = &self.registrations[index];
        (&known.identity, known.connected)
    }

    /// Whether a session is the current one of its index.
    pub fn is_current(&self, session: &str) -> bool {
        self.registrations.iter().any(|known| known.session == session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(identity: &str, index: Option<usize>, incarnation: &str) -> Application {
        Application {
            protocol_version: PROTOCOL_VERSION,
            identity: identity.into(),
            index,
            site_sha256: Vec::new(),
            incarnation: incarnation.into(),
        }
    }

    #[test]
    fn indices_are_given_out_kept_and_given_back() {
        let mut registry = Registry::new(2, &[1], "i");
        assert_eq!(registry.register(&application("a", None, "1")).unwrap().0, 0);
        let (index, session) = registry.register(&application("b", None, "1")).unwrap();
        assert_eq!(index, 1);
        assert_eq!(
            registry.register(&application("c", None, "1")),
            Err(RegistrationError::Full { count: 2 })
        );
        assert_eq!(registry.connect(&session), Some(1));
        assert!(registry.disconnect(&session));
        // Away, but remembered.
        assert_eq!(registry.register(&application("b", None, "2")).unwrap().0, 1);
    }

    #[test]
    fn a_taken_index_is_refused_and_the_same_process_comes_back() {
        let mut registry = Registry::new(2, &[1], "i");
        let first = registry.register(&application("a", Some(1), "1")).unwrap();
        assert_eq!(
            registry.register(&application("b", Some(1), "1")),
            Err(RegistrationError::Taken { index: 1, holder: "a".into() })
        );
        // A second process under the same name is not the same node.
        assert!(registry.register(&application("a", Some(1), "2")).is_err());
        let again = registry.register(&application("a", Some(1), "1")).unwrap();
        assert_ne!(first.1, again.1);
        assert!(!registry.disconnect(&first.1), "the old stream no longer counts");
        assert!(registry.connect(&again.1).is_some());
        assert_eq!(
            registry.register(&application("x", Some(2), "")),
            Err(RegistrationError::NoSuchIndex { index: 2, count: 2 })
        );
    }

    #[test]
    fn strangers_are_told_why() {
        let mut registry = Registry::new(1, &[1, 2, 3, 4], "i");
        let mut old = application("a", None, "1");
        old.protocol_version = 0;
        assert_eq!(registry.register(&old), Err(RegistrationError::Protocol { found: 0 }));
        let mut other = application("a", None, "1");
        other.site_sha256 = vec![9, 9, 9, 9];
        let refusal = registry.register(&other).unwrap_err().to_string();
        assert!(refusal.contains("09090909") && refusal.contains("01020304"), "{refusal}");
        assert_eq!(registry.register(&application("a\nb", None, "1")), Err(RegistrationError::Identity));
    }

    #[test]
    fn an_identity_has_1_to_128_printable_characters() {
        let mut registry = Registry::new(4, &[1], "i");
        let refused = Err(RegistrationError::Identity);
        for identity in ["", "a\u{7}", &"x".repeat(129)] {
            assert_eq!(registry.register(&application(identity, None, "1")), refused, "{identity:?}");
        }
        for identity in ["x", "é \u{2603}", &"x".repeat(128)] {
            assert!(registry.register(&application(identity, None, "1")).is_ok(), "{identity:?}");
        }
    }

    #[test]
    fn the_same_scenario_is_welcome() {
        let mut registry = Registry::new(1, &[1, 2, 3, 4], "i");
        let same = Application { site_sha256: vec![1, 2, 3, 4], ..application("a", None, "1") };
        assert_eq!(registry.register(&same), Ok((0, "i-0-1".into())));
    }

    /// A session from its registration to its end.
    #[test]
    fn a_session_connects_and_ends_once() {
        let mut registry = Registry::new(2, &[1], "i");
        assert_eq!(
            (registry.holder(1), registry.is_current("")),
            (("", false), true),
            "nobody has registered"
        );
        let (_, session) = registry.register(&application("a", Some(1), "1")).unwrap();
        assert_eq!(registry.holder(1), ("a", false));
        assert!(registry.is_current(&session) && !registry.is_current("i-1-9"));
        assert_eq!(registry.connect("i-1-9"), None);
        assert_eq!(registry.connect(&session), Some(1));
        assert_eq!((registry.holder(0), registry.holder(1)), (("", false), ("a", true)));
        assert!(!registry.disconnect("i-1-9"));
        assert!(registry.disconnect(&session));
        assert_eq!(registry.holder(1), ("a", false));
        assert_eq!(registry.connect(&session), None, "a session that ended opens no stream");
    }

    /// Without an index: the own seat, then one that nobody has had, then one whose holder is away.
    #[test]
    fn strangers_get_the_seat_that_harms_least() {
        let mut registry = Registry::new(3, &[1], "i");
        let sessions: Vec<String> =
            ["a", "b"].map(|name| registry.register(&application(name, None, "1")).unwrap().1).into();
        assert!(registry.disconnect(&sessions[0]));
        assert_eq!(registry.register(&application("c", None, "1")).unwrap().0, 2, "nobody has had it");
        assert_eq!(registry.register(&application("d", None, "1")).unwrap().0, 0, "its holder is away");
        let second = registry.register(&application("b", None, "2"));
        assert_eq!(
            second,
            Err(RegistrationError::Taken { index: 1, holder: "b".into() }),
            "another process of that name"
        );
        assert_eq!(registry.register(&application("b", None, "1")).unwrap().0, 1, "the same process");
        assert_eq!(
            registry.register(&application("e", None, "1")),
            Err(RegistrationError::Full { count: 3 })
        );
    }

    /// Who tells no incarnation cannot be known to be the same process.
    #[test]
    fn without_an_incarnation_a_seat_is_taken_until_it_is_left() {
        let mut registry = Registry::new(1, &[1], "i");
        let (_, session) = registry.register(&application("a", Some(0), "")).unwrap();
        let taken = Err(RegistrationError::Taken { index: 0, holder: "a".into() });
        assert_eq!(registry.register(&application("a", Some(0), "")), taken);
        assert!(registry.disconnect(&session));
        assert!(registry.register(&application("a", Some(0), "")).is_ok());
    }
}
