//! One frame solved: the pure chain with a stopwatch around its two steps.
//!
//! Knows blocks alone. The truth lives in [`crate::truth`], which nothing here can reach.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use estimation::fusion::{FrameBlocks, Fuser, FusionError};
use proto::convert::FrameId;

use crate::fix::{FixRecord, Source};

/// A solved frame.
#[derive(Debug)]
pub struct Solved {
    /// The fix, or why there is none; timing is still open.
    pub record: FixRecord,
    /// Time of the joint angles.
    pub angles: Duration,
    /// Time of delays and location.
    pub locate: Duration,
}

/// Frames before the one in question, of the same run, with their numbers.
pub type Earlier = Vec<(u64, Arc<FrameBlocks>)>;

/// Solves a frame, together with earlier ones where those are given.
pub fn solve(
    fuser: &Fuser,
    frame: FrameId,
    blocks: &FrameBlocks,
    earlier: &Earlier,
    source: Source,
) -> Solved {
    let started = Instant::now();
    if !earlier.is_empty() {
        let frames = earlier.iter().map(|(number, blocks)| (*number, blocks.as_ref()));
        let frames: Vec<(u64, &FrameBlocks)> = frames.chain([(frame.frame, blocks)]).collect();
        match fuser.fuse_frames(&frames) {
            // Several frames may lack what one has, such as a target that keeps its velocity.
            Err(FusionError::Missed(estimation::direct::Missed::Unobservable)) => {}
            outcome => {
                let record = FixRecord::new(frame, blocks, None, &outcome, source);
                return Solved { record, angles: Duration::ZERO, locate: started.elapsed() };
            }
        }
    }
    let prepared = fuser.prepare(blocks);
    let angles = fuser.angles(&prepared);
    let between = Instant::now();
    let outcome = fuser.locate(&prepared, &angles);
    let locate = between.elapsed();
    let estimate = angles.as_ref().ok().and_then(Option::as_ref);
    let record = FixRecord::new(frame, blocks, estimate, &outcome, source);
    Solved { record, angles: between - started, locate }
}

/// The latest frames, for batches.
#[derive(Debug, Default)]
pub struct History {
    batch_frames: usize,
    frames: BTreeMap<FrameId, Arc<FrameBlocks>>,
}

impl History {
    /// A history for batches of this many frames.
    pub fn new(batch_frames: usize) -> Self {
        Self { batch_frames, frames: BTreeMap::new() }
    }

    /// Takes a frame; gives those before it that make up its batch.
    pub fn take(&mut self, frame: FrameId, blocks: &Arc<FrameBlocks>) -> Earlier {
        if self.batch_frames < 2 {
            return Vec::new();
        }
        let first = frame.frame.saturating_sub(self.batch_frames as u64 - 1);
        let earlier = self.frames.range(FrameId { frame: first, ..frame }..frame);
        let earlier = earlier.map(|(id, blocks)| (id.frame, blocks.clone())).collect();
        self.keep(frame, blocks.clone());
        earlier
    }

    /// Keeps a frame for those that follow.
    pub fn keep(&mut self, frame: FrameId, blocks: Arc<FrameBlocks>) {
        self.frames.insert(frame, blocks);
        while self.frames.len() > self.batch_frames {
            self.frames.pop_first();
        }
    }

    /// A frame that is still kept.
    pub fn get(&self, frame: FrameId) -> Option<Arc<FrameBlocks>> {
        self.frames.get(&frame).cloned()
    }
}
