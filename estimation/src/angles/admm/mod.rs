//! ADMM for the joint problem (Algorithm 1), all paths at once.
//!
//! With B_lk = [[T(v_l), X_lk], [X_lk^H, T(u_k)]], the copy Z_lk kept positive semidefinite and the scaled multiplier U_lk,
//! one iteration is
//!
//! 1. *averages*: the diagonals of Z + U, weighted by e_lk over the blocks that share them, give T(v_l) and T(u_k); the
//!    main diagonal loses 1 / (2 rho) (Eqs. (34), (35));
//! 2. *denoised blocks*: `X = (lambda R S^H + 2 rho C)(lambda S S^H + 2 rho I)^-1`, C the off-diagonal part of Z + U (Eq. (36) with S inside);
//! 3. *projection*: Z = positive semidefinite part of B^ - U, B^ over-relaxed (Eq. (40));
//! 4. *multiplier*: U <- U + Z - B^ (Eq. (41); unscaled it is G <- G + 2 rho (Z - B), where the paper prints rho).
//!
//! Steps 2 to 4 of a block need no other block, so that an iteration is one parallel pass over groups of blocks, and
//! sums over blocks are taken in a fixed order: the result does not depend on the number of threads.
//! The iteration stops when the primal residual ||Z - B|| and the dual residual ||Z - Z_old||, each relative to the norm of
//! its terms, are below the tolerance. The penalty is adapted to balance the two.
//! Cost: one Hermitian eigen-decomposition of order M + N per path and iteration; nothing is allocated in the loop.

mod group;
mod penalty;
mod steps;

use num_complex::Complex64;
use rayon::prelude::*;

use super::problem::{DepartureForm, JointProblem, JointSolution, ProblemError};
use crate::linalg::ComplexLanes;
use group::{Group, Place};
use penalty::Penalty;

/// Both relative residuals must fall below this multiple of the tolerance. The objective is reported with its
/// first-order correction for infeasibility, so that its error is of second order in the residuals: below the
/// tolerance in every case of the reference vectors and of Table I, by a factor of 2 at 1e-4 and 5 at 1e-6.
const RESIDUAL_PER_TOLERANCE: f64 = 3.0;

/// Settings of the solver.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmmSettings {
    /// Relative accuracy of the objective. The stopping rule uses residuals: see `RESIDUAL_PER_TOLERANCE`.
    pub tolerance: f64,
    /// Iteration limit, at least 1.
    pub max_iterations: usize,
    /// Initial penalty rho, for a problem scaled to unit noise and unit mean ||S_k||.
    pub penalty: f64,
    /// Over-relaxation factor, between 0 and 2; 1 for none.
    pub relaxation: f64,
    /// Whether the penalty is adapted to balance the residuals. The paper keeps it constant.
    pub balanced: bool,
}

impl Default for AdmmSettings {
    fn default() -> Self {
        Self { tolerance: 1e-4, max_iterations: 2000, penalty: 0.15, relaxation: 1.7, balanced: true }
    }
}

impl AdmmSettings {
    fn validate(&self) -> Result<(), ProblemError> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !(self.relaxation > 0.0 && self.relaxation < 2.0) {
            return Err(ProblemError::Relaxation(self.relaxation));
        }
        let values = [
            ("tolerance", self.tolerance),
            ("penalty", self.penalty),
            ("max_iterations", self.max_iterations as f64),
        ];
        match values.into_iter().find(|(_, value)| !positive(*value)) {
            Some((name, value)) => Err(ProblemError::Scalar { name, value }),
            None => Ok(()),
        }
    }
}

/// Solves a joint problem from a cold start.
pub fn solve(problem: &JointProblem, settings: &AdmmSettings) -> Result<JointSolution, ProblemError> {
    problem.validate()?;
    settings.validate()?;
    let mut iterate = Iterate::new(problem, settings);
    let (iterations, norms) = if iterate.groups.len() > 1 && rayon::current_num_threads() > 1 {
        // One entry into the pool for the whole solve: iterations then fork and join without allocating.
        rayon::scope(|_| iterate.run(problem, settings))
    } else {
        iterate.run(problem, settings)
    };
    Ok(iterate.solution(problem, settings, iterations, norms))
}

/// Sums of squares over blocks that the stopping rule needs.
#[derive(Debug, Clone, Copy, Default)]
struct Norms {
    primal: f64,
    dual: f64,
    point: f64,
    multiplier: f64,
}

impl Norms {
    /// Relative primal and dual residual.
    fn relative(&self) -> (f64, f64) {
        let ratio = |a: f64, b: f64| if a == 0.0 { 0.0 } else { (a / b.max(f64::MIN_POSITIVE)).sqrt() };
        (ratio(self.primal, self.point), ratio(self.dual, self.multiplier))
    }

    fn is_below(&self, settings: &AdmmSettings) -> bool {
        let limit = RESIDUAL_PER_TOLERANCE * settings.tolerance;
        let (primal, dual) = self.relative();
        primal <= limit && dual <= limit
    }
}

/// The current point of the iteration.
struct Iterate {
    groups: Vec<Group>,
    /// Group and lane of every path.
    places: Vec<Place>,
    penalty: Penalty,
    /// First columns of T(v_l) and T(u_k).
    arrival: Vec<Vec<Complex64>>,
    departure: Vec<Vec<Complex64>>,
}

