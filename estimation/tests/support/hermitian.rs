//! Hermitian matrices of one order in the layout of the projection, for its tests and benchmarks.
#![allow(dead_code)] // Each test uses a part.

use std::slice::ChunksExactMut;

use nalgebra::DMatrix;
use num_complex::Complex;

use hyloc_estimation::linalg::{ComplexLanes, LANES, PsdProjector, Scalar, triangle_index};

/// Matrix `m` is lane `m % LANES` of group `m / LANES`; lanes past the last matrix are zero.
#[derive(Clone, Debug, PartialEq)]
pub struct HermitianBatch<T> {
    order: usize,
    count: usize,
    entries: Vec<ComplexLanes<T>>,
}

impl<T: Scalar> HermitianBatch<T> {
    /// `count` zero matrices of order `order`, which must be positive.
    pub fn zeros(order: usize, count: usize) -> Self {
        assert!(order > 0, "a matrix of order zero");
        let entries = vec![ComplexLanes::ZERO; count.div_ceil(LANES) * triangle_index(order, 0)];
        Self { order, count, entries }
    }

    /// The number of matrices.
    pub fn count(&self) -> usize {
        self.count
    }

    /// All entries, group after group.
    pub fn entries(&self) -> &[ComplexLanes<T>] {
        &self.entries
    }

    /// All entries, group after group, to be changed.
    pub fn entries_mut(&mut self) -> &mut [ComplexLanes<T>] {
        &mut self.entries
    }

    /// The groups one after another, to be changed.
    pub fn groups_mut(&mut self) -> ChunksExactMut<'_, ComplexLanes<T>> {
        self.entries.chunks_exact_mut(triangle_index(self.order, 0))
    }

    /// Replaces every matrix by its projection.
    pub fn project(&mut self, projector: &mut PsdProjector<T>) {
        for group in self.groups_mut() {
            projector.project_group(group).expect("a group of the same order");
        }
    }

    /// Entry `(row, column)` of matrix `matrix`, of either triangle.
    pub fn get(&self, matrix: usize, row: usize, column: usize) -> Complex<f64> {
        if row < column {
            return self.get(matrix, column, row).conj();
        }
        let entry = &self.entries[self.place(matrix, row, column)];
        let lane = matrix % LANES;
        Complex::new(entry.re.0[lane].into(), entry.im.0[lane].into())
    }

    /// Sets entry `(row, column)` of matrix `matrix`, and with it its mirror image. On the diagonal the
    /// imaginary part is dropped.
    pub fn set(&mut self, matrix: usize, row: usize, column: usize, value: Complex<f64>) {
        if row < column {
            return self.set(matrix, column, row, value.conj());
        }
        let place = self.place(matrix, row, column);
        let lane = matrix % LANES;
        self.entries[place].re.0[lane] = T::rounded(value.re);
        self.entries[place].im.0[lane] = if row == column { T::ZERO } else { T::rounded(value.im) };
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
        matrix / LANES * triangle_index(self.order, 0) + triangle_index(row, column)
    }
}
