//! Zero-forcing beamformers at the base station and the phases of the IRSs.
//!
//! Eq. (5), `H_k W_k' = 0` for k != k': W_k lies in the null space of all other channels and, inside it, along
//! the D_k strongest directions of H_k. "All channels but one" is needed K times; halving the set recursively
//! shares the work, so that each channel is orthogonalised O(log K) times rather than K.
//! Power: `sum_k ||W_k||_F^2 = L P_max`, equal over all streams.

use nalgebra::linalg::{QR, SVD};
use num_complex::Complex64;

use crate::algebra::{CMatrix, CVector, unit_phasor};

/// A direction weaker than this share of its channel is not rank: what it leaks is below it.
const RANK_TOLERANCE: f64 = 1e-11;

/// An IRS whose every direction is seen by another one: no beam can tell them apart.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "zero-forcing is infeasible: the channel to irs[{irs}] lies in the span of the others \
     (separate the IRSs, add antennas or change the path angles)"
)]
pub struct DependentChannels {
    /// Index of the IRS.
    pub irs: usize,
}

/// Beamformers W_k (N_t x D_k) of power `total_power_w` over all streams together.
pub fn zero_forcing(channels: &[CMatrix], total_power_w: f64) -> Result<Vec<CMatrix>, DependentChannels> {
    let mut beams = vec![CMatrix::zeros(0, 0); channels.len()];
    let rows: Vec<CMatrix> = channels.iter().map(strongest_rows).collect();
    let members: Vec<usize> = (0..channels.len()).collect();
    beams_within(channels, &rows, &members, &Vec::new(), &mut beams)?;
    let streams: usize = beams.iter().map(CMatrix::ncols).sum();
    let amplitude = Complex64::from((total_power_w / streams as f64).sqrt());
    Ok(beams.into_iter().map(|w| w * amplitude).collect())
}

/// Fills in the beams of `members`, given an orthonormal basis of all channels outside of them.
fn beams_within(
    channels: &[CMatrix],
    rows: &[CMatrix],
    members: &[usize],
    outside: &[CVector],
    beams: &mut [CMatrix],
) -> Result<(), DependentChannels> {
    if let [k] = *members {
        beams[k] = strongest_hidden(&channels[k], outside).ok_or(DependentChannels { irs: k })?;
        return Ok(());
    }
    let (left, right) = members.split_at(members.len() / 2);
    for (inner, outer) in [(left, right), (right, left)] {
        let mut basis = outside.to_vec();
        for &j in outer {
            extend(&mut basis, &rows[j]);
        }
        beams_within(channels, rows, inner, &basis, beams)?;
    }
    Ok(())
}

/// Right singular vectors of `channel` times their singular values over the largest, strongest first.
fn strongest_rows(channel: &CMatrix) -> CMatrix {
    let (directions, strengths) = right_directions(channel);
    let largest = strengths.first().copied().unwrap_or(1.0);
    let mut rows = directions;
    for (mut column, strength) in rows.column_iter_mut().zip(strengths) {
        column *= Complex64::from(strength / largest);
    }
    rows
}

/// Orthonormal right singular vectors (columns) and singular values, descending, of the numerical row space.
fn right_directions(channel: &CMatrix) -> (CMatrix, Vec<f64>) {
    let qr = QR::new(channel.adjoint());
    let core = SVD::new(qr.r(), true, false);
    let floor = core.singular_values.iter().copied().fold(0.0, f64::max) * RANK_TOLERANCE;
    let strengths: Vec<f64> = core.singular_values.iter().copied().filter(|&s| s > floor).collect();
    let directions = match core.u {
        Some(u) => qr.q() * u.columns(0, strengths.len()),
        None => CMatrix::zeros(channel.ncols(), 0),
    };
    (directions, strengths)
}

/// Adds to an orthonormal basis what `columns` have beyond it.
fn extend(basis: &mut Vec<CVector>, columns: &CMatrix) {
    for column in columns.column_iter() {
        let mut rest = column.into_owned();
        remove(&mut rest, basis);
        let norm = rest.norm();
        if norm > RANK_TOLERANCE {
            rest.unscale_mut(norm);
            remove(&mut rest, basis);
            basis.push(rest.normalize());
        }
    }
}

/// Removes from `vector` its part in the span of `basis`.
fn remove(vector: &mut CVector, basis: &[CVector]) {
    for direction in basis {
        let along = direction.dotc(vector);
        vector.axpy(-along, direction, Complex64::ONE);
    }
}

/// The strongest directions of `channel` orthogonal to `outside`; none if nothing is left.
fn strongest_hidden(channel: &CMatrix, outside: &[CVector]) -> Option<CMatrix> {
    let mut visible = channel.adjoint();
    for mut column in visible.column_iter_mut() {
        let mut own = column.clone_owned();
        remove(&mut own, outside);
        remove(&mut own, outside);
        column.copy_from(&own);
    }
    if visible.norm() <= RANK_TOLERANCE * channel.norm() {
        return None;
    }
    let (directions, _) = right_directions(&visible.adjoint());
    let mut basis = outside.to_vec();
    extend(&mut basis, &directions);
    let own = &basis[outside.len()..];
    (!own.is_empty()).then(|| CMatrix::from_columns(own))
}

/// Element phases that make the strongest stream add up in the direction of `steering`,
/// for the N^2 gain that Section VI mentions: `arg a_n - arg u_n`, u the principal left
/// singular vector of `H_k W_k`.
pub fn aligned_phases(incident: &CMatrix, steering: &CVector) -> CVector {
    match SVD::new(incident.clone(), true, false).u {
        Some(u) => steering.zip_map(&u.column(0), |a, u| unit_phasor(a.arg() - u.arg())),
        None => steering.clone(),
    }
}

/// `Theta M` for the diagonal phase matrix Theta.
pub fn apply_phases(phases: &CVector, matrix: &CMatrix) -> CMatrix {
    let mut out = matrix.clone();
    for (mut row, &phase) in out.row_iter_mut().zip(phases.iter()) {
        row *= phase;
    }
    out
}
