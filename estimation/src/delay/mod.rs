//! Delay estimation at a node (Section IV-A): from a received frame to one delay and one block per
//! reflecting IRS.
//!
//! The paper maximises the Frobenius norm of the matched-filter block `R_lk(tau)` over tau, and then draws
//! the errors of its study from the bound. At Table I a single frame is near threshold, so that the choices
//! around that maximum matter more than the maximum itself:
//! - the search is limited to the delays that a target of the coverage area can have ([`coverage_delays`]);
//! - the statistic may use what the node knows. [`Statistic::Beamformed`] steers at the node's own AOA,
//!   which is common to all its paths and found with the delays: of a scan over the sector in which the
//!   coverage area lies, the AOA whose K best delays carry the most energy. [`Statistic::Illuminated`] also
//!   weights the streams by what S_k can send into the coverage area, averaged over the prior on the
//!   cross-section: the weights of the ten streams sum to
//!   2.0 on average;
//! - frames over which the path phases hold are averaged, which lowers the noise by their number;
//! - noise power is measured on each frame's residual, and every delay comes with a variance.
//!
//! Table I, one frame, share of delays off by more than 6 m and mean of squared error over the bound of the
//! others: Frobenius 6.0 %, 7.6 dB; spectral 4.0 %, 5.1 dB; beamformed 1.4 %, 3.0 dB; illuminated 0.4 %,
//! 0.5 dB.
//!
//! The search is on a grid of an eighth of a sample, the refinement Newton on exact derivatives. Coherent
//! refinement after the angles are known ([`coherent_refinement`]) needs no raw data: each estimate carries
//! its block and the block's derivative by the delay.

mod estimator;
mod filter;
mod quality;
mod refinement;
mod window;

use model::{CMatrix, System};

pub use estimator::DelayEstimator;
pub use filter::{BlockExpansion, BlockNorm, FoundDelay, MatchedFilter};
pub use refinement::{RefinedDelay, coherent_refinement};
pub(crate) use window::coverage_sines;
pub use window::{DelayWindow, coverage_delays};

/// Why a delay cannot be estimated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DelayError {
    /// There is no frame.
    #[error("no frame: at least one is needed")]
    Empty,
    /// A matrix has the wrong shape.
    #[error("the {what} is {rows} x {columns}, expected {expected_rows} x {expected_columns}")]
    Shape {
        /// Which matrix.
        what: &'static str,
        /// Rows found.
        rows: usize,
        /// Columns found.
        columns: usize,
        /// Rows expected.
        expected_rows: usize,
        /// Columns expected.
        expected_columns: usize,
    },
    /// A matrix holds NaN or infinity.
    #[error("the {what} holds a value that is not finite")]
    NotFinite {
        /// Which matrix.
        what: &'static str,
    },
    /// A matrix is zero or so far out of range that its squares are.
    #[error("the {what} is zero or out of range")]
    NoEnergy {
        /// Which matrix.
        what: &'static str,
    },
    /// A subcarrier is out of range or given twice.
    #[error("subcarrier {index} is not one of {subcarriers} or is given twice")]
    Subcarrier {
        /// The subcarrier.
        index: usize,
        /// Subcarriers of a frame.
        subcarriers: usize,
    },
    /// The bandwidth is not positive.
    #[error("bandwidth_hz = {bandwidth_hz}: must be positive and finite")]
    Bandwidth {
        /// The bandwidth.
        bandwidth_hz: f64,
    },
    /// The search window is empty or not finite.
    #[error("the delay window [{min_s}, {max_s}] s is empty or not finite")]
    Window {
        /// Lower end.
        min_s: f64,
        /// Upper end.
        max_s: f64,
    },
    /// The search window is longer than the period of the subcarrier grid.
    #[error("the delay window is {width_s} s wide, but delays are unambiguous only within {unambiguous_s} s")]
    AmbiguousWindow {
        /// Its width.
        width_s: f64,
        /// Period L / W.
        unambiguous_s: f64,
    },
    /// A setting is out of range.
    #[error("{name} = {value}: must be {allowed}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Parts of the system contradict each other.
    #[error("IRS {k} of the system is inconsistent: {problem}")]
    System {
        /// The IRS.
        k: usize,
        /// What does not fit.
        problem: &'static str,
    },
    /// There is no such IRS.
    #[error("node {node} does not exist: the system has {count} IRSs")]
    Node {
        /// The node asked for.
        node: usize,
        /// IRSs of the system.
        count: usize,
    },
}

