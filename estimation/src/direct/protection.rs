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

use nalgebra::{Matrix2, SMatrix, SVector};

use super::likelihood::Term;
use crate::location::Fault;

/// Share of the risk spent on the normal error; the rest is reserved for deviations from the normal law.
const NOISE_SHARE: f64 = 0.8;
/// Information below this share of the whole is rounding.
const LEAST_INFORMATION: f64 = 1e-9;

/// Weighted sum of the derivatives of some terms.
struct WeightedSum<const N: usize> {
    gradient: SVector<f64, N>,
    information: SMatrix<f64, N, N>,
    terms: usize,
}

/// The terms of a fix with their derivatives, weighted and in units of its noise.
#[derive(Debug)]
pub(super) struct WeightedTerms<const N: usize> {
    pub terms: Vec<Term>,
    pub weights: Vec<f64>,
    /// Information that no fault affects.
    pub prior: SMatrix<f64, N, N>,
    pub irs_count: usize,
}

impl<const N: usize> WeightedTerms<N> {
    /// Information of all terms and the prior.
    pub fn information(&self) -> SMatrix<f64, N, N> {
        self.sum(|_| true).information + self.prior
    }

    fn sum(&self, member: impl Fn(&Term) -> bool) -> WeightedSum<N> {
        let mut sum = WeightedSum { gradient: SVector::zeros(), information: SMatrix::zeros(), terms: 0 };
        let terms = self.terms.iter().zip(&self.weights);
        for (Term { expansion, .. }, weight) in terms.filter(|(term, _)| member(term)) {
            sum.gradient += SVector::from_column_slice(expansion.gradient.as_slice()) * *weight;
            sum.information += SMatrix::from_column_slice(expansion.information.as_slice()) * *weight;
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
    pub fn protection_level_m(
        &self,
        to_position: &SMatrix<f64, 2, N>,
        widening: f64,
        risk: f64,
    ) -> Option<f64> {
        let radius = (-2.0 * (NOISE_SHARE * risk).ln()).sqrt() * widening;
        let gradient = self.sum(|_| true).gradient;
        let whole = self.information();
        let mut level_m = radius * deviation_m(&whole, to_position)?;
        for fault in self.faults() {
            let affected = self.sum(|term| self.affects(fault, term));
            if affected.terms == 0 {
                continue;
            }
            let information = whole - affected.information;
            let least = LEAST_INFORMATION * whole.trace();
            let factor = (information - SMatrix::identity() * least).cholesky()?;
            let shift_m = (to_position * factor.solve(&(gradient - affected.gradient))).norm();
            level_m = level_m.max(shift_m + radius * deviation_m(&information, to_position)?);
        }
        Some(level_m)
    }
}

/// Largest standard deviation of the position.
fn deviation_m<const N: usize>(
    information: &SMatrix<f64, N, N>,
    to_position: &SMatrix<f64, 2, N>,
) -> Option<f64> {
    let covariance: Matrix2<f64> = to_position * information.cholesky()?.solve(&to_position.transpose());
    Some(largest_eigenvalue(&covariance).sqrt()).filter(|deviation| deviation.is_finite())
}

pub(super) fn largest_eigenvalue(matrix: &Matrix2<f64>) -> f64 {
    let (mean, half) = (0.5 * matrix.trace(), 0.5 * (matrix.m11 - matrix.m22));
    mean + half.hypot(matrix.m12)
}
