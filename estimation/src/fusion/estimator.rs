//! The interface of an estimator: a frame in, fixes out.

use super::{FrameBlocks, FusedFix, Fuser, FusionError};
use crate::angles::AngleEstimate;
use crate::direct::ClockPrior;

/// Makes fixes from the received paths of a frame. [`Fuser`] is one; the Monte Carlo studies and the fusion center take any.
///
/// An estimator knows the system and its settings from its constructor, and of a frame only what was received and what is known
/// about the clocks. Frames are estimated in any order and on several threads, so that a fix must not depend on
/// other frames.
pub trait Estimator: Send + Sync {
    /// The fixes of a frame, the most probable target first; none if there is no target.
    fn estimate(&self, frame: &FrameBlocks) -> Result<Vec<FusedFix>, FusionError>;

    /// The same with what is known about the clocks of the nodes, if they are not trusted, for a caller that measures stages:
    /// `angles_done` is called between angles and location, if these are
    /// separate stages, with the angles if there are any.
    fn estimate_observed(
        &self,
        frame: &FrameBlocks,
        clocks: Option<&ClockPrior>,
        angles_done: &mut (dyn FnMut(Option<&AngleEstimate>) + Send),
    ) -> Result<Vec<FusedFix>, FusionError> {
        let _ = (clocks, angles_done);
        self.estimate(frame)
    }
}

impl Estimator for Fuser {
    fn estimate(&self, frame: &FrameBlocks) -> Result<Vec<FusedFix>, FusionError> {
        self.estimate_observed(frame, None, &mut |_| {})
    }

    fn estimate_observed(
        &self,
        frame: &FrameBlocks,
        clocks: Option<&ClockPrior>,
        angles_done: &mut (dyn FnMut(Option<&AngleEstimate>) + Send),
    ) -> Result<Vec<FusedFix>, FusionError> {
        if self.settings().max_targets > 1 {
            angles_done(None);
            return self.fuse_targets(&self.survey(frame, clocks)?);
        }
        self.fuse_observed(frame, clocks, angles_done).map(|fix| vec![fix])
    }
}
