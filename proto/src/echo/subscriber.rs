//! The node's side: a DEALER that is rebuilt whenever the simulator falls silent.

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
    /// Host and port of the simulator.
    pub address: String,
    /// Index of the node.
    pub node: u32,
    /// Hash of the site that the node works with.
    pub site_sha256: [u8; 32],
    /// Frames held here at most.
    pub window: u32,
    /// Watchdog.
    pub timings: Timings,
}

/// When to ask for a sign of life, and when to give up on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Interval of questions.
    pub ping: Duration,
    /// A connection without a sign of life for this long is rebuilt.
    pub silence: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self { ping: Duration::from_millis(200), silence: Duration::from_secs(1) }
    }
}

/// How the subscription stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Not subscribed; trying.
    Connecting,
    /// Subscribed.
    Subscribed,
    /// Refused for this reason; trying again all the same, since the simulator may be restarted.
    Refused(String),
}

/// A frame as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The frame.
    pub frame: EchoFrame,
    /// When it arrived, nanoseconds since the Unix epoch.
    pub received_ns: u64,
}

/// A frame in the queue.
struct Waiting {
    source: u64,
    sequence: u64,
    payload: Bytes,
    received_ns: u64,
}

/// How far the node got with a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Progress {
    source: u64,
    consumed: u64,
}

/// Receives echo frames: holds at most a window of them and acknowledges each once the next is asked for.
pub struct EchoSubscriber {
    queue: mpsc::Receiver<Waiting>,
    progress: Arc<watch::Sender<Progress>>,
    current: Option<Progress>,
    link: watch::Receiver<Link>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl EchoSubscriber {
    /// Connects, subscribes and stays subscribed.
    pub fn start(subscription: Subscription) -> Self {
        let (sender, queue) = mpsc::channel(subscription.window.max(1) as usize);
        let (link_sender, link) = watch::channel(Link::Connecting);
        let progress = Arc::new(watch::Sender::new(Progress::default()));
        let stop = CancellationToken::new();
        let reader = Reader {
            subscription,
            instance: random_u64(),
            queue: sender,
            link: link_sender,
            progress: progress.subscribe(),
            source: 0,
            received: 0,
            failures: Failures::default(),
            stop: stop.clone(),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(reader.run()));
        Self { queue, progress, current: None, link, stop, task }
    }

    /// How the subscription stands, to be watched.
    pub fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }

    /// The next frame; the one before it is acknowledged by asking. Frames that cannot be read come as
    /// errors; none comes after [`EchoSubscriber::close`] only. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Delivery, CodecError>> {
        self.acknowledge();
        let waiting = self.queue.recv().await?;
        self.current = Some(Progress { source: waiting.source, consumed: waiting.sequence });
        let received_ns = waiting.received_ns;
        Some(EchoFrame::decode(&waiting.payload).map(|frame| Delivery { frame, received_ns }))
    }

    /// Frames that have arrived and wait to be taken.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn acknowledge(&mut self) {
        if let Some(done) = self.current.take() {
            self.progress.send_replace(done);
        }
    }

    /// Leaves: acknowledges the last frame and tells the simulator, in bounded time.
    pub async fn close(mut self) {
        self.acknowledge();
        self.stop.cancel();
        let _ = timeout(Duration::from_secs(1), self.task).await;
    }
}

/// Why a session ended.
enum Ended {
    /// The subscriber was closed.
    Stopped,
    /// The connection is of no use any more.
    Lost(String),
    /// The simulator does not want this node.
    Refused(String),
}

