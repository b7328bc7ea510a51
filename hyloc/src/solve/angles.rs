//! `hyloc solve angles`: the joint atomic-norm problem as given, without rescaling.

use std::time::Instant;

use clap::Args;
use estimation::Blocks;
use estimation::angles::AngleSettings;
use estimation::angles::admm::{self, AdmmSettings, JointSolver};
use estimation::angles::departure::trust_region_departure_rad;
use estimation::angles::estimate::scaled_problem;
use estimation::angles::extraction::{denoised_arrival_rad, principal_angle_rad};
use estimation::angles::problem::{Departure, DepartureForm, JointProblem, JointSolution, PathData};
use model::array::UniformLinearArray;
use model::{CMatrix, CVector, RankCase};
use serde::{Deserialize, Serialize};
use settings::check::within;

use super::complex::{ComplexRows, ComplexVector};
use super::{Problem, ensure_square, limits, matrices};

#[derive(Debug, Clone, Default, Args)]
pub struct AngleSolveFlags {
    /// Relative accuracy of the objective at which to stop [default: 1e-4].
    #[arg(long, value_name = "RATIO")]
    pub tolerance: Option<f64>,
    /// Iteration limit; a solution that reaches it is marked as not converged.
    #[arg(long, value_name = "N", value_parser = within::<usize>(1, 10_000_000))]
    pub max_iterations: Option<usize>,
    /// Solve each problem N times from a cold start and report the median time.
    #[arg(long, value_name = "N", value_parser = within::<usize>(1, 1_000_000))]
    pub repeat: Option<usize>,
}

/// One joint problem; a block that is `null` is missing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AngleCase {
    structured_departure: bool,
    lambda: f64,
    spacing_wavelengths: f64,
    weights: Vec<Vec<f64>>,
    blocks: Vec<Vec<Option<ComplexRows>>>,
    reflected_signal: Vec<ComplexRows>,
}

