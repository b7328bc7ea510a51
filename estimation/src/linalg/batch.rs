//! Storage of many Hermitian matrices of one order.

use std::slice::{ChunksExact, ChunksExactMut};

use nalgebra::DMatrix;
use num_complex::Complex;

use super::lanes::{ComplexLanes, LANES};
use super::tridiagonal::row_start;

/// Hermitian matrices of one order, side by side in groups of [`LANES`].
///
/// Of each matrix the lower triangle is stored, row by row: entry `(i, j)`, `j <= i`, of the matrices
/// of a group is the element `i (i + 1) / 2 + j` of the group ([`Self::index`]), which holds the real
/// parts of the [`LANES`] matrices and then their imaginary parts. Groups follow one another without
/// gaps. Matrix `m` is lane `m % LANES` of group `m / LANES`; lanes past the last matrix are zero at
/// first and may hold anything.
///
/// Entrywise steps run over [`Self::entries_mut`] as over one long vector. The imaginary parts of the
/// diagonal are stored too and must stay zero.
#[derive(Clone, Debug, PartialEq)]
pub struct HermitianBatch {
    order: usize,
    count: usize,
    entries: Vec<ComplexLanes>,
}

impl HermitianBatch {
    /// `count` zero matrices of order `order`, which must be positive.
    pub fn zeros(order: usize, count: usize) -> Self {
        assert!(order > 0, "a matrix of order zero");
        let entries = vec![ComplexLanes::ZERO; count.div_ceil(LANES) * row_start(order)];
        Self { order, count, entries }
    }

    /// Where entry `(row, column)`, `column <= row`, stands in its group; the same for all orders.
    #[inline(always)]
    pub const fn index(row: usize, column: usize) -> usize {
        debug_assert!(column <= row);
        row_start(row) + column
    }

    /// The order of the matrices.
    pub fn order(&self) -> usize {
        self.order
    }

    /// The number of matrices.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The number of elements of a group.
    pub fn group_len(&self) -> usize {
        row_start(self.order)
    }

    /// All entries, group after group.
    pub fn entries(&self) -> &[ComplexLanes] {
        &self.entries
    }

    /// All entries, group after group, to be changed.
    pub fn entries_mut(&mut self) -> &mut [ComplexLanes] {
        &mut self.entries
    }

    /// The groups one after another.
    pub fn groups(&self) -> ChunksExact<'_, ComplexLanes> {
        self.entries.chunks_exact(row_start(self.order))
    }

    /// The groups one after another, to be changed; they are disjoint, so different threads may.
    pub fn groups_mut(&mut self) -> ChunksExactMut<'_, ComplexLanes> {
        self.entries.chunks_exact_mut(row_start(self.order))
    }

    /// Entry `(row, column)` of matrix `matrix`, of either triangle.
    pub fn get(&self, matrix: usize, row: usize, column: usize) -> Complex<f64> {
        if row < column {
            return self.get(matrix, column, row).conj();
        }
        let entry = &self.entries[self.place(matrix, row, column)];
        let lane = matrix % LANES;
        Complex::new(entry.re.0[lane], entry.im.0[lane])
    }

    /// Sets entry `(row, column)` of matrix `matrix`, and with it its mirror image. On the diagonal the
    /// imaginary part is dropped.
    pub fn set(&mut self, matrix: usize, row: usize, column: usize, value: Complex<f64>) {
        if row < column {
            return self.set(matrix, column, row, value.conj());
        }
        let place = self.place(matrix, row, column);
        let lane = matrix % LANES;
        self.entries[place].re.0[lane] = value.re;
        self.entries[place].im.0[lane] = if row == column { 0.0 } else { value.im };
    }

    /// Matrix `matrix` in full.
    pub fn matrix(&self, matrix: usize) -> DMatrix<Complex<f64>> {
        DMatrix::from_fn(self.order, self.order, |row, column| self.get(matrix, row, column))
    }

    /// Sets matrix `matrix` from the lower triangle of `values`.
    pub fn set_matrix(&mut self, matrix: usize, values: &DMatrix<Complex<f64>>) {
        assert_eq!(values.shape(), (self.order, self.order), "a matrix of another order");
        for row in 0..self.order {
            for column in 0..=row {
                self.set(matrix, row, column, values[(row, column)]);
            }
        }
    }

    fn place(&self, matrix: usize, row: usize, column: usize) -> usize {
        assert!(matrix < self.count && row < self.order, "no such entry");
        matrix / LANES * row_start(self.order) + Self::index(row, column)
    }
}
