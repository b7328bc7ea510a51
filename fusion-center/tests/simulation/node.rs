//! A node of the simulation: the outbox of the real one, and a reporter that registers, streams and reconnects.

use estimation::fusion::{NodeReport, PathBlock, Payload};
use irs_node::outbox::Outbox;
use proto::convert::{FrameId, Report, Times};
use proto::v1;

/// What a process finds for a path: no other process, frame or path gives the same.
pub fn delay_s(process: u64, frame: FrameId, k: usize) -> f64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    ([process, frame.run, frame.frame, k as u64].into_iter().fold(0, mix) >> 11) as f64
}

/// How far a node has come with its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Tries to register at this time.
    Waiting { until_ns: u64 },
    /// Has asked to register or to open its stream; gives up at this time.
    Asking { until_ns: u64 },
    /// Its stream is open.
    Streaming { connection: u64 },
}

pub struct Node {
    pub process: u64,
    pub incarnation: String,
    pub outbox: Outbox,
    pub link: Link,
    pub up: bool,
    pub backoff_ns: u64,
}

impl Node {
    pub fn new(process: u64, incarnation: String, now_ns: u64) -> Self {
        Self {
            process,
            incarnation,
            outbox: Outbox::new(32),
            link: Link::Waiting { until_ns: now_ns },
            up: true,
            backoff_ns: 50_000_000,
        }
    }

    /// Tries again later, up to a second later each time.
    pub fn back_off(&mut self, now_ns: u64) {
        self.link = Link::Waiting { until_ns: now_ns + self.backoff_ns };
        self.backoff_ns = (2 * self.backoff_ns).min(1_000_000_000);
    }

    pub fn lose(&mut self, now_ns: u64) {
        self.outbox.disconnected();
        self.back_off(now_ns);
    }

    /// The matched filter has worked on an echo frame.
    pub fn filter(&mut self, frame: FrameId, count: usize) {
        let block = |k: usize| v1::Block {
            k: k as u32,
            delay_s: delay_s(self.process, frame, k),
            ..Default::default()
        };
        let report = v1::FrameReport {
            run: frame.run,
            frame: frame.frame,
            blocks: (0..count).map(block).collect(),
            ..Default::default()
        };
        self.outbox.push(report);
    }
}

/// The conversion of `proto::convert`, which checks samples that the simulation does not have.
pub fn report_of(message: &v1::FrameReport) -> Report {
    let path = |block: &v1::Block| PathBlock {
        delay_s: block.delay_s,
        delay_variance_s2: 1.0,
        snr: 1.0,
        payload: Payload::Parameters,
        quantisation_power_w: 0.0,
    };
    Report {
        frame: FrameId { run: message.run, frame: message.frame },
        node: NodeReport { noise_power_w: 1.0, arrival: None, averaged_frames: 1 },
        bytes: 100,
        paths: message.blocks.iter().map(|block| (block.k as usize, path(block))).collect(),
        refused: Vec::new(),
        times: Times::default(),
        blocks_sent: message.blocks_sent,
        blocks_dropped: message.blocks_dropped,
        resent: message.resent,
    }
}
