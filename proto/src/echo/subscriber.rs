//! The receiving side: queues at most a window of frames of a transport or a file and acknowledges each when the next one is
//! requested.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::codec::{CodecError, EchoFrame};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionState {
    Connecting,
    Subscribed,
    /// Refused for this reason. The node tries again, since the simulator may be restarted.
    Refused(String),
    /// A file has ended, with the fault that ended it if it was not its end; no more frames come.
    Ended {
        fault: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    pub frame: EchoFrame,
    /// Time of arrival, nanoseconds since the Unix epoch.
    pub received_ns: u64,
}

/// A frame as it came.
#[derive(Debug)]
pub(super) enum ReceivedFrame {
    /// In bincode, not decoded yet.
    Encoded(Bytes),
    Decoded(Result<EchoFrame, CodecError>),
}

/// A received frame that waits in the queue.
#[derive(Debug)]
pub(super) struct Waiting {
    pub source: u64,
    pub sequence: u64,
    pub payload: ReceivedFrame,
    pub received_ns: u64,
}

/// The last frame of a source that the node has processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ReadPosition {
    pub source: u64,
    pub consumed: u64,
}

impl ReadPosition {
    /// The last processed frame of `source`: a position in another source says nothing about it.
    pub fn consumed_of(self, source: u64) -> u64 {
        if self.source == source { self.consumed } else { 0 }
    }
}

/// The transport's end of a subscriber.
#[derive(Debug, Clone)]
pub(super) struct SubscriberLink {
    pub queue: mpsc::Sender<Waiting>,
    pub state: Arc<watch::Sender<SubscriptionState>>,
    pub position: watch::Receiver<ReadPosition>,
    /// Cancelled when no more frames are wanted.
    pub stop: CancellationToken,
}

/// Receives echo frames.
#[derive(Debug)]
pub struct EchoSubscriber {
    queue: mpsc::Receiver<Waiting>,
    position: watch::Sender<ReadPosition>,
    /// The frame returned last, which is not acknowledged yet.
    current: Option<ReadPosition>,
    state: watch::Receiver<SubscriptionState>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl EchoSubscriber {
    /// A subscriber whose frames come from the task `transport`, which ends soon after it is told to stop.
    pub(super) fn new<T>(window: u32, transport: impl FnOnce(SubscriberLink) -> T) -> Self
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let (sender, queue) = mpsc::channel(window.max(1) as usize);
        let (state_sender, state) = watch::channel(SubscriptionState::Connecting);
        let (position, positions) = watch::channel(ReadPosition::default());
        let stop = CancellationToken::new();
        let intake = SubscriberLink {
            queue: sender,
            state: state_sender.into(),
            position: positions,
            stop: stop.clone(),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(transport(intake)));
        Self { queue, position, current: None, state, stop, task }
    }

    pub fn state(&self) -> watch::Receiver<SubscriptionState> {
        self.state.clone()
    }

    /// Acknowledges the previous frame and returns the next one, or an error if it cannot be decoded. `None` is
    /// returned only at the end of a file. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<Delivery, CodecError>> {
        self.acknowledge();
        let waiting = self.queue.recv().await?;
        self.current = Some(ReadPosition { source: waiting.source, consumed: waiting.sequence });
        let received_ns = waiting.received_ns;
        let frame = match waiting.payload {
            ReceivedFrame::Encoded(bytes) => EchoFrame::decode(&bytes),
            ReceivedFrame::Decoded(frame) => frame,
        };
        Some(frame.map(|frame| Delivery { frame, received_ns }))
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
