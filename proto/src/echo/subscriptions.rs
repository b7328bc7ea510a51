//! The publisher's state without any socket: which node is subscribed, and what became of its frames. The same for all
//! transports; time is passed in.

use std::time::{Duration, Instant};

use super::messages::{Hello, Resume, ToNode};
use crate::site::short_hash;

/// Largest window that a subscriber can get.
pub const LARGEST_WINDOW: u32 = 4096;

/// Largest number of bytes that wait for a subscriber: a window of long frames is smaller.
pub const LARGEST_WINDOW_BYTES: usize = 64 << 20;

/// After this time without a message, another process may take the index of a subscriber.
const SILENT: Duration = Duration::from_secs(1);

/// A subscriber with frames in flight that acknowledges none for this long is disconnected.
pub const STALLED: Duration = Duration::from_secs(10);

/// A connection of a publisher; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ConnectionId(pub u64);

/// Counts of the frames of one node. Invariant: `offered = delivered + dropped + in_flight`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct EchoLedger {
    pub offered: u64,
    /// Frames that the node has processed.
    pub delivered: u64,
    /// Frames that did not reach the node: no subscriber, no credit, or lost with a connection.
    pub dropped: u64,
    pub in_flight: u64,
}

/// Outcome of offering a frame to a node: sent, or dropped for this reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    Sent,
    NoSubscriber,
    /// A full window of frames is in flight.
    NoCredit,
}

/// The connection to which the frames of a node are sent.
#[derive(Debug, Clone)]
struct Subscriber {
    peer: ConnectionId,
    instance: u64,
    window: u64,
    heard: Instant,
    /// When it last acknowledged a frame, or got one while none was in flight.
    progressed: Instant,
}

#[derive(Debug, Clone, Default)]
struct NodeState {
    subscriber: Option<Subscriber>,
    /// Instance to which `sent` and `consumed` belong, also while it is disconnected.
    instance: Option<u64>,
    /// Sequence number of the last frame sent; the first is 1.
    sent: u64,
    /// Sequence number of the last frame that the node has processed.
    consumed: u64,
    ledger: EchoLedger,
}

impl NodeState {
    fn lose_in_flight(&mut self) {
        self.ledger.dropped += self.ledger.in_flight;
        self.ledger.in_flight = 0;
    }

    /// Whether frames were consumed.
    fn consume(&mut self, sequence: u64) -> bool {
        let new = sequence > self.consumed && sequence <= self.sent;
        if new {
            let count = sequence - self.consumed;
            self.consumed = sequence;
            self.ledger.delivered += count;
            self.ledger.in_flight -= count;
        }
        new
    }

    /// Continues a subscription: frames that were not received are lost, frames that wait at the node are in flight.
    fn resume(&mut self, resume: Resume) {
        let received = resume.received.clamp(self.consumed, self.sent);
        self.ledger.dropped += self.sent - received;
        self.ledger.in_flight -= self.sent - received;
        self.sent = received;
        self.consume(resume.consumed.min(received));
    }

    fn start_over(&mut self) {
        self.lose_in_flight();
        (self.sent, self.consumed) = (0, 0);
    }

    fn leave(&mut self) {
        (self.subscriber, self.instance) = (None, None);
        self.start_over();
    }
}

#[derive(Debug, Clone)]
pub(super) struct Subscriptions {
    source: u64,
    site_sha256: [u8; 32],
    nodes: Vec<NodeState>,
    largest_window: u32,
    /// Number of messages that were invalid.
    pub refused: u64,
    /// Number of peers that were disconnected because they were too slow.
    pub evicted: u64,
}

impl Subscriptions {
    /// No subscription to `nodes` nodes, for frames of at most `frame_bytes`.
    pub fn new(source: u64, site_sha256: [u8; 32], nodes: usize, frame_bytes: usize) -> Self {
        let fit = u32::try_from(LARGEST_WINDOW_BYTES / frame_bytes.max(1)).unwrap_or(u32::MAX);
        Self {
            source,
            site_sha256,
            nodes: vec![NodeState::default(); nodes],
            largest_window: fit.clamp(1, LARGEST_WINDOW),
            refused: 0,
            evicted: 0,
        }
    }

