//! The targets of a frame as they are found, and the bound on their positions.

use model::Point;
use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{DMatrix, DVector};

use super::clocks::{ClockPrior, ClockUpdate, SurveyClocks};
use super::evidence::Evidence;
use super::joint::JointLikelihood;
use super::locate::DirectLocator;

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

impl DirectLocator {
    /// The exact bound on the free coordinates of several targets together, in their order, from echoes without noise: the gains of
    /// all paths are unknown. Clocks are known, or known as well as this law about their true offsets says. None where the positions
    /// are not determined.
    pub fn joint_bound_m2(
        &self,
        noiseless: &Evidence,
        positions_m: &[Point],
        clocks: Option<&ClockPrior>,
    ) -> Option<DMatrix<f64>> {
        let nodes = self.scene.irs_count();
        let fits = |clocks: &ClockPrior| clocks.mean_s().len() == nodes;
        if positions_m.is_empty() || !noiseless.is_like(&self.evidence()) || !clocks.is_none_or(fits) {
            return None;
        }
        let layout = self.scene.layout();
        let likelihood = JointLikelihood { layout, evidence: noiseless, offsets: clocks.is_some() };
        let coordinates = layout.joint_coordinates(positions_m);
        let Some(prior) = clocks else {
            return Some(likelihood.expand(&coordinates).information.cholesky()?.inverse());
        };
        let offsets_m = prior.mean_s() * SPEED_OF_LIGHT_M_S;
        let (targets, count) = (coordinates.len(), coordinates.len() + nodes);
        let all = coordinates.iter().chain(offsets_m.iter()).copied();
        let state = DVector::from_iterator(count, all);
        let clocks = SurveyClocks::new(prior.clone(), DVector::zeros(nodes))?;
        let information = likelihood.expand(&state).information + clocks.expansion(&state).information;
        Some(information.cholesky()?.inverse().view((0, 0), (targets, targets)).into_owned())
    }
}
