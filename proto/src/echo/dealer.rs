//! The node's side of ZeroMQ: a DEALER behind a guard, both rebuilt whenever the simulator stops replying.

use std::time::Duration;

use telemetry::Failures;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_stream::StreamExt;
use zeromq::{DealerSocket, Socket, SocketEvent, SocketOptions, SocketRecv, SocketSend, ZmqMessage};

use super::codec::{EchoFrame, decode, encode};
use super::messages::{Hello, Resume, ToNode, ToSource};
use super::subscriber::{
    EchoSubscriber, ReadPosition, ReceivedFrame, SubscriberLink, SubscriptionState, Waiting,
};
use super::zmtp::guard::Guard;
use super::zmtp::scan::MessageLimits;
use crate::backoff::Backoff;
use crate::clock::unix_time_ns;
use crate::secret::run_identity;

/// Longest message of the simulator other than a frame: a refusal with its reason.
const REPLY_BYTES: u64 = 4096;

/// What a node subscribes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// host:port of the simulator.
    pub address: String,
    pub node: u32,
    pub site_sha256: [u8; 32],
    /// Largest number of frames that wait at the node.
    pub window: u32,
    pub sensors: usize,
    pub subcarriers: usize,
    pub timings: Timings,
}

impl Subscription {
    /// What the simulator may send: a header, and a frame of the site.
    fn limits(&self) -> MessageLimits {
        let frame = EchoFrame::bytes(self.sensors, self.subcarriers) as u64;
        MessageLimits { frame_bytes: frame.max(REPLY_BYTES), frames: 2 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Interval between pings.
    pub ping: Duration,
    /// A connection without a message for this long is rebuilt.
    pub silence: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self { ping: Duration::from_millis(200), silence: Duration::from_secs(1) }
    }
}

impl EchoSubscriber {
    /// Connects to a simulator over ZeroMQ, subscribes and stays subscribed.
    pub fn start(subscription: Subscription) -> Self {
        Self::new(subscription.window, |intake| {
            let reader = FrameReader {
                subscription,
                instance: run_identity(),
                intake,
                source: 0,
                received: 0,
                failures: Failures::default(),
            };
            reader.run()
        })
    }
}

/// Why a session ended.
enum SessionEnd {
    /// The subscriber was closed.
    Stopped,
    /// The connection broke for this reason.
    Lost(String),
    /// The simulator refused this node for this reason.
    Refused(String),
}

/// The task that owns the socket.
struct FrameReader {
    subscription: Subscription,
    instance: u64,
    intake: SubscriberLink,
    /// The source of the last welcome, and the sequence number of the last frame received from it.
    source: u64,
    received: u64,
    failures: Failures,
}

impl FrameReader {
    async fn run(mut self) {
        let (mut backoff, stop) = (Backoff::new(), self.intake.stop.clone());
        while !stop.is_cancelled() {
            let ended = tokio::select! {
                connected = self.connect() => match connected {
                    Ok(link) => {
                        backoff.reset();
                        self.session(link).await
                    }
                    Err(ended) => ended,
                },
                () = stop.cancelled() => return,
            };
            match ended {
                SessionEnd::Stopped => return,
                SessionEnd::Lost(reason) => self.note(SubscriptionState::Connecting, &reason),
                SessionEnd::Refused(reason) => self.note(SubscriptionState::Refused(reason.clone()), &reason),
            }
            tokio::select! {
                () = backoff.wait() => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Publishes the new state and logs the reason: at once, then at growing intervals.
    fn note(&mut self, state: SubscriptionState, reason: &str) {
        let event = match &state {
            SubscriptionState::Refused(_) => "the simulator refused this node: asking again",
            _ => "no connection to the simulator: trying again",
        };
        self.intake.state.send_replace(state);
        let address = &self.subscription.address;
        let Some(notice) = self.failures.failed(Instant::now().into_std(), reason) else {
            return tracing::debug!(address, reason, "still not subscribed to the simulator");
        };
        let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
        tracing::warn!(address, reason, attempts, failing_for_s, "{event}");
    }

    /// Opens a socket and subscribes.
    async fn connect(&mut self) -> Result<Link, SessionEnd> {
        let patience = self.subscription.timings.silence;
        let guard = Guard::connect(&self.subscription.address, self.subscription.limits(), patience).await;
        let guard = guard.map_err(|error| SessionEnd::Lost(error.to_string()))?;
        let lost = |error: &dyn std::fmt::Display| {
            SessionEnd::Lost(guard.reason().map_or_else(|| error.to_string(), str::to_owned))
        };
        let mut options = SocketOptions::default();
        options.connect_timeout(patience);
        let mut socket = DealerSocket::with_options(options);
        let events: Events = Box::new(socket.monitor());
        let address = self.subscription.address.clone();
        socket.connect(&format!("tcp://{}", guard.address)).await.map_err(|error| lost(&error))?;
        let consumed = self.intake.position.borrow().consumed_of(self.source);
        let hello = Hello {
            node: self.subscription.node,
            instance: self.instance,
            site_sha256: self.subscription.site_sha256,
            window: self.subscription.window,
            resume: Some(Resume { source: self.source, received: self.received, consumed }),
        };
        send(&mut socket, &ToSource::Hello(hello)).await?;
        let reply = timeout(patience, socket.recv())
            .await
            .map_err(|_| lost(&"no reply to the subscription"))?
            .map_err(|error| lost(&error))?;
        match reply.get(0).map(|header| decode(header)) {
            Some(Ok(ToNode::Welcome { source, next_sequence })) => {
                (self.source, self.received) = (source, next_sequence.saturating_sub(1));
                self.intake.state.send_replace(SubscriptionState::Subscribed);
                self.failures.succeeded(Instant::now().into_std());
                tracing::info!(address, node = self.subscription.node, "subscribed to the simulator");
                Ok(Link { socket, events, guard })
            }
            Some(Ok(ToNode::Refused { reason })) => Err(SessionEnd::Refused(reason)),
            Some(Ok(_)) => Err(lost(&"another message instead of a welcome")),
            Some(Err(error)) => Err(SessionEnd::Refused(error.to_string())),
            None => Err(lost(&"an empty message instead of a welcome")),
        }
    }

    async fn session(&mut self, link: Link) -> SessionEnd {
        let Link { mut socket, mut events, guard } = link;
        let timings = self.subscription.timings;
        let queue = self.intake.queue.clone();
        let mut ping = tokio::time::interval(timings.ping);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The socket is read only while the queue has room for a frame: TCP holds back the rest.
        let mut room = None;
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                permit = queue.reserve(), if room.is_none() => match permit {
                    Ok(permit) => {
                        room = Some(permit);
                        heard = Instant::now();
                    }
                    Err(_) => return SessionEnd::Stopped,
                },
                message = socket.recv(), if room.is_some() => {
                    heard = Instant::now();
                    match message.map(|message| self.heard(message)) {
                        Ok(Ok(Some(waiting))) => if let Some(permit) = room.take() { permit.send(waiting) },
                        Ok(Ok(None)) => {}
                        Ok(Err(ended)) => return ended,
                        Err(error) => return SessionEnd::Lost(error.to_string()),
                    }
                }
                Some(event) = events.next() => if matches!(event, SocketEvent::Disconnected(_)) {
                    let reason = guard.reason().unwrap_or("the connection was closed");
                    return SessionEnd::Lost(reason.into());
                },
                _ = ping.tick() => {
                    if room.is_some() && heard.elapsed() > timings.silence {
                        return SessionEnd::Lost(format!("no message for {} s", timings.silence.as_secs_f64()));
                    }
                    if let Err(ended) = send(&mut socket, &ToSource::Ping).await { return ended }
                }
                Ok(()) = self.intake.position.changed() => {
                    let ReadPosition { source, consumed } = *self.intake.position.borrow_and_update();
                    let acknowledge = ToSource::Acknowledge { source, sequence: consumed };
                    if let Err(ended) = send(&mut socket, &acknowledge).await { return ended }
                }
                () = self.intake.stop.cancelled() => {
                    self.goodbye(&mut socket).await;
                    return SessionEnd::Stopped;
                }
            }
        }
    }

    /// Handles a message of a running subscription; returns the frame if it contains one.
    fn heard(&mut self, message: ZmqMessage) -> Result<Option<Waiting>, SessionEnd> {
        let received_ns = unix_time_ns();
        let mut parts = message.into_vec().into_iter();
        let header = parts.next().unwrap_or_default();
        match decode(&header).map_err(|error| SessionEnd::Lost(error.to_string()))? {
            ToNode::Frame { sequence } => {
                if Some(sequence) != self.received.checked_add(1) {
                    let reason = format!("frame {sequence} came after frame {}", self.received);
                    return Err(SessionEnd::Lost(reason));
                }
                self.received = sequence;
                let payload = parts.next().unwrap_or_default();
                let payload = ReceivedFrame::Encoded(payload);
                Ok(Some(Waiting { source: self.source, sequence, payload, received_ns }))
            }
            ToNode::Refused { reason } => Err(SessionEnd::Refused(reason)),
            ToNode::Pong | ToNode::Farewell | ToNode::Welcome { .. } => Ok(None),
        }
    }

    /// Unsubscribes with the last position, and waits for the reply.
    async fn goodbye(&mut self, socket: &mut DealerSocket) {
        let ReadPosition { source, consumed } = *self.intake.position.borrow_and_update();
        let farewell = async {
            send(socket, &ToSource::Goodbye { source, sequence: consumed }).await.ok()?;
            loop {
                let message = socket.recv().await.ok()?;
                if matches!(message.get(0).map(|header| decode(header)), Some(Ok(ToNode::Farewell))) {
                    return Some(());
                }
            }
        };
        if timeout(self.subscription.timings.silence, farewell).await.ok().flatten().is_none() {
            tracing::warn!("the simulator did not confirm that this node unsubscribed");
        }
    }
}

/// A connection through its guard.
struct Link {
    socket: DealerSocket,
    events: Events,
    guard: Guard,
}

type Events = Box<dyn tokio_stream::Stream<Item = SocketEvent> + Unpin + Send>;

async fn send(socket: &mut DealerSocket, message: &ToSource) -> Result<(), SessionEnd> {
    let bytes = encode(message).map_err(|error| SessionEnd::Lost(error.to_string()))?;
    socket.send(ZmqMessage::from(bytes)).await.map_err(|error| SessionEnd::Lost(error.to_string()))
}
