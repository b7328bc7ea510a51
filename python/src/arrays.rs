//! Arrays of numpy beside the matrices of the estimators.

use model::{CMatrix, Point};
use nalgebra::DMatrix;
use num_complex::{Complex32, Complex64};
use numpy::ndarray::{Array, ArrayView4, Dimension, IntoDimension};
use numpy::{Element, PyArray, PyReadonlyArray2, PyReadonlyArray4};
use pyo3::prelude::*;

use crate::errors::ErrorKind;

/// Echoes of frames at nodes: an array of complex128 or complex64, frames x K x M x L.
#[derive(FromPyObject)]
pub enum EchoArray<'py> {
    Double(PyReadonlyArray4<'py, Complex64>),
    Single(PyReadonlyArray4<'py, Complex32>),
}

/// The same while the interpreter lock is released.
#[derive(Clone, Copy)]
pub enum EchoView<'a> {
    Double(ArrayView4<'a, Complex64>),
    Single(ArrayView4<'a, Complex32>),
}

impl EchoArray<'_> {
    pub fn view(&self) -> EchoView<'_> {
        match self {
            Self::Double(array) => EchoView::Double(array.as_array()),
            Self::Single(array) => EchoView::Single(array.as_array()),
        }
    }
}

impl EchoView<'_> {
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Double(view) => view.shape(),
            Self::Single(view) => view.shape(),
        }
    }

    /// What a node received in a frame, M x L; none if every sample is NaN, which says that the node did not report.
    pub fn matrix(&self, frame: usize, node: usize) -> Option<CMatrix> {
        let (rows, columns) = (self.shape()[2], self.shape()[3]);
        let matrix = match self {
            Self::Double(view) => CMatrix::from_fn(rows, columns, |m, i| view[[frame, node, m, i]]),
            Self::Single(view) => CMatrix::from_fn(rows, columns, |m, i| {
                let sample = view[[frame, node, m, i]];
                Complex64::new(f64::from(sample.re), f64::from(sample.im))
            }),
        };
        let absent = matrix.iter().all(|sample| sample.is_nan());
        (!absent).then_some(matrix)
    }
}

/// An array of this shape from values in the order of its indices, last index first. The values are moved, not copied.
pub fn array<'py, T: Element, S: IntoDimension>(
    py: Python<'py>,
    shape: S,
    values: Vec<T>,
) -> PyResult<Bound<'py, PyArray<T, S::Dim>>>
where
    S::Dim: Dimension,
{
    let shape = shape.into_dimension();
    let made = Array::from_shape_vec(shape, values);
    let made = made.map_err(|error| ErrorKind::Internal.error(format!("an array does not fit: {error}")))?;
    Ok(PyArray::from_owned_array(py, made))
}

/// The entries of a matrix, row by row.
pub fn rows<T: Copy + nalgebra::Scalar>(matrix: &DMatrix<T>) -> impl Iterator<Item = T> + '_ {
    let (rows, columns) = matrix.shape();
    (0..rows).flat_map(move |row| (0..columns).map(move |column| matrix[(row, column)]))
}

/// Positions, n x 3.
pub fn points(positions_m: &PyReadonlyArray2<'_, f64>) -> PyResult<Vec<Point>> {
    let view = positions_m.as_array();
    if view.ncols() != 3 {
        return Err(ErrorKind::Argument.error(format!("a position has 3 coordinates, not {}", view.ncols())));
    }
    Ok(view.rows().into_iter().map(|row| Point::new(row[0], row[1], row[2])).collect())
}
