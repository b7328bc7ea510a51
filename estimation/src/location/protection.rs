//! Protection level: a radius that contains the error with probability `1 - risk` even if one fault
//! was not detected or the wrong one was excluded.
//!
//! It is computed by solution separation. For every fault `h` that the measurements in use could have, the fix
//! without its members, `x_h`, does not depend on the fault, whatever its size and shape. So with
//! `h` present the error of the fix is at most `|x - x_h|`, which is known, plus the error of
//! `x_h`, which is Gaussian with a known covariance:
//! `level = max_h |x - x_h| + R_h`. A fault under which the remaining measurements would still
//! contradict each other is left out. The classical form projects the largest bias that
//! escapes the detector; this one needs no assumption on detector or bias, is
//! tighter, and covers a wrong exclusion too: with `E` excluded, `x_h` lacks `E` and `h`, so it is
//! valid whichever of the two was the fault. Rivals of an excluded fault, whose position of the target
//! may be far away, are covered by their own solutions.
//!
//! `R_h = sqrt(-2 ln p) sigma_h` with the largest standard deviation of `x_h` is exact for
//! a circular error and safe for any other. Each `x_h` follows in closed form from 2 x 2 sums:
//! `O(K^2)` for all.

use super::chi_square::chi_square_survival;
use super::faults::{FaultTerms, all_faults};
use super::likelihood::{Likelihood, LikelihoodExpansion, Minimum, smallest_eigenvalue, solve_observable};

/// Share of the risk that the true fault is left out as implausible.
const IMPLAUSIBLE_SHARE: f64 = 0.1;
/// Share of the risk of the Gaussian error; the rest is reserved for curvature.
const NOISE_SHARE: f64 = 0.8;

/// The protection level in metres; `None` where some single fault could move the fix
/// without bound.
pub(super) fn protection_level_m(
    likelihood: &Likelihood,
    minimum: &Minimum,
    rivals: &[Minimum],
    risk: f64,
) -> Option<f64> {
    let radius = (-2.0 * (NOISE_SHARE * risk).ln()).sqrt();
    let redundancy = likelihood.measurement_count().saturating_sub(2);
    let mut level_m = radius / smallest_eigenvalue(&minimum.expansion.information)?.sqrt();
    for (_, terms) in all_faults(likelihood, minimum.position_m) {
        let separated = Separated::new(&minimum.expansion, &terms);
        let reach_m = separated.as_ref().map(|s| s.shift_m + radius * s.deviation_m);
        if reach_m.is_some_and(|reach_m| reach_m <= level_m) {
            continue;
        }
        let left = redundancy.saturating_sub(terms.members);
        let plausible = separated.is_none_or(|s| is_plausible(s.cost, left, IMPLAUSIBLE_SHARE * risk));
        if plausible {
            level_m = reach_m?;
        }
    }
    for rival in rivals {
        let deviation_m = 1.0 / smallest_eigenvalue(&rival.expansion.information)?.sqrt();
        level_m = level_m.max((rival.position_m - minimum.position_m).norm() + radius * deviation_m);
    }
    Some(level_m)
}

/// The fix without the members of one fault.
struct Separated {
    shift_m: f64,
    deviation_m: f64,
    cost: f64,
}

impl Separated {
    /// `None` where the rest does not observe the position.
    fn new(expansion: &LikelihoodExpansion, terms: &FaultTerms) -> Option<Self> {
        let information = expansion.information - terms.information;
        // Subtraction leaves rounding noise of the size of what was subtracted.
        let smallest =
            smallest_eigenvalue(&information).filter(|v| *v > 1e-10 * expansion.information.trace())?;
        let gradient = expansion.gradient - terms.gradient;
        let shift = solve_observable(&information, &gradient)?;
        Some(Self {
            shift_m: shift.norm(),
            deviation_m: 1.0 / smallest.sqrt(),
            cost: (expansion.cost - terms.cost - gradient.dot(&shift)).max(0.0),
        })
    }
}

fn is_plausible(cost: f64, redundancy: usize, probability: f64) -> bool {
    redundancy == 0 || cost <= redundancy as f64 || chi_square_survival(cost, redundancy) >= probability
}

#[cfg(test)]
mod tests {
    use super::super::test_scene::{TARGET_M, inexact};
    use super::*;

    const RISK: f64 = 1e-3;

    /// Radius in standard deviations: a circular Gaussian error exceeds it with 0.8 of the risk.
    fn radius() -> f64 {
        (2.0 * (1.0 / (0.8 * RISK)).ln()).sqrt()
    }

    fn deviation_m(minimum: &Minimum) -> f64 {
        let covariance = minimum.expansion.information.try_inverse().unwrap();
        covariance.symmetric_eigenvalues().max().sqrt()
    }

    #[test]
    fn what_costs_too_much_is_not_plausible() {
        assert!(is_plausible(1e9, 0, 1e-3), "nothing to check against");
        assert!(is_plausible(3.9, 4, 0.9), "no more than expected");
        // The 99.9 % quantile of a chi-square variable of two degrees of freedom is 13.8.
        assert!(is_plausible(13.7, 2, 1e-3) && !is_plausible(13.9, 2, 1e-3));
    }

    /// The level is the largest reach of the solutions without the members of one fault, each solved for anew.
    #[test]
    fn the_level_is_that_of_the_worst_single_fault() {
        for deviations in [0.0, 0.3, 0.6] {
            let likelihood = Likelihood::new(&inexact(deviations));
            let minimum = likelihood.minimise(TARGET_M);
            let mut expected_m = radius() * deviation_m(&minimum);
            for (fault, _) in all_faults(&likelihood, minimum.position_m) {
                let mut rest = likelihood.clone();
                rest.exclude(fault);
                let without = rest.minimise(minimum.position_m);
                let shift_m = (without.position_m - minimum.position_m).norm();
                expected_m = expected_m.max(shift_m + radius() * deviation_m(&without));
            }
            let level_m = protection_level_m(&likelihood, &minimum, &[], RISK).unwrap();
            assert!((level_m / expected_m - 1.0).abs() < 0.01, "{level_m} m, expected {expected_m} m");
        }
    }

    /// A rival elsewhere is within the level; one near the fix changes nothing.
    #[test]
    fn rivals_are_within_the_level() {
        let likelihood = Likelihood::new(&inexact(0.3));
        let minimum = likelihood.minimise(TARGET_M);
        let alone_m = protection_level_m(&likelihood, &minimum, &[], RISK).unwrap();
        let moved = |by_m: f64| Minimum {
            position_m: minimum.position_m + model::geometry::PlanePoint::new(0.6, 0.8) * by_m,
            ..minimum
        };
        assert_eq!(protection_level_m(&likelihood, &minimum, &[moved(1e-3)], RISK), Some(alone_m));
        let level_m = protection_level_m(&likelihood, &minimum, &[moved(20.0), moved(5.0)], RISK).unwrap();
        assert!((level_m - 20.0 - radius() * deviation_m(&minimum)).abs() < 1e-9, "{level_m}");
    }

    /// Where one measurement alone determines a direction, its fault could move the fix without bound.
    #[test]
    fn without_redundancy_there_is_no_level() {
        let mut likelihood = Likelihood::new(&inexact(0.0));
        likelihood.range_weight.fill(0.0);
        likelihood.bearing_weight[2..].fill(0.0);
        let minimum = likelihood.minimise(TARGET_M);
        assert_eq!(protection_level_m(&likelihood, &minimum, &[], RISK), None);
    }
}
