//! The simulator's ROUTER: accepts connections, reads small messages of nodes, sends frames.
//!
//! A connection without a subscription is a guest: it has to subscribe within [`SUBSCRIBE_TIMEOUT`], and there are few of
//! them ([`Guests`]). Each connection has a task and a bounded queue of its own, so that no peer holds up another.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::ECHO_VERSION;
use super::super::codec::{CodecError, decode, encode};
use super::super::hub::{ConnectionQueue, Hub, QueuedMessage};
use super::super::messages::{ToNode, ToSource};
use super::super::subscriptions::ConnectionId;
use super::guests::Guests;
use super::inbound::{Inbound, InboundEvent};
use super::scan::MessageLimits;
use super::{GREETING, HANDSHAKE_TIMEOUT, READY_ROUTER, WRITE_TIMEOUT, head_of};

/// Messages of nodes have one frame of less than 100 bytes.
pub const NODE_LIMITS: MessageLimits = MessageLimits { frame_bytes: 512, frames: 2 };

/// Time from connection to subscription.
pub const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(4);

/// A subscriber that sends nothing for this long is disconnected; nodes ping five times a second.
pub const SILENCE: Duration = Duration::from_secs(5);

/// Guests in addition to two for each node, and guests of one address in addition to one for each node.
pub const GUESTS: usize = 32;
pub const GUESTS_PER_ADDRESS: usize = 16;

/// Pause after a failure to accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the connections of a ROUTER share.
struct Router {
    hub: Arc<Hub>,
    guests: Mutex<Guests>,
}

