//! Which connections without a subscription may stay. A new one is always admitted; where there are too many, of its
//! address or in total, the oldest has to go. A node subscribes within milliseconds of its connection, so that strangers
//! who only hold connections cannot keep nodes out.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::super::subscriptions::ConnectionId;

#[derive(Debug, Clone)]
pub(in super::super) struct Guests {
    /// Oldest first.
    waiting: VecDeque<(ConnectionId, IpAddr)>,
    most: usize,
    most_per_address: usize,
}

impl Guests {
    pub fn new(most: usize, most_per_address: usize) -> Self {
        Self { waiting: VecDeque::new(), most, most_per_address }
    }

    /// Admits a connection; returns the one that has to be closed for it.
    pub fn admit(&mut self, id: ConnectionId, address: IpAddr) -> Option<ConnectionId> {
        let of_address = self.waiting.iter().filter(|(_, other)| *other == address).count();
        let leaves = if of_address >= self.most_per_address {
            self.waiting.iter().position(|(_, other)| *other == address)
        } else {
            (self.waiting.len() >= self.most).then_some(0)
        };
        let leaves = leaves.and_then(|at| self.waiting.remove(at));
        self.waiting.push_back((id, address));
        leaves.map(|(id, _)| id)
    }

    /// Forgets a connection that has subscribed or ended.
    pub fn remove(&mut self, id: ConnectionId) {
        self.waiting.retain(|(other, _)| *other != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut guests = Guests::new(3, 2);
        assert_eq!(guests.admit(ConnectionId(1), address(1)), None);
        assert_eq!(guests.admit(ConnectionId(2), address(2)), None);
        assert_eq!(guests.admit(ConnectionId(3), address(2)), None);
        // A third of the same address replaces the first of it, not the older one of another.
        assert_eq!(guests.admit(ConnectionId(4), address(2)), Some(ConnectionId(2)));
        assert_eq!(guests.admit(ConnectionId(5), address(3)), Some(ConnectionId(1)));
        guests.remove(ConnectionId(3));
        assert_eq!(guests.admit(ConnectionId(6), address(4)), None);
        assert_eq!(guests.waiting.len(), 3);
    }
}
