//! The way back to a node: acknowledgements within its credit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proto::convert::FrameId;
use proto::v1;
use tokio::sync::mpsc;
use tonic::Status;

use crate::ledger::Fates;

/// The acknowledgement stream of one connection.
#[derive(Debug, Clone)]
pub struct Line {
    sender: mpsc::Sender<Result<v1::Acknowledgement, Status>>,
    outstanding: Arc<AtomicUsize>,
    credit: usize,
}

impl Line {
    /// A line that allows twice the credit before it is cut.
    pub fn new(credit: usize) -> (Self, mpsc::Receiver<Result<v1::Acknowledgement, Status>>) {
        let (sender, receiver) = mpsc::channel(2 * credit + 2);
        (Self { sender, outstanding: Arc::default(), credit }, receiver)
    }

    /// The reply to one report; none when the node has gone far past its credit.
    pub fn reply(&self, frame: FrameId) -> Option<Reply> {
        let outstanding = self.outstanding.fetch_add(1, Ordering::Relaxed) + 1;
        (outstanding <= 2 * self.credit).then(|| Reply { line: self.clone(), frame, reason: None })
    }

    /// Ends the stream with an error.
    pub fn fail(&self, status: Status) {
        // A full line is cut by being dropped.
        let _ = self.sender.try_send(Err(status));
    }
}

/// Where the acknowledgement of one report goes.
#[derive(Debug)]
pub struct Reply {
    line: Line,
    frame: FrameId,
    reason: Option<String>,
}

impl Reply {
    /// Remembers why blocks of the report were refused.
    pub fn because(mut self, reason: Option<String>) -> Self {
        self.reason = reason;
        self
    }

    /// Says what became of the report's blocks.
    pub fn send(self, fates: Fates, reason: &str) {
        let Self { line, frame, reason: refusal } = self;
        line.outstanding.fetch_sub(1, Ordering::Relaxed);
        let acknowledgement = v1::Acknowledgement {
            run: frame.run,
            frame: frame.frame,
            fused: fates.fused as u32,
            late: fates.late as u32,
            duplicate: fates.duplicate as u32,
            dropped: fates.dropped as u32,
            reason: refusal.unwrap_or_else(|| reason.to_owned()),
            credit: line.credit as u32,
        };
        // The node may be gone; it asks again when it comes back.
        let _ = line.sender.try_send(Ok(acknowledgement));
    }
}
