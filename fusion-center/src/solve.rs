//! One frame solved: the pure chain with a stopwatch around its two steps.
//!
//! Knows blocks alone. The truth lives in [`crate::truth`], which nothing here can reach.

use std::time::{Duration, Instant};

use estimation::fusion::{FrameBlocks, Fuser};
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

/// Solves a frame.
pub fn solve(fuser: &Fuser, frame: FrameId, blocks: &FrameBlocks, source: Source) -> Solved {
    let started = Instant::now();
    let angles = fuser.angles(blocks);
    let between = Instant::now();
    let (angles, outcome) = match angles {
        Ok(angles) => {
            let outcome = fuser.locate(blocks, &angles);
            (Some(angles), outcome)
        }
        Err(error) => (None, Err(error)),
    };
    let locate = between.elapsed();
    let record = FixRecord::new(frame, blocks, angles.as_ref(), &outcome, source);
    Solved { record, angles: between - started, locate }
}
