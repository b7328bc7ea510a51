//! Who gets which frame, and what became of each: the books of the publisher, without any socket.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::messages::{Hello, Resume, ToNode};
use crate::site::short_hash;

/// Largest window that a subscriber is granted.
const LARGEST_WINDOW: u32 = 4096;

/// A subscriber that was silent for this long no longer defends its index.
const SILENT: Duration = Duration::from_secs(1);

/// What became of the frames of one node: `offered = delivered + dropped + in_flight`, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct EchoLedger {
    /// Frames made for the node.
    pub offered: u64,
    /// Frames that the node is done with.
    pub delivered: u64,
    /// Frames that did not reach it: no subscriber, no credit, or lost with a connection.
    pub dropped: u64,
    /// Frames under way.
    pub in_flight: u64,
}

/// What becomes of a frame that is offered to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// On its way.
    Sent,
    /// Dropped: the node is not there.
    NoSubscriber,
    /// Dropped: the node is a full window behind.
    NoCredit,
}

/// The connection that a node's frames go to.
#[derive(Debug, Clone)]
struct Subscriber {
    peer: Bytes,
    instance: u64,
    window: u64,
    heard: Instant,
}

#[derive(Debug, Clone, Default)]
struct Account {
    subscriber: Option<Subscriber>,
    /// Instance that `sent` and `consumed` belong to, also while it is away.
    instance: Option<u64>,
    /// Sequence number of the last frame sent; the first is 1.
    sent: u64,
    /// Sequence number of the last frame that the node is done with.
    consumed: u64,
    ledger: EchoLedger,
}

impl Account {
    fn lose_in_flight(&mut self) {
        self.ledger.dropped += self.ledger.in_flight;
        self.ledger.in_flight = 0;
    }

    fn consume(&mut self, sequence: u64) {
        if sequence > self.consumed && sequence <= self.sent {
            let count = sequence - self.consumed;
            self.consumed = sequence;
            self.ledger.delivered += count;
            self.ledger.in_flight -= count;
        }
    }

    /// Takes up where a subscriber left off: what it never received is lost, what waits there is in flight.
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
}

/// The books of all nodes.
#[derive(Debug, Clone)]
pub(super) struct Subscriptions {
    source: u64,
    site_sha256: [u8; 32],
    accounts: Vec<Account>,
    /// Messages that made no sense.
    pub refused: u64,
}

impl Subscriptions {
    pub fn new(source: u64, site_sha256: [u8; 32], nodes: usize) -> Self {
        Self { source, site_sha256, accounts: vec![Account::default(); nodes], refused: 0 }
    }

    /// Subscribes or refuses.
    pub fn hello(&mut self, peer: &Bytes, hello: &Hello, now: Instant) -> ToNode {
        let source = self.source;
        match self.admit(hello, now) {
            Err(reason) => ToNode::Refused { reason },
            Ok(account) => {
                match hello.resume.filter(|resume| resume.source == source) {
                    Some(resume) if account.instance == Some(hello.instance) => account.resume(resume),
                    _ => account.start_over(),
                }
                account.instance = Some(hello.instance);
                account.subscriber = Some(Subscriber {
                    peer: peer.clone(),
                    instance: hello.instance,
                    window: u64::from(hello.window.clamp(1, LARGEST_WINDOW)),
                    heard: now,
                });
                let next_sequence = account.sent + 1;
                ToNode::Welcome { source, next_sequence }
            }
        }
    }

    fn admit(&mut self, hello: &Hello, now: Instant) -> Result<&mut Account, String> {
        if hello.site_sha256 != self.site_sha256 {
            return Err(format!(
                "the node works with site {}, the simulator with {}",
                short_hash(&hello.site_sha256),
                short_hash(&self.site_sha256)
            ));
        }
        let count = self.accounts.len();
        let account = self
            .accounts
            .get_mut(hello.node as usize)
            .ok_or_else(|| format!("node {} does not exist: the site has {count} IRSs", hello.node))?;
        match &account.subscriber {
            Some(other)
                if other.instance != hello.instance
                    && now.saturating_duration_since(other.heard) < SILENT =>
            {
                Err(format!("node {} is subscribed already by another process", hello.node))
            }
            _ => Ok(account),
        }
    }