    /// Subscribes or refuses. A process and a connection have one seat each: an earlier one is given up.
    pub fn hello(&mut self, peer: ConnectionId, hello: &Hello, now: Instant) -> ToNode {
        let (source, largest_window) = (self.source, self.largest_window);
        if let Err(reason) = self.admit(hello, now) {
            return ToNode::Refused { reason };
        }
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let holds = |s: &Subscriber| s.peer == peer || s.instance == hello.instance;
            if index != hello.node as usize && node.subscriber.as_ref().is_some_and(holds) {
                node.leave();
            }
        }
        let node = &mut self.nodes[hello.node as usize];
        match hello.resume.filter(|resume| resume.source == source) {
            Some(resume) if node.instance == Some(hello.instance) => node.resume(resume),
            _ => node.start_over(),
        }
        node.instance = Some(hello.instance);
        node.subscriber = Some(Subscriber {
            peer,
            instance: hello.instance,
            window: u64::from(hello.window.clamp(1, largest_window)),
            heard: now,
            progressed: now,
        });
        ToNode::Welcome { source, next_sequence: node.sent + 1 }
    }

    /// Refuses a subscription with the reason.
    fn admit(&self, hello: &Hello, now: Instant) -> Result<(), String> {
        if hello.site_sha256 != self.site_sha256 {
            return Err(format!(
                "the node works with site {}, the simulator with {}",
                short_hash(&hello.site_sha256),
                short_hash(&self.site_sha256)
            ));
        }
        let count = self.nodes.len();
        let node = self
            .nodes
            .get(hello.node as usize)
            .ok_or_else(|| format!("node {} does not exist: the site has {count} IRSs", hello.node))?;
        let taken = node.subscriber.as_ref().is_some_and(|other| {
            other.instance != hello.instance && now.saturating_duration_since(other.heard) < SILENT
        });
        if taken {
            return Err(format!("node {} is subscribed already by another process", hello.node));
        }
        Ok(())
    }

    /// The connection to which the frames of a node go.
    pub fn peer_of(&self, node: u32) -> Option<ConnectionId> {
        self.nodes.get(node as usize)?.subscriber.as_ref().map(|subscriber| subscriber.peer)
    }

    pub fn index_of(&self, peer: ConnectionId) -> Option<usize> {
        self.nodes.iter().position(|node| node.subscriber.as_ref().is_some_and(|s| s.peer == peer))
    }

    fn node_of(&mut self, peer: ConnectionId) -> Option<&mut NodeState> {
        self.index_of(peer).map(|index| &mut self.nodes[index])
    }

    /// Records that a message of a subscriber arrived; false if the peer is not subscribed.
    pub fn heard(&mut self, peer: ConnectionId, now: Instant) -> bool {
        let subscriber = self.node_of(peer).and_then(|node| node.subscriber.as_mut());
        subscriber.map(|subscriber| subscriber.heard = now).is_some()
    }

    /// Records that a subscriber has processed every frame up to `sequence`.
    pub fn acknowledge(&mut self, peer: ConnectionId, source: u64, sequence: u64, now: Instant) {
        if source == self.source
            && let Some(node) = self.node_of(peer)
            && node.consume(sequence)
            && let Some(subscriber) = &mut node.subscriber
        {
            subscriber.progressed = now;
        }
    }

    /// Ends a subscription: frames that the node has not processed are lost.
    pub fn goodbye(&mut self, peer: ConnectionId, source: u64, sequence: u64, now: Instant) {
        self.acknowledge(peer, source, sequence, now);
        if let Some(node) = self.node_of(peer) {
            node.leave();
        }
    }

    /// Records a broken connection. Its frames stay in flight until the node reports what it received.
    pub fn disconnected(&mut self, peer: ConnectionId) -> Option<usize> {
        let index = self.index_of(peer)?;
        self.nodes[index].subscriber = None;
        Some(index)
    }

    /// Counts a frame for `node`. If it is to be sent, returns the peer and the sequence number.
    pub fn offer(&mut self, node: usize, now: Instant) -> Result<(ConnectionId, u64), Offer> {
        let node = &mut self.nodes[node];
        node.ledger.offered += 1;
        let refusal = match &mut node.subscriber {
            None => Offer::NoSubscriber,
            Some(subscriber) if node.ledger.in_flight >= subscriber.window => Offer::NoCredit,
            Some(subscriber) => {
                if node.ledger.in_flight == 0 {
                    subscriber.progressed = now;
                }
                node.sent += 1;
                node.ledger.in_flight += 1;
                return Ok((subscriber.peer, node.sent));
            }
        };
        node.ledger.dropped += 1;
        Err(refusal)
    }

    /// Connections of nodes that have had frames in flight for long and acknowledge none.
    pub fn stalled(&self, now: Instant) -> Vec<ConnectionId> {
        let stalled = |node: &NodeState| {
            let subscriber = node.subscriber.as_ref()?;
            let idle = now.saturating_duration_since(subscriber.progressed);
            (node.ledger.in_flight > 0 && idle >= STALLED).then_some(subscriber.peer)
        };
        self.nodes.iter().filter_map(stalled).collect()
    }

    pub fn subscribed(&self) -> usize {
        self.nodes.iter().filter(|node| node.subscriber.is_some()).count()
    }

    pub fn all_subscribed(&self) -> bool {
        self.subscribed() == self.nodes.len()
    }

    /// Whether no frame is in flight.
    pub fn settled(&self) -> bool {
        self.nodes.iter().all(|node| node.ledger.in_flight == 0)
    }

    pub fn ledgers(&self) -> Vec<EchoLedger> {
        self.nodes.iter().map(|node| node.ledger).collect()
    }

    /// Counts frames that are still in flight as dropped.
    pub fn close(&mut self) {
        self.nodes.iter_mut().for_each(NodeState::lose_in_flight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: u64 = 77;
    const HASH: [u8; 32] = [5; 32];

    fn hello(node: u32, instance: u64, resume: Option<Resume>) -> Hello {
        Hello { node, instance, site_sha256: HASH, window: 4, resume }
    }

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);
    const C: ConnectionId = ConnectionId(3);

    fn balanced(books: &Subscriptions) -> EchoLedger {
        let ledger = books.ledgers()[0];
        assert_eq!(ledger.offered, ledger.delivered + ledger.dropped + ledger.in_flight, "{ledger:?}");
        ledger
    }

    fn with_three_under_way() -> Subscriptions {
        let mut books = Subscriptions::new(SOURCE, HASH, 1, 100);
        assert_eq!(books.offer(0, Instant::now()), Err(Offer::NoSubscriber));
        let answer = books.hello(A, &hello(0, 1, None), Instant::now());
        assert_eq!(answer, ToNode::Welcome { source: SOURCE, next_sequence: 1 });
        for sequence in 1..=3 {
            assert_eq!(books.offer(0, Instant::now()), Ok((A, sequence)));
        }
        books
    }

    #[test]
    fn credit_bounds_what_is_under_way() {
        let mut books = with_three_under_way();
        assert!(books.offer(0, Instant::now()).is_ok());
        assert_eq!(books.offer(0, Instant::now()), Err(Offer::NoCredit));
        books.acknowledge(A, SOURCE, 2, Instant::now());
        books.acknowledge(A, SOURCE, 1, Instant::now());
        books.acknowledge(A, SOURCE + 1, 4, Instant::now());
        books.acknowledge(B, SOURCE, 4, Instant::now());
        books.acknowledge(A, SOURCE, 400, Instant::now());
        assert_eq!(balanced(&books), EchoLedger { offered: 6, delivered: 2, dropped: 2, in_flight: 2 });
        assert_eq!(books.offer(0, Instant::now()), Ok((A, 5)));
    }

    #[test]
    fn a_broken_connection_loses_what_never_arrived_and_no_more() {
        let mut books = with_three_under_way();
        assert_eq!(books.disconnected(A), Some(0));
        assert_eq!(books.offer(0, Instant::now()), Err(Offer::NoSubscriber));
        assert_eq!(balanced(&books).in_flight, 3);
        // One is done with, one waits at the node, one was lost; its number is used again.
        let resume = Resume { source: SOURCE, received: 2, consumed: 1 };
        let answer = books.hello(B, &hello(0, 1, Some(resume)), Instant::now());
        assert_eq!(answer, ToNode::Welcome { source: SOURCE, next_sequence: 3 });
        assert_eq!(balanced(&books), EchoLedger { offered: 5, delivered: 1, dropped: 3, in_flight: 1 });
        assert_eq!(books.offer(0, Instant::now()), Ok((B, 3)));
        books.acknowledge(B, SOURCE, 3, Instant::now());
        assert_eq!(balanced(&books), EchoLedger { offered: 6, delivered: 3, dropped: 3, in_flight: 0 });
        assert!(books.settled());
    }

    #[test]
    fn a_restarted_node_or_a_nonsensical_resume_starts_over() {
        let mut books = with_three_under_way();
        books.disconnected(A);
        let resume = Resume { source: SOURCE, received: 99, consumed: 50 };
        let answer = books.hello(B, &hello(0, 2, Some(resume)), Instant::now());
        assert_eq!(answer, ToNode::Welcome { source: SOURCE, next_sequence: 1 });
        assert_eq!(balanced(&books), EchoLedger { offered: 4, delivered: 0, dropped: 4, in_flight: 0 });
        books.offer(0, Instant::now()).unwrap();
        // The same instance claims to have received and consumed what was never sent.
        books.hello(C, &hello(0, 2, Some(resume)), Instant::now());
        balanced(&books);
        books.close();
        assert_eq!(balanced(&books).in_flight, 0);
    }

    #[test]
    fn goodbye_settles_the_account() {
        let mut books = with_three_under_way();
        books.goodbye(A, SOURCE, 2, Instant::now());
        assert_eq!(balanced(&books), EchoLedger { offered: 4, delivered: 2, dropped: 2, in_flight: 0 });
        assert_eq!(books.subscribed(), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        let mut books = with_three_under_way();
        let now = Instant::now();
        let mut refusal = |hello: Hello, now| match books.hello(C, &hello, now) {
            ToNode::Refused { reason } => reason,
            other => panic!("{other:?}"),
        };
        let other_site = Hello { site_sha256: [6; 32], ..hello(0, 1, None) };
        assert!(refusal(other_site, now).contains("site 06060606, the simulator with 05050505"));
        assert!(refusal(hello(1, 1, None), now).contains("node 1 does not exist"));
        assert!(refusal(hello(0, 2, None), now).contains("already"));
        // Once the first is silent, another takes over.
        let later = now + SILENT + Duration::from_secs(1);
        assert!(matches!(books.hello(C, &hello(0, 2, None), later), ToNode::Welcome { .. }));
        balanced(&books);
    }

    #[test]
    fn one_seat_per_process_and_per_connection() {
        let mut books = Subscriptions::new(SOURCE, HASH, 3, 100);
        let now = Instant::now();
        // One connection asks for every index, each time as another process.
        for node in 0..3 {
            books.hello(A, &hello(node, u64::from(node), None), now);
            assert_eq!((books.subscribed(), books.index_of(A)), (1, Some(node as usize)));
        }
        // One process asks for every index over several connections.
        for (node, peer) in [(0, B), (1, C), (2, B)] {
            books.hello(peer, &hello(node, 2, None), now);
            assert_eq!((books.subscribed(), books.peer_of(node)), (1, Some(peer)));
        }
    }

    #[test]
    fn who_acknowledges_nothing_is_found() {
        let mut books = with_three_under_way();
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(books.stalled(start + STALLED - second), []);
        books.acknowledge(A, SOURCE, 1, start + STALLED - second);
        assert_eq!(books.stalled(start + STALLED + second), [], "it has acknowledged one");
        // The same acknowledgement again is no progress.
        books.acknowledge(A, SOURCE, 1, start + STALLED + second);
        assert_eq!(books.stalled(start + STALLED * 2), [A]);
        books.acknowledge(A, SOURCE, 3, start + STALLED * 2);
        assert_eq!(books.stalled(start + STALLED * 9), [], "nothing is in flight");
        books.offer(0, start + STALLED * 9).unwrap();
        assert_eq!(books.stalled(start + STALLED * 9 + second), [], "the frame has just been sent");
        assert_eq!(books.stalled(start + STALLED * 10), [A]);
    }

    #[test]
    fn a_window_of_long_frames_is_small() {
        let mut books = Subscriptions::new(SOURCE, HASH, 1, LARGEST_WINDOW_BYTES / 3);
        books.hello(A, &Hello { window: u32::MAX, ..hello(0, 1, None) }, Instant::now());
        let offers: Vec<bool> = (0..5).map(|_| books.offer(0, Instant::now()).is_ok()).collect();
        assert_eq!(offers, [true, true, true, false, false]);
    }
}
