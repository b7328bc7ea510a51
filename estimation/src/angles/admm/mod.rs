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
//! It stops when the primal residual ||Z - B|| and the dual residual ||Z - Z_old||, each relative to what it is the
//! difference of, fall below the tolerance; the penalty is balanced between the two on the way.
//! Cost: one Hermitian eigen-decomposition of order M + N per path and iteration; nothing is allocated in the loop.

mod group;
mod penalty;
mod steps;

use num_complex::Complex64;
use rayon::prelude::*;

use super::problem::{DepartureForm, JointProblem, JointSolution, ProblemError};
use group::{Group, Place};
use penalty::Penalty;

/// Both relative residuals must fall below this multiple of the tolerance. The objective is reported with its
/// first-order correction for infeasibility, so that its error is of second order in the residuals: below the
/// tolerance in every case of the reference vectors and of Table I, by a factor of 2 at 1e-4 and 5 at 1e-6.
const RESIDUAL_PER_TOLERANCE: f64 = 3.0;

/// Settings of the solver.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmmSettings {
    /// Relative accuracy of the objective. The stop is by residuals: see `RESIDUAL_PER_TOLERANCE`.
    pub tolerance: f64,
    /// Iteration limit.
    pub max_iterations: usize,
    /// First penalty rho, for a problem scaled to unit noise and unit mean ||S_k||; balanced from there.
    pub penalty: f64,
    /// Over-relaxation, 1 for none, below 2.
    pub relaxation: f64,
    /// Whether the penalty is balanced between the residuals; else it stays as it is, as in the paper.
    pub balanced: bool,
}

impl Default for AdmmSettings {
    fn default() -> Self {
        Self { tolerance: 1e-4, max_iterations: 2000, penalty: 0.15, relaxation: 1.7, balanced: true }
    }
}

impl AdmmSettings {
    /// Refuses settings that cannot work.
    pub fn validate(&self) -> Result<(), ProblemError> {
        let refuse = |name, value| Err(ProblemError::Scalar { name, value });
        if !(self.tolerance.is_finite() && self.tolerance > 0.0) {
            return refuse("tolerance", self.tolerance);
        }
        if !(self.penalty.is_finite() && self.penalty > 0.0) {
            return refuse("penalty", self.penalty);
        }
        if !(self.relaxation > 0.0 && self.relaxation < 2.0) {
            return refuse("relaxation", self.relaxation);
        }
        if self.max_iterations == 0 {
            return refuse("max_iterations", 0.0);
        }
        Ok(())
    }
}

/// A solver that keeps its memory and its last point from one problem to the next.
#[derive(Debug, Default)]
pub struct JointSolver {
    state: Option<State>,
}

impl JointSolver {
    /// A solver without a past.
    pub fn new() -> Self {
        Self::default()
    }

    /// Solves from a cold start.
    pub fn solve(
        &mut self,
        problem: &JointProblem,
        settings: &AdmmSettings,
    ) -> Result<JointSolution, ProblemError> {
        self.forget();
        self.solve_warm(problem, settings)
    }

    /// Solves from where the last problem ended, if it had the same paths and sizes. The phases of the paths, which
    /// change from frame to frame, are carried over to the new data first.
    pub fn solve_warm(
        &mut self,
        problem: &JointProblem,
        settings: &AdmmSettings,
    ) -> Result<JointSolution, ProblemError> {
        problem.validate()?;
        settings.validate()?;
        let mut state = match self.state.take().filter(|state| state.fits(problem)) {
            Some(state) => state.renewed(problem),
            None => State::new(problem, settings),
        };
        let outcome = if state.groups.len() > 1 && rayon::current_num_threads() > 1 {
            // One entry into the pool for the whole solve: iterations then fork and join without allocating.
            rayon::scope(|_| state.iterate(problem, settings))
        } else {
            state.iterate(problem, settings)
        };
        let solution = state.solution(problem, outcome);
        self.state = Some(state);
        Ok(solution)
    }

    /// Drops the last point: the next solve starts cold.
    pub fn forget(&mut self) {
        self.state = None;
    }
}

struct Outcome {
    iterations: usize,
    converged: bool,
    primal: f64,
    dual: f64,
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
    fn relative(&self) -> (f64, f64) {
        let ratio = |a: f64, b: f64| if a == 0.0 { 0.0 } else { (a / b.max(f64::MIN_POSITIVE)).sqrt() };
        (ratio(self.primal, self.point), ratio(self.dual, self.multiplier))
    }
}

#[derive(Debug)]
struct State {
    sensors: usize,
    /// Order and form of every departure side, to recognise a problem of the same shape.
    shape: Vec<(DepartureForm, usize)>,
    groups: Vec<Group>,
    /// Group and lane of every path.
    places: Vec<Place>,
    penalty: Penalty,
    /// First column of T(v_l) and T(u_k).
    arrival: Vec<Vec<Complex64>>,
    departure: Vec<Vec<Complex64>>,
}