impl Iterate {
    fn new(problem: &JointProblem, settings: &AdmmSettings) -> Self {
        let (groups, places) = group::arrange(problem);
        let orders = problem.departures.iter().map(|departure| departure.signal.nrows());
        let mut iterate = Self {
            groups,
            places,
            penalty: Penalty::new(problem, settings.penalty),
            arrival: vec![vec![Complex64::ZERO; problem.sensors]; problem.departures.len()],
            departure: orders.map(|order| vec![Complex64::ZERO; order]).collect(),
        };
        for (place, path) in iterate.places.iter().zip(&problem.paths) {
            let data = &path.block * problem.departures[path.k].signal.adjoint();
            iterate.groups[place.group].load(place.lane, &data.scale(problem.lambda));
        }
        iterate.update_inverses();
        iterate
    }

    /// Recomputes (lambda S S^H + 2 rho I)^-1 and copies it to every block.
    fn update_inverses(&mut self) {
        self.penalty.refactor();
        for place in &self.places {
            self.groups[place.group].set_inverse(place.lane, self.penalty.inverse(place.k));
        }
    }

    /// Iterates until the residuals are below the tolerance or the limit is reached: the number of iterations and the last
    /// norms.
    fn run(&mut self, problem: &JointProblem, settings: &AdmmSettings) -> (usize, Norms) {
        let mut norms = Norms::default();
        for iteration in 1..=settings.max_iterations {
            self.average_diagonals(problem);
            norms = self.update_blocks(settings.relaxation);
            if norms.is_below(settings) {
                return (iteration, norms);
            }
            let (primal, dual) = norms.relative();
            if settings.balanced
                && let Some(factor) = self.penalty.balance(iteration, primal, dual)
            {
                self.groups.iter_mut().for_each(|group| group.rescale_multiplier(1.0 / factor));
                self.update_inverses();
            }
        }
        (settings.max_iterations, norms)
    }

    /// Step 1: T(v_l) and T(u_k) from the diagonals of Z + U.
    fn average_diagonals(&mut self, problem: &JointProblem) {
        let loss = 0.5 / self.penalty.rho();
        let paths = || self.places.iter().zip(&problem.paths);
        for (l, row) in self.arrival.iter_mut().enumerate() {
            let shared = paths().filter(|(place, _)| place.l == l);
            average(
                row,
                loss,
                shared.map(|(place, path)| (path.weight, place.lane, &self.groups[place.group].arrival_sums)),
            );
        }
        for (k, row) in self.departure.iter_mut().enumerate() {
            if problem.departures[k].form == DepartureForm::Structured {
                let shared = paths().filter(|(place, _)| place.k == k);
                average(
                    row,
                    loss,
                    shared.map(|(place, path)| {
                        (path.weight, place.lane, &self.groups[place.group].departure_sums)
                    }),
                );
            }
        }
        for place in &self.places {
            self.groups[place.group].set_corners(
                place.lane,
                &self.arrival[place.l],
                &self.departure[place.k],
            );
        }
    }

    /// Steps 2 to 4 of every block; the sums are taken in the order of the groups.
    fn update_blocks(&mut self, relaxation: f64) -> Norms {
        let rho = self.penalty.rho();
        if rayon::current_thread_index().is_some() && self.groups.len() > 1 {
            self.groups.par_iter_mut().for_each(|group| group.update(rho, relaxation));
        } else {
            self.groups.iter_mut().for_each(|group| group.update(rho, relaxation));
        }
        let mut sum = Norms::default();
        for norms in self.groups.iter().map(|group| group.norms) {
            sum.primal += norms.primal;
            sum.dual += norms.dual;
            sum.point += norms.point;
            sum.multiplier += norms.multiplier;
        }
        sum
    }

    fn solution(
        &self,
        problem: &JointProblem,
        settings: &AdmmSettings,
        iterations: usize,
        norms: Norms,
    ) -> JointSolution {
        let denoised: Vec<_> =
            self.places.iter().map(|place| self.groups[place.group].denoised(place.lane)).collect();
        let mut objective = 0.0;
        for ((place, path), x) in self.places.iter().zip(&problem.paths).zip(&denoised) {
            let group = &self.groups[place.group];
            let fit = (x * &problem.departures[path.k].signal - &path.block).norm_squared();
            // The Lagrangian instead of the objective at B: its error is of second order in the infeasibility.
            let correction = 2.0 * self.penalty.rho() * group.infeasibility.0[place.lane];
            objective += path.weight * (group.traces(place.lane) + problem.lambda * fit + correction);
        }
        let used = |shared: bool, row: &[Complex64]| shared.then(|| row.iter().map(|v| v.conj()).collect());
        let arrival = self.arrival.iter().enumerate();
        let departure = self.departure.iter().enumerate();
        let (primal_residual, dual_residual) = norms.relative();
        JointSolution {
            objective,
            iterations,
            converged: norms.is_below(settings),
            primal_residual,
            dual_residual,
            arrival: arrival.map(|(l, row)| used(self.places.iter().any(|p| p.l == l), row)).collect(),
            departure: departure
                .map(|(k, row)| {
                    let structured = problem.departures[k].form == DepartureForm::Structured;
                    used(structured && self.places.iter().any(|p| p.k == k), row)
                })
                .collect(),
            denoised,
        }
    }
}

/// Weighted mean of each diagonal over the blocks that share it, given as weight, lane and sums along the diagonals; the
/// main diagonal is reduced by `loss`.
fn average<'a>(
    row: &mut [Complex64],
    loss: f64,
    shared: impl Iterator<Item = (f64, usize, &'a Vec<ComplexLanes>)>,
) {
    row.fill(Complex64::ZERO);
    let mut total = 0.0;
    for (weight, lane, sums) in shared {
        total += weight;
        for (value, sum) in row.iter_mut().zip(sums) {
            *value += group::get(sum, lane) * weight;
        }
    }
    if total == 0.0 {
        return;
    }
    let order = row.len();
    for (m, value) in row.iter_mut().enumerate() {
        *value /= total * (order - m) as f64;
    }
    row[0] = Complex64::new(row[0].re - loss, 0.0);
}
