//! From blocks to angles: rank cases, scaling, the joint solve, extraction, polish.
//!
//! Scale first: noise of variance one, mean ||S_k||_2 of one; there a fit weight lambda between 1 and 3 suits every scene.
//! The weights are the paper's, e_lk = ||R_lk||^2, over the largest.
//! Rank cases go by *effective* rank: a direction of S_k that carries no signal above the noise is not rank.
//!
//! 1. rank N: structured departure side.
//! 2. between: structured as well, which S inside the fit makes valid (the better one, see the tests), or free.
//! 3. one: free, AOA only; the AOD is reported as not observable.

use model::{CMatrix, CVector, RankCase};
use nalgebra::linalg::SVD;
use num_complex::Complex64;

use super::admm::{AdmmSettings, JointSolver};
use super::departure::trust_region_departure_rad;
use super::extraction::{denoised_arrival_rad, principal_angle_rad};
use super::likelihood::JointLikelihood;
use super::problem::{Departure, DepartureForm, JointProblem, JointSolution, PathData, ProblemError};
use crate::baselines::{Baseline, Extent};
use crate::blocks::{BlockError, Blocks};

/// How angles are read off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extraction {
    /// Principal eigenvectors of T(v_l) and T(u_k), the paper's way; the AOA where there is one, as the AOD is far worse
    /// where S_k is badly conditioned. [`super::extraction::combined_rad`] combines the two as the paper does.
    Eigenvector,
    /// Maximum over the denoised blocks.
    Denoised,
    /// The denoised maximum, polished on the raw blocks with AOA and AOD tied.
    Polished,
    /// No joint problem at all: the joint beamformer's angles, polished alike. What the joint problem is worth is the
    /// difference to `Polished`.
    Beamformer,
}

/// Settings of the angle estimator.
#[derive(Debug, Clone, PartialEq)]
pub struct AngleSettings {
    /// Weight of the fit, for scaled data.
    pub lambda: f64,
    /// Departure side in rank case 2.
    pub partial_rank: DepartureForm,
    /// How angles are read off.
    pub extraction: Extraction,
    /// The solver's. The default tolerance is what the polish needs: a tighter one changes no figure.
    pub admm: AdmmSettings,
}

impl Default for AngleSettings {
    fn default() -> Self {
        Self {
            lambda: 2.5,
            partial_rank: DepartureForm::Structured,
            extraction: Extraction::Polished,
            admm: AdmmSettings { tolerance: 3e-3, ..AdmmSettings::default() },
        }
    }
}

