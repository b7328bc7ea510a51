//! Zero-forcing beamformers at the base station and the phases of the IRSs.
//!
//! Eq. (5), `H_k W_k' = 0` for k != k': W_k lies in the null space of all other channels and, inside it, along
//! the D_k strongest directions of H_k. "All channels but one" is needed K times; halving the set recursively
//! shares the work, so that each channel is orthogonalised O(log K) times rather than K.
//! Power: `sum_k ||W_k||_F^2 = L P_max`, equal over all streams.
//!
//! Cost: about 16 N_t (sum D_k)^2 (log2 K + 3) real operations, nearly all of them in real matrix products
//! (`OrthonormalBasis`): 1 ms at K = 3, 0.1 s at K = 16.

use nalgebra::DMatrix;
use nalgebra::linalg::{QR, SVD};
use num_complex::Complex64;

use crate::algebra::{CMatrix, CVector, unit_phasor};

/// Directions weaker than this share of their channel do not count towards its rank.
const RANK_TOLERANCE: f64 = 1e-11;

/// Why there is no beam for an IRS; `irs` is its index in the list of channels.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum NoBeam {
    #[error(
        "zero-forcing is infeasible: the channel to irs[{irs}] lies in the span of the others \
         (separate the IRSs, add antennas or change the path angles)"
    )]
    Dependent { irs: usize },
    #[error("the channel to irs[{irs}] is empty, not finite or of another number of antennas")]
    Channel { irs: usize },
}

/// Beamformers W_k (N_t x D_k) for the channels H_k (N x N_t), of power `total_power_w` over all streams together.
pub fn zero_forcing(channels: &[CMatrix], total_power_w: f64) -> Result<Vec<CMatrix>, NoBeam> {
    let Some(antennas) = channels.first().map(CMatrix::ncols) else { return Ok(Vec::new()) };
    let usable = |h: &CMatrix| !h.is_empty() && h.ncols() == antennas && h.iter().all(|v| v.is_finite());
    if let Some(irs) = channels.iter().position(|channel| !usable(channel)) {
        return Err(NoBeam::Channel { irs });
    }
    let mut beams = vec![CMatrix::zeros(0, 0); channels.len()];
    let rows: Vec<CMatrix> = channels.iter().map(strongest_rows).collect();
    let members: Vec<usize> = (0..channels.len()).collect();
    let mut outside = OrthonormalBasis::new(antennas);
    beams_within(channels, &rows, &members, &mut outside, &mut beams)?;
    let streams: usize = beams.iter().map(CMatrix::ncols).sum();
    let amplitude = Complex64::from((total_power_w / streams as f64).sqrt());
    Ok(beams.into_iter().map(|w| w * amplitude).collect())
}

/// Computes the beams of `members`, given an orthonormal basis of all channels outside of them.
fn beams_within(
    channels: &[CMatrix],
    rows: &[CMatrix],
    members: &[usize],
    outside: &mut OrthonormalBasis,
    beams: &mut [CMatrix],
) -> Result<(), NoBeam> {
    if let [k] = *members {
        beams[k] = strongest_hidden(&channels[k], outside).ok_or(NoBeam::Dependent { irs: k })?;
        return Ok(());
    }
    let (left, right) = members.split_at(members.len() / 2);
    let before = outside.count;
    for (inner, outer) in [(left, right), (right, left)] {
        for &j in outer {
            outside.extend(&rows[j]);
        }
        beams_within(channels, rows, inner, outside, beams)?;
        outside.count = before;
    }
    Ok(())
}

