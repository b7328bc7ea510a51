//! The data that a fix was made of: by it the fix is judged, and the bound is that of this data and no other.

use estimation::direct::Combination;
use estimation::fusion::FrameBlocks;
use proto::convert::FrameId;

/// What one frame contributed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameBasis {
    /// Frame number.
    pub number: u64,
    /// Echo frames that each node averaged; one for a node that did not report.
    pub averaged_frames: Vec<u32>,
    /// Paths (l, k) that did not come.
    pub missing: Vec<(usize, usize)>,
}

impl FrameBasis {
    /// Of the blocks of a frame.
    pub fn new(number: u64, blocks: &FrameBlocks) -> Self {
        let count = blocks.irs_count();
        let averaged_frames =
            (0..count).map(|l| blocks.node(l).map_or(1, |node| node.averaged_frames)).collect();
        let paths = (0..count).flat_map(|l| (0..count).map(move |k| (l, k)));
        let missing = paths.filter(|&(l, k)| blocks.path(l, k).is_none()).collect();
        Self { number, averaged_frames, missing }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Basis {
    /// Run of the simulator.
    pub run: u64,
    /// The frames, the one whose position is told last.
    pub frames: Vec<FrameBasis>,
    /// How several frames were added up.
    pub combination: Combination,
}

impl Basis {
    /// Of one frame.
    pub fn of_frame(frame: FrameId, blocks: &FrameBlocks) -> Self {
        let frames = vec![FrameBasis::new(frame.frame, blocks)];
        Self { run: frame.run, frames, combination: Combination::NonCoherent }
    }

    /// The frames by name.
    pub fn frames(&self) -> impl Iterator<Item = FrameId> {
        self.frames.iter().map(|frame| FrameId { run: self.run, frame: frame.number })
    }
}