impl DelayError {
    /// Refuses an index without an IRS.
    fn check_index(system: &System, node: usize) -> Result<(), Self> {
        let count = system.irs_count();
        if node < count { Ok(()) } else { Err(Self::Node { node, count }) }
    }

    fn vector(what: &'static str, rows: usize, expected_rows: usize) -> Self {
        Self::Shape { what, rows, columns: 1, expected_rows, expected_columns: 1 }
    }
}

/// What is maximised over the delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// Frobenius norm of the block: the paper's.
    Frobenius,
    /// Spectral norm of the block.
    Spectral,
    /// Energy of the block in the direction of the node's AOA.
    #[default]
    Beamformed,
    /// The same with the streams weighted by what S_k can send into the coverage area.
    Illuminated,
}

/// Settings of a [`DelayEstimator`].
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DelaySettings {
    /// What is maximised.
    pub statistic: Statistic,
    /// Guard on either side of the coverage area's delays, in samples 1 / W.
    pub guard_samples: f64,
    /// Frames that an estimate averages as a rule: sets the noise against which streams are weighted.
    pub frames: usize,
    /// Measured noise power is plausible within this factor of the scenario's, either way.
    pub noise_factor: f64,
}

impl Default for DelaySettings {
    fn default() -> Self {
        Self { statistic: Statistic::default(), guard_samples: 0.5, frames: 1, noise_factor: 1.5 }
    }
}

impl DelaySettings {
    /// Refuses what is out of range.
    pub fn validate(&self) -> Result<(), DelayError> {
        let refuse = |name, value, allowed| Err(DelayError::Setting { name, value, allowed });
        if !(0.0..=100.0).contains(&self.guard_samples) {
            return refuse("guard_samples", self.guard_samples, "within 0..=100");
        }
        if self.frames == 0 {
            return refuse("frames", 0.0, "at least 1");
        }
        if !(self.noise_factor > 1.0 && self.noise_factor.is_finite()) {
            return refuse("noise_factor", self.noise_factor, "above 1 and finite");
        }
        Ok(())
    }
}

/// One path (l, k) as node l sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct DelayEstimate {
    /// Delay of the path.
    pub delay_s: f64,
    /// Variance of the delay, gross errors apart; never above that of a uniform guess in the window.
    pub delay_variance_s2: f64,
    /// `|alpha|^2 M ||b_k||^2 / sigma^2`, measured; see [`System::path_snr`].
    pub snr: f64,
    /// R_lk at the delay, M x D_k.
    pub block: CMatrix,
    /// dR_lk/dtau at the delay, per second.
    pub block_derivative: CMatrix,
    /// Next best local maximum of the statistic over the best, 0 to 1: near 1 the delay is ambiguous.
    pub second_peak_ratio: f64,
    /// Y_lk, M x n_k: what was received on the subcarriers of IRS k.
    pub spectrum: CMatrix,
}

impl DelayEstimate {
    /// Block and derivative, as the coherent refinement takes them.
    pub fn expansion(&self) -> BlockExpansion {
        BlockExpansion {
            delay_s: self.delay_s,
            block: self.block.clone(),
            block_derivative: self.block_derivative.clone(),
        }
    }
}

/// Whether the measured noise power agrees with the scenario's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseCheck {
    /// Within the configured factor.
    Plausible,
    /// Too low: attenuated or partly blanked input.
    TooLow,
    /// Too high: interference, leakage or a second target.
    TooHigh,
    /// The frame leaves no residual to measure: the scenario's value is used.
    NotMeasured,
}

/// What a node reports of one frame, or of the average of several.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDelays {
    /// Per reflecting IRS k.
    pub paths: Vec<DelayEstimate>,
    /// AOA at this node, local angle.
    pub arrival_rad: f64,
    /// Its variance, from the SNR of all paths: `1 / (2 SNR (2 pi s cos theta)^2 (M^2 - 1) / 12)`, the bound
    /// of a linear array of M sensors.
    pub arrival_variance_rad2: f64,
    /// Noise power per sensor and subcarrier of the averaged frame: the noise variance of a block's entry.
    pub noise_power_w: f64,
    /// Whether it is plausible.
    pub noise_check: NoiseCheck,
    /// Frames that were averaged.
    pub frames: usize,
}
