//! The node's side: a DEALER that is rebuilt whenever the simulator stops replying.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use telemetry::Failures;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use zeromq::{DealerSocket, Socket, SocketEvent, SocketOptions, SocketRecv, SocketSend, ZmqMessage};

use super::codec::{CodecError, EchoFrame, decode, encode};
use super::messages::{Hello, Resume, ToNode, ToSource};
use crate::backoff::{Backoff, random_u64};
use crate::clock::unix_time_ns;

/// What a node subscribes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// host:port of the simulator.
    pub address: String,
    pub node: u32,
    pub site_sha256: [u8; 32],
    /// Largest number of frames that wait at the node.
    pub window: u32,
    pub timings: Timings,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionState {
    Connecting,
    Subscribed,
    /// Refused for this reason. The node tries again, since the simulator may be restarted.
    Refused(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    pub frame: EchoFrame,
    /// Time of arrival, nanoseconds since the Unix epoch.
    pub received_ns: u64,
}

/// A received frame that waits in the queue, not decoded yet.
struct Waiting {
    source: u64,
    sequence: u64,
    payload: Bytes,
    received_ns: u64,
}

/// The last frame of a source that the node has processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ReadPosition {
    source: u64,
    consumed: u64,
}

/// Receives echo frames: queues at most a window of them and acknowledges each when the next one is requested.
pub struct EchoSubscriber {
    queue: mpsc::Receiver<Waiting>,
    position: Arc<watch::Sender<ReadPosition>>,
    /// The frame returned last, which is not acknowledged yet.
    current: Option<ReadPosition>,
    state: watch::Receiver<SubscriptionState>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl EchoSubscriber {
    /// Connects, subscribes and stays subscribed.
    pub fn start(subscription: Subscription) -> Self {
        let (sender, queue) = mpsc::channel(subscription.window.max(1) as usize);
        let (state_sender, state) = watch::channel(SubscriptionState::Connecting);
        let position = Arc::new(watch::Sender::new(ReadPosition::default()));
        let stop = CancellationToken::new();
        let reader = Reader {
            subscription,
            instance: random_u64(),
            queue: sender,
            state: state_sender,
            position: position.subscribe(),
            source: 0,
            received: 0,
            failures: Failures::default(),
            stop: stop.clone(),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(reader.run()));
        Self { queue, position, current: None, state, stop, task }
    }

    pub fn state(&self) -> watch::Receiver<SubscriptionState> {
        self.state.clone()
    }

    /// Acknowledges the previous frame and returns the next one, or an error if it cannot be decoded. `None` is
    /// returned only after [`EchoSubscriber::close`]. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Delivery, CodecError>> {
        self.acknowledge();
        let waiting = self.queue.recv().await?;
        self.current = Some(ReadPosition { source: waiting.source, consumed: waiting.sequence });
        let received_ns = waiting.received_ns;
        Some(EchoFrame::decode(&waiting.payload).map(|frame| Delivery { frame, received_ns }))
    }

