//! From blocks to angles: rank cases, scaling, the joint solve, extraction and polish.
//!
//! The data are scaled to noise of variance one and a mean ||S_k||_2 of one, where a fit weight lambda between 1 and 3 suits
//! every scene.
//! The weights are the paper's, e_lk = ||R_lk||^2, over the largest.
//! Rank cases go by *effective* rank: a direction of S_k that carries no signal above the noise is not rank.
//!
//! 1. rank N: structured departure side.
//! 2. between: structured as well, which S inside the fit makes valid (the better one, see the tests), or free.
//! 3. one: free, AOA only; the AOD is not observable.

use model::{CMatrix, CVector, RankCase};
use nalgebra::linalg::SVD;
use num_complex::Complex64;

use super::admm::{AdmmSettings, JointSolver};
use super::departure::grid_departure_rad;
use super::extraction::{checked_arrival_rad, principal_angle_rad};
use super::likelihood::AngleLikelihood;
use super::problem::{Departure, DepartureForm, JointProblem, JointSolution, PathData, ProblemError};
use crate::baselines::{Baseline, Extent};
use crate::blocks::{BlockError, Blocks};
use crate::idle::Idle;

/// How angles are extracted from the solution of the joint problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extraction {
    /// Principal eigenvectors of T(v_l) and T(u_k), as in the paper; the AOA where there is one, as the AOD is far worse
    /// where S_k is badly conditioned. [`super::extraction::combined_rad`] combines the two as the paper does.
    Eigenvector,
    /// Maximum over the denoised blocks.
    Denoised,
    /// The denoised maximum, polished on the raw blocks with AOA and AOD tied.
    Polished,
    /// The angles of the joint beamformer, polished in the same way, without a joint problem. The difference to `Polished`
    /// is the gain of the joint problem.
    Beamformer,
}

/// Settings of the angle estimator.
#[derive(Debug, Clone, PartialEq)]
pub struct AngleSettings {
    /// Weight of the fit, for scaled data.
    pub lambda: f64,
    /// Departure side in rank case 2.
    pub partial_rank: DepartureForm,
    /// How angles are extracted.
    pub extraction: Extraction,
    /// Settings of the solver. The default tolerance is what the polish needs: with one of 1e-4, which takes four times the
    /// iterations, it has as many gross errors at every power (`cargo run --release --example tolerance`).
    pub admm: AdmmSettings,
}

impl Default for AngleSettings {
    fn default() -> Self {
        Self {
            lambda: 2.5,
            partial_rank: DepartureForm::Structured,
            extraction: Extraction::Polished,
            admm: AdmmSettings { tolerance: 2e-2, ..AdmmSettings::default() },
        }
    }
}