/// Why angles cannot be estimated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AngleError {
    /// The blocks are unusable.
    #[error(transparent)]
    Blocks(#[from] BlockError),
    /// The joint problem is unusable.
    #[error(transparent)]
    Problem(#[from] ProblemError),
}

/// Angle of one IRS.
#[derive(Debug, Clone, PartialEq)]
pub struct IrsAngle {
    /// theta_i, AOA and AOD together; none where no present path tells.
    pub angle_rad: Option<f64>,
    /// Variance of `angle_rad`.
    pub variance_rad2: Option<f64>,
    /// AOA by itself, as extracted from the joint solution.
    pub arrival_rad: Option<f64>,
    /// AOD by itself; none where it is not observable (rank case 3) or no path is reflected.
    pub departure_rad: Option<f64>,
    /// Rank case of the reflected signal.
    pub rank_case: RankCase,
}

/// Angles of all IRSs.
#[derive(Debug, Clone, PartialEq)]
pub struct AngleEstimate {
    /// One for each IRS.
    pub irs: Vec<IrsAngle>,
    /// Iterations of the joint solver.
    pub iterations: usize,
    /// Whether the joint solver met its tolerance.
    pub converged: bool,
}

/// An estimator that keeps the solver's last point for a warm start.
#[derive(Debug, Default)]
pub struct AngleEstimator {
    settings: AngleSettings,
    solver: JointSolver,
}

impl AngleEstimator {
    /// With these settings.
    pub fn new(settings: AngleSettings) -> Self {
        Self { settings, solver: JointSolver::new() }
    }

    /// Angles from a cold start.
    pub fn estimate(&mut self, blocks: &Blocks) -> Result<AngleEstimate, AngleError> {
        self.solver.forget();
        self.estimate_warm(blocks)
    }

    /// Angles from where the last frame ended.
    pub fn estimate_warm(&mut self, blocks: &Blocks) -> Result<AngleEstimate, AngleError> {
        let cases: Vec<RankCase> = (0..blocks.irs_count()).map(|k| rank_case(blocks, k)).collect();
        if self.settings.extraction == Extraction::Beamformer {
            return Ok(beamformer_polished(blocks, &cases));
        }
        let problem = scaled_problem(blocks, &cases, &self.settings);
        let solution = self.solver.solve_warm(&problem, &self.settings.admm)?;
        Ok(read_off(blocks, &cases, &problem, &solution, self.settings.extraction))
    }
}

/// Directions of S_k above the noise: singular value s_i counts when the energy that the strongest block of IRS k has
/// beyond noise, shared out as s_i^2 / ||S_k||_F^2, exceeds the noise of one entry.
pub fn effective_rank(blocks: &Blocks, k: usize) -> usize {
    let signal = blocks.reflected_signal(k);
    let noise = blocks.noise_variance();
    let strongest = (0..blocks.irs_count())
        .filter_map(|l| blocks.block(l, k))
        .map(|block| block.norm_squared() - noise * block.len() as f64)
        .fold(0.0, f64::max);
    let share = strongest / (signal.norm_squared() * noise);
    let singular = SVD::new(signal.clone(), false, false).singular_values;
    let largest = singular.max();
    singular.iter().filter(|&&s| share * s * s > 1.0 && s > 1e-12 * largest).count().max(1)
}

/// Rank case of IRS `k` by effective rank.
pub fn rank_case(blocks: &Blocks, k: usize) -> RankCase {
    match effective_rank(blocks, k) {
        0 | 1 => RankCase::One,
        rank if rank < blocks.elements(k) => RankCase::Partial,
        _ => RankCase::Full,
    }
}

/// The joint problem of these blocks in unit scale.
pub fn scaled_problem(blocks: &Blocks, cases: &[RankCase], settings: &AngleSettings) -> JointProblem {
    let noise = blocks.noise_variance().sqrt();
    let count = blocks.irs_count();
    let norms = (0..count).map(|k| spectral_norm(blocks.reflected_signal(k)));
    let mean_norm = norms.sum::<f64>() / count as f64;
    let mut departures = Vec::with_capacity(count);
    let mut reducers: Vec<Option<CMatrix>> = Vec::with_capacity(count);
    for (k, case) in cases.iter().enumerate() {
        let free = match case {
            RankCase::One => true,
            RankCase::Partial => settings.partial_rank == DepartureForm::Free,
            RankCase::Full => false,
        };
        let signal = blocks.reflected_signal(k);
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
            // A block of zeros still takes part, if barely.
            weight: (block.norm_squared() / strongest.max(f64::MIN_POSITIVE)).max(1e-6),
            block: match &reducers[k] {
                Some(vectors) => (block * vectors).unscale(noise),
                None => block.unscale(noise),
            },
        })
        .collect();
    JointProblem { lambda: settings.lambda, sensors: blocks.sensors(), departures, paths }
}

fn spectral_norm(signal: &CMatrix) -> f64 {
    SVD::new(signal.clone(), false, false).singular_values.max()
}

/// The `rank` strongest right singular vectors, as columns.
fn right_vectors(signal: &CMatrix, rank: usize) -> Option<CMatrix> {
    SVD::new(signal.clone(), false, true).v_t.map(|v_t| v_t.rows(0, rank).adjoint())
}

fn read_off(
    blocks: &Blocks,
    cases: &[RankCase],
    problem: &JointProblem,
    solution: &JointSolution,
    extraction: Extraction,
) -> AngleEstimate {
    let spacing = blocks.spacing_wavelengths();
    let count = blocks.irs_count();
    let toeplitz =
        |row: &Option<Vec<Complex64>>| row.as_ref().and_then(|row| principal_angle_rad(row, spacing));
    let arrivals: Vec<Option<f64>> = (0..count)
        .map(|l| match extraction {
            Extraction::Eigenvector => toeplitz(&solution.arrival[l]),
            _ => denoised_arrival_rad(problem, solution, l, spacing),
        })
        .collect();
    let departures: Vec<Option<f64>> = (0..count)
        .map(|k| match (cases[k], extraction, problem.departures[k].form) {
            (RankCase::One, ..) => None,
            (_, Extraction::Eigenvector, DepartureForm::Structured) => toeplitz(&solution.departure[k]),
            (_, _, DepartureForm::Structured) => {
                denoised_departure_rad(blocks, problem, solution, k, &arrivals)
            }
            (_, _, DepartureForm::Free) => free_departure_rad(blocks, k, &arrivals),
        })
        .collect();
    let found = match extraction {
        Extraction::Polished | Extraction::Beamformer => polished(blocks, &arrivals, &departures),
        _ => (first_known(&arrivals, &departures), vec![None; count]),
    };
    let irs = angles_of_irs(cases, &arrivals, &departures, found);
    AngleEstimate { irs, iterations: solution.iterations, converged: solution.converged }
}

