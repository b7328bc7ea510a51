//! From cascade delays and bearings to a position: Section V of the paper.
//!
//! | step | paper | here |
//! | --- | --- | --- |
//! | [`SegmentDelays`] | stage 1 | any subset of the paths, with covariance |
//! | [`TwoStage`] | stage 2 | bearing rows in sin/cos form, structured weights, iterated |
//! | [`ThreeStage`] | stage 3 | the quadratic constraint by Gauss-Newton, no square roots |
//! | [`MaximumLikelihood`] | - | fourth stage: reaches the bound, with a consistent covariance |
//! | [`locate`] | Algorithm 3 | all stages, with fault exclusion, status and protection level |
//!
//! [`estimate_by_scheme`] holds the comparison schemes in the paper's own form. The module head of
//! each file says where and why it departs from the paper. Everything is pure and
//! deterministic: the same measurements give the same fix, bit for bit.
//!
//! Indices follow the paper: path `(l, k)` is reflected by IRS `k` and sensed at IRS
//! `l`. Inside, delays are carried as ranges in metres, so that every residual and weight is
//! of order one; seconds exist at the boundary only.

mod chi_square;
mod exclusion;
mod faults;
mod integrity;
mod likelihood;
mod locate;
mod maximum_likelihood;
mod measurements;
mod observability;
mod protection;
mod schemes;
mod search;
mod segments;
#[cfg(test)]
mod test_scene;
mod three_stage;
mod two_stage;

pub(crate) use chi_square::chi_square_quantile;
pub use chi_square::chi_square_survival;
pub use exclusion::Exclusion;
pub use faults::Fault;
pub use integrity::Consistency;
pub use locate::{Caution, Fix, LocateSettings, LocatorSettingsError, Stages, Status, locate};
pub use maximum_likelihood::MaximumLikelihood;
pub use measurements::{Bearing, CascadeDelay, MeasurementError, Measurements};
pub use observability::Unobservable;
pub use schemes::{LocatorScheme, estimate_by_scheme};
pub use search::{Ambiguity, CoverageArea};
pub use segments::SegmentDelays;
pub use three_stage::ThreeStage;
pub use two_stage::TwoStage;