impl AngleCase {
    /// The problem that the estimator solves for these blocks: unit noise, unit mean norm of S_k, default lambda.
    pub fn of_blocks(blocks: &Blocks) -> Self {
        let count = blocks.irs_count();
        let settings = AngleSettings::default();
        let problem = scaled_problem(blocks, &vec![RankCase::Full; count], &settings);
        let mut case = Self {
            structured_departure: true,
            lambda: problem.lambda,
            spacing_wavelengths: blocks.spacing_wavelengths(),
            weights: vec![vec![0.0; count]; count],
            blocks: vec![vec![None; count]; count],
            reflected_signal: problem.departures.iter().map(|d| ComplexRows::from(&d.signal)).collect(),
        };
        for path in &problem.paths {
            case.weights[path.l][path.k] = path.weight;
            case.blocks[path.l][path.k] = Some(ComplexRows::from(&path.block));
        }
        case
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct AngleAnswer {
    objective: f64,
    /// Estimated relative error of the objective.
    objective_error: f64,
    /// Median time of one solve from a cold start, with `--repeat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    solve_time_s: Option<f64>,
    iterations: usize,
    converged: bool,
    arrival_rad: Vec<Option<f64>>,
    departure_rad: Vec<Option<f64>>,
    arrival_toeplitz_first_row: Vec<Option<ComplexVector>>,
}

impl Problem for AngleCase {
    type Settings = AngleSolveFlags;
    type Answer = AngleAnswer;

    fn solve(&self, settings: &AngleSolveFlags) -> anyhow::Result<AngleAnswer> {
        limits::irs_count("reflected signals", self.reflected_signal.len())?;
        limits::within("spacing_wavelengths", self.spacing_wavelengths, 0.01, 10.0)?;
        limits::within("lambda", self.lambda, 1e-15, 1e15)?;
        let signals: Vec<CMatrix> = matrices(&self.reflected_signal, "reflected_signal")?;
        let problem = problem(self, &signals)?;
        let defaults = AdmmSettings::default();
        let admm = AdmmSettings {
            tolerance: settings.tolerance.unwrap_or(defaults.tolerance),
            max_iterations: settings.max_iterations.unwrap_or(defaults.max_iterations),
            ..defaults
        };
        limits::admm_work(problem.paths.len(), problem.sensors, &signals, admm.max_iterations)?;
        let solution = admm::solve(&problem, &admm)?;
        let mut answer = answer(self, &signals, &problem, &solution);
        answer.solve_time_s =
            settings.repeat.map(|count| median_time_s(&problem, &admm, count)).transpose()?;
        Ok(answer)
    }
}

fn median_time_s(problem: &JointProblem, admm: &AdmmSettings, count: usize) -> anyhow::Result<f64> {
    let mut times_s = Vec::new();
    let mut solver = JointSolver::default();
    for _ in 0..count {
        let started = Instant::now();
        solver.solve(problem, admm)?;
        times_s.push(started.elapsed().as_secs_f64());
    }
    times_s.sort_by(f64::total_cmp);
    Ok(times_s[count / 2])
}

fn problem(case: &AngleCase, signals: &[CMatrix]) -> anyhow::Result<JointProblem> {
    let count = signals.len();
    ensure_square("blocks", &case.blocks, count)?;
    ensure_square("weights", &case.weights, count)?;
    let mut paths = Vec::new();
    for (l, row) in case.blocks.iter().enumerate() {
        for (k, block) in row.iter().enumerate().filter_map(|(k, block)| block.as_ref().map(|b| (k, b))) {
            let block = block.matrix(&format!("blocks[{l}][{k}]"))?;
            limits::within(&format!("weights[{l}][{k}]"), case.weights[l][k], 1e-30, 1e30)?;
            paths.push(PathData { l, k, weight: case.weights[l][k], block });
        }
    }
    let departures = signals.iter().map(|signal| match case.structured_departure {
        true => Departure { form: DepartureForm::Structured, signal: signal.clone() },
        false => {
            Departure { form: DepartureForm::Free, signal: CMatrix::identity(signal.ncols(), signal.ncols()) }
        }
    });
    let sensors = paths.first().map_or(0, |path| path.block.nrows());
    Ok(JointProblem { lambda: case.lambda, sensors, departures: departures.collect(), paths })
}

fn answer(
    case: &AngleCase,
    signals: &[CMatrix],
    problem: &JointProblem,
    solution: &JointSolution,
) -> AngleAnswer {
    let spacing = case.spacing_wavelengths;
    let count = signals.len();
    let arrival_rad: Vec<Option<f64>> = (0..count)
        .map(|l| {
            let eigenvector = || principal_angle_rad(solution.arrival[l].as_ref()?, spacing);
            denoised_arrival_rad(problem, solution, l, spacing).or_else(eigenvector)
        })
        .collect();
    let departure_rad =
        (0..count).map(|k| departure_rad(signals, problem, solution, k, &arrival_rad, spacing)).collect();
    AngleAnswer {
        objective: solution.objective,
        objective_error: solution.objective_error,
        solve_time_s: None,
        iterations: solution.iterations,
        converged: solution.converged,
        arrival_toeplitz_first_row: solution
            .arrival
            .iter()
            .map(|row| row.as_ref().map(|row| ComplexVector::from(row.as_slice())))
            .collect(),
        arrival_rad,
        departure_rad,
    }
}

/// AOD from the denoised blocks by Algorithm 2; none for S_k of rank one, where it is not observable.
fn departure_rad(
    signals: &[CMatrix],
    problem: &JointProblem,
    solution: &JointSolution,
    k: usize,
    arrivals: &[Option<f64>],
    spacing_wavelengths: f64,
) -> Option<f64> {
    let array = UniformLinearArray { elements: problem.sensors, spacing_wavelengths };
    let rows: Vec<CVector> = problem
        .paths
        .iter()
        .zip(&solution.denoised)
        .filter(|(path, _)| path.k == k)
        .filter_map(|(path, x)| {
            let fit = x * &problem.departures[k].signal;
            Some(fit.ad_mul(&array.steering(arrivals[path.l]?)).unscale(problem.sensors as f64))
        })
        .collect();
    trust_region_departure_rad(&signals[k], &rows, spacing_wavelengths)
}