    fn account_of(&mut self, peer: &[u8]) -> Option<&mut Account> {
        self.accounts.iter_mut().find(|account| account.subscriber.as_ref().is_some_and(|s| s.peer == peer))
    }

    /// A subscriber gave a sign of life; false if it is none.
    pub fn heard(&mut self, peer: &[u8], now: Instant) -> bool {
        let subscriber = self.account_of(peer).and_then(|account| account.subscriber.as_mut());
        subscriber.map(|subscriber| subscriber.heard = now).is_some()
    }

    /// A subscriber is done with every frame through `sequence`.
    pub fn acknowledge(&mut self, peer: &[u8], source: u64, sequence: u64) {
        if source == self.source
            && let Some(account) = self.account_of(peer)
        {
            account.consume(sequence);
        }
    }

    /// A subscriber leaves for good: what it is not done with is lost.
    pub fn goodbye(&mut self, peer: &[u8], source: u64, sequence: u64) {
        self.acknowledge(peer, source, sequence);
        if let Some(account) = self.account_of(peer) {
            account.subscriber = None;
            account.instance = None;
            account.start_over();
        }
    }

    /// A connection broke. Its frames stay in flight until the node says how far it got.
    pub fn disconnected(&mut self, peer: &[u8]) -> Option<usize> {
        let node =
            self.accounts.iter().position(|a| a.subscriber.as_ref().is_some_and(|s| s.peer == peer))?;
        self.accounts[node].subscriber = None;
        Some(node)
    }

    /// Books a frame for `node`; sent means: to this peer under this sequence number.
    pub fn offer(&mut self, node: usize) -> Result<(Bytes, u64), Offer> {
        let account = &mut self.accounts[node];
        account.ledger.offered += 1;
        let outcome = match &account.subscriber {
            None => Err(Offer::NoSubscriber),
            Some(subscriber) if account.ledger.in_flight >= subscriber.window => Err(Offer::NoCredit),
            Some(subscriber) => Ok(subscriber.peer.clone()),
        };
        match outcome {
            Ok(peer) => {
                account.sent += 1;
                account.ledger.in_flight += 1;
                Ok((peer, account.sent))
            }
            Err(offer) => {
                account.ledger.dropped += 1;
                Err(offer)
            }
        }
    }

    pub fn subscribed(&self) -> usize {
        self.accounts.iter().filter(|account| account.subscriber.is_some()).count()
    }

    pub fn all_subscribed(&self) -> bool {
        self.subscribed() == self.accounts.len()
    }

    /// Nothing is under way to anyone who could still acknowledge it.
    pub fn settled(&self) -> bool {
        self.accounts.iter().all(|account| account.ledger.in_flight == 0)
    }

    pub fn ledgers(&self) -> Vec<EchoLedger> {
        self.accounts.iter().map(|account| account.ledger).collect()
    }

