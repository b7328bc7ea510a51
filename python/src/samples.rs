//! Quantised matrices as they stand in reports and recordings.

use model::CMatrix;
use num_complex::Complex64;
use numpy::{PyArray2, PyReadonlyArray2};
use proto::convert::{BLOCK, BLOCK_DERIVATIVE, FrameId, SPECTRUM, dither_key};
use proto::samples::{DitherKey, Precision, pack, unpack};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use settings::check::named;

use crate::arrays::{array, rows};
use crate::errors::ErrorKind;

/// Which matrix: frame, l, k and the name of the field.
type MatrixName = (u64, usize, usize, String);

fn key((frame, l, k, field): &MatrixName) -> PyResult<DitherKey> {
    let which = match field.as_str() {
        "block" => BLOCK,
        "block_derivative" => BLOCK_DERIVATIVE,
        "spectrum" => SPECTRUM,
        other => {
            let reason = format!("field = '{other}': must be block, block_derivative or spectrum");
            return Err(ErrorKind::Argument.error(reason));
        }
    };
    Ok(dither_key(FrameId { run: 0, frame: *frame }, *l, *k, which))
}

fn precision(name: &str) -> PyResult<Precision> {
    let read = named::<Precision>("f64, f32, q16, q8, q4 or q2");
    read(name).map_err(|allowed| ErrorKind::Argument.error(format!("precision = '{name}': {allowed}")))
}

/// The matrix of a payload, rows x columns.
#[pyfunction]
pub fn decode_samples<'py>(
    py: Python<'py>,
    data: &[u8],
    precision_name: &str,
    shape: (usize, usize),
    name: MatrixName,
) -> PyResult<Bound<'py, PyArray2<Complex64>>> {
    let (height, width) = shape;
    let (precision, key) = (precision(precision_name)?, key(&name)?);
    // No payload has more entries than two bits each.
    let entries = height.checked_mul(width).filter(|entries| *entries <= data.len().saturating_mul(2));
    let matrix = entries.and_then(|_| unpack(data, (height, width), precision, key));
    let matrix = matrix.ok_or_else(|| {
        let expected = entries.map(|entries| format!(", expected {}", precision.bytes(entries)));
        let found = data.len();
        ErrorKind::Argument.error(format!(
            "{found} bytes do not hold {height} x {width} samples in precision {precision_name}{}",
            expected.unwrap_or_default()
        ))
    })?;
    array(py, [height, width], rows(&matrix).collect())
}

/// The payload of a matrix.
#[pyfunction]
pub fn encode_samples<'py>(
    py: Python<'py>,
    matrix: PyReadonlyArray2<'py, Complex64>,
    precision_name: &str,
    name: MatrixName,
) -> PyResult<Bound<'py, PyBytes>> {
    let (precision, key) = (precision(precision_name)?, key(&name)?);
    let view = matrix.as_array();
    let matrix = CMatrix::from_fn(view.nrows(), view.ncols(), |row, column| view[[row, column]]);
    Ok(PyBytes::new(py, &pack(&matrix, precision, key).bytes))
}