/// Why angles cannot be estimated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum AngleError {
    #[error(transparent)]
    Blocks(#[from] BlockError),
    #[error(transparent)]
    Problem(#[from] ProblemError),
}

/// Angle of one IRS.
#[derive(Debug, Clone, PartialEq)]
pub struct IrsAngle {
    /// theta_i from AOA and AOD together, local angle; none where no present path determines it.
    pub angle_rad: Option<f64>,
    /// Variance of `angle_rad`; only the polish gives one.
    pub variance_rad2: Option<f64>,
    /// AOA alone, as extracted from the joint solution.
    pub arrival_rad: Option<f64>,
    /// AOD alone; none where it is not observable (rank case 3) or no path is reflected.
    pub departure_rad: Option<f64>,
    /// Rank case of the reflected signal, by effective rank.
    pub rank_case: RankCase,
}

/// Angles of all IRSs.
#[derive(Debug, Clone, PartialEq)]
pub struct AngleEstimate {
    /// By IRS.
    pub irs: Vec<IrsAngle>,
    /// Iterations of the joint solver; 0 without a joint problem.
    pub iterations: usize,
    /// Whether the joint solver met its tolerance.
    pub converged: bool,
}

/// Estimates the angles of one set of blocks after the other, by several threads at once if need be, and keeps the memory of
/// its solvers.
#[derive(Debug, Clone, Default)]
pub struct AngleEstimator {
    /// Settings of every estimate.
    pub settings: AngleSettings,
    solvers: Idle<JointSolver>,
}

impl AngleEstimator {
    /// An estimator with these settings.
    pub fn new(settings: AngleSettings) -> Self {
        Self { settings, solvers: Idle::default() }
    }

    /// Joint angles of all IRSs.
    pub fn estimate(&self, blocks: &Blocks) -> Result<AngleEstimate, AngleError> {
        self.solvers.with(|solver| estimate_with(solver, blocks, &self.settings))
    }
}

/// Joint angles of all IRSs.
pub fn estimate_angles(blocks: &Blocks, settings: &AngleSettings) -> Result<AngleEstimate, AngleError> {
    estimate_with(&mut JointSolver::default(), blocks, settings)
}

fn estimate_with(
    solver: &mut JointSolver,
    blocks: &Blocks,
    settings: &AngleSettings,
) -> Result<AngleEstimate, AngleError> {
    let count = blocks.irs_count();
    let cases = rank_cases(blocks);
    let (arrivals, departures, iterations, converged) = if settings.extraction == Extraction::Beamformer {
        let beamformed = |i| Baseline::JointBeamformer.estimate(blocks, i, Extent::AllBlocks).ok();
        ((0..count).map(beamformed).collect(), vec![None; count], 0, true)
    } else {
        let problem = scaled_problem(blocks, &cases, settings);
        let solution = solver.solve(&problem, &settings.admm)?;
        let (arrivals, departures) = extract(blocks, &cases, &problem, solution, settings.extraction);
        (arrivals, departures, solution.iterations, solution.converged)
    };
    let angles = match settings.extraction {
        Extraction::Polished | Extraction::Beamformer => polish(blocks, &arrivals, &departures),
        // Without the polish the AOA alone is better than the AOD.
        _ => arrivals
            .iter()
            .zip(&departures)
            .map(|(arrival, departure)| (arrival.or(*departure), None))
            .collect(),
    };
    let irs = (0..count).map(|i| IrsAngle {
        angle_rad: angles[i].0,
        variance_rad2: angles[i].1,
        arrival_rad: arrivals[i],
        departure_rad: departures[i],
        rank_case: cases[i],
    });
    Ok(AngleEstimate { irs: irs.collect(), iterations, converged })
}

/// Directions of S_k above the noise: singular value s_i counts when the energy that the strongest block of IRS k has
/// beyond noise, shared out as s_i^2 / ||S_k||_F^2, exceeds the noise of one entry.
fn effective_rank(blocks: &Blocks, k: usize) -> usize {
    let signal = blocks.signal(k);
    let noise = blocks.noise_variance();
    let strongest = (0..blocks.irs_count())
        .filter_map(|l| blocks.block(l, k))
        .map(|block| block.norm_squared() - noise * block.len() as f64)
        .fold(0.0, f64::max);
    let share = strongest / (signal.norm_squared() * noise);
    let singular = &blocks.tables().singular_values[k];
    let largest = singular.max();
    singular.iter().filter(|&&s| share * s * s > 1.0 && s > 1e-12 * largest).count().max(1)
}

/// Rank cases of all IRSs by effective rank.
pub fn rank_cases(blocks: &Blocks) -> Vec<RankCase> {
    let case = |k| match effective_rank(blocks, k) {
        0 | 1 => RankCase::One,
        rank if rank < blocks.elements(k) => RankCase::Partial,
        _ => RankCase::Full,
    };
    (0..blocks.irs_count()).map(case).collect()
}

/// The joint problem of these blocks in unit scale. An IRS without a case counts as one of full rank.
pub fn scaled_problem(blocks: &Blocks, cases: &[RankCase], settings: &AngleSettings) -> JointProblem {
    let noise = blocks.noise_variance().sqrt();
    let count = blocks.irs_count();
    let mean_norm = blocks.tables().mean_norm;
    let mut departures = Vec::with_capacity(count);
    let mut reducers: Vec<Option<CMatrix>> = Vec::with_capacity(count);
    for k in 0..count {
        let free = match cases.get(k).unwrap_or(&RankCase::Full) {
            RankCase::One => true,
            RankCase::Partial => settings.partial_rank == DepartureForm::Free,
            RankCase::Full => false,
        };
        let signal = blocks.signal(k);
        if free {
            let rank = effective_rank(blocks, k);
            departures.push(Departure { form: DepartureForm::Free, signal: CMatrix::identity(rank, rank) });
            reducers.push(right_vectors(signal, rank));
        } else {
            departures.push(Departure { form: DepartureForm::Structured, signal: signal.unscale(mean_norm) });
            reducers.push(None);
        }
    }
    let strongest = blocks.present().map(|(_, _, block)| block.norm_squared()).fold(0.0, f64::max);
    let paths = blocks
        .present()
        .map(|(l, k, block)| PathData {
            l,
            k,
            // A block of zeros keeps a small positive weight.
            weight: (block.norm_squared() / strongest.max(f64::MIN_POSITIVE)).max(1e-6),
            block: match &reducers[k] {
                Some(vectors) => (block * vectors).unscale(noise),
                None => block.unscale(noise),
            },
        })
        .collect();
    JointProblem { lambda: settings.lambda, sensors: blocks.sensors(), departures, paths }
}

/// The `rank` strongest right singular vectors, as columns.
fn right_vectors(signal: &CMatrix, rank: usize) -> Option<CMatrix> {
    SVD::new(signal.clone(), false, true).v_t.map(|v_t| v_t.rows(0, rank).adjoint())
}

/// AOA and AOD of every IRS.
fn extract(
    blocks: &Blocks,
    cases: &[RankCase],
    problem: &JointProblem,
    solution: &JointSolution,
    extraction: Extraction,
) -> (Vec<Option<f64>>, Vec<Option<f64>>) {
    let spacing = blocks.spacing_wavelengths();
    let count = blocks.irs_count();
    let toeplitz =
        |row: &Option<Vec<Complex64>>| row.as_ref().and_then(|row| principal_angle_rad(row, spacing));
    let arrivals: Vec<Option<f64>> = (0..count)
        .map(|l| match extraction {
            Extraction::Eigenvector => toeplitz(&solution.arrival[l]),
            _ => checked_arrival_rad(problem, solution, l, spacing),
        })
        .collect();
    let departures = (0..count)
        .map(|k| match (cases[k], extraction, problem.departures[k].form) {
            (RankCase::One, ..) => None,
            (_, Extraction::Eigenvector, DepartureForm::Structured) => toeplitz(&solution.departure[k]),
            (_, _, DepartureForm::Structured) => {
                denoised_departure_rad(blocks, problem, solution, k, &arrivals)
            }
            (_, _, DepartureForm::Free) => free_departure_rad(blocks, k, &arrivals),
        })
        .collect();
    (arrivals, departures)
}

/// AOD from the denoised blocks, beamformed with the AOAs.
fn denoised_departure_rad(
    blocks: &Blocks,
    problem: &JointProblem,
    solution: &JointSolution,
    k: usize,
    arrivals: &[Option<f64>],
) -> Option<f64> {
    let signal = &problem.departures[k].signal;
    let paths = problem.paths.iter().zip(&solution.denoised).filter(|(path, _)| path.k == k);
    let rows: Vec<CVector> = paths
        .filter_map(|(path, x)| Some(signal.ad_mul(&beamformed(blocks, x, arrivals[path.l]?))))
        .collect();
    grid_departure_rad(blocks.signals(), k, &rows)
}

/// AOD from the raw blocks, beamformed with the AOAs (rank case 2, free form).
fn free_departure_rad(blocks: &Blocks, k: usize, arrivals: &[Option<f64>]) -> Option<f64> {
    let rows: Vec<CVector> = (0..blocks.irs_count())
        .filter_map(|l| Some(beamformed(blocks, blocks.block(l, k)?, arrivals[l]?)))
        .collect();
    grid_departure_rad(blocks.signals(), k, &rows)
}

/// `R^H a(theta) / M`.
fn beamformed(blocks: &Blocks, block: &CMatrix, arrival_rad: f64) -> CVector {
    block.ad_mul(&blocks.sensor_array().steering(arrival_rad)).unscale(blocks.sensors() as f64)
}

/// Angle and variance of every IRS with AOA and AOD tied: the joint likelihood, scanned and polished from each of the
/// starts.
fn polish(
    blocks: &Blocks,
    arrivals: &[Option<f64>],
    departures: &[Option<f64>],
) -> Vec<(Option<f64>, Option<f64>)> {
    let start = |first: &[Option<f64>], second: &[Option<f64>]| -> Vec<f64> {
        first.iter().zip(second).map(|(a, b)| a.or(*b).unwrap_or(0.0)).collect()
    };
    let starts = [start(arrivals, departures), start(departures, arrivals)];
    let polished = AngleLikelihood::new(blocks).polish_best(starts);
    let of =
        |i: usize| polished.observed[i].then(|| (polished.angle_rad[i], polished.covariance_rad2[(i, i)]));
    (0..arrivals.len()).map(|i| of(i).unzip()).collect()
}
