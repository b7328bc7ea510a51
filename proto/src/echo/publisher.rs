//! The simulator's side: a ROUTER that sends frames to subscribed nodes.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_util::task::AbortOnDropHandle;
use zeromq::{
    RouterRecvHalf, RouterSendHalf, RouterSocket, Socket, SocketEvent, SocketRecv, SocketSend, ZmqMessage,
};

use super::codec::{CodecError, decode, encode};
use super::messages::{ToNode, ToSource};
use super::subscriptions::{EchoLedger, Offer, Subscriptions};
use super::{ECHO_VERSION, EchoError};

type SharedSubscriptions = Arc<watch::Sender<Subscriptions>>;

/// Publishes echo frames. Dropping it closes the port.
pub struct EchoPublisher {
    subscriptions: SharedSubscriptions,
    socket: RouterSendHalf,
    address: SocketAddr,
    _reception: AbortOnDropHandle<()>,
}

impl EchoPublisher {
    /// Accepts subscriptions of `nodes` nodes whose site has this hash. `run` must be unique to this start of the
    /// simulator.
    pub async fn bind(
        listener: TcpListener,
        run: u64,
        nodes: usize,
        site_sha256: [u8; 32],
    ) -> Result<Self, EchoError> {
        let address = listener.local_addr()?;
        let mut socket = RouterSocket::new();
        let events = socket.monitor();
        socket.bind_listener(listener).await?;
        let (socket, incoming) = socket.split();
        let subscriptions = Arc::new(watch::Sender::new(Subscriptions::new(run, site_sha256, nodes)));
        let reception = Reception { subscriptions: subscriptions.clone(), socket: socket.clone() };
        let task = tokio::spawn(reception.run(incoming, events));
        Ok(Self { subscriptions, socket, address, _reception: AbortOnDropHandle::new(task) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until all nodes are subscribed at the same time.
    pub async fn until_all_subscribed(&self) {
        self.until(Subscriptions::all_subscribed).await;
    }

    /// Waits until no frame is in flight.
    pub async fn until_settled(&self) {
        self.until(Subscriptions::settled).await;
    }

    async fn until(&self, condition: impl FnMut(&Subscriptions) -> bool) {
        // The sender lives as long as `self`.
        let _ = self.subscriptions.subscribe().wait_for(condition).await;
    }

    pub fn subscribed(&self) -> usize {
        self.subscriptions.borrow().subscribed()
    }

    /// Number of messages that could not be decoded.
    pub fn refused(&self) -> u64 {
        self.subscriptions.borrow().refused
    }

    /// The ledger of each node.
    pub fn ledgers(&self) -> Vec<EchoLedger> {
        self.subscriptions.borrow().ledgers()
    }

    /// Offers an encoded frame to a node: sent if the node is subscribed and has credit, else dropped and counted.
    pub async fn publish(&mut self, node: usize, encoded: Bytes) -> Offer {
        let mut offered = Err(Offer::NoSubscriber);
        self.subscriptions.send_modify(|subscriptions| offered = subscriptions.offer(node));
        let (peer, sequence) = match offered {
            Ok(accepted) => accepted,
            Err(offer) => return offer,
        };
        // A frame that cannot be sent stays in flight until the node reports what it received.
        if !send(&mut self.socket, &peer, &ToNode::Frame { sequence }, Some(encoded)).await {
            self.subscriptions.send_modify(|subscriptions| {
                subscriptions.disconnected(&peer);
            });
        }
        Offer::Sent
    }

    /// Closes the publisher and returns the final ledgers: frames still in flight count as dropped.
    pub fn close(self) -> Vec<EchoLedger> {
        self.subscriptions.send_modify(Subscriptions::close);
        self.ledgers()
    }
}

/// Sends a message, with a frame if there is one; false if the peer is not connected.
async fn send(socket: &mut RouterSendHalf, peer: &Bytes, message: &ToNode, frame: Option<Bytes>) -> bool {
    let header = match encode(message) {
        Ok(header) => header,
        Err(error) => {
            tracing::error!(%error, "a message to a node was not sent");
            return true;
        }
    };
    let mut parts = ZmqMessage::from(peer.clone());
    parts.push_back(header);
    frame.into_iter().for_each(|frame| parts.push_back(frame));
    socket.send(parts).await.is_ok()
}

/// The task that receives messages of the nodes.
struct Reception {
    subscriptions: SharedSubscriptions,
    socket: RouterSendHalf,
}

impl Reception {
    async fn run(
        mut self,
        mut incoming: RouterRecvHalf,
        mut events: impl tokio_stream::Stream<Item = SocketEvent> + Unpin + Send,
    ) {
        loop {
            tokio::select! {
                message = incoming.recv() => match message {
                    Ok(message) => self.message(message).await,
                    Err(error) => telemetry::warn_limited!(%error, "the echo socket failed to receive"),
                },
                Some(event) = events.next() => self.event(&event),
            }
        }
    }

    fn event(&self, event: &SocketEvent) {
        if let SocketEvent::Disconnected(peer) = event {
            let mut lost = None;
            self.subscriptions.send_if_modified(|subscriptions| {
                lost = subscriptions.disconnected(peer);
                lost.is_some()
            });
            if let Some(node) = lost {
                telemetry::warn_limited!(
                    node,
                    "the connection to a node broke: its frames are dropped until it reconnects"
                );
            }
        }
    }

    async fn message(&mut self, message: ZmqMessage) {
        let parts = message.into_vec();
        let [peer, body] = parts.as_slice() else {
            return self.refuse(parts.first(), &CodecError::Parts(parts.len())).await;
        };
        match decode::<ToSource>(body) {
            Ok(message) => {
                if let Some(reply) = self.reply(peer, &message) {
                    send(&mut self.socket, peer, &reply, None).await;
                }
            }
            Err(error) => self.refuse(Some(peer), &error).await,
        }
    }

    fn reply(&self, peer: &Bytes, message: &ToSource) -> Option<ToNode> {
        let mut reply = None;
        let now = Instant::now();
        self.subscriptions.send_modify(|subscriptions| {
            let known = subscriptions.heard(peer, now);
            match message {
                ToSource::Hello(hello) => reply = Some(subscriptions.hello(peer, hello, now)),
                ToSource::Acknowledge { source, sequence } => {
                    subscriptions.acknowledge(peer, *source, *sequence);
                }
                ToSource::Ping if known => reply = Some(ToNode::Pong),
                // Without a reply the node finds out that it is not subscribed and subscribes again.
                ToSource::Ping => {}
                ToSource::Goodbye { source, sequence } => {
                    subscriptions.goodbye(peer, *source, *sequence);
                    reply = Some(ToNode::Farewell);
                }
            }
        });
        match (message, &reply) {
            (ToSource::Hello(hello), Some(ToNode::Refused { reason })) => {
                telemetry::warn_limited!(node = hello.node, reason, "a node was refused");
            }
            (ToSource::Hello(hello), _) => {
                telemetry::info_limited!(node = hello.node, window = hello.window, "a node subscribed");
            }
            _ => {}
        }
        reply
    }

    /// Counts a message that cannot be decoded and replies with the reason.
    async fn refuse(&mut self, peer: Option<&Bytes>, error: &CodecError) {
        self.subscriptions.send_modify(|subscriptions| subscriptions.refused += 1);
        telemetry::warn_limited!(%error, "an invalid message was ignored");
        if let Some(peer) = peer {
            let reason = format!("{error} (echo version {ECHO_VERSION})");
            send(&mut self.socket, peer, &ToNode::Refused { reason }, None).await;
        }
    }
}