    /// The end: what is still under way is lost.
    pub fn close(&mut self) {
        for account in &mut self.accounts {
            account.lose_in_flight();
        }
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

    fn peer(name: &'static str) -> Bytes {
        Bytes::from_static(name.as_bytes())
    }

    fn balanced(books: &Subscriptions) -> EchoLedger {
        let ledger = books.ledgers()[0];
        assert_eq!(ledger.offered, ledger.delivered + ledger.dropped + ledger.in_flight, "{ledger:?}");
        ledger
    }

    fn with_three_under_way() -> Subscriptions {
        let mut books = Subscriptions::new(SOURCE, HASH, 1);
        assert_eq!(books.offer(0), Err(Offer::NoSubscriber));
        let answer = books.hello(&peer("a"), &hello(0, 1, None), Instant::now());
        assert_eq!(answer, ToNode::Welcome { source: SOURCE, next_sequence: 1 });
        for sequence in 1..=3 {
            assert_eq!(books.offer(0), Ok((peer("a"), sequence)));
        }
        books
    }

    #[test]
    fn credit_bounds_what_is_under_way() {
        let mut books = with_three_under_way();
        assert!(books.offer(0).is_ok());
        assert_eq!(books.offer(0), Err(Offer::NoCredit));
        books.acknowledge(b"a", SOURCE, 2);
        books.acknowledge(b"a", SOURCE, 1);
        books.acknowledge(b"a", SOURCE + 1, 4);
        books.acknowledge(b"b", SOURCE, 4);
        books.acknowledge(b"a", SOURCE, 400);
        assert_eq!(balanced(&books), EchoLedger { offered: 6, delivered: 2, dropped: 2, in_flight: 2 });
        assert_eq!(books.offer(0), Ok((peer("a"), 5)));
    }

    #[test]
    fn a_broken_connection_loses_what_never_arrived_and_no_more() {
        let mut books = with_three_under_way();
        assert_eq!(books.disconnected(b"a"), Some(0));
        assert_eq!(books.offer(0), Err(Offer::NoSubscriber));
        assert_eq!(balanced(&books).in_flight, 3);
        // One is done with, one waits at the node, one was lost; its number is used again.
        let resume = Resume { source: SOURCE, received: 2, consumed: 1 };
        let answer = books.hello(&peer("b"), &hello(0, 1, Some(resume)), Instant::now());
        assert_eq!(answer, ToNode::Welcome { source: SOURCE, next_sequence: 3 });
        assert_eq!(balanced(&books), EchoLedger { offered: 5, delivered: 1, dropped: 3, in_flight: 1 });
        assert_eq!(books.offer(0), Ok((peer("b"), 3)));
        books.acknowledge(b"b", SOURCE, 3);
        assert_eq!(balanced(&books), EchoLedger { offered: 6, delivered: 3, dropped: 3, in_flight: 0 });
        assert!(books.settled());
    }

    #[test]
    fn a_restarted_node_or_a_nonsensical_resume_starts_over() {
        let mut books = with_three_under_way();
        books.disconnected(b"a");
        let resume = Resume { source: SOURCE, received: 99, consumed: 50 };
        let answer = books.hello(&peer("b"), &hello(0, 2, Some(resume)), Instant::now());
        assert_eq!(answer, ToNode::Welcome { source: SOURCE, next_sequence: 1 });
        assert_eq!(balanced(&books), EchoLedger { offered: 4, delivered: 0, dropped: 4, in_flight: 0 });
        books.offer(0).unwrap();
        // The same instance claims to have received and consumed what was never sent.
        books.hello(&peer("c"), &hello(0, 2, Some(resume)), Instant::now());
        balanced(&books);
        books.close();
        assert_eq!(balanced(&books).in_flight, 0);
    }

    #[test]
    fn goodbye_settles_the_account() {
        let mut books = with_three_under_way();
        books.goodbye(b"a", SOURCE, 2);
        assert_eq!(balanced(&books), EchoLedger { offered: 4, delivered: 2, dropped: 2, in_flight: 0 });
        assert_eq!(books.subscribed(), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        let mut books = with_three_under_way();
        let now = Instant::now();
        let mut refusal = |hello: Hello, now| match books.hello(&peer("x"), &hello, now) {
            ToNode::Refused { reason } => reason,
            other => panic!("{other:?}"),
        };
        let other_site = Hello { site_sha256: [6; 32], ..hello(0, 1, None) };
        assert!(refusal(other_site, now).contains("site 06060606, the simulator with 05050505"));
        assert!(refusal(hello(1, 1, None), now).contains("node 1 does not exist"));
        assert!(refusal(hello(0, 2, None), now).contains("already"));
        // Once the first is silent, another takes over.
        let later = now + SILENT + Duration::from_secs(1);
        assert!(matches!(books.hello(&peer("x"), &hello(0, 2, None), later), ToNode::Welcome { .. }));
        balanced(&books);
    }
}
