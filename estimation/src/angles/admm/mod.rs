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
//! The iteration ends when the estimated error of the objective (`stopping.rs`) is below the tolerance. The penalty is adapted
//! to balance the primal residual ||Z - B|| and the dual residual, each relative to the norm of its terms.
//! Iterations are in single precision until the residuals are below 1e-4, far above its rounding, then in
//! double precision if the tolerance asks for more. The units of the problem do not matter: blocks and signals are divided by powers of
//! two first, x t and t, which makes lambda x t^2 and rho x of lambda and rho and changes no digit.
//!
//! Cost: one Hermitian eigen-decomposition of order M + N per path and iteration. A [`JointSolver`] keeps its memory, and what
//! depends on the signals alone, from one problem to the next: the second problem of a kind allocates nothing.

mod group;
mod penalty;
mod steps;
mod stopping;

use model::CMatrix;
use num_complex::Complex64;
use rayon::prelude::*;

use super::problem::{Departure, DepartureForm, JointProblem, JointSolution, PathData, ProblemError};
use crate::linalg::{ComplexLanes, LANES, Scalar};
use group::{Group, GroupKind, Place};
use penalty::Penalty;
use stopping::{Norms, Travel};

/// Relative residuals down to which iterations are in single precision: a thousand times its rounding.
const SINGLE_RESIDUAL: f64 = 1e-4;

/// Least tolerance of an objective that is found in single precision.
const SINGLE_TOLERANCE: f64 = 1e-5;

/// Units of rounding by which a sum over the entries of all blocks may be off.
const ROUNDINGS: f64 = 32.0;

/// Settings of the solver.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmmSettings {
    /// Relative accuracy of the objective.
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
    let mut solver = JointSolver::default();
    solver.solve(problem, settings)?;
    Ok(solver.solution)
}

/// Solves joint problems, one after the other, from cold starts.
#[derive(Debug, Default)]
pub struct JointSolver {
    kinds: Vec<GroupKind>,
    /// The groups of blocks; those of double precision are made when a problem first needs them.
    single: Vec<Group<f32>>,
    double: Vec<Group<f64>>,
    shared: SharedAverages,
    /// A product of a block with a signal.
    product: CMatrix,
    solution: JointSolution,
}

/// What the blocks share.
#[derive(Debug, Default)]
struct SharedAverages {
    /// Group and lane of every path.
    places: Vec<Place>,
    penalty: Penalty,
    /// First columns of T(v_l) and T(u_k).
    arrival: Vec<Vec<Complex64>>,
    departure: Vec<Vec<Complex64>>,
}

/// The powers of two by which a problem is divided.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Units {
    /// Of signals, t.
    signal: f64,
    /// Of X and of the semidefinite blocks, x; blocks R are divided by x t.
    block: f64,
}

impl Units {
    /// Brings the largest entries to between one and two.
    fn of(problem: &JointProblem) -> Self {
        let largest =
            |matrix: &CMatrix| matrix.iter().map(|v| v.re.abs().max(v.im.abs())).fold(0.0, f64::max);
        let unit = |largest: f64| if largest == 0.0 { 1.0 } else { largest.inverse_power_of_two().recip() };
        let signal = unit(problem.departures.iter().map(|d| largest(&d.signal)).fold(0.0, f64::max));
        let block = unit(problem.paths.iter().map(|path| largest(&path.block)).fold(0.0, f64::max));
        Self { signal, block: block / signal }
    }
}

/// Whether lambda and rho are numbers that single precision can work with.
fn fit_single(lambda: f64, rho: f64) -> bool {
    [lambda, rho].iter().all(|value| (1e-12..1e12).contains(value))
}

impl JointSolver {
    /// Solves a problem from a cold start.
    pub fn solve(
        &mut self,
        problem: &JointProblem,
        settings: &AdmmSettings,
    ) -> Result<&JointSolution, ProblemError> {
        problem.validate()?;
        settings.validate()?;
        if problem.paths.len() > LANES
            && rayon::current_num_threads() > 1
            && rayon::current_thread_index().is_none()
        {
            // One entry into the pool for the whole solve: iterations then fork and join without allocating.
            rayon::scope(|_| self.solve_checked(problem, settings));
        } else {
            self.solve_checked(problem, settings);
        }
        Ok(&self.solution)
    }

    fn solve_checked(&mut self, problem: &JointProblem, settings: &AdmmSettings) {
        self.arrange(problem);
        let units = Units::of(problem);
        let (lambda, rho) =
            (problem.lambda * units.block * units.signal.powi(2), settings.penalty * units.block);
        self.shared.begin(problem, units, lambda, rho);
        let mut run = Run::new(settings, constant(problem, units, lambda));
        let Self { kinds, single, double, shared, product, solution } = self;
        if fit_single(lambda, rho) {
            load(single, problem, units, shared, product);
            run.go(single, problem, shared, SINGLE_RESIDUAL);
            let ended = run.is_accurate() && settings.tolerance >= SINGLE_TOLERANCE;
            if run.norms.is_finite() && (ended || run.iterations == settings.max_iterations) {
                return report(single, problem, units, shared, &run, solution);
            }
        }
        if double.len() != kinds.len() {
            *double = kinds.iter().map(|&kind| Group::new(problem.sensors, kind)).collect();
        }
        load(double, problem, units, shared, product);
        if run.iterations > 0 && run.norms.is_finite() {
            double.iter_mut().zip(&*single).for_each(|(double, single)| double.continue_from(single));
        } else {
            // Single precision does not hold the numbers of this problem.
            run = Run::new(settings, run.constant);
            shared.begin(problem, units, lambda, rho);
        }
        run.go(double, problem, shared, 0.0);
        report(double, problem, units, shared, &run, solution);
    }

