//! Delay estimation at a node (Section IV-A): from a received frame to one delay and one block per
//! reflecting IRS.
//!
//! The paper maximises the Frobenius norm of the matched-filter block `R_lk(tau)` over tau, and then draws
//! the errors of its study from the bound. At Table I a single frame is near threshold, so that the choices
//! around that maximum matter more than the maximum itself:
//! - the search is limited to the delays that a target of the coverage area can have ([`coverage_delays`]);
//! - the statistic may use prior knowledge of the node. [`Statistic::Beamformed`] steers at the node's own AOA,
//!   which is common to all its paths and found with the delays: of a scan over the sector in which the
//!   coverage area lies, the AOA whose K best delays carry the most energy. [`Statistic::Illuminated`] also
//!   weights the streams by what S_k can reflect into the coverage area, averaged over the prior on the
//!   cross-section: the weights of the ten streams sum to 2.0 on average;
//! - frames over which the path phases are constant are averaged, which divides the noise power by their number;
//! - the noise power is measured on the residual of each frame, and every delay has a variance.
//!
//! Table I, one frame, share of delays off by more than 6 m and mean of squared error over the bound of the
//! others: Frobenius 6.0 %, 7.6 dB; spectral 4.0 %, 5.1 dB; beamformed 1.4 %, 3.0 dB; illuminated 0.4 %,
//! 0.5 dB.
//!
//! The search is on a grid of an eighth of a sample, the refinement Newton on exact derivatives. Coherent
//! refinement after the angles are known ([`coherent_refinement`]) needs no raw data: each estimate carries
//! its block and the block's derivative by the delay.

mod arrival;
mod energy;
mod estimator;
mod filter;
mod quality;
mod refinement;
mod turned;
mod window;

use model::{CMatrix, System};

use crate::location::Bearing;

pub use estimator::DelayEstimator;
pub use filter::{BlockExpansion, BlockNorm, FoundDelay, MatchedFilter};
pub use refinement::{RefinedDelay, coherent_refinement};
pub use window::{DelayWindow, coverage_delays};
pub(crate) use window::{coverage_sines, searched_delays};

/// Why a delay cannot be estimated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum DelayError {
    #[error("no frame: at least one is needed")]
    Empty,
    #[error("the {what} is {rows} x {columns}, expected {expected_rows} x {expected_columns}")]
    Shape { what: &'static str, rows: usize, columns: usize, expected_rows: usize, expected_columns: usize },
    #[error("the {what} holds a value that is not finite")]
    NotFinite { what: &'static str },
    #[error("the {what} is zero or out of range")]
    NoEnergy { what: &'static str },
    #[error("subcarrier {index} is not one of {subcarriers} or is given twice")]
    Subcarrier { index: usize, subcarriers: usize },
    #[error("the delay window [{min_s}, {max_s}] s is empty or not finite")]
    Window { min_s: f64, max_s: f64 },
    #[error("the delay window is {width_s} s wide, but delays are unambiguous only within {unambiguous_s} s")]
    AmbiguousWindow { width_s: f64, unambiguous_s: f64 },
    #[error("{name} = {value}: must be {allowed}")]
    Setting { name: &'static str, value: f64, allowed: &'static str },
    #[error("node {node} does not exist: the system has {count} IRSs")]
    Node { node: usize, count: usize },
}

impl DelayError {
    /// Checks that an IRS exists.
    fn check_index(system: &System, node: usize) -> Result<(), Self> {
        let count = system.irs_count();
        if node < count { Ok(()) } else { Err(Self::Node { node, count }) }
    }

    /// Checks that a setting is positive and finite.
    fn check_positive(name: &'static str, value: f64) -> Result<(), Self> {
        if value.is_finite() && value > 0.0 {
            Ok(())
        } else {
            Err(Self::Setting { name, value, allowed: "positive and finite" })
        }
    }

    /// Checks the shape of a matrix.
    fn check_shape(
        what: &'static str,
        (rows, columns): (usize, usize),
        (expected_rows, expected_columns): (usize, usize),
    ) -> Result<(), Self> {
        if (rows, columns) == (expected_rows, expected_columns) {
            Ok(())
        } else {
            Err(Self::Shape { what, rows, columns, expected_rows, expected_columns })
        }
    }
}

/// Statistic that is maximised over the delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// Frobenius norm of the block, as in the paper.
    Frobenius,
    /// Spectral norm of the block.
    Spectral,
    /// Energy of the block in the direction of the node's AOA.
    #[default]
    Beamformed,
    /// The same with the streams weighted by what S_k can reflect into the coverage area.
    Illuminated,
}

/// Settings of a [`DelayEstimator`].
#[derive(Debug, Clone, PartialEq)]
pub struct DelaySettings {
    /// Statistic that is maximised over the delay.
    pub statistic: Statistic,
    /// Guard on either side of the coverage area's delays, in samples 1 / W.
    pub guard_samples: f64,
    /// Expected number of averaged frames, which sets the noise power for the weights of the streams.
    pub frames: usize,
}

impl Default for DelaySettings {
    fn default() -> Self {
        Self { statistic: Statistic::default(), guard_samples: 0.5, frames: 1 }
    }
}

impl DelaySettings {
    /// Checks the range of every setting.
    pub fn validate(&self) -> Result<(), DelayError> {
        let refuse = |name, value, allowed| Err(DelayError::Setting { name, value, allowed });
        if !(0.0..=100.0).contains(&self.guard_samples) {
            return refuse("guard_samples", self.guard_samples, "within 0..=100");
        }
        if self.frames == 0 {
            return refuse("frames", 0.0, "at least 1");
        }
        Ok(())
    }
}

/// Estimates of node l for one path (l, k).
#[derive(Debug, Clone, PartialEq)]
pub struct DelayEstimate {
    /// Cascade delay tau_lk.
    pub delay_s: f64,
    /// Variance of the delay, gross errors excluded; never above that of a uniform guess in the window.
    pub delay_variance_s2: f64,
    /// `|alpha|^2 M ||b_k||^2 / sigma^2`, measured; see [`System::path_snr`].
    pub snr: f64,
    /// R_lk at the delay, M x D_k.
    pub block: CMatrix,
    /// dR_lk/dtau at the delay, per second.
    pub block_derivative: CMatrix,
    /// Y_lk, M x n_k: the received signal on the subcarriers of IRS k.
    pub spectrum: CMatrix,
}

impl DelayEstimate {
    /// Block and derivative for the coherent refinement.
    pub fn expansion(&self) -> BlockExpansion {
        BlockExpansion {
            delay_s: self.delay_s,
            block: self.block.clone(),
            block_derivative: self.block_derivative.clone(),
        }
    }
}

/// Estimates of a node for one frame, or for the average of several.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDelays {
    /// By reflecting IRS k.
    pub paths: Vec<DelayEstimate>,
    /// AOA at the node, local angle, of a line array in the plane of the targets. Its variance follows from the SNR of all
    /// paths: `1 / (2 SNR (2 pi s cos theta)^2 (M^2 - 1) / 12)`, the bound of M sensors. None for other arrays.
    pub arrival: Option<Bearing>,
    /// Noise power per sensor and subcarrier of the averaged frame: the noise variance of a block's entry.
    pub noise_power_w: f64,
    /// Number of averaged frames.
    pub frames: usize,
}
