//! Direct position determination: one likelihood over (x, y) from whatever every path delivers.
//!
//! The mean of path (l, k) is `alpha m(x)`, `m = a(theta_l) (b_k^H X_k .* exp(-j w tau_lk))`, with the angles
//! and the delay functions of the target's position alone. With the gain alpha unknown, the log-likelihood
//! ratio of "a target at x" against "noise" is, path by path,
//! `J_lk(x) = |m^H Y_lk|^2 / (||m||^2 sigma^2)`, and their sum is maximised over (x, y). The paper goes
//! through delays and angles, each decided on by itself; where one path alone is too weak for such a
//! decision, the sum still is not. Single frame, Table I: see `tests/direct.rs` for the measured gaps to the
//! exact bound.
//!
//! A path may deliver more or less than its spectrum ([`Evidence`]):
//!
//! | evidence | J_lk(x) |
//! | --- | --- |
//! | spectrum Y_lk, M x n_k | as above, everywhere |
//! | block with derivative at tau_0 | as above near tau_0: the peak is taken as Gaussian in the delay |
//! | delay, bearing | log of p + (1 - p) normal over uniform: bounded below, so that a wild value costs no more than itself |
//!
//! Each is a log-likelihood ratio, so that they add up in any mixture, and each exceeds t on noise alone with
//! probability e^-t at most. That is what the detection test builds its threshold on.
//!
//! Steps: a coarse search over the coverage area from tables made once per system ([`Survey`]), Newton from
//! the best few peaks, the test whether there is a target at all, paths that disagree taken out,
//! covariance from the curvature. Several frames: [`DirectLocator::locate_frames`].

mod certainty;
mod coarse;
mod detection;
mod evidence;
mod frames;
mod likelihood;
mod locate;
mod newton;
mod posterior;
mod protection;
mod scene;

pub use coarse::TooLarge;
pub use evidence::{Evidence, EvidenceError};
pub(crate) use frames::MOST_LOSS;
pub use frames::{Combination, FramesSettings, MovingFix};
pub use locate::{Alternative, DirectFix, DirectLocator, DirectSettings, Disagreement, Missed, Survey};
