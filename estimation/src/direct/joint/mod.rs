//! Several targets and unknown clocks: the joint maximum of the likelihood over all positions and offsets.
//!
//! The state is the free coordinates of T targets and, where clocks are unknown, the offset of every sensing node (in
//! metres of range). Search: the map of one target over a grid whose spacing follows from the information of the atoms
//! (where clocks are unknown, each node's offset is maximised on its own at every point); ascents from its best peaks; then
//! one target at a time is added from the residual map, and all of them climb together. Several hypotheses are kept
//! until all targets are there; at last every target is searched anew against the others.
//!
//! The covariance is the inverse of the exact Fisher information with the fitted gains, offsets marginalised.

mod map;
mod others;
mod search;
mod state;
#[cfg(test)]
mod tests;

pub(super) use map::LEAST_LEFT;
pub(super) use others::{OthersNode, OthersPath, losses};
pub(super) use state::JointLikelihood;

use model::Point;
use nalgebra::DMatrix;

use super::evidence::Evidence;
use super::layout::Layout;

/// What is known about the clocks of the sensing nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clocks {
    /// Every clock is right.
    Known,
    /// The clock of each node has a constant offset within plus or minus this window.
    Unknown {
        /// Half width of the window.
        window_s: f64,
    },
}

/// The problem: how many targets, where, with which clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JointSettings {
    /// Number of targets T.
    pub targets: usize,
    /// Knowledge about the clocks.
    pub clocks: Clocks,
    /// Least coordinates of the searched volume.
    pub min_m: Point,
    /// Largest coordinates of the searched volume; equal to the least ones along fixed axes.
    pub max_m: Point,
}

/// The joint maximum.
#[derive(Debug, Clone, PartialEq)]
pub struct JointFix {
    /// Positions, sorted by coordinates.
    pub positions_m: Vec<Point>,
    /// Covariance of the free coordinates, target by target.
    pub covariance_m2: DMatrix<f64>,
    /// Clock offset of every node and its standard deviation; none for a node without spectra. Empty where clocks are known.
    pub offsets_s: Vec<Option<(f64, f64)>>,
    /// Log-likelihood ratio `sum ||P_A Y||^2 / sigma^2`.
    pub log_likelihood: f64,
}

/// Why there is no joint maximum.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum JointError {
    #[error("no path delivered a spectrum")]
    NoEvidence,
    #[error(
        "{targets} targets: at least 1 and at most {most} can be separated by paths of {entries} entries each"
    )]
    Targets { targets: usize, most: usize, entries: usize },
    #[error("the searched volume has no extent along any axis, or its bounds are not finite or exchanged")]
    Volume,
    #[error("offset window = {window_s} s: must be positive and finite")]
    Window { window_s: f64 },
    #[error("IRS {k} lies inside the searched volume: positions there have no likelihood")]
    Inside { k: usize },
    #[error("the paths do not determine the positions of the targets")]
    Unobservable,
}

/// Finds the joint maximum of the likelihood of the spectra.
pub fn locate_jointly(
    layout: &Layout,
    evidence: &Evidence,
    settings: &JointSettings,
) -> Result<JointFix, JointError> {
    search::Search::new(layout, evidence, settings)?.run()
}
