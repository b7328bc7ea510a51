//! Who is at the other end of a connection, and what it may do.

use std::net::SocketAddr;
use std::sync::Arc;

use tonic::{Extensions, Status};

use crate::role::{Name, Role};

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A connection without TLS: on loopback, or wherever `--insecure` allows it. Nothing is known of the peer.
    Plain,
    /// TLS without a certificate: only health answers.
    Anonymous,
    /// The peer has proved this name.
    Named(Arc<Name>),
}

/// Who sends the requests of a connection, and from where: an extension of each of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub peer: Peer,
    pub address: Option<SocketAddr>,
}

impl Caller {
    /// The caller of a request. A server that does not provide one admits nobody.
    pub fn of(extensions: &Extensions) -> Result<&Self, Denied> {
        extensions.get::<Self>().ok_or(Denied::Unknown)
    }
}

/// What a call needs of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// A node; which one is returned by [`Peer::node`].
    Node,
    Simulator,
    /// At least a watcher: an operator may read as well, and the fusion center, which shows what others serve.
    Watcher,
    /// An operator, or the fusion center, which forwards what an operator asked it for.
    Operator,
}

impl Needs {
    fn admits(self, role: Role) -> bool {
        match self {
            Self::Node => matches!(role, Role::Node(_)),
            Self::Simulator => role == Role::Simulator,
            Self::Watcher => matches!(role, Role::Watcher | Role::Operator | Role::FusionCenter),
            Self::Operator => matches!(role, Role::Operator | Role::FusionCenter),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Node => "a node",
            Self::Simulator => "the simulator",
            Self::Watcher => "a watcher or an operator",
            Self::Operator => "an operator",
        }
    }
}

/// Why a peer may not do what it asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("this needs the certificate of {}, and there is none", .needs.words())]
    NoCertificate { needs: Needs },
    #[error("this needs the certificate of {}, not of {role}", .needs.words())]
    Role { needs: Needs, role: Role },
    #[error("a certificate of node/{proven} can say nothing for index {claimed}")]
    Index { proven: u32, claimed: u32 },
    /// A server that does not say who its peers are admits nobody.
    #[error("the peer of this connection is not known")]
    Unknown,
}

impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::NoCertificate { .. } => Self::unauthenticated(denied.to_string()),
            _ => Self::permission_denied(denied.to_string()),
        }
    }
}

impl Peer {
    /// The peer of a request. A server that does not provide one admits nobody.
    pub fn of(extensions: &Extensions) -> Result<&Self, Denied> {
        Caller::of(extensions).map(|caller| &caller.peer)
    }

    /// Checks the peer of a gRPC request.
    pub fn check(extensions: &Extensions, needs: Needs) -> Result<(), Denied> {
        Self::of(extensions)?.require(needs)
    }

    pub fn require(&self, needs: Needs) -> Result<(), Denied> {
        match self {
            Self::Plain => Ok(()),
            Self::Anonymous => Err(Denied::NoCertificate { needs }),
            Self::Named(name) if needs.admits(name.role) => Ok(()),
            Self::Named(name) => Err(Denied::Role { needs, role: name.role }),
        }
    }

    /// The index that the peer has proved, none without TLS. Another index that it claims is refused.
    pub fn node(&self, claimed: Option<u32>) -> Result<Option<u32>, Denied> {
        self.require(Needs::Node)?;
        let Self::Named(name) = self else { return Ok(None) };
        let Role::Node(proven) = name.role else { return Ok(None) };
        match claimed.filter(|claimed| *claimed != proven) {
            Some(claimed) => Err(Denied::Index { proven, claimed }),
            None => Ok(Some(proven)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(role: Role) -> Peer {
        Peer::Named(Arc::new(Name::new("lab", role).unwrap()))
    }

    /// The whole table: who may do what.
    #[test]
    fn each_call_has_its_roles() {
        let roles = [
            (Role::FusionCenter, [false, false, true, true]),
            (Role::Node(2), [true, false, false, false]),
            (Role::Simulator, [false, true, false, false]),
            (Role::Backhaul, [false, false, false, false]),
            (Role::Watcher, [false, false, true, false]),
            (Role::Operator, [false, false, true, true]),
        ];
        let needs = [Needs::Node, Needs::Simulator, Needs::Watcher, Needs::Operator];
        for (role, admitted) in roles {
            for (needs, admitted) in needs.into_iter().zip(admitted) {
                assert_eq!(peer(role).require(needs).is_ok(), admitted, "{role}: {needs:?}");
            }
        }
        for needs in needs {
            assert_eq!(Peer::Plain.require(needs), Ok(()));
            assert_eq!(Peer::Anonymous.require(needs), Err(Denied::NoCertificate { needs }));
            assert_eq!(Peer::check(&Extensions::new(), needs), Err(Denied::Unknown));
        }
    }

    #[test]
    fn a_node_speaks_for_its_own_index() {
        let node = peer(Role::Node(2));
        assert_eq!((node.node(None), node.node(Some(2))), (Ok(Some(2)), Ok(Some(2))));
        assert_eq!(node.node(Some(1)), Err(Denied::Index { proven: 2, claimed: 1 }));
        assert!(peer(Role::Operator).node(Some(1)).is_err() && Peer::Anonymous.node(None).is_err());
        assert_eq!(Peer::Plain.node(Some(1)), Ok(None), "nothing is proved without TLS");
    }
}
