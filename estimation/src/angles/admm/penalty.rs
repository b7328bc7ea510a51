//! The penalty rho, the inverse in the update of X that depends on it, and its adaptation.

use model::CMatrix;
use nalgebra::{Dyn, SymmetricEigen};
use num_complex::Complex64;

use super::super::problem::{Departure, JointProblem};

/// The penalty is changed where the ratio of the residuals exceeds this.
const IMBALANCE: f64 = 3.0;
/// Largest factor of a single change of the penalty.
const LARGEST_STEP: f64 = 5.0;
/// Iterations before the first check of the residuals; the interval grows so that the penalty converges.
const FIRST_CHECK: usize = 8;

#[derive(Debug)]
pub struct Penalty {
    rho: f64,
    lambda: f64,
    next_check: usize,
    interval: usize,
    /// Per IRS: eigendecomposition of S S^H, and (lambda S S^H + 2 rho I)^-1.
    factors: Vec<(SymmetricEigen<Complex64, Dyn>, CMatrix)>,
}

impl Penalty {
    pub fn new(problem: &JointProblem, rho: f64) -> Self {
        let factor = |departure: &Departure| {
            let gram = (&departure.signal * departure.signal.adjoint()).symmetric_eigen();
            let order = gram.eigenvalues.len();
            (gram, CMatrix::zeros(order, order))
        };
        let factors = problem.departures.iter().map(factor).collect();
        Self { rho, lambda: problem.lambda, next_check: FIRST_CHECK, interval: FIRST_CHECK, factors }
    }

    pub fn rho(&self) -> f64 {
        self.rho
    }

    pub fn inverse(&self, k: usize) -> &CMatrix {
        &self.factors[k].1
    }

    /// Recomputes the inverses for the present rho from the eigenvectors: `Q (lambda s^2 + 2 rho)^-1 Q^H`.
    pub fn refactor(&mut self) {
        for (gram, inverse) in &mut self.factors {
            let order = gram.eigenvalues.len();
            for i in 0..order {
                for j in 0..=i {
                    let mut sum = Complex64::ZERO;
                    for q in 0..order {
                        let shrink = 1.0 / (self.lambda * gram.eigenvalues[q].max(0.0) + 2.0 * self.rho);
                        sum += gram.eigenvectors[(i, q)] * gram.eigenvectors[(j, q)].conj() * shrink;
                    }
                    inverse[(i, j)] = sum;
                    inverse[(j, i)] = sum.conj();
                }
            }
        }
    }

    /// Checks the ratio of the residuals; returns the factor by which rho was changed, if it was.
    pub fn balance(&mut self, iteration: usize, primal: f64, dual: f64) -> Option<f64> {
        if iteration < self.next_check {
            return None;
        }
        self.next_check = iteration + self.interval;
        let ratio = primal / dual;
        if !(ratio.is_finite() && ratio > 0.0) || (1.0 / IMBALANCE..=IMBALANCE).contains(&ratio) {
            return None;
        }
        self.interval *= 2;
        self.next_check = iteration + self.interval;
        let factor = ratio.sqrt().clamp(1.0 / LARGEST_STEP, LARGEST_STEP);
        self.rho *= factor;
        Some(factor)
    }
}