    /// Number of frames in the queue.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn acknowledge(&mut self) {
        if let Some(done) = self.current.take() {
            self.position.send_replace(done);
        }
    }

    /// Acknowledges the last frame and unsubscribes, in bounded time.
    pub async fn close(mut self) {
        self.acknowledge();
        self.stop.cancel();
        let _ = timeout(Duration::from_secs(1), self.task).await;
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
struct Reader {
    subscription: Subscription,
    instance: u64,
    queue: mpsc::Sender<Waiting>,
    state: watch::Sender<SubscriptionState>,
    position: watch::Receiver<ReadPosition>,
    /// The source of the last welcome, and the sequence number of the last frame received from it.
    source: u64,
    received: u64,
    failures: Failures,
    stop: CancellationToken,
}

impl Reader {
    async fn run(mut self) {
        let (mut backoff, stop) = (Backoff::new(), self.stop.clone());
        while !stop.is_cancelled() {
            let ended = tokio::select! {
                connected = self.connect() => match connected {
                    Ok((socket, events)) => {
                        backoff.reset();
                        self.session(socket, events).await
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
        self.state.send_replace(state);
        let address = &self.subscription.address;
        let Some(notice) = self.failures.failed(Instant::now().into_std(), reason) else {
            return tracing::debug!(address, reason, "still not subscribed to the simulator");
        };
        let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
        tracing::warn!(address, reason, attempts, failing_for_s, "{event}");
    }

    /// Opens a socket and subscribes.
    async fn connect(&mut self) -> Result<(DealerSocket, Events), SessionEnd> {
        let lost = |error: &dyn std::fmt::Display| SessionEnd::Lost(error.to_string());
        let mut options = SocketOptions::default();
        options.connect_timeout(self.subscription.timings.silence);
        let mut socket = DealerSocket::with_options(options);
        let events: Events = Box::new(socket.monitor());
        let address = format!("tcp://{}", self.subscription.address);
        socket.connect(&address).await.map_err(|error| lost(&error))?;
        let position = *self.position.borrow();
        // A position in another source says nothing about this one.
        let consumed = if position.source == self.source { position.consumed } else { 0 };
        let hello = Hello {
            node: self.subscription.node,
            instance: self.instance,
            site_sha256: self.subscription.site_sha256,
            window: self.subscription.window,
            resume: Some(Resume { source: self.source, received: self.received, consumed }),
        };
        send(&mut socket, &ToSource::Hello(hello)).await?;
        let reply = timeout(self.subscription.timings.silence, socket.recv())
            .await
            .map_err(|_| lost(&"no reply to the subscription"))?
            .map_err(|error| lost(&error))?;
        match reply.get(0).map(|header| decode(header)) {
            Some(Ok(ToNode::Welcome { source, next_sequence })) => {
                (self.source, self.received) = (source, next_sequence.saturating_sub(1));
                self.state.send_replace(SubscriptionState::Subscribed);
                self.failures.succeeded(Instant::now().into_std());
                tracing::info!(address, node = self.subscription.node, "subscribed to the simulator");
                Ok((socket, events))
            }
            Some(Ok(ToNode::Refused { reason })) => Err(SessionEnd::Refused(reason)),
            Some(Ok(_)) => Err(lost(&"another message instead of a welcome")),
            Some(Err(error)) => Err(SessionEnd::Refused(error.to_string())),
            None => Err(lost(&"an empty message instead of a welcome")),
        }
    }

    async fn session(&mut self, mut socket: DealerSocket, mut events: Events) -> SessionEnd {
        let timings = self.subscription.timings;
        let queue = self.queue.clone();
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
                    return SessionEnd::Lost("the connection was closed".into());
                },
                _ = ping.tick() => {
                    if room.is_some() && heard.elapsed() > timings.silence {
                        return SessionEnd::Lost(format!("no message for {:?}", timings.silence));
                    }
                    if let Err(ended) = send(&mut socket, &ToSource::Ping).await { return ended }
                }
                Ok(()) = self.position.changed() => {
                    let ReadPosition { source, consumed } = *self.position.borrow_and_update();
                    let acknowledge = ToSource::Acknowledge { source, sequence: consumed };
                    if let Err(ended) = send(&mut socket, &acknowledge).await { return ended }
                }
                () = self.stop.cancelled() => {
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
                if sequence != self.received + 1 {
                    let reason = format!("frame {sequence} came after frame {}", self.received);
                    return Err(SessionEnd::Lost(reason));
                }
                self.received = sequence;
                let payload = parts.next().unwrap_or_default();
                Ok(Some(Waiting { source: self.source, sequence, payload, received_ns }))
            }
            ToNode::Refused { reason } => Err(SessionEnd::Refused(reason)),
            ToNode::Pong | ToNode::Farewell | ToNode::Welcome { .. } => Ok(None),
        }
    }

    /// Unsubscribes with the last position, and waits for the reply.
    async fn goodbye(&mut self, socket: &mut DealerSocket) {
        let ReadPosition { source, consumed } = *self.position.borrow_and_update();
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

type Events = Box<dyn tokio_stream::Stream<Item = SocketEvent> + Unpin + Send>;

async fn send(socket: &mut DealerSocket, message: &ToSource) -> Result<(), SessionEnd> {
    let bytes = encode(message).map_err(|error| SessionEnd::Lost(error.to_string()))?;
    socket.send(ZmqMessage::from(bytes)).await.map_err(|error| SessionEnd::Lost(error.to_string()))
}
