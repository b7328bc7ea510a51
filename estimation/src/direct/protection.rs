//! Protection level of a direct fix: a radius that contains the error with probability `1 - risk` even with one undetected
//! fault.
//!
//! It is computed by solution separation, as for the three stages (see `location::protection`): the fix without the terms that
//! a fault affects does not depend on the fault, whatever its size. So with fault h present the error is at most the distance
//! to the fix without h, which is known, plus the error of that one, which is normal of known covariance:
//! `level = max_h |x - x_h| + R_h`. The terms of the likelihood are summed, so that `x_h` follows by one Newton step from the
//! derivatives of the remaining terms: `O(K^2)` faults, each a sum over at most K^2 terms.
//!
//! Faults: a path, all paths sensed at an IRS, reflected by an IRS, or both, and the bearing of a node where it is used.

use nalgebra::{DMatrix, DVector};

use super::likelihood::Term;
use crate::ascent::Expansion;
use crate::location::{Fault, chi_square_quantile};

/// Share of the risk spent on the normal error; the rest is reserved for deviations from the normal law.
const NOISE_SHARE: f64 = 0.8;
/// Information below this share of the whole is rounding.
const LEAST_INFORMATION: f64 = 1e-9;

/// Weighted sum of the derivatives of some terms.
struct WeightedSum {
    gradient: DVector<f64>,
    information: DMatrix<f64>,
    terms: usize,
}

/// The terms of a fix with their derivatives, weighted and in units of its noise.
#[derive(Debug)]
pub(super) struct WeightedTerms {
    pub terms: Vec<Term>,
    pub weights: Vec<f64>,
    /// Knowledge from other sources, which no fault affects.
    pub prior: Expansion,
    pub irs_count: usize,
}

impl WeightedTerms {
    /// Information of all terms and the prior.
    pub fn information(&self) -> DMatrix<f64> {
        self.sum(|_| true).information + &self.prior.information
    }

    /// Gradient and information of the terms alone.
    pub fn likelihood(&self) -> (DVector<f64>, DMatrix<f64>) {
        let sum = self.sum(|_| true);
        (sum.gradient, sum.information)
    }

    fn sum(&self, member: impl Fn(&Term) -> bool) -> WeightedSum {
        let count = self.prior.gradient.len();
        let mut sum = WeightedSum {
            gradient: DVector::zeros(count),
            information: DMatrix::zeros(count, count),
            terms: 0,
        };
        let terms = self.terms.iter().zip(&self.weights);
        for (Term { expansion, .. }, weight) in terms.filter(|(term, _)| member(term)) {
            sum.gradient.axpy(*weight, &expansion.gradient, 1.0);
            sum.information.zip_apply(&expansion.information, |sum, own| *sum += own * *weight);
            sum.terms += 1;
        }
        sum
    }

    /// Whether a fault affects a term.
    fn affects(&self, fault: Fault, term: &Term) -> bool {
        if term.reflector < self.irs_count {
            fault.spoils_path(term.sensor, term.reflector)
        } else {
            fault.spoils_bearing(term.sensor)
        }
    }

    /// All faults, also those that affect no term.
    fn faults(&self) -> impl Iterator<Item = Fault> {
        let count = self.irs_count;
        let paths =
            (0..count * count).map(move |path| Fault::Path { sensor: path / count, reflector: path % count });
        paths.chain((0..count).flat_map(|node| {
            [
                Fault::SensorDelays { node },
                Fault::ReflectorDelays { node },
                Fault::NodeDelays { node },
                Fault::Bearing { node },
            ]
        }))
    }

