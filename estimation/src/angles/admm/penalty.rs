//! The penalty rho, the inverse in the update of X that depends on it, and its adaptation.

use model::CMatrix;
use nalgebra::{Dyn, SymmetricEigen};
use num_complex::Complex64;

use super::super::problem::JointProblem;

/// The penalty is changed where the ratio of the residuals exceeds this.
const IMBALANCE: f64 = 3.0;
/// Largest factor of a single change of the penalty.
const LARGEST_STEP: f64 = 5.0;
/// Iterations before the first check of the residuals; the interval grows so that the penalty converges.
const FIRST_CHECK: usize = 8;

#[derive(Debug, Default)]
pub struct Penalty {
    rho: f64,
    lambda: f64,
    next_check: usize,
    interval: usize,
    /// By IRS; kept from one problem to the next as long as the signals are the same.
    factors: Vec<Factor>,
}

/// What depends on the reflected signal of an IRS.
#[derive(Debug)]
struct Factor {
    /// S_k, in the unit of the problem and in that of the solver.
    signal: CMatrix,
    unit: f64,
    /// S_k^H in the unit of the solver.
    adjoint: CMatrix,
    /// Eigendecomposition of S S^H, and (lambda S S^H + 2 rho I)^-1.
    gram: SymmetricEigen<Complex64, Dyn>,
    inverse: CMatrix,
}

impl Factor {
    fn new(signal: &CMatrix, unit: f64) -> Self {
        let scaled = signal.unscale(unit);
        let adjoint = scaled.adjoint();
        let gram = (scaled * &adjoint).symmetric_eigen();
        let inverse = CMatrix::zeros(adjoint.ncols(), adjoint.ncols());
        Self { signal: signal.clone(), unit, adjoint, gram, inverse }
    }
}

impl Penalty {
    /// Begins a problem whose signals are given in multiples of `unit`.
    pub fn begin(&mut self, problem: &JointProblem, unit: f64, lambda: f64, rho: f64) {
        self.factors.truncate(problem.departures.len());
        for (k, departure) in problem.departures.iter().enumerate() {
            match self.factors.get_mut(k) {
                Some(factor) if factor.unit == unit && factor.signal == departure.signal => {}
                Some(factor) => *factor = Factor::new(&departure.signal, unit),
                None => self.factors.push(Factor::new(&departure.signal, unit)),
            }
        }
        (self.rho, self.lambda) = (rho, lambda);
        (self.next_check, self.interval) = (FIRST_CHECK, FIRST_CHECK);
    }

    pub fn rho(&self) -> f64 {
        self.rho
    }

    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    pub fn inverse(&self, k: usize) -> &CMatrix {
        &self.factors[k].inverse
    }

    /// S_k^H in the unit of the solver.
    pub fn adjoint(&self, k: usize) -> &CMatrix {
        &self.factors[k].adjoint
    }

    /// Recomputes the inverses for the present rho from the eigenvectors: `Q (lambda s^2 + 2 rho)^-1 Q^H`.
    pub fn refactor(&mut self) {
        for Factor { gram, inverse, .. } in &mut self.factors {
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