impl State {
    fn new(problem: &JointProblem, settings: &AdmmSettings) -> Self {
        let shape: Vec<_> = problem.departures.iter().map(|d| (d.form, d.signal.nrows())).collect();
        let (groups, places) = group::arrange(problem);
        let mut state = Self {
            sensors: problem.sensors,
            groups,
            places,
            penalty: Penalty::new(problem, settings.penalty),
            arrival: vec![vec![Complex64::ZERO; problem.sensors]; problem.departures.len()],
            departure: shape.iter().map(|&(_, order)| vec![Complex64::ZERO; order]).collect(),
            shape,
        };
        state.load(problem);
        state
    }

    fn fits(&self, problem: &JointProblem) -> bool {
        self.sensors == problem.sensors
            && self.shape.iter().copied().eq(problem.departures.iter().map(|d| (d.form, d.signal.nrows())))
            && self.places.iter().map(|p| (p.l, p.k)).eq(problem.paths.iter().map(|p| (p.l, p.k)))
    }

    /// The last point with the data of a new problem.
    fn renewed(mut self, problem: &JointProblem) -> Self {
        for (place, path) in self.places.iter().zip(&problem.paths) {
            self.groups[place.group].turn_phase(place.lane, &path.block, &problem.departures[path.k].signal);
        }
        self.penalty = Penalty::new(problem, self.penalty.rho());
        self.load(problem);
        self
    }

    fn load(&mut self, problem: &JointProblem) {
        for (place, path) in self.places.iter().zip(&problem.paths) {
            let data = &path.block * problem.departures[path.k].signal.adjoint();
            self.groups[place.group].load(place.lane, &data.scale(problem.lambda));
        }
        self.spread_penalty();
    }

    /// Hands (lambda S S^H + 2 rho I)^-1 to every block.
    fn spread_penalty(&mut self) {
        self.penalty.refactor();
        for place in &self.places {
            self.groups[place.group].set_inverse(place.lane, self.penalty.inverse(place.k));
        }
    }

    fn iterate(&mut self, problem: &JointProblem, settings: &AdmmSettings) -> Outcome {
        let (mut primal, mut dual) = (f64::INFINITY, f64::INFINITY);
        let limit = RESIDUAL_PER_TOLERANCE * settings.tolerance;
        for iteration in 1..=settings.max_iterations {
            self.average_diagonals(problem);
            let norms = self.update_blocks(settings.relaxation);
            (primal, dual) = norms.relative();
            if primal <= limit && dual <= limit {
                return Outcome { iterations: iteration, converged: true, primal, dual };
            }
            if settings.balanced
                && let Some(factor) = self.penalty.balance(iteration, primal, dual)
            {
                self.groups.iter_mut().for_each(|group| group.rescale_multiplier(1.0 / factor));
                self.spread_penalty();
            }
        }
        Outcome { iterations: settings.max_iterations, converged: false, primal, dual }
    }

    /// Step 1: T(v_l) and T(u_k) from the diagonals of Z + U.
    fn average_diagonals(&mut self, problem: &JointProblem) {
        let loss = 0.5 / self.penalty.rho();
        for (l, row) in self.arrival.iter_mut().enumerate() {
            let shared = self.places.iter().zip(&problem.paths).filter(|(place, _)| place.l == l);
            average(
                row,
                loss,
                shared.map(|(place, path)| (path.weight, self.groups[place.group].arrival_sums(place.lane))),
            );
        }
        for (k, row) in self.departure.iter_mut().enumerate() {
            if problem.departures[k].form == DepartureForm::Structured {
                let shared = self.places.iter().zip(&problem.paths).filter(|(place, _)| place.k == k);
                average(
                    row,
                    loss,
                    shared.map(|(place, path)| {
                        (path.weight, self.groups[place.group].departure_sums(place.lane))
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

    fn solution(&self, problem: &JointProblem, outcome: Outcome) -> JointSolution {
        let denoised: Vec<_> =
            self.places.iter().map(|place| self.groups[place.group].denoised(place.lane)).collect();
        let mut objective = 0.0;
        for ((place, path), x) in self.places.iter().zip(&problem.paths).zip(&denoised) {
            let fit = (x * &problem.departures[path.k].signal - &path.block).norm_squared();
            let traces = self.groups[place.group].traces(place.lane);
            // The Lagrangian rather than the objective at B: first-order free of the remaining infeasibility.
            let correction = 2.0 * self.penalty.rho() * self.groups[place.group].infeasibility(place.lane);
            objective += path.weight * (traces + problem.lambda * fit + correction);
        }
        let used = |shared: bool, row: &[Complex64]| shared.then(|| row.iter().map(|v| v.conj()).collect());
        let arrival = self.arrival.iter().enumerate();
        let departure = self.departure.iter().enumerate();
        JointSolution {
            objective,
            iterations: outcome.iterations,
            converged: outcome.converged,
            primal_residual: outcome.primal,
            dual_residual: outcome.dual,
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

/// Weighted mean of each diagonal over the blocks that share it; `sums` holds the sum along each diagonal.
fn average<'a>(
    row: &mut [Complex64],
    loss: f64,
    shared: impl Iterator<Item = (f64, group::DiagonalSums<'a>)>,
) {
    row.fill(Complex64::ZERO);
    let mut total = 0.0;
    for (weight, sums) in shared {
        total += weight;
        for (m, value) in row.iter_mut().enumerate() {
            *value += sums.at(m) * weight;
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