/// Right singular vectors of `channel` times their singular values over the largest, strongest first.
fn strongest_rows(channel: &CMatrix) -> CMatrix {
    let (mut rows, strengths) = right_directions(channel);
    let largest = strengths.first().copied().unwrap_or(1.0);
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

/// The strongest directions of `channel` that are orthogonal to `outside`; none if there are none.
fn strongest_hidden(channel: &CMatrix, outside: &mut OrthonormalBasis) -> Option<CMatrix> {
    let mut visible = stacked(&channel.adjoint());
    outside.remove_from(&mut visible);
    if visible.norm() <= RANK_TOLERANCE * channel.norm() {
        return None;
    }
    let (directions, _) = right_directions(&unstacked(&visible).adjoint());
    let before = outside.count;
    outside.extend_hidden(directions.column_iter().map(|column| column.into_owned()).collect());
    let own = outside.since(before);
    outside.count = before;
    (own.ncols() > 0).then_some(own)
}

/// An orthonormal basis of complex vectors, stored as real ones.
///
/// A complex vector v is stacked as [Re v; Im v]. Its complex multiples are spanned over the reals by that and
/// by [-Im v; Re v], the stack of jv: a vector is orthogonal to v if it is orthogonal to both, and removing a whole
/// basis from a block of vectors is two real matrix products, which are several times as fast as complex ones.
struct OrthonormalBasis {
    /// Number of complex vectors.
    count: usize,
    /// 2 N_t x 2 N_t; the first `2 count` columns are in use.
    columns: DMatrix<f64>,
    /// Transpose of `columns`.
    rows: DMatrix<f64>,
}

impl OrthonormalBasis {
    fn new(dimension: usize) -> Self {
        let empty = DMatrix::zeros(2 * dimension, 2 * dimension);
        Self { count: 0, columns: empty.clone(), rows: empty }
    }

    /// The vectors from index `first` on.
    fn since(&self, first: usize) -> CMatrix {
        let n = self.columns.nrows() / 2;
        let part = |i: usize, j: usize| self.columns[(i, 2 * (first + j))];
        CMatrix::from_fn(n, self.count - first, |i, j| Complex64::new(part(i, j), part(n + i, j)))
    }

    /// Removes from every column of `block`, stacked, its part in the span of the basis.
    fn remove_from(&self, block: &mut DMatrix<f64>) {
        if self.count > 0 {
            let along = self.rows.rows(0, 2 * self.count) * &*block;
            block.gemm(-1.0, &self.columns.columns(0, 2 * self.count), &along, 1.0);
        }
    }

    /// Adds the components of `columns` outside the basis. Each column is orthogonalised twice: against the basis in
    /// one block, against the previous columns of the block one by one.
    fn extend(&mut self, columns: &CMatrix) {
        let mut block = stacked(columns);
        self.remove_from(&mut block);
        self.extend_hidden(orthonormal(&unstacked(&block), RANK_TOLERANCE));
    }

    /// Adds orthonormal vectors that are orthogonal to the basis up to rounding, which is removed.
    fn extend_hidden(&mut self, mut vectors: Vec<CVector>) {
        // Vectors beyond a full basis are rounding errors.
        vectors.truncate(self.columns.nrows() / 2 - self.count);
        if vectors.is_empty() {
            return;
        }
        let mut block = stacked(&CMatrix::from_columns(&vectors));
        self.remove_from(&mut block);
        for vector in orthonormal(&unstacked(&block), 0.0) {
            self.push(&vector);
        }
    }

    fn push(&mut self, vector: &CVector) {
        let (n, at) = (vector.len(), 2 * self.count);
        for (i, value) in vector.iter().enumerate() {
            for (column, stack) in [(at, [value.re, value.im]), (at + 1, [-value.im, value.re])] {
                for (row, part) in [(i, stack[0]), (n + i, stack[1])] {
                    self.columns[(row, column)] = part;
                    self.rows[(column, row)] = part;
                }
            }
        }
        self.count += 1;
    }
}

/// Gram-Schmidt on the columns of a block; columns whose remainder is at most `floor` are left out.
fn orthonormal(block: &CMatrix, floor: f64) -> Vec<CVector> {
    let mut done: Vec<CVector> = Vec::with_capacity(block.ncols());
    for column in block.column_iter() {
        let mut rest = column.into_owned();
        remove(&mut rest, &done);
        let norm = rest.norm();
        if norm > floor {
            rest.unscale_mut(norm);
            remove(&mut rest, &done);
            done.push(rest.normalize());
        }
    }
    done
}

/// Removes from `vector` its part in the span of `directions`.
fn remove(vector: &mut CVector, directions: &[CVector]) {
    for direction in directions {
        let along = direction.dotc(vector);
        vector.axpy(-along, direction, Complex64::ONE);
    }
}

/// Columns as [Re; Im].
fn stacked(matrix: &CMatrix) -> DMatrix<f64> {
    let n = matrix.nrows();
    let part = |i, j| if i < n { matrix[(i, j)].re } else { matrix[(i - n, j)].im };
    DMatrix::from_fn(2 * n, matrix.ncols(), part)
}

fn unstacked(block: &DMatrix<f64>) -> CMatrix {
    let n = block.nrows() / 2;
    CMatrix::from_fn(n, block.ncols(), |i, j| Complex64::new(block[(i, j)], block[(n + i, j)]))
}

/// Element phases that align the strongest stream in the direction of `steering`, for the N^2 gain that Section VI
/// mentions: `arg a_n - arg u_n`, u the principal left singular vector of `H_k W_k`.
pub(crate) fn aligned_phases(incident: &CMatrix, steering: &CVector) -> CVector {
    match SVD::new(incident.clone(), true, false).u {
        Some(u) => steering.zip_map(&u.column(0), |a, u| unit_phasor(a.arg() - u.arg())),
        None => steering.clone(),
    }
}

/// `Theta M` for the diagonal phase matrix Theta.
pub(crate) fn apply_phases(phases: &CVector, matrix: &CMatrix) -> CMatrix {
    let mut out = matrix.clone();
    for (mut row, &phase) in out.row_iter_mut().zip(phases.iter()) {
        row *= phase;
    }
    out
}