/// Accepts connections of `nodes` nodes, for ever; all of them end when the future is dropped.
pub(in super::super) async fn serve(listener: TcpListener, hub: Arc<Hub>, nodes: usize) {
    let guests = Mutex::new(Guests::new(GUESTS + 2 * nodes, GUESTS_PER_ADDRESS + nodes));
    let router = Arc::new(Router { hub, guests });
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let connection = router.admit(address);
                    connections.spawn(router.clone().connection(stream, address, connection));
                }
                Err(error) => {
                    telemetry::warn_limited!(%error, "the echo port cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Why a connection ends.
enum ConnectionEnd {
    /// The peer has closed it, or it broke.
    Gone,
    /// What is queued is still sent.
    AfterReplies,
    /// The peer takes no bytes.
    Stuck,
}

impl Router {
    fn guests(&self, change: impl FnOnce(&mut Guests) -> Option<ConnectionId>) -> Option<ConnectionId> {
        change(&mut self.guests.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn admit(&self, address: SocketAddr) -> ConnectionQueue {
        let connection = self.hub.connect(address.to_string());
        if let Some(leaves) = self.guests(|guests| guests.admit(connection.id, address.ip())) {
            self.hub.end(leaves);
        }
        connection
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        address: SocketAddr,
        connection: ConnectionQueue,
    ) {
        let ConnectionQueue { id, queue, end } = connection;
        let _ = stream.set_nodelay(true);
        let (input, output) = stream.into_split();
        let writing = write(output, queue);
        tokio::pin!(writing);
        let ended = tokio::select! {
            ended = self.read(input, address, id) => ended,
            ended = &mut writing => ended,
            () = end.cancelled() => ConnectionEnd::Gone,
        };
        match ended {
            ConnectionEnd::Gone => {}
            ConnectionEnd::Stuck => {
                self.hub.evict(id, &format!("it has taken no byte for {} s", WRITE_TIMEOUT.as_secs()));
            }
            ConnectionEnd::AfterReplies => {
                self.hub.close(id);
                let _ = timeout(WRITE_TIMEOUT, writing).await;
            }
        }
        self.guests(|guests| {
            guests.remove(id);
            None
        });
        self.hub.leave(id);
    }

    /// Reads messages until the connection has to end.
    async fn read(&self, mut input: OwnedReadHalf, address: SocketAddr, id: ConnectionId) -> ConnectionEnd {
        let opened = tokio::time::Instant::now();
        let mut deadline = opened + HANDSHAKE_TIMEOUT;
        let mut inbound = Inbound::new(NODE_LIMITS);
        let mut buffer = vec![0; 4096];
        loop {
            let count = match tokio::time::timeout_at(deadline, input.read(&mut buffer)).await {
                Ok(Ok(count @ 1..)) => count,
                Ok(_) | Err(_) => return ConnectionEnd::Gone,
            };
            let mut bytes = &buffer[..count];
            loop {
                match inbound.next(&mut bytes) {
                    Ok(None) => break,
                    Ok(Some(InboundEvent::Greeting)) => {}
                    Ok(Some(InboundEvent::Ready)) => deadline = opened + SUBSCRIBE_TIMEOUT,
                    Ok(Some(InboundEvent::Message(parts))) => match self.message(id, &parts) {
                        Ok(true) => deadline = tokio::time::Instant::now() + SILENCE,
                        Ok(false) => {}
                        Err(error) => {
                            self.hub.refused(&address, &error.to_string());
                            let reason = format!("{error} (echo version {ECHO_VERSION})");
                            self.hub.send(id, QueuedMessage::Reply(ToNode::Refused { reason }));
                            return ConnectionEnd::AfterReplies;
                        }
                    },
                    Err(violation) => {
                        self.hub.refused(&address, &violation.to_string());
                        return ConnectionEnd::Gone;
                    }
                }
            }
        }
    }

    /// Handles a message; returns whether the connection is subscribed.
    fn message(&self, id: ConnectionId, parts: &[Bytes]) -> Result<bool, CodecError> {
        let [body] = parts else { return Err(CodecError::Parts(parts.len())) };
        let message = decode::<ToSource>(body)?;
        let now = Instant::now();
        let (mut reply, mut replaced, mut seated, mut fits) = (None, None, false, true);
        self.hub.subscriptions.send_modify(|subscriptions| {
            let known = subscriptions.heard(id, now);
            match &message {
                ToSource::Hello(hello) => {
                    replaced = subscriptions.peer_of(hello.node).filter(|peer| *peer != id);
                    reply = Some(subscriptions.hello(id, hello, now));
                    replaced = replaced.filter(|_| subscriptions.peer_of(hello.node) == Some(id));
                }
                ToSource::Acknowledge { source, sequence } => {
                    subscriptions.acknowledge(id, *source, *sequence, now);
                }
                ToSource::Ping if known => reply = Some(ToNode::Pong),
                // Without a reply the node finds out that it is not subscribed and subscribes again.
                ToSource::Ping => {}
                ToSource::Goodbye { source, sequence } => {
                    subscriptions.goodbye(id, *source, *sequence, now);
                    reply = Some(ToNode::Farewell);
                }
            }
            seated = subscriptions.index_of(id).is_some();
            // Before a frame can be offered to this subscription: the welcome comes first.
            if let Some(reply) = reply.clone() {
                fits = self.hub.queue(id, QueuedMessage::Reply(reply));
            }
        });
        if !fits {
            self.hub.evict(id, "it does not read what it is sent");
        }
        if let ToSource::Hello(hello) = &message {
            match &reply {
                Some(ToNode::Refused { reason }) => {
                    self.hub.refused(&format!("node {}", hello.node), reason);
                }
                _ => telemetry::info_limited!(node = hello.node, window = hello.window, "a node subscribed"),
            }
        }
        if seated {
            self.guests(|guests| {
                guests.remove(id);
                None
            });
        }
        // The seat has gone to another connection.
        replaced.into_iter().for_each(|id| self.hub.end(id));
        Ok(seated)
    }
}

/// Writes the handshake and then what is queued.
async fn write(mut output: OwnedWriteHalf, mut queue: mpsc::Receiver<QueuedMessage>) -> ConnectionEnd {
    if let Err(end) = put(&mut output, Buf::chain(&GREETING[..], READY_ROUTER)).await {
        return end;
    }
    while let Some(message) = queue.recv().await {
        let (header, payload) = match message {
            QueuedMessage::Reply(reply) => (encode(&reply), None),
            QueuedMessage::Frame { sequence, frame } => {
                (encode(&ToNode::Frame { sequence }), Some(frame.encode()))
            }
        };
        let encoded = header.and_then(|header| Ok((header, payload.transpose()?)));
        let (header, payload) = match encoded {
            Ok(encoded) => encoded,
            Err(error) => {
                tracing::error!(%error, "a message to a node was not sent");
                continue;
            }
        };
        let head = head_of(&header, payload.as_ref());
        if let Err(end) = put(&mut output, Buf::chain(head, payload.unwrap_or_default())).await {
            return end;
        }
    }
    let _ = output.shutdown().await;
    ConnectionEnd::Gone
}

/// Writes all bytes; the peer has to take some of them in every [`WRITE_TIMEOUT`].
async fn put(output: &mut OwnedWriteHalf, mut bytes: impl Buf) -> Result<(), ConnectionEnd> {
    while bytes.has_remaining() {
        let wrote: io::Result<usize> =
            timeout(WRITE_TIMEOUT, output.write_buf(&mut bytes)).await.map_err(|_| ConnectionEnd::Stuck)?;
        if !matches!(wrote, Ok(1..)) {
            return Err(ConnectionEnd::Gone);
        }
    }
    Ok(())
}
