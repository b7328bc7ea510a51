//! The angle estimator as the paper prints it, for comparison.
//!
//! Problem (P3) with the substitution that follows it: for every IRS one problem over its K sensed blocks for the AOA and one
//! over its K reflected blocks for the AOD, 2K in all; the data are `R_lk S_k^+`, whose noise the inverse colours and amplifies
//! by the condition of S_k; angles are read off principal eigenvectors and combined with the energies as weights.
//! What it costs against the joint solver is in the tests.

use model::CMatrix;
use nalgebra::linalg::SVD;

use super::admm::{AdmmSettings, JointSolver};
use super::estimate::AngleError;
use super::extraction::principal_angle_rad;
use super::problem::{Departure, DepartureForm, JointProblem, PathData};
use crate::blocks::Blocks;

/// Singular values of S_k below this share of the largest count as zero in S_k^+.
const PSEUDO_INVERSE_TOLERANCE: f64 = 1e-12;

/// Angles by the printed algorithm, for data scaled as for the joint solver; none where no present path tells.
pub fn paper_literal_angles_rad(
    blocks: &Blocks,
    lambda: f64,
    settings: &AdmmSettings,
) -> Result<Vec<Option<f64>>, AngleError> {
    let data = substituted(blocks);
    (0..blocks.irs_count())
        .map(|i| {
            let arrival = one_angle(blocks, &data, lambda, settings, Role::Arrival(i))?;
            let departure = one_angle(blocks, &data, lambda, settings, Role::Departure(i))?;
            Ok(match (arrival, departure) {
                (Some((a, wa)), Some((d, wd))) if wa + wd > 0.0 => Some((wa * a + wd * d) / (wa + wd)),
                (a, d) => a.or(d).map(|(angle, _)| angle),
            })
        })
        .collect()
}

#[derive(Clone, Copy)]
enum Role {
    Arrival(usize),
    Departure(usize),
}

/// R_lk S_k^+ in units of the noise, S_k scaled to a mean spectral norm of one.
fn substituted(blocks: &Blocks) -> Vec<(usize, usize, f64, CMatrix)> {
    let count = blocks.irs_count();
    let decompositions: Vec<_> =
        (0..count).map(|k| SVD::new(blocks.reflected_signal(k).clone(), true, true)).collect();
    let mean_norm = decompositions.iter().map(|svd| svd.singular_values.max()).sum::<f64>() / count as f64;
    let noise = blocks.noise_variance().sqrt();
    let inverses: Vec<Option<CMatrix>> = decompositions
        .into_iter()
        .map(|svd| {
            let floor = svd.singular_values.max() * PSEUDO_INVERSE_TOLERANCE;
            svd.pseudo_inverse(floor).ok()
        })
        .collect();
    blocks
        .present()
        .filter_map(|(l, k, block)| {
            let data = (block * inverses[k].as_ref()?).scale(mean_norm / noise);
            Some((l, k, block.norm_squared(), data))
        })
        .collect()
}

/// The angle of one role with the energy behind it.
fn one_angle(
    blocks: &Blocks,
    data: &[(usize, usize, f64, CMatrix)],
    lambda: f64,
    settings: &AdmmSettings,
    role: Role,
) -> Result<Option<(f64, f64)>, AngleError> {
    let chosen: Vec<_> = data
        .iter()
        .filter(|(l, k, ..)| match role {
            Role::Arrival(i) => *l == i,
            Role::Departure(i) => *k == i,
        })
        .collect();
    let energy: f64 = chosen.iter().map(|(_, _, energy, _)| energy).sum();
    if chosen.is_empty() || energy == 0.0 {
        return Ok(None);
    }
    let strongest = chosen.iter().map(|(_, _, energy, _)| *energy).fold(0.0, f64::max);
    let paths = chosen
        .iter()
        .map(|(l, k, energy, block)| PathData {
            l: *l,
            k: *k,
            weight: (energy / strongest).max(1e-6),
            block: block.clone(),
        })
        .collect();
    let identity = |k: usize| CMatrix::identity(blocks.elements(k), blocks.elements(k));
    let departures = (0..blocks.irs_count())
        .map(|k| Departure { form: DepartureForm::Structured, signal: identity(k) })
        .collect();
    let problem = JointProblem { lambda, sensors: blocks.sensors(), departures, paths };
    let solution = JointSolver::new().solve(&problem, settings)?;
    let row = match role {
        Role::Arrival(i) => &solution.arrival[i],
        Role::Departure(i) => &solution.departure[i],
    };
    let angle = row.as_ref().and_then(|row| principal_angle_rad(row, blocks.spacing_wavelengths()));
    Ok(angle.map(|angle| (angle, energy)))
}