    /// Protection level of the position, which `to_position` extracts from the state. `widening` is the ratio of the
    /// standard deviations to those of the information. None where a single fault could move the fix without bound.
    pub fn protection_level_m(&self, to_position: &DMatrix<f64>, widening: f64, risk: f64) -> Option<f64> {
        let radius = chi_square_quantile(NOISE_SHARE * risk, to_position.nrows()).sqrt() * widening;
        let gradient = self.sum(|_| true).gradient + &self.prior.gradient;
        let whole = self.information();
        let mut level_m = radius * deviation_m(&whole, to_position)?;
        for fault in self.faults() {
            let affected = self.sum(|term| self.affects(fault, term));
            if affected.terms == 0 {
                continue;
            }
            let information = &whole - affected.information;
            let least = LEAST_INFORMATION * whole.trace();
            let mut lowered = information.clone();
            (0..lowered.nrows()).for_each(|i| lowered[(i, i)] -= least);
            let shift_m = (to_position * lowered.cholesky()?.solve(&(&gradient - affected.gradient))).norm();
            level_m = level_m.max(shift_m + radius * deviation_m(&information, to_position)?);
        }
        Some(level_m)
    }
}

/// Largest standard deviation of the position.
fn deviation_m(information: &DMatrix<f64>, to_position: &DMatrix<f64>) -> Option<f64> {
    let covariance = to_position * information.clone().cholesky()?.solve(&to_position.transpose());
    Some(largest_eigenvalue(&covariance).sqrt()).filter(|deviation| deviation.is_finite())
}

/// Largest eigenvalue of a symmetric matrix; in closed form where that has two rows.
pub(super) fn largest_eigenvalue(matrix: &DMatrix<f64>) -> f64 {
    if matrix.nrows() != 2 {
        return matrix.clone().symmetric_eigenvalues().max();
    }
    let (mean, half) = (0.5 * matrix.trace(), 0.5 * (matrix[(0, 0)] - matrix[(1, 1)]));
    mean + half.hypot(matrix[(0, 1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One coordinate and two nodes that each sense themselves: without either, the fix is where the other has it.
    #[test]
    fn a_level_is_the_worst_separation_and_its_deviation() {
        let term = |node: usize, gradient: f64, information: f64| Term {
            sensor: node,
            reflector: node,
            expansion: Expansion {
                value: 1.0,
                gradient: DVector::repeat(1, gradient),
                information: DMatrix::repeat(1, 1, information),
            },
            moments: None,
            unit_snr: None,
        };
        let terms = |prior: f64| WeightedTerms {
            terms: vec![term(0, 3.0, 4.0), term(1, -2.0, 5.0)],
            weights: vec![0.5, 0.75],
            prior: Expansion { information: DMatrix::repeat(1, 1, prior), ..Expansion::zeros(1) },
            irs_count: 2,
        };
        let position = DMatrix::identity(1, 1);
        let risk: f64 = 0.01;
        let radius = chi_square_quantile(0.8 * risk, 1).sqrt() * 1.5;
        let level = |prior: f64| terms(prior).protection_level_m(&position, 1.5, risk);
        assert!((terms(0.5).information()[0] - (2.0 + 3.75 + 0.5)).abs() < 1e-12);
        let (gradient, information) = terms(0.5).likelihood();
        assert!((gradient[0] - (1.5 - 1.5)).abs() < 1e-12 && (information[0] - 5.75).abs() < 1e-12);
        let without = |gradient: f64, information: f64| gradient / information + radius / information.sqrt();
        let expected = without(1.5, 2.5).max(without(1.5, 4.25));
        assert!((level(0.5).unwrap() / expected - 1.0).abs() < 1e-6, "{:?} {expected}", level(0.5));
        // A single node could be wrong without bound.
        let mut alone = terms(0.0);
        alone.terms.pop();
        assert_eq!(alone.protection_level_m(&position, 1.5, risk), None);
    }

    #[test]
    fn eigenvalues_in_closed_form() {
        let two = DMatrix::from_row_slice(2, 2, &[5.0, 2.0, 2.0, 2.0]);
        assert!((largest_eigenvalue(&two) - 6.0).abs() < 1e-12);
        let three = DMatrix::from_diagonal(&DVector::from_row_slice(&[1.0, 7.0, 3.0]));
        assert!((largest_eigenvalue(&three) - 7.0).abs() < 1e-12);
    }
}
