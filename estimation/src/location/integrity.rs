//! Consistency of the measurements: two chi-square tests.
//!
//! `m` measurements of two unknowns leave `m - 2` degrees of freedom (for complete data
//! `K^2 - K` from stage 1, `2K - 2` from the geometry). Two tests share the false-alarm probability:
//! the cost of the fix is chi-square with `m - 2`, and for every fault the square of its
//! estimated size over its standard deviation,
//! `t^2 = (f^T W r)^2 / (f^T W f - a^T H^-1 a)`, `a = J^T W f`, is chi-square with one, taken
//! over all faults by Bonferroni. This is leave-one-out in closed form (Sherman-Morrison): no
//! hypothesis is solved for in a clean fix. The paper has no such step. Cost: `O(K^2)`.

use super::chi_square::chi_square_survival;
use super::faults::{FaultTerms, all_faults};
use super::likelihood::{Likelihood, LikelihoodExpansion, Minimum};

/// A fault whose size is known to less than this share of its own information is not testable.
const TESTABLE_SHARE: f64 = 1e-9;

/// Result of the chi-square tests on the measurements in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Consistency {
    /// Degrees of freedom: number of measurements beyond the two that a fix needs.
    pub redundancy: usize,
    /// Probability of a larger cost without a fault.
    pub tail_probability: f64,
    /// Probability of a larger single-fault statistic without a fault (Bonferroni bound).
    pub fault_probability: f64,
}

impl Consistency {
    /// Whether both tests pass with `false_alarm_probability` shared evenly between them.
    pub fn passes(&self, false_alarm_probability: f64) -> bool {
        self.tail_probability.min(self.fault_probability) > 0.5 * false_alarm_probability
    }

    /// Runs both tests at a fix.
    pub(super) fn at(likelihood: &Likelihood, minimum: &Minimum) -> Self {
        let redundancy = likelihood.measurement_count().saturating_sub(2);
        if redundancy == 0 {
            return Self { redundancy, tail_probability: 1.0, fault_probability: 1.0 };
        }
        let faults = all_faults(likelihood, minimum.position_m);
        let statistics = faults.iter().filter_map(|(_, terms)| fault_statistic(&minimum.expansion, terms));
        let fault_probability = statistics
            .max_by(f64::total_cmp)
            .map_or(1.0, |statistic| (faults.len() as f64 * chi_square_survival(statistic, 1)).min(1.0));
        let tail_probability = chi_square_survival(minimum.expansion.cost, redundancy);
        Self { redundancy, tail_probability, fault_probability }
    }
}

/// Squared size of a fault over its variance, by linearisation where `expansion` was taken;
/// `None` where its size is not observable.
pub(super) fn fault_statistic(expansion: &LikelihoodExpansion, terms: &FaultTerms) -> Option<f64> {
    let absorbed = expansion.solve(&terms.common_gradient)?;
    let weight = terms.common_weight - terms.common_gradient.dot(&absorbed);
    let residual = terms.common_residual - absorbed.dot(&expansion.gradient);
    (weight > TESTABLE_SHARE * terms.common_weight).then(|| residual * residual / weight)
}
