//! Acknowledgements to a node, within its credit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

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
    stride: SharedStride,
}

/// The stride that nodes are asked for, shared by the engine and all streams.
#[derive(Debug, Clone, Default)]
pub struct SharedStride(Arc<AtomicU32>);

impl SharedStride {
    pub fn set(&self, stride: u32) {
        self.0.store(stride, Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl AcknowledgementSender {
    /// A stream on which twice the credit may be outstanding before the connection is ended.
    pub fn new(
        credit: usize,
        stride: SharedStride,
    ) -> (Self, mpsc::Receiver<Result<v1::Acknowledgement, Status>>) {
        let (sender, receiver) = mpsc::channel(2 * credit + 2);
        (Self { sender, outstanding: Arc::default(), credit, stride }, receiver)
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
            stride: stream.stride.get(),
        };
        // A node that has disconnected sends the report again.
        let _ = stream.sender.try_send(Ok(acknowledgement));
    }
}