    /// Makes groups, unless those of the last problem fit.
    fn arrange(&mut self, problem: &JointProblem) {
        let fits = |(place, path): (&Place, &PathData)| {
            let Departure { form, signal } = &problem.departures[path.k];
            (place.l, place.k) == (path.l, path.k) && self.kinds[place.group] == (signal.nrows(), *form)
        };
        let places = &self.shared.places;
        let same_sensors = self.single.first().is_some_and(|group| group.sensors == problem.sensors);
        if same_sensors && places.len() == problem.paths.len() && places.iter().zip(&problem.paths).all(fits)
        {
            return;
        }
        (self.kinds, self.shared.places) = group::arrange(problem);
        self.single = self.kinds.iter().map(|&kind| Group::new(problem.sensors, kind)).collect();
        self.double.clear();
    }
}

/// Loads the blocks of a problem into cleared groups.
fn load<T: Scalar>(
    groups: &mut [Group<T>],
    problem: &JointProblem,
    units: Units,
    shared: &mut SharedAverages,
    product: &mut CMatrix,
) {
    groups.iter_mut().for_each(Group::clear);
    let scale = shared.penalty.lambda() / (units.block * units.signal);
    for (place, path) in shared.places.iter().zip(&problem.paths) {
        let adjoint = shared.penalty.adjoint(path.k);
        if product.shape() != (path.block.nrows(), adjoint.ncols()) {
            *product = CMatrix::zeros(path.block.nrows(), adjoint.ncols());
        }
        path.block.mul_to(adjoint, product);
        groups[place.group].load(place.lane, product, scale, path.weight);
    }
    shared.update_inverses(groups);
}

/// What the Lagrangian of the scaled problem has whatever the iterate: `lambda sum e_lk ||R_lk||^2`.
fn constant(problem: &JointProblem, units: Units, lambda: f64) -> f64 {
    let unit = units.block * units.signal;
    let energy = |path: &PathData| path.block.iter().map(|entry| entry.unscale(unit).norm_sqr()).sum::<f64>();
    lambda * problem.paths.iter().map(|path| path.weight * energy(path)).sum::<f64>()
}

/// Iterations of one solve.
struct Run<'a> {
    iterations: usize,
    norms: Norms,
    travel: Travel,
    /// Estimated relative error of the objective.
    error: f64,
    settings: &'a AdmmSettings,
    /// See [`constant`].
    constant: f64,
}

impl<'a> Run<'a> {
    fn new(settings: &'a AdmmSettings, constant: f64) -> Self {
        let (norms, travel) = (Norms::default(), Travel::default());
        Self { iterations: 0, norms, travel, error: f64::INFINITY, settings, constant }
    }

    fn is_accurate(&self) -> bool {
        self.error <= self.settings.tolerance
    }

    /// Iterates until the objective is accurate, both relative residuals are below a limit, or as often as the settings allow.
    fn go<T: Scalar>(
        &mut self,
        groups: &mut [Group<T>],
        problem: &JointProblem,
        shared: &mut SharedAverages,
        least_residual: f64,
    ) {
        while self.iterations < self.settings.max_iterations {
            self.iterations += 1;
            shared.average_diagonals(problem, groups);
            let rho = shared.penalty.rho();
            self.norms = update_blocks(groups, rho, self.settings.relaxation);
            self.travel.add(&self.norms, rho);
            let rounding = ROUNDINGS * T::EPSILON;
            self.error = self.travel.relative_error(&self.norms, rho, self.constant, rounding);
            let (primal, dual) = self.norms.relative();
            if self.is_accurate() || primal.max(dual) < least_residual || !self.norms.is_finite() {
                return;
            }
            if self.settings.balanced
                && let Some(factor) = shared.penalty.balance(self.iterations, primal, dual)
            {
                groups.iter_mut().for_each(|group| group.rescale_multiplier(1.0 / factor));
                shared.update_inverses(groups);
            }
        }
    }
}

/// Steps 2 to 4 of every block; the sums are taken in the order of the groups.
fn update_blocks<T: Scalar>(groups: &mut [Group<T>], rho: f64, relaxation: f64) -> Norms {
    if rayon::current_thread_index().is_some() && groups.len() > 1 {
        groups.par_iter_mut().for_each(|group| group.update(rho, relaxation));
    } else {
        groups.iter_mut().for_each(|group| group.update(rho, relaxation));
    }
    let mut sum = Norms::default();
    groups.iter().for_each(|group| sum.add(&group.norms));
    sum
}