/// Angles with their variances, none where there is none.
type Found = (Vec<Option<f64>>, Vec<Option<f64>>);

fn angles_of_irs(
    cases: &[RankCase],
    arrivals: &[Option<f64>],
    departures: &[Option<f64>],
    (angles, variances): Found,
) -> Vec<IrsAngle> {
    let of = |i: usize| IrsAngle {
        angle_rad: angles[i],
        variance_rad2: variances[i],
        arrival_rad: arrivals[i],
        departure_rad: departures[i],
        rank_case: cases[i],
    };
    (0..cases.len()).map(of).collect()
}

/// The joint beamformer over all blocks of each IRS, then the same polish as after the joint problem.
fn beamformer_polished(blocks: &Blocks, cases: &[RankCase]) -> AngleEstimate {
    let beamformed = |i| Baseline::JointBeamformer.estimate(blocks, i, Extent::AllBlocks).ok();
    let starts: Vec<Option<f64>> = (0..cases.len()).map(beamformed).collect();
    let none = vec![None; cases.len()];
    let irs = angles_of_irs(cases, &starts, &none, polished(blocks, &starts, &none));
    AngleEstimate { irs, iterations: 0, converged: true }
}

/// AOA where there is one, else AOD: untied, the AOA alone is the better of the two.
fn first_known(arrivals: &[Option<f64>], departures: &[Option<f64>]) -> Vec<Option<f64>> {
    arrivals.iter().zip(departures).map(|(arrival, departure)| arrival.or(*departure)).collect()
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
    let rows: Vec<CVector> =
        paths.filter_map(|(path, x)| beamformed(blocks, &(x * signal), arrivals[path.l]?)).collect();
    trust_region_departure_rad(signal, &rows, blocks.spacing_wavelengths())
}

/// AOD from the raw blocks, beamformed with the AOAs (rank case 2, free form).
fn free_departure_rad(blocks: &Blocks, k: usize, arrivals: &[Option<f64>]) -> Option<f64> {
    let rows: Vec<CVector> = (0..blocks.irs_count())
        .filter_map(|l| beamformed(blocks, blocks.block(l, k)?, arrivals[l]?))
        .collect();
    trust_region_departure_rad(blocks.reflected_signal(k), &rows, blocks.spacing_wavelengths())
}

/// `R^H a(theta) / M`.
fn beamformed(blocks: &Blocks, block: &CMatrix, arrival_rad: f64) -> Option<CVector> {
    let array = model::array::UniformLinearArray {
        elements: blocks.sensors(),
        spacing_wavelengths: blocks.spacing_wavelengths(),
    };
    Some(block.ad_mul(&array.steering(arrival_rad)).unscale(blocks.sensors() as f64))
}

/// Tied angles and their variances: the joint likelihood scanned and polished from each of the starts.
fn polished(blocks: &Blocks, arrivals: &[Option<f64>], departures: &[Option<f64>]) -> Found {
    let start = |first: &[Option<f64>], second: &[Option<f64>]| -> Vec<f64> {
        first.iter().zip(second).map(|(a, b)| a.or(*b).unwrap_or(0.0)).collect()
    };
    let starts = [start(arrivals, departures), start(departures, arrivals)];
    let polished = JointLikelihood::new(blocks).polish_best(starts);
    let of_observed = |value: &dyn Fn(usize) -> f64| -> Vec<Option<f64>> {
        (0..arrivals.len()).map(|i| polished.observed[i].then(|| value(i))).collect()
    };
    (of_observed(&|i| polished.angle_rad[i]), of_observed(&|i| polished.covariance_rad2[(i, i)]))
}
