//! What all connections of a publisher share: the subscriptions, and a queue to each connection. Nothing here waits for a
//! peer: a message for a connection whose queue is full ends that connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use telemetry::warn_limited;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::codec::EchoFrame;
use super::messages::ToNode;
use super::subscriptions::{ConnectionId, LARGEST_WINDOW, Offer, STALLED, Subscriptions};

/// Replies that wait for a connection in addition to a window of frames.
const REPLIES: usize = 16;

/// Interval between two looks for subscribers that acknowledge nothing.
const INSPECTION: Duration = Duration::from_millis(500);

/// A message that waits for a connection.
#[derive(Debug)]
pub(super) enum QueuedMessage {
    Reply(ToNode),
    Frame { sequence: u64, frame: EchoFrame },
}

/// The queue to a connection, and how to end it.
#[derive(Debug)]
struct Outlet {
    /// Address of the peer, for logs.
    peer: String,
    queue: mpsc::Sender<QueuedMessage>,
    end: CancellationToken,
}

/// The end of a connection's queue that its task holds.
#[derive(Debug)]
pub(super) struct ConnectionQueue {
    pub id: ConnectionId,
    pub queue: mpsc::Receiver<QueuedMessage>,
    /// Cancelled when the connection has to end.
    pub end: CancellationToken,
}

#[derive(Debug)]
pub(super) struct Hub {
    pub subscriptions: watch::Sender<Subscriptions>,
    outlets: Mutex<HashMap<ConnectionId, Outlet>>,
    next: AtomicU64,
}

impl Hub {
    pub fn new(subscriptions: Subscriptions) -> Self {
        Self {
            subscriptions: watch::Sender::new(subscriptions),
            outlets: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    fn outlets(&self) -> MutexGuard<'_, HashMap<ConnectionId, Outlet>> {
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection to `peer`.
    pub fn connect(&self, peer: String) -> ConnectionQueue {
        let id = ConnectionId(self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, queue) = mpsc::channel(LARGEST_WINDOW as usize + REPLIES);
        let end = CancellationToken::new();
        self.outlets().insert(id, Outlet { peer, queue: sender, end: end.clone() });
        ConnectionQueue { id, queue, end }
    }

    /// Ends the queue of a connection: what waits is still sent.
    pub fn close(&self, id: ConnectionId) {
        self.outlets().remove(&id);
    }

    /// Removes a connection that has ended. Its frames stay in flight until the node reports what it received.
    pub fn leave(&self, id: ConnectionId) {
        let peer = self.outlets().remove(&id).map(|outlet| outlet.peer);
        let mut lost = None;
        self.subscriptions.send_if_modified(|subscriptions| {
            lost = subscriptions.disconnected(id);
            lost.is_some()
        });
        if let Some(node) = lost {
            let event = "the connection to a node broke: its frames are dropped until it reconnects";
            warn_limited!(node, peer, "{event}");
        }
    }

    /// Ends a connection without delay.
    pub fn end(&self, id: ConnectionId) {
        if let Some(outlet) = self.outlets().get(&id) {
            outlet.end.cancel();
        }
    }

    /// Ends a connection that is too slow.
    pub fn evict(&self, id: ConnectionId, reason: &str) {
        let mut node = None;
        self.subscriptions.send_modify(|subscriptions| {
            node = subscriptions.index_of(id);
            subscriptions.evicted += 1;
        });
        let outlets = self.outlets();
        let Some(outlet) = outlets.get(&id) else { return };
        warn_limited!(node, peer = outlet.peer, reason, "a peer is disconnected");
        outlet.end.cancel();
    }

    /// Queues a message; false if the queue is full. A connection that has ended takes everything.
    pub fn queue(&self, id: ConnectionId, message: QueuedMessage) -> bool {
        let sent = self.outlets().get(&id).map(|outlet| outlet.queue.try_send(message));
        !matches!(sent, Some(Err(mpsc::error::TrySendError::Full(_))))
    }

    /// Queues a message; a connection whose queue is full is evicted.
    pub fn send(&self, id: ConnectionId, message: QueuedMessage) {
        if !self.queue(id, message) {
            self.evict(id, "it does not read what it is sent");
        }
    }

    /// Offers a frame to a node: queued if the node is subscribed and has credit, else dropped and counted.
    pub fn offer(&self, node: usize, frame: EchoFrame) -> Offer {
        let mut offered = Err(Offer::NoSubscriber);
        self.subscriptions.send_modify(|subscriptions| offered = subscriptions.offer(node, Instant::now()));
        match offered {
            // A frame for a connection that has just ended stays in flight until the node reports what it received.
            Ok((id, sequence)) => {
                self.send(id, QueuedMessage::Frame { sequence, frame });
                Offer::Sent
            }
            Err(offer) => offer,
        }
    }

    /// Counts an invalid message of `peer`.
    pub fn refused(&self, peer: &dyn std::fmt::Display, reason: &str) {
        self.subscriptions.send_modify(|subscriptions| subscriptions.refused += 1);
        warn_limited!(%peer, reason, "an invalid message was refused");
    }

    /// Disconnects subscribers that acknowledge nothing, for ever.
    pub async fn inspect(&self) {
        let mut ticks = tokio::time::interval(INSPECTION);
        loop {
            ticks.tick().await;
            let stalled = self.subscriptions.borrow().stalled(Instant::now());
            for id in stalled {
                self.evict(id, &format!("it has acknowledged no frame for {} s", STALLED.as_secs()));
                self.leave(id);
            }
        }
    }
}
