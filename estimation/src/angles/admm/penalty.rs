//! The penalty rho and what depends on it: the factored X-update and the balance of the residuals.

use model::CMatrix;
use nalgebra::DVector;
use num_complex::Complex64;

use super::super::problem::JointProblem;

/// Residuals further apart than this move the penalty.
const IMBALANCE: f64 = 3.0;
/// Largest single step of the penalty.
const LARGEST_STEP: f64 = 5.0;
/// Iterations between two looks at the balance, growing so that the penalty settles.
const FIRST_LOOK: usize = 8;

#[derive(Debug)]
pub struct Penalty {
    rho: f64,
    lambda: f64,
    next_look: usize,
    interval: usize,
    /// Per IRS: eigenvectors and eigenvalues of S S^H, and (lambda S S^H + 2 rho I)^-1.
    factors: Vec<Factor>,
}

#[derive(Debug)]
struct Factor {
    vectors: CMatrix,
    values: DVector<f64>,
    inverse: CMatrix,
}

impl Penalty {
    pub fn new(problem: &JointProblem, rho: f64) -> Self {
        let factors = problem
            .departures
            .iter()
            .map(|departure| {
                let gram = (&departure.signal * departure.signal.adjoint()).symmetric_eigen();
                let order = gram.eigenvalues.len();
                Factor {
                    vectors: gram.eigenvectors,
                    values: gram.eigenvalues,
                    inverse: CMatrix::zeros(order, order),
                }
            })
            .collect();
        Self { rho, lambda: problem.lambda, next_look: FIRST_LOOK, interval: FIRST_LOOK, factors }
    }

    pub fn rho(&self) -> f64 {
        self.rho
    }

    pub fn inverse(&self, k: usize) -> &CMatrix {
        &self.factors[k].inverse
    }

    /// Recomputes the inverses for the present rho from the eigenvectors: `Q (lambda s^2 + 2 rho)^-1 Q^H`.
    pub fn refactor(&mut self) {
        for factor in &mut self.factors {
            let order = factor.values.len();
            for i in 0..order {
                for j in 0..=i {
                    let mut sum = Complex64::ZERO;
                    for q in 0..order {
                        let shrink = 1.0 / (self.lambda * factor.values[q].max(0.0) + 2.0 * self.rho);
                        sum += factor.vectors[(i, q)] * factor.vectors[(j, q)].conj() * shrink;
                    }
                    factor.inverse[(i, j)] = sum;
                    factor.inverse[(j, i)] = sum.conj();
                }
            }
        }
    }

    /// A look at the balance: the factor by which rho was changed, if it was.
    pub fn balance(&mut self, iteration: usize, primal: f64, dual: f64) -> Option<f64> {
        if iteration < self.next_look {
            return None;
        }
        self.next_look = iteration + self.interval;
        let ratio = primal / dual;
        if !(ratio.is_finite() && ratio > 0.0) || (1.0 / IMBALANCE..=IMBALANCE).contains(&ratio) {
            return None;
        }
        self.interval *= 2;
        self.next_look = iteration + self.interval;
        let factor = ratio.sqrt().clamp(1.0 / LARGEST_STEP, LARGEST_STEP);
        self.rho *= factor;
        Some(factor)
    }
}
