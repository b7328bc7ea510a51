//! Which connections a listener holds: a state machine with the time passed in.
//!
//! A newcomer that finds the listener full, or its peer's share of it, takes the place of a connection that is not
//! in use: the longest-waiting one that is not established, else the one that has been quiet for longest. Peers with many
//! connections give way first. If all are in use, the newcomer is refused. Someone who holds a thousand idle
//! connections therefore keeps nobody out, because new requests displace them.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::limits::{CLOSING, ListenerLimits, QUIET};

/// A connection of the listener.
pub type Id = u64;

/// What a connection has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    pub established: bool,
    /// When the last byte passed in either direction, since the listener was made.
    pub last: Duration,
}

/// How a newcomer is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionDecision {
    /// It is held, and the other one, if any, must be closed.
    Admitted {
        id: Id,
        instead_of: Option<Id>,
    },
    Refused,
}

#[derive(Debug)]
pub struct Admission {
    limits: ListenerLimits,
    held: BTreeMap<Id, IpAddr>,
    by_peer: HashMap<IpAddr, usize>,
    /// Connections whose socket is not closed yet, including those that were displaced.
    open: usize,
    next: Id,
}

impl Admission {
    pub fn new(limits: ListenerLimits) -> Self {
        Self { limits, held: BTreeMap::new(), by_peer: HashMap::new(), open: 0, next: 0 }
    }

    /// Number of connections whose socket is open.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Judges a newcomer; `activity` is that of a connection that is held.
    pub fn arrive(
        &mut self,
        peer: IpAddr,
        now: Duration,
        activity: impl Fn(Id) -> Activity,
    ) -> AdmissionDecision {
        let peer = peer_key(peer);
        if self.open >= self.limits.connections + CLOSING {
            return AdmissionDecision::Refused;
        }
        let others = self.by_peer.get(&peer).copied().unwrap_or(0);
        let share_is_full = others >= self.limits.per_peer();
        let instead_of = if share_is_full || self.held.len() >= self.limits.connections {
            match self.displaceable(share_is_full.then_some(peer), now, activity) {
                Some(id) => Some(id),
                None => return AdmissionDecision::Refused,
            }
        } else {
            None
        };
        if let Some(id) = instead_of {
            self.forget(id);
        }
        let id = self.next;
        self.next += 1;
        self.held.insert(id, peer);
        *self.by_peer.entry(peer).or_default() += 1;
        self.open += 1;
        AdmissionDecision::Admitted { id, instead_of }
    }

    /// The connection that gives way to a newcomer, among those of `peer` if it is given.
    fn displaceable(
        &self,
        peer: Option<IpAddr>,
        now: Duration,
        activity: impl Fn(Id) -> Activity,
    ) -> Option<Id> {
        let of_peer = self.held.iter().filter(|(_, owner)| peer.is_none_or(|peer| peer == **owner));
        let candidates = of_peer.filter_map(|(id, owner)| {
            let Activity { established, last } = activity(*id);
            let unused = !established || now.saturating_sub(last) >= QUIET;
            unused.then_some((established, usize::MAX - self.by_peer[owner], last, *id))
        });
        candidates.min().map(|(_, _, _, id)| id)
    }

    fn forget(&mut self, id: Id) {
        let Some(peer) = self.held.remove(&id) else { return };
        if let Some(count) = self.by_peer.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }

    /// Notes that the socket of a connection is closed.
    pub fn closed(&mut self, id: Id) {
        self.forget(id);
        self.open -= 1;
    }
}

/// A peer is an IPv4 address, or an IPv6 network of 64 bits, which a host can have all addresses of.
pub fn peer_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::{CONTROL, HTTP};
    use super::*;

    const LIMITS: ListenerLimits = ListenerLimits { connections: 8, ..HTTP };
    const IN_USE: Activity = Activity { established: true, last: Duration::MAX };

    fn peer(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// A peer that opens connections without end, none of them established, keeps nobody out: each displaces its
    /// own oldest one, and the number of sockets is bounded although none has been closed yet.
    #[test]
    fn idle_connections_displace_one_another() {
        let mut admission = Admission::new(LIMITS);
        let new = |_| Activity { established: false, last: Duration::ZERO };
        let mut displaced = Vec::new();
        for _ in 0..LIMITS.per_peer() + 3 {
            match admission.arrive(peer(1), Duration::ZERO, new) {
                AdmissionDecision::Admitted { instead_of, .. } => displaced.extend(instead_of),
                AdmissionDecision::Refused => panic!("refused"),
            }
        }
        assert_eq!(displaced, [0, 1, 2], "the oldest first");
        let admitted = (0..1000)
            .filter(|_| admission.arrive(peer(1), Duration::ZERO, new) != AdmissionDecision::Refused);
        assert_eq!(admitted.count(), LIMITS.connections + CLOSING - LIMITS.per_peer() - 3);
        assert_eq!(admission.open(), LIMITS.connections + CLOSING);
        for id in 0..1000 {
            if id < admission.next {
                admission.closed(id);
            }
        }
        assert_eq!((admission.open(), admission.held.len(), admission.by_peer.len()), (0, 0, 0));
    }

    #[test]
    fn connections_in_use_stay_and_leave_a_share_to_other_peers() {
        let mut admission = Admission::new(LIMITS);
        let mut arrive = |from| admission.arrive(peer(from), Duration::ZERO, |_| IN_USE);
        let first: Vec<AdmissionDecision> = (0..10).map(|_| arrive(1)).collect();
        assert_eq!(
            first.iter().filter(|verdict| **verdict != AdmissionDecision::Refused).count(),
            LIMITS.per_peer()
        );
        assert_eq!(arrive(2), AdmissionDecision::Admitted { id: 6, instead_of: None });
        assert_eq!(arrive(2), AdmissionDecision::Admitted { id: 7, instead_of: None });
        assert_eq!(arrive(3), AdmissionDecision::Refused, "all are in use");
    }

    /// When the listener is full, the peer with the most unused connections gives way, the unestablished ones first.
    #[test]
    fn the_peer_with_the_most_gives_way() {
        let mut admission = Admission::new(LIMITS);
        for from in [1, 1, 1, 1, 1, 2, 3, 4] {
            admission.arrive(peer(from), Duration::ZERO, |_| IN_USE);
        }
        let (quiet_since, now) = (Duration::from_secs(5), Duration::from_secs(5) + QUIET);
        let activity = |id| match id {
            3 | 4 | 6 => Activity { established: true, last: quiet_since },
            _ => IN_USE,
        };
        assert_eq!(
            admission.arrive(peer(9), now, activity),
            AdmissionDecision::Admitted { id: 8, instead_of: Some(3) },
            "of peer 1"
        );
        let activity = |id| match id {
            4 => Activity { established: true, last: quiet_since },
            6 => Activity { established: false, last: now },
            _ => IN_USE,
        };
        assert_eq!(
            admission.arrive(peer(9), now, activity),
            AdmissionDecision::Admitted { id: 9, instead_of: Some(6) },
            "not established"
        );
        let early = |_| Activity { established: true, last: now - QUIET + Duration::from_millis(1) };
        assert_eq!(admission.arrive(peer(9), now, early), AdmissionDecision::Refused);
        assert_eq!(Admission::new(CONTROL).open(), 0);
    }

    #[test]
    fn a_peer_is_a_host() {
        let same = |a: &str, b: &str| peer_key(a.parse().unwrap()) == peer_key(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:1") && same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1") && !same("192.0.2.1", "192.0.2.2"));
    }
}
