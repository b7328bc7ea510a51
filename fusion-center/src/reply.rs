//! Acknowledgements to a node, within its credit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use proto::convert::FrameId;
use proto::v1;
use tokio::sync::mpsc;
use tonic::Status;

use crate::ledger::Fates;

/// The sending end of a connection's stream of acknowledgements.
#[derive(Debug, Clone)]
pub struct AcknowledgementSender {
    sender: mpsc::Sender<Result<v1::Acknowledgement, Status>>,
    outstanding: Arc<AtomicUsize>,
    credit: usize,
    node: usize,
    requests: SharedRequests,
}

/// What nodes are asked for and told with every acknowledgement, shared by the engine and all streams.
#[derive(Debug, Clone)]
pub struct SharedRequests(Arc<Requests>);

#[derive(Debug)]
struct Requests {
    stride: AtomicU32,
    /// Clock offset of every node in seconds, as bits; not a number where it is not known.
    clocks: Vec<AtomicU64>,
}

impl SharedRequests {
    /// Nothing is asked of so many nodes.
    pub fn new(nodes: usize) -> Self {
        let clocks = (0..nodes).map(|_| AtomicU64::new(f64::NAN.to_bits())).collect();
        Self(Arc::new(Requests { stride: AtomicU32::default(), clocks }))
    }

    pub fn set_stride(&self, stride: u32) {
        self.0.stride.store(stride, Ordering::Relaxed);
    }

    pub fn set_clock(&self, node: usize, offset_s: Option<f64>) {
        if let Some(clock) = self.0.clocks.get(node) {
            clock.store(offset_s.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
        }
    }

    fn stride(&self) -> u32 {
        self.0.stride.load(Ordering::Relaxed)
    }

    fn clock_offset_s(&self, node: usize) -> Option<f64> {
        let clock = self.0.clocks.get(node)?;
        Some(f64::from_bits(clock.load(Ordering::Relaxed))).filter(|offset_s| offset_s.is_finite())
    }
}

impl AcknowledgementSender {
    /// The stream of a node, on which twice the credit may be outstanding before the connection is ended.
    pub fn new(
        credit: usize,
        node: usize,
        requests: SharedRequests,
    ) -> (Self, mpsc::Receiver<Result<v1::Acknowledgement, Status>>) {
        let (sender, receiver) = mpsc::channel(2 * credit + 2);
        (Self { sender, outstanding: Arc::default(), credit, node, requests }, receiver)
    }

    /// The acknowledgement of one report, to be sent later; none if the node has exceeded its credit by far.
    pub fn expect(&self, frame: FrameId) -> Option<PendingAcknowledgement> {
        let outstanding = self.outstanding.fetch_add(1, Ordering::Relaxed) + 1;
        let stream = self.clone();
        (outstanding <= 2 * self.credit).then(|| PendingAcknowledgement {
            stream,
            frame,
            refusal: None,
            sequence: None,
        })
    }

    /// Ends the stream with an error.
    pub fn fail(&self, status: Status) {
        // If the queue is full, the stream ends without the error when the sender is dropped.
        let _ = self.sender.try_send(Err(status));
    }
}

/// The acknowledgement of a report whose paths are not decided yet.
#[derive(Debug)]
pub struct PendingAcknowledgement {
    stream: AcknowledgementSender,
    frame: FrameId,
    /// Why paths of the report were refused.
    pub refusal: Option<String>,
    /// Sequence number of the report in the recording.
    pub sequence: Option<u32>,
}

impl PendingAcknowledgement {
    /// Acknowledges the report with the fates of its paths; a refusal has precedence over `reason`.
    pub fn send(self, fates: Fates, reason: &str) {
        let Self { stream, frame, refusal, .. } = self;
        stream.outstanding.fetch_sub(1, Ordering::Relaxed);
        let acknowledgement = v1::Acknowledgement {
            run: frame.run,
            frame: frame.frame,
            fused: fates.fused as u32,
            late: fates.late as u32,
            duplicate: fates.duplicate as u32,
            dropped: fates.dropped as u32,
            reason: refusal.unwrap_or_else(|| reason.to_owned()),
            credit: stream.credit as u32,
            stride: stream.requests.stride(),
            clock_offset_s: stream.requests.clock_offset_s(stream.node),
        };
        // A node that has disconnected sends the report again.
        let _ = stream.sender.try_send(Ok(acknowledgement));
    }
}
