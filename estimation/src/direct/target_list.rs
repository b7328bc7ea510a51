//! The targets of a frame as [`DirectLocator::locate_several`](super::DirectLocator::locate_several) lists them.

use model::Point;
use nalgebra::DMatrix;

use super::clocks::ClockUpdate;

/// Largest number of targets of a frame.
pub const MOST_TARGETS: usize = 16;

/// One of several targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocatedTarget {
    /// Its position, metres.
    pub position_m: Point,
    /// What the log-likelihood ratio of the frame loses without it.
    pub energy: f64,
    /// Probability that noise alone has this energy.
    pub false_alarm_probability: f64,
    /// Whether there may be two targets here that cannot be told apart.
    pub unresolved: bool,
}

/// The targets of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetList {
    /// Strongest first; empty where none is detected.
    pub targets: Vec<LocatedTarget>,
    /// Covariance of the free coordinates of all of them, in their order.
    pub covariance_m2: DMatrix<f64>,
    /// Log-likelihood ratio of the targets together to noise alone.
    pub log_likelihood: f64,
    /// What the frame says about the clocks, the positions of all targets marginalised; none where clocks are trusted or there
    /// is no target.
    pub clocks: Option<ClockUpdate>,
}

impl TargetList {
    /// Number of free coordinates of a target; 0 without targets.
    pub fn axes(&self) -> usize {
        self.covariance_m2.nrows() / self.targets.len().max(1)
    }

    /// Covariance of the free coordinates of one target; none without such a target.
    pub fn covariance_of_m2(&self, target: usize) -> Option<DMatrix<f64>> {
        let axes = self.axes();
        let own = || self.covariance_m2.view((target * axes, target * axes), (axes, axes)).into_owned();
        (target < self.targets.len()).then(own)
    }
}
