//! The angle estimator as the paper prints it, for comparison.
//!
//! Problem (P3) with the substitution that follows it: for every IRS one problem over its K sensed blocks for the AOA and one
//! over its K reflected blocks for the AOD, 2K in all, each by Algorithm 1. The data are `R_lk S_k^+`, whose noise the inverse
//! colours and amplifies by the condition of S_k. AOA and AOD are read off principal eigenvectors and combined with
//! the energies of their blocks as weights.
//!
//! The paper leaves open lambda, rho and the scale that they refer to. Here the data of each of the 2K problems are
//! scaled to noise of unit variance *after* the inverse, which makes one lambda suit every S_k: the choice that favours the
//! algorithm most. rho only affects how fast Algorithm 1 converges. `hyloc figures --only literal-sweep` sweeps both.
//! Cost: 2K problems of K blocks.

use model::CMatrix;
use nalgebra::linalg::SVD;

use super::admm::{self, AdmmSettings};
use super::estimate::AngleError;
use super::extraction::{combined_rad, principal_angle_rad};
use super::problem::{Departure, DepartureForm, JointProblem, JointSolution, PathData};
use crate::blocks::Blocks;

/// Singular values of S_k below this share of the largest count as zero in S_k^+.
const PSEUDO_INVERSE_TOLERANCE: f64 = 1e-12;

/// Settings of the printed algorithm.
#[derive(Debug, Clone, PartialEq)]
pub struct LiteralSettings {
    /// Weight of the fit, for data of unit noise after the inverse.
    pub lambda: f64,
    /// Settings of Algorithm 1.
    pub admm: AdmmSettings,
}

/// Convergence of one of the 2K problems.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convergence {
    /// Iterations until convergence or the limit.
    pub iterations: usize,
    /// Whether both residuals fell below the tolerance before the iteration limit.
    pub converged: bool,
    /// The larger of the relative primal and dual residuals.
    pub residual: f64,
}

/// Angles estimated by the printed algorithm.
#[derive(Debug, Clone, PartialEq)]
pub struct LiteralEstimate {
    /// theta_i by IRS, AOA and AOD combined; none where no present path determines it.
    pub angle_rad: Vec<Option<f64>>,
    /// AOA by IRS.
    pub arrival_rad: Vec<Option<f64>>,
    /// AOD by IRS.
    pub departure_rad: Vec<Option<f64>>,
    /// Convergence of every problem that has a path.
    pub problems: Vec<Convergence>,
}

/// Estimates the angles of all IRSs by the printed algorithm.
pub fn paper_literal(blocks: &Blocks, settings: &LiteralSettings) -> Result<LiteralEstimate, AngleError> {
    let data = substituted(blocks);
    let mut problems = Vec::new();
    let mut role = |chosen: &dyn Fn(&Substituted) -> bool, angle: &dyn Fn(&JointSolution) -> Option<f64>| {
        let Some(problem) = problem(blocks, &data, settings.lambda, chosen) else { return Ok(None) };
        let solution = admm::solve(&problem, &settings.admm)?;
        problems.push(Convergence {
            iterations: solution.iterations,
            converged: solution.converged,
            residual: solution.primal_residual.max(solution.dual_residual),
        });
        Ok::<_, AngleError>(angle(&solution))
    };
    let (mut arrival_rad, mut departure_rad) = (Vec::new(), Vec::new());
    let spacing = blocks.spacing_wavelengths();
    for i in 0..blocks.irs_count() {
        arrival_rad.push(role(&|path| path.l == i, &|solution| {
            principal_angle_rad(solution.arrival[i].as_ref()?, spacing)
        })?);
        departure_rad.push(role(&|path| path.k == i, &|solution| {
            principal_angle_rad(solution.departure[i].as_ref()?, spacing)
        })?);
    }
    let combined = |i: usize| combined_rad(blocks, i, arrival_rad[i], departure_rad[i]);
    let angle_rad = (0..blocks.irs_count()).map(combined).collect();
    Ok(LiteralEstimate { angle_rad, arrival_rad, departure_rad, problems })
}

/// `R_lk S_k^+` of one path.
struct Substituted {
    l: usize,
    k: usize,
    /// e_lk = ||R_lk||^2.
    energy: f64,
    block: CMatrix,
    /// Mean noise variance of an entry of `block`: sigma^2 ||S_k^+||_F^2 / N.
    noise_variance: f64,
}

fn substituted(blocks: &Blocks) -> Vec<Substituted> {
    let inverse = |k: usize| {
        let svd = SVD::new(blocks.signal(k).clone(), true, true);
        let floor = svd.singular_values.max() * PSEUDO_INVERSE_TOLERANCE;
        svd.pseudo_inverse(floor).ok()
    };
    let inverses: Vec<Option<CMatrix>> = (0..blocks.irs_count()).map(inverse).collect();
    blocks
        .present()
        .filter_map(|(l, k, block)| {
            let inverse = inverses[k].as_ref()?;
            let gain = inverse.norm_squared() / inverse.ncols() as f64;
            Some(Substituted {
                l,
                k,
                energy: block.norm_squared(),
                block: block * inverse,
                noise_variance: blocks.noise_variance() * gain,
            })
        })
        .collect()
}

/// One of the 2K problems, over the paths of one role of one IRS; none where these have no energy.
fn problem(
    blocks: &Blocks,
    data: &[Substituted],
    lambda: f64,
    chosen: &dyn Fn(&Substituted) -> bool,
) -> Option<JointProblem> {
    let chosen: Vec<&Substituted> = data.iter().filter(|path| chosen(path)).collect();
    let strongest = chosen.iter().map(|path| path.energy).fold(0.0, f64::max);
    let noise = chosen.iter().map(|path| path.noise_variance).sum::<f64>() / chosen.len() as f64;
    if !(strongest > 0.0 && noise > 0.0) {
        return None;
    }
    let paths = chosen.iter().map(|path| PathData {
        l: path.l,
        k: path.k,
        weight: (path.energy / strongest).max(1e-6),
        block: path.block.unscale(noise.sqrt()),
    });
    let departures = (0..blocks.irs_count()).map(|k| {
        let order = blocks.elements(k);
        Departure { form: DepartureForm::Structured, signal: CMatrix::identity(order, order) }
    });
    let (departures, paths) = (departures.collect(), paths.collect());
    Some(JointProblem { lambda, sensors: blocks.sensors(), departures, paths })
}
