//! The clocks of the nodes.
//!
//! Path (l, k) is timed by the clock of the sensing node l, whose offset o_l adds to every delay that it measures. The truth
//! (`offset_ns`, `drift_ppb`, `wander_ns`, `step`) stays with the echo source. Estimators know `prior_ns` alone.

use serde::{Deserialize, Serialize};

use super::ScenarioError;
use super::validate::{Check, within};

/// Clocks of the nodes: what they are, and what estimators may assume about them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeClocks {
    /// Offsets at the first frame are uniform within plus or minus this.
    pub offset_ns: f64,
    /// Rates are uniform within plus or minus this, in parts per billion: nanoseconds per second.
    pub drift_ppb: f64,
    /// Standard deviation of a random walk of every offset, after one second.
    pub wander_ns: f64,
    /// Time between two frames, over which clocks drift and wander.
    pub frame_interval_s: f64,
    /// A step of one clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<ClockStep>,
    /// Standard deviation of the offsets as estimators assume it; 0 for clocks that are trusted.
    pub prior_ns: f64,
}

/// A clock that jumps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockStep {
    /// The node, counted from 0.
    pub node: usize,
    /// The first frame after the step.
    pub frame: u64,
    /// The change of the offset.
    pub step_ns: f64,
}

impl Default for NodeClocks {
    fn default() -> Self {
        Self {
            offset_ns: 0.0,
            drift_ppb: 0.0,
            wander_ns: 0.0,
            frame_interval_s: 0.02,
            step: None,
            prior_ns: 0.0,
        }
    }
}

/// Largest offset, step or prior: a millisecond, far more than the ambiguity of any waveform.
const MOST_NS: f64 = 1e6;
/// Largest drift: one part in a thousand.
const MOST_PPB: f64 = 1e6;

impl NodeClocks {
    pub(super) fn validate(&self, irs_count: usize) -> Check {
        within("clocks.offset_ns", self.offset_ns, 0.0, MOST_NS)?;
        within("clocks.drift_ppb", self.drift_ppb, 0.0, MOST_PPB)?;
        within("clocks.wander_ns", self.wander_ns, 0.0, MOST_NS)?;
        within("clocks.frame_interval_s", self.frame_interval_s, 1e-6, 1e6)?;
        within("clocks.prior_ns", self.prior_ns, 0.0, MOST_NS)?;
        let Some(step) = self.step else { return Ok(()) };
        if step.node >= irs_count {
            let rule = format!("must be one of the {irs_count} nodes, counted from 0");
            return Err(ScenarioError::new("clocks.step.node", step.node, rule));
        }
        within("clocks.step.step_ns", step.step_ns, -MOST_NS, MOST_NS)
    }

    /// Standard deviation of the offsets as estimators assume it.
    pub(crate) fn prior_s(&self) -> f64 {
        self.prior_ns * 1e-9
    }
}