/// The task that owns the socket.
struct Reader {
    subscription: Subscription,
    instance: u64,
    queue: mpsc::Sender<Waiting>,
    link: watch::Sender<Link>,
    progress: watch::Receiver<Progress>,
    /// The source of the last welcome, and how much of it has arrived.
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
                Ended::Stopped => return,
                Ended::Lost(reason) => self.note(Link::Connecting, &reason),
                Ended::Refused(reason) => self.note(Link::Refused(reason.clone()), &reason),
            }
            tokio::select! {
                () = backoff.wait() => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Passes on how the subscription stands, and reports it: at once, then at growing pauses.
    fn note(&mut self, link: Link, reason: &str) {
        let refused = matches!(link, Link::Refused(_));
        self.link.send_replace(link);
        let address = &self.subscription.address;
        let Some(notice) = self.failures.failed(Instant::now().into_std(), reason) else {
            return tracing::debug!(address, reason, "still no echoes");
        };
        let (attempts, failing_for_s) = (notice.attempts, notice.failing_for_s());
        if refused {
            tracing::warn!(
                address,
                reason,
                attempts,
                failing_for_s,
                "the simulator refused this node: asking again"
            );
        } else {
            tracing::warn!(
                address,
                reason,
                attempts,
                failing_for_s,
                "no connection to the simulator: trying again"
            );
        }
    }

    /// A subscribed socket.
    async fn connect(&mut self) -> Result<(DealerSocket, Events), Ended> {
        let lost = |error: &dyn std::fmt::Display| Ended::Lost(error.to_string());
        let mut options = SocketOptions::default();
        options.connect_timeout(self.subscription.timings.silence);
        let mut socket = DealerSocket::with_options(options);
        let events: Events = Box::new(socket.monitor());
        let address = format!("tcp://{}", self.subscription.address);
        socket.connect(&address).await.map_err(|error| lost(&error))?;
        let progress = *self.progress.borrow();
        // Nothing is consumed yet of a source that progress does not name.
        let consumed = if progress.source == self.source { progress.consumed } else { 0 };
        let hello = Hello {
            node: self.subscription.node,
            instance: self.instance,
            site_sha256: self.subscription.site_sha256,
            window: self.subscription.window,
            resume: Some(Resume { source: self.source, received: self.received, consumed }),
        };
        say(&mut socket, &ToSource::Hello(hello)).await.map_err(|error| lost(&error))?;
        let answer = timeout(self.subscription.timings.silence, socket.recv())
            .await
            .map_err(|_| lost(&"no answer to the subscription"))?
            .map_err(|error| lost(&error))?;
        match answer.get(0).map(|header| decode(header)) {
            Some(Ok(ToNode::Welcome { source, next_sequence })) => {
                (self.source, self.received) = (source, next_sequence.saturating_sub(1));
                self.link.send_replace(Link::Subscribed);
                self.failures.succeeded(Instant::now().into_std());
                tracing::info!(address, node = self.subscription.node, "subscribed to the simulator");
                Ok((socket, events))
            }
            Some(Ok(ToNode::Refused { reason })) => Err(Ended::Refused(reason)),
            Some(Ok(other)) => Err(Ended::Lost(format!("{other:?} instead of a welcome"))),
            Some(Err(error)) => Err(Ended::Refused(error.to_string())),
            None => Err(lost(&"an empty message instead of a welcome")),
        }
    }

    async fn session(&mut self, mut socket: DealerSocket, mut events: Events) -> Ended {
        let timings = self.subscription.timings;
        let queue = self.queue.clone();
        let mut ping = tokio::time::interval(timings.ping);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The socket is read only while there is room for a frame: TCP holds back the rest.
        let mut room = None;
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                permit = queue.reserve(), if room.is_none() => match permit {
                    Ok(permit) => {
                        room = Some(permit);
                        heard = Instant::now();
                    }
                    Err(_) => return Ended::Stopped,
                },
                message = socket.recv(), if room.is_some() => {
                    heard = Instant::now();
                    match message.map(|message| self.heard(message)) {
                        Ok(Ok(Some(waiting))) => if let Some(permit) = room.take() { permit.send(waiting) },
                        Ok(Ok(None)) => {}
                        Ok(Err(ended)) => return ended,
                        Err(error) => return Ended::Lost(error.to_string()),
                    }
                }
                Some(event) = events.next() => if matches!(event, SocketEvent::Disconnected(_)) {
                    return Ended::Lost("the connection was closed".into());
                },
                _ = ping.tick() => {
                    if room.is_some() && heard.elapsed() > timings.silence {
                        return Ended::Lost(format!("no sign of life for {:?}", timings.silence));
                    }
                    if let Err(ended) = tell(&mut socket, &ToSource::Ping).await { return ended }
                }
                Ok(()) = self.progress.changed() => {
                    let Progress { source, consumed } = *self.progress.borrow_and_update();
                    let acknowledge = ToSource::Acknowledge { source, sequence: consumed };
                    if let Err(ended) = tell(&mut socket, &acknowledge).await { return ended }
                }
                () = self.stop.cancelled() => {
                    self.goodbye(&mut socket).await;
                    return Ended::Stopped;
                }
            }
        }
    }

    /// A message of a running subscription; a frame, if it is one.
    fn heard(&mut self, message: ZmqMessage) -> Result<Option<Waiting>, Ended> {
        let received_ns = unix_time_ns();
        let mut parts = message.into_vec().into_iter();
        let header = parts.next().unwrap_or_default();
        match decode(&header).map_err(|error| Ended::Lost(error.to_string()))? {
            ToNode::Frame { sequence } => {
                if sequence != self.received + 1 {
                    let reason = format!("frame {sequence} came after frame {}", self.received);
                    return Err(Ended::Lost(reason));
                }
                self.received = sequence;
                let payload = parts.next().unwrap_or_default();
                Ok(Some(Waiting { source: self.source, sequence, payload, received_ns }))
            }
            ToNode::Refused { reason } => Err(Ended::Refused(reason)),
            ToNode::Pong | ToNode::Farewell | ToNode::Welcome { .. } => Ok(None),
        }
    }

    /// Tells the simulator how far the node got, and waits until it has heard.
    async fn goodbye(&mut self, socket: &mut DealerSocket) {
        let Progress { source, consumed } = *self.progress.borrow_and_update();
        let farewell = async {
            say(socket, &ToSource::Goodbye { source, sequence: consumed }).await.ok()?;
            loop {
                let message = socket.recv().await.ok()?;
                if matches!(message.get(0).map(|header| decode(header)), Some(Ok(ToNode::Farewell))) {
                    return Some(());
                }
            }
        };
        if timeout(self.subscription.timings.silence, farewell).await.ok().flatten().is_none() {
            tracing::warn!("the simulator did not hear that this node leaves");
        }
    }
}

type Events = Box<dyn tokio_stream::Stream<Item = SocketEvent> + Unpin + Send>;

async fn say(socket: &mut DealerSocket, message: &ToSource) -> Result<(), String> {
    let bytes = encode(message).map_err(|error| error.to_string())?;
    socket.send(ZmqMessage::from(bytes)).await.map_err(|error| error.to_string())
}

async fn tell(socket: &mut DealerSocket, message: &ToSource) -> Result<(), Ended> {
    say(socket, message).await.map_err(Ended::Lost)
}
