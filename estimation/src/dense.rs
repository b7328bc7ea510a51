//! Small dense matrices in memory that is kept: nothing here allocates once a matrix has its shape.

use nalgebra::{ComplexField, DMatrix, Dim, Dyn, Matrix, OMatrix, RawStorage, StorageMut, VecStorage};

/// Makes a matrix or vector of zeros, in the memory that it has if its shape is right.
pub(crate) fn set_zeros<T: ComplexField, C: Dim>(
    matrix: &mut Matrix<T, Dyn, C, VecStorage<T, Dyn, C>>,
    (rows, columns): (usize, usize),
) where
    nalgebra::DefaultAllocator: nalgebra::allocator::Allocator<Dyn, C, Buffer<T> = VecStorage<T, Dyn, C>>,
{
    if matrix.shape() == (rows, columns) {
        matrix.fill(T::zero());
    } else {
        *matrix = OMatrix::zeros_generic(Dyn(rows), C::from_usize(columns));
    }
}

/// Copies a matrix or vector, into the memory that is there if its shape is right.
pub(crate) fn assign<T: ComplexField, C: Dim>(
    into: &mut Matrix<T, Dyn, C, VecStorage<T, Dyn, C>>,
    from: &Matrix<T, Dyn, C, VecStorage<T, Dyn, C>>,
) {
    if into.shape() == from.shape() { into.copy_from(from) } else { into.clone_from(from) }
}

/// Replaces the lower triangle of a Hermitian matrix by its Cholesky factor; false where it is not positive definite. What is not a
/// number stays so.
pub(crate) fn factorise<T: ComplexField<RealField = f64>>(matrix: &mut DMatrix<T>) -> bool {
    for j in 0..matrix.ncols() {
        for k in 0..j {
            let factor = -matrix[(j, k)].clone().conjugate();
            let (mut own, before) = matrix.columns_range_pair_mut(j, k);
            own.rows_range_mut(j..).axpy(factor, &before.rows_range(j..), T::one());
        }
        let square = matrix[(j, j)].clone().real();
        if square <= 0.0 {
            return false;
        }
        matrix.column_mut(j).rows_range_mut(j..).unscale_mut(square.sqrt());
    }
    true
}

/// Solves `L L^H x = b` for every column b, in place.
pub(crate) fn solve_factorised<T: ComplexField, C: Dim, S: StorageMut<T, Dyn, C> + RawStorage<T, Dyn, C>>(
    factor: &DMatrix<T>,
    columns: &mut Matrix<T, Dyn, C, S>,
) {
    factor.solve_lower_triangular_unchecked_mut(columns);
    factor.ad_solve_lower_triangular_unchecked_mut(columns);
}
