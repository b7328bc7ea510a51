//! Direct position determination: one likelihood over the positions of targets from the evidence of all paths.
//!
//! The mean of path (l, k) is `sum_t alpha_t m(p_t)`, `m = a_l(p) outer (g_k(p)^T S_k X_k .* exp(-j w (tau_lk(p) + o_l)))`,
//! a function of positions and of the clock offset of the sensing node alone. Arrays are known by their
//! response to a point and its derivatives ([`Layout`]): lines and panels, plane and spherical waves are one case. With
//! the gains alpha unknown, the log-likelihood ratio of "targets at p" against "noise" is, path by path,
//! `J_lk(p) = ||P_A Y_lk||^2 / sigma^2`, P_A onto the atoms m, and their sum is maximised. The paper first
//! estimates every delay and angle by itself; the sum can locate a target that single paths are too weak for.
//! `tests/direct.rs` has the measured gaps to the exact bound for a single frame of Table I.
//! [`DirectLocator::locate_several`] finds how many targets there are and where; [`locate_jointly`] takes a given number of
//! targets and unknown clocks in any layout. What follows is about one target and known clocks.
//!
//! The evidence of a path may be its spectrum or less ([`Evidence`]):
//!
//! | evidence | J_lk(x) |
//! | --- | --- |
//! | spectrum Y_lk, M x n_k | as above, everywhere |
//! | block with derivative at tau_0 | as above near tau_0: the peak is taken as Gaussian in the delay |
//! | delay, bearing | log of p + (1 - p) normal over uniform: bounded below, so that a gross error has a bounded effect |
//!
//! Each is a log-likelihood ratio, so that any mixture can be added, and each exceeds t on noise alone with
//! probability e^-t at most. The threshold of the detection test is based on this.
//!
//! Steps: a coarse search over the coverage area from tables made once per system ([`Survey`]), in two levels, Gauss-Newton from
//! the best few peaks, exclusion of paths that disagree, the test whether there is a target,
//! covariance from the information. Several frames: [`DirectLocator::locate_frames`].

mod beamforming;
mod block;
mod block_products;
mod certainty;
mod clocks;
mod coarse;
mod detection;
mod evidence;
mod follow;
mod frames;
mod grid;
mod interpolation;
mod joint;
mod lags;
mod layout;
mod likelihood;
mod locate;
mod moments;
mod posterior;
mod protection;
mod residual;
mod scene;
mod several;
mod surface;
mod survey;
mod target_list;
#[cfg(test)]
mod test_scene;
mod timing;
mod values;

pub use clocks::{ClockPrior, ClockPriorError, ClockUpdate};
pub use coarse::TooLarge;
pub use detection::detection_threshold;
pub use evidence::{Evidence, EvidenceError};
pub use follow::{FollowSettings, FollowedFrame};
pub(crate) use frames::MOST_LOSS;
pub use frames::{Combination, MovingFix};
pub use joint::{Clocks, JointError, JointFix, JointSettings, locate_jointly};
pub use layout::{Layout, LayoutError, LayoutIrs};
pub use locate::{AlternativePosition, DirectFix, DirectLocator, DirectSettings, Disagreement, Missed};
pub use surface::LikelihoodMap;
pub use survey::Survey;
pub use target_list::{LocatedTarget, MOST_TARGETS, TargetList};