impl SharedAverages {
    fn begin(&mut self, problem: &JointProblem, units: Units, lambda: f64, rho: f64) {
        self.penalty.begin(problem, units.signal, lambda, rho);
        let count = problem.departures.len();
        self.arrival.resize_with(count, Vec::new);
        self.departure.resize_with(count, Vec::new);
        for (k, departure) in problem.departures.iter().enumerate() {
            self.arrival[k].clear();
            self.arrival[k].resize(problem.sensors, Complex64::ZERO);
            self.departure[k].clear();
            self.departure[k].resize(departure.signal.nrows(), Complex64::ZERO);
        }
    }

    /// Recomputes (lambda S S^H + 2 rho I)^-1 and copies it to every block.
    fn update_inverses<T: Scalar>(&mut self, groups: &mut [Group<T>]) {
        self.penalty.refactor();
        for place in &self.places {
            groups[place.group].set_inverse(place.lane, self.penalty.inverse(place.k));
        }
    }

    /// Step 1: T(v_l) and T(u_k) from the diagonals of Z + U.
    fn average_diagonals<T: Scalar>(&mut self, problem: &JointProblem, groups: &mut [Group<T>]) {
        let loss = 0.5 / self.penalty.rho();
        let paths = || self.places.iter().zip(&problem.paths);
        for (l, row) in self.arrival.iter_mut().enumerate() {
            let shared = paths().filter(|(place, _)| place.l == l);
            let sums = shared
                .map(|(place, path)| (path.weight, place.lane, groups[place.group].arrival_sums.as_slice()));
            average(row, loss, sums);
        }
        for (k, row) in self.departure.iter_mut().enumerate() {
            if problem.departures[k].form == DepartureForm::Structured {
                let shared = paths().filter(|(place, _)| place.k == k);
                let sums = shared.map(|(place, path)| {
                    (path.weight, place.lane, groups[place.group].departure_sums.as_slice())
                });
                average(row, loss, sums);
            }
        }
        for place in &self.places {
            let (arrival, departure) = (&self.arrival[place.l], &self.departure[place.k]);
            groups[place.group].set_corners(place.lane, arrival, departure);
        }
    }
}

/// Writes the solution in the units of the problem.
fn report<T: Scalar>(
    groups: &[Group<T>],
    problem: &JointProblem,
    units: Units,
    shared: &SharedAverages,
    run: &Run,
    solution: &mut JointSolution,
) {
    solution.denoised.resize_with(problem.paths.len(), CMatrix::default);
    solution.objective = 0.0;
    for ((place, path), x) in shared.places.iter().zip(&problem.paths).zip(&mut solution.denoised) {
        let (group, signal) = (&groups[place.group], &problem.departures[path.k].signal);
        if x.shape() != (problem.sensors, signal.nrows()) {
            *x = CMatrix::zeros(problem.sensors, signal.nrows());
        }
        group.denoised(place.lane, units.block, x);
        let fit = misfit(x, signal, &path.block);
        // The Lagrangian instead of the objective at B: its error is of second order in the infeasibility.
        let infeasibility: f64 = group.infeasibility.0[place.lane].into();
        let correction = 2.0 * shared.penalty.rho() * infeasibility;
        let traces = units.block * (group.traces(place.lane) + correction);
        solution.objective += path.weight * (traces + problem.lambda * fit);
    }
    let used = |row: &[Complex64], shared: bool, out: &mut Option<Vec<Complex64>>| {
        if shared {
            let out = out.get_or_insert_default();
            out.clear();
            out.extend(row.iter().map(|v| v.conj() * units.block));
        } else {
            *out = None;
        }
    };
    let count = problem.departures.len();
    solution.arrival.resize(count, None);
    solution.departure.resize(count, None);
    for k in 0..count {
        let structured = problem.departures[k].form == DepartureForm::Structured;
        let (sensed, reflected) =
            (shared.places.iter().any(|p| p.l == k), shared.places.iter().any(|p| p.k == k));
        used(&shared.arrival[k], sensed, &mut solution.arrival[k]);
        used(&shared.departure[k], structured && reflected, &mut solution.departure[k]);
    }
    solution.iterations = run.iterations;
    solution.converged = run.is_accurate();
    solution.objective_error = run.error;
    (solution.primal_residual, solution.dual_residual) = run.norms.relative();
}

/// `|| X S - R ||^2`.
fn misfit(x: &CMatrix, signal: &CMatrix, block: &CMatrix) -> f64 {
    let mut sum = 0.0;
    for (column, data) in signal.column_iter().zip(block.column_iter()) {
        for (m, data) in data.iter().enumerate() {
            let fit: Complex64 = x.row(m).iter().zip(&column).map(|(x, s)| x * s).sum();
            sum += (fit - data).norm_sqr();
        }
    }
    sum
}

/// Weighted mean of each diagonal over the blocks that share it, given as weight, lane and sums along the diagonals; the
/// main diagonal is reduced by `loss`.
fn average<'a, T: Scalar>(
    row: &mut [Complex64],
    loss: f64,
    shared: impl Iterator<Item = (f64, usize, &'a [ComplexLanes<T>])>,
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
