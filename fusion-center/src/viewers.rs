//! Who receives live events over HTTP, or fixes over gRPC. The number of viewers of each is bounded, and one peer cannot keep
//! others out: when all slots are taken, the peer with the most viewers loses its oldest one, which is told so.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Maximum number of viewers over HTTP, and of watchers over gRPC.
pub const MOST_VIEWERS: usize = 64;

/// The slots; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Viewers(Arc<Mutex<ViewerTable>>);

#[derive(Debug, Default)]
struct ViewerTable {
    /// By order of arrival.
    slots: BTreeMap<u64, (IpAddr, CancellationToken)>,
    next: u64,
}

/// A viewer's slot; released when dropped.
#[derive(Debug)]
pub struct ViewerSlot {
    number: u64,
    /// Cancelled when the slot is given to another viewer.
    pub evicted: CancellationToken,
    viewers: Viewers,
}

impl Drop for ViewerSlot {
    fn drop(&mut self) {
        self.viewers.table().slots.remove(&self.number);
    }
}

impl Viewers {
    fn table(&self) -> MutexGuard<'_, ViewerTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self) -> usize {
        self.table().slots.len()
    }

    /// A slot for a viewer at `peer`, in place of another one if necessary; none if no peer has more slots than one.
    pub fn join(&self, peer: IpAddr) -> Option<ViewerSlot> {
        let mut table = self.table();
        if table.slots.len() >= MOST_VIEWERS {
            let number = table.unfair(peer)?;
            if let Some((_, evicted)) = table.slots.remove(&number) {
                evicted.cancel();
            }
        }
        let (number, evicted) = (table.next, CancellationToken::new());
        table.next += 1;
        table.slots.insert(number, (peer, evicted.clone()));
        Some(ViewerSlot { number, evicted, viewers: self.clone() })
    }
}

impl ViewerTable {
    /// The oldest slot of the peer that has the most, which may be `peer` itself; none if no peer has more than one.
    fn unfair(&self, peer: IpAddr) -> Option<u64> {
        let mut by_peer: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
        for (number, (owner, _)) in self.slots.iter().rev() {
            let (count, oldest) = by_peer.entry(*owner).or_default();
            (*count, *oldest) = (*count + 1, *number);
        }
        let own = by_peer.get(&peer).copied();
        let most = by_peer.values().copied().max_by_key(|&(count, oldest)| (count, u64::MAX - oldest))?;
        match own {
            Some((count, oldest)) if count == most.0 => Some(oldest),
            _ => (most.0 > 1).then_some(most.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn slots_are_bounded_and_given_back() {
        let viewers = Viewers::default();
        let held: Vec<ViewerSlot> = (0..1000).map(|_| viewers.join(peer(1)).unwrap()).collect();
        assert_eq!(viewers.count(), MOST_VIEWERS);
        let evicted = held.iter().filter(|slot| slot.evicted.is_cancelled()).count();
        assert_eq!(evicted, 1000 - MOST_VIEWERS, "the newest stay");
        assert!(!held.last().unwrap().evicted.is_cancelled());
        drop(held);
        assert_eq!(viewers.count(), 0);
    }

    /// A peer that takes all slots loses its oldest one to another peer, and the other peer keeps what it has.
    #[test]
    fn one_peer_cannot_lock_out_another() {
        let viewers = Viewers::default();
        let greedy: Vec<ViewerSlot> = (0..MOST_VIEWERS).map(|_| viewers.join(peer(1)).unwrap()).collect();
        let other = viewers.join(peer(2)).expect("the 65th viewer");
        assert!(greedy[0].evicted.is_cancelled() && !greedy[1].evicted.is_cancelled());
        let more: Vec<ViewerSlot> = (0..200).map(|_| viewers.join(peer(1)).unwrap()).collect();
        assert!(!other.evicted.is_cancelled(), "the greedy peer only displaces itself");
        assert_eq!((viewers.count(), more.len()), (MOST_VIEWERS, 200));
    }

    #[test]
    fn nobody_gives_way_if_all_have_one() {
        let viewers = Viewers::default();
        let held: Vec<ViewerSlot> = (0..MOST_VIEWERS as u8).map(|i| viewers.join(peer(i)).unwrap()).collect();
        assert!(viewers.join(peer(200)).is_none());
        let again = viewers.join(peer(5)).expect("a page that is loaded again");
        assert!(held[5].evicted.is_cancelled() && !again.evicted.is_cancelled());
    }
}
