//! Who is which IRS.
//!
//! A node asks for an index or takes the first free one. An identity keeps its index, also while it is away,
//! as long as another identity does not claim it; a restarted node so gets its index back, and after a
//! restart of the fusion center the nodes claim the ones they had.

use proto::PROTOCOL_VERSION;
use proto::site::short_hash;

/// Why a node is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// Another protocol version.
    #[error(
        "protocol version {found}, this fusion center speaks {PROTOCOL_VERSION}: use binaries of one release"
    )]
    Protocol {
        /// The node's.
        found: u32,
    },
    /// Another site.
    #[error(
        "site {found} differs from {expected} here: start both with the same scenario file, or the node without one"
    )]
    Site {
        /// Hash of the node's.
        found: String,
        /// Hash of ours.
        expected: String,
    },
    /// The index is taken.
    #[error("index {index} is taken by '{holder}', which is connected")]
    Taken {
        /// The index.
        index: usize,
        /// Who has it.
        holder: String,
    },
    /// There is no such index.
    #[error("index {index} does not exist: the site has {count} IRSs")]
    NoSuchIndex {
        /// The index.
        index: usize,
        /// IRSs there are.
        count: usize,
    },
    /// All indices are taken.
    #[error("all {count} indices are taken")]
    Full {
        /// IRSs there are.
        count: usize,
    },
    /// An identity must be short and printable.
    #[error("the identity must have 1 to 128 printable characters")]
    Identity,
}

/// What a node asks for.
#[derive(Debug, Clone)]
pub struct Application {
    /// Protocol version.
    pub protocol_version: u32,
    /// Who asks.
    pub identity: String,
    /// The index asked for.
    pub index: Option<usize>,
    /// Hash of the node's site; empty if it takes ours.
    pub site_sha256: Vec<u8>,
    /// Drawn once per process.
    pub incarnation: String,
}

/// The place of one IRS.
#[derive(Debug, Clone, Default)]
struct Seat {
    identity: String,
    incarnation: String,
    session: String,
    /// Registered, and its stream not known to be gone.
    occupied: bool,
    /// Its stream is up.
    connected: bool,
}

/// Who sits where.
#[derive(Debug, Clone)]
pub struct Registry {
    site_sha256: Vec<u8>,
    instance: String,
    seats: Vec<Seat>,
    registrations: u64,
}

impl Registry {
    /// Nobody yet.
    pub fn new(irs_count: usize, site_sha256: &[u8], instance: &str) -> Self {
        Self {
            site_sha256: site_sha256.to_vec(),
            instance: instance.to_owned(),
            seats: vec![Seat::default(); irs_count],
            registrations: 0,
        }
    }

    /// Registers a node: its index and session, or the reason why not.
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
        self.registrations += 1;
        let session = format!("{}-{index}-{}", self.instance, self.registrations);
        self.seats[index] = Seat {
            identity: application.identity.clone(),
            incarnation: application.incarnation.clone(),
            session: session.clone(),
            occupied: true,
            connected: false,
        };
        Ok((index, session))
    }

    fn choose(&self, application: &Application) -> Result<usize, RegistrationError> {
        let count = self.seats.len();
        let own = self.seats.iter().position(|seat| seat.identity == application.identity);
        if let Some(index) = application.index {
            let seat = self.seats.get(index).ok_or(RegistrationError::NoSuchIndex { index, count })?;
            return self
                .free_for(seat, application)
                .then_some(index)
                .ok_or_else(|| RegistrationError::Taken { index, holder: seat.identity.clone() });
        }
        match own {
            Some(index) if self.free_for(&self.seats[index], application) => Ok(index),
            Some(index) => Err(RegistrationError::Taken { index, holder: application.identity.clone() }),
            // A seat nobody has had before one whose holder is away.
            None => self
                .seats
                .iter()
                .position(|seat| seat.identity.is_empty())
                .or_else(|| self.seats.iter().position(|seat| !seat.occupied))
                .ok_or(RegistrationError::Full { count }),
        }
    }

    /// The same process may always register again; another one only when the seat is not occupied.
    fn free_for(&self, seat: &Seat, application: &Application) -> bool {
        let same = seat.identity == application.identity
            && seat.incarnation == application.incarnation
            && !seat.incarnation.is_empty();
        !seat.occupied || same
    }

    /// The index of a session that may open its stream.
    pub fn connect(&mut self, session: &str) -> Option<usize> {
        let index = self.seats.iter().position(|seat| seat.occupied && seat.session == session)?;
        self.seats[index].connected = true;
        Some(index)
    }

    /// A stream ended; false if the session has been replaced meanwhile.
    pub fn disconnect(&mut self, session: &str) -> bool {
        match self.seats.iter_mut().find(|seat| seat.session == session) {
            Some(seat) => {
                seat.occupied = false;
                seat.connected = false;
                true
            }
            None => false,
        }
    }

    /// Identity and connection of a seat.
    pub fn seat(&self, index: usize) -> (&str, bool) {
        (&self.seats[index].identity, self.seats[index].connected)
    }

    /// Whether a session is the one that sits at its index now.
    pub fn is_current(&self, session: &str) -> bool {
        self.seats.iter().any(|seat| seat.session == session)
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
        assert_eq!((registry.seat(1), registry.is_current("")), (("", false), true), "nobody has registered");
        let (_, session) = registry.register(&application("a", Some(1), "1")).unwrap();
        assert_eq!(registry.seat(1), ("a", false));
        assert!(registry.is_current(&session) && !registry.is_current("i-1-9"));
        assert_eq!(registry.connect("i-1-9"), None);
        assert_eq!(registry.connect(&session), Some(1));
        assert_eq!((registry.seat(0), registry.seat(1)), (("", false), ("a", true)));
        assert!(!registry.disconnect("i-1-9"));
        assert!(registry.disconnect(&session));
        assert_eq!(registry.seat(1), ("a", false));
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
