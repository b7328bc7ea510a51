//! The simulator's side: a ROUTER that hands frames to subscribed nodes.

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

type Books = Arc<watch::Sender<Subscriptions>>;

/// Hands out echo frames. Dropping it closes the port.
pub struct EchoPublisher {
    books: Books,
    socket: RouterSendHalf,
    address: SocketAddr,
    _reception: AbortOnDropHandle<()>,
}

impl EchoPublisher {
    /// Takes subscriptions of `nodes` nodes that work with the site of that hash. No two starts of a
    /// simulator share a `run`.
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
        let books = Arc::new(watch::Sender::new(Subscriptions::new(run, site_sha256, nodes)));
        let reception = Reception { books: books.clone(), socket: socket.clone() };
        let task = tokio::spawn(reception.run(incoming, events));
        Ok(Self { books, socket, address, _reception: AbortOnDropHandle::new(task) })
    }

    /// Where nodes subscribe.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until all nodes are subscribed at once.
    pub async fn until_all_subscribed(&self) {
        self.until(Subscriptions::all_subscribed).await;
    }

    /// Waits until nothing is under way any more.
    pub async fn until_settled(&self) {
        self.until(Subscriptions::settled).await;
    }

    async fn until(&self, condition: impl FnMut(&Subscriptions) -> bool) {
        // The sender lives as long as `self`.
        let _ = self.books.subscribe().wait_for(condition).await;
    }

    /// Nodes that are subscribed now.
    pub fn subscribed(&self) -> usize {
        self.books.borrow().subscribed()
    }

    /// Messages from nodes that made no sense.
    pub fn refused(&self) -> u64 {
        self.books.borrow().refused
    }

    /// What became of the frames of each node.
    pub fn ledgers(&self) -> Vec<EchoLedger> {
        self.books.borrow().ledgers()
    }

    /// Offers a frame, encoded, to a node: sent if it is there and has credit, else dropped and counted.
    pub async fn publish(&mut self, node: usize, encoded: Bytes) -> Offer {
        let mut booked = Err(Offer::NoSubscriber);
        self.books.send_modify(|books| booked = books.offer(node));
        let (peer, sequence) = match booked {
            Ok(booked) => booked,
            Err(offer) => return offer,
        };
        // A frame that cannot be handed over stays in flight until the node says how far it got.
        if !send(&mut self.socket, &peer, &ToNode::Frame { sequence }, Some(encoded)).await {
            self.books.send_modify(|books| {
                books.disconnected(&peer);
            });
        }
        Offer::Sent
    }

    /// Closes the books: what is still under way counts as dropped.
    pub fn close(self) -> Vec<EchoLedger> {
        self.books.send_modify(Subscriptions::close);
        self.ledgers()
    }
}

/// False if the peer is not there.
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
    if let Some(frame) = frame {
        parts.push_back(frame);
    }
    socket.send(parts).await.is_ok()
}

/// Listens to the nodes.
struct Reception {
    books: Books,
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
                    Err(error) => tracing::warn!(%error, "the echo socket failed to receive"),
                },
                Some(event) = events.next() => self.event(&event),
            }
        }
    }

    fn event(&self, event: &SocketEvent) {
        if let SocketEvent::Disconnected(peer) = event {
            let mut lost = None;
            self.books.send_if_modified(|books| {
                lost = books.disconnected(peer);
                lost.is_some()
            });
            if let Some(node) = lost {
                tracing::warn!(
                    node,
                    "the connection to a node broke: its frames are dropped until it is back"
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
            Ok(said) => {
                if let Some(answer) = self.answer(peer, &said) {
                    send(&mut self.socket, peer, &answer, None).await;
                }
            }
            Err(error) => self.refuse(Some(peer), &error).await,
        }
    }

    fn answer(&self, peer: &Bytes, said: &ToSource) -> Option<ToNode> {
        let mut answer = None;
        let now = Instant::now();
        self.books.send_modify(|books| {
            let known = books.heard(peer, now);
            match said {
                ToSource::Hello(hello) => answer = Some(books.hello(peer, hello, now)),
                ToSource::Acknowledge { source, sequence } => books.acknowledge(peer, *source, *sequence),
                ToSource::Ping if known => answer = Some(ToNode::Pong),
                // Not answered: the node finds out that it is not subscribed and says hello again.
                ToSource::Ping => {}
                ToSource::Goodbye { source, sequence } => {
                    books.goodbye(peer, *source, *sequence);
                    answer = Some(ToNode::Farewell);
                }
            }
        });
        if let (ToSource::Hello(hello), Some(answer)) = (said, &answer) {
            match answer {
                ToNode::Refused { reason } => tracing::warn!(node = hello.node, reason, "a node was refused"),
                _ => tracing::info!(node = hello.node, window = hello.window, "a node subscribed"),
            }
        }
        answer
    }

    /// Whatever a stranger sends is counted and answered with the reason.
    async fn refuse(&mut self, peer: Option<&Bytes>, error: &CodecError) {
        self.books.send_modify(|books| books.refused += 1);
        tracing::warn!(%error, "a message that makes no sense was ignored");
        if let Some(peer) = peer {
            let reason = format!("{error} (echo version {ECHO_VERSION})");
            send(&mut self.socket, peer, &ToNode::Refused { reason }, None).await;
        }
    }
}
