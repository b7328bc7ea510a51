//! Protection level of a direct fix: a radius that holds the error with probability `1 - risk` even if one fault went
//! unnoticed.
//!
//! By solution separation, as for the three stages (see `location::protection`): without the terms that a fault spoils,
//! the fix does not know of the fault, whatever its size. So with fault h present the error is at most the distance to
//! the fix without h, which is known, plus the error of that one, which is normal of known covariance:
//! `level = max_h |x - x_h| + R_h`. The terms of the likelihood add up, so that `x_h` follows by one Newton step from the
//! derivatives of the terms that are left: `O(K^2)` faults, each a sum over at most K^2 terms.
//!
//! Faults: a path, all paths sensed at an IRS, reflected by an IRS, or both, and the bearing of a node where it counts.

use nalgebra::{Matrix2, SMatrix, SVector};

use super::newton::Expansion;
use super::posterior::Part;
use crate::location::Fault;

/// Share of the risk spent on the normal error; the rest is kept for what is not normal.
const NOISE_SHARE: f64 = 0.8;
/// Information below this share of the whole is rounding.
const LEAST_INFORMATION: f64 = 1e-9;

/// Sums over terms.
#[derive(Debug, Clone, Copy)]
struct Sum<const N: usize> {
    gradient: SVector<f64, N>,
    information: SMatrix<f64, N, N>,
    terms: usize,
}

impl<const N: usize> Sum<N> {
    const fn zero() -> Self {
        Self {
            gradient: SVector::from_array_storage(nalgebra::ArrayStorage([[0.0; N]; 1])),
            information: SMatrix::from_array_storage(nalgebra::ArrayStorage([[0.0; N]; N])),
            terms: 0,
        }
    }

    fn add(&mut self, expansion: &Expansion<N>, weight: f64) {
        self.gradient += expansion.gradient * weight;
        self.information += expansion.information * weight;
        self.terms += 1;
    }
}

/// The terms of a fix, weighted and in units of its noise.
#[derive(Debug)]
pub(super) struct Terms<'a, const N: usize> {
    pub parts: &'a [Part],
    pub expansions: &'a [Expansion<N>],
    pub weights: &'a [f64],
    /// Information that no fault spoils.
    pub prior: SMatrix<f64, N, N>,
    pub irs_count: usize,
}

impl<const N: usize> Terms<'_, N> {
    /// Gradient and information of everything.
    fn whole(&self) -> Sum<N> {
        let sum = self.sum(|_| true);
        Sum { information: sum.information + self.prior, ..sum }
    }

    /// Information of everything.
    pub fn information(&self) -> SMatrix<f64, N, N> {
        self.whole().information
    }

    fn sum(&self, member: impl Fn(&Part) -> bool) -> Sum<N> {
        let mut sum = Sum::zero();
        for ((part, expansion), weight) in self.parts.iter().zip(self.expansions).zip(self.weights) {
            if member(part) {
                sum.add(expansion, *weight);
            }
        }
        sum
    }

    /// Faults that the terms could have; one that spoils the same terms as another is left out.
    fn faults(&self) -> Vec<Fault> {
        let count = self.irs_count;
        let mut faults = Vec::with_capacity(count * (count + 4));
        for sensor in 0..count {
            faults.extend((0..count).map(|reflector| Fault::Path { sensor, reflector }));
        }
        for node in 0..count {
            faults.extend([
                Fault::SensorDelays { node },
                Fault::ReflectorDelays { node },
                Fault::NodeDelays { node },
                Fault::Bearing { node },
            ]);
        }
        faults
    }

    /// The level of the position that `to_position` takes out of the state. `widening` is by how much deviations
    /// exceed those of the information. None where some single fault could move the fix without bound.
    pub fn protection_level_m(
        &self,
        to_position: &SMatrix<f64, 2, N>,
        widening: f64,
        risk: f64,
    ) -> Option<f64> {
        let radius = (-2.0 * (NOISE_SHARE * risk).ln()).sqrt() * widening;
        let whole = self.whole();
        let mut level_m = radius * deviation_m(&whole.information, to_position)?;
        for fault in self.faults() {
            let spoilt = self.sum(|part| spoils(fault, part, self.irs_count));
            if spoilt.terms == 0 {
                continue;
            }
            let information = whole.information - spoilt.information;
            let least = LEAST_INFORMATION * whole.information.trace();
            let factor = (information - SMatrix::identity() * least).cholesky()?;
            let shift_m = (to_position * factor.solve(&(whole.gradient - spoilt.gradient))).norm();
            level_m = level_m.max(shift_m + radius * deviation_m(&information, to_position)?);
        }
        Some(level_m)
    }
}

fn spoils(fault: Fault, part: &Part, irs_count: usize) -> bool {
    if part.reflector < irs_count {
        fault.spoils_path(part.sensor, part.reflector)
    } else {
        fault.spoils_bearing(part.sensor)
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
