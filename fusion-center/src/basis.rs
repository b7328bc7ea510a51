//! The data that a fix was made from. The fix is compared with the bound of exactly this data.

use estimation::direct::Combination;
use estimation::fusion::FrameBlocks;
use proto::convert::FrameId;

/// What one frame contributed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameBasis {
    pub number: u64,
    /// Echo frames that each node averaged; one for a node that did not report.
    pub averaged_frames: Vec<u32>,
    pub missing: Vec<(usize, usize)>,
}

impl FrameBasis {
    pub fn new(number: u64, blocks: &FrameBlocks) -> Self {
        let nodes = (0..blocks.irs_count()).map(|l| blocks.node(l));
        let averaged_frames = nodes.map(|node| node.map_or(1, |node| node.averaged_frames)).collect();
        Self { number, averaged_frames, missing: missing_paths(blocks) }
    }
}

/// Paths (l, k) of a frame that were not received.
pub fn missing_paths(blocks: &FrameBlocks) -> Vec<(usize, usize)> {
    let count = blocks.irs_count();
    let paths = (0..count).flat_map(|l| (0..count).map(move |k| (l, k)));
    paths.filter(|&(l, k)| blocks.path(l, k).is_none()).collect()
}

/// The frames that a fix was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Basis {
    pub run: u64,
    /// In order; the position is that of the last frame.
    pub frames: Vec<FrameBasis>,
    /// How several frames were combined.
    pub combination: Combination,
}

impl Basis {
    pub fn of_frame(frame: FrameId, blocks: &FrameBlocks) -> Self {
        let frames = vec![FrameBasis::new(frame.frame, blocks)];
        Self { run: frame.run, frames, combination: Combination::NonCoherent }
    }

    pub fn frames(&self) -> impl Iterator<Item = FrameId> {
        self.frames.iter().map(|frame| FrameId { run: self.run, frame: frame.number })
    }
}
