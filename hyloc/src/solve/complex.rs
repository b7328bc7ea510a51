//! Complex arrays in JSON: `{"re": [[...]], "im": [[...]]}`.

use model::CMatrix;
use num_complex::Complex64;
use serde::{Deserialize, Serialize};

use super::limits::{LARGEST_ENTRY, MOST_SIDE};

/// A complex matrix, row by row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComplexRows {
    pub re: Vec<Vec<f64>>,
    pub im: Vec<Vec<f64>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComplexVector {
    pub re: Vec<f64>,
    pub im: Vec<f64>,
}

/// Why rows of numbers are not a matrix.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MatrixError {
    #[error("{name}: the rows of re and im differ in number or length")]
    Ragged { name: String },
    #[error("{name}: {rows} x {columns} entries, at most {MOST_SIDE} x {MOST_SIDE} are accepted")]
    Size { name: String, rows: usize, columns: usize },
    #[error("{name}: the entry {value} is beyond +-{LARGEST_ENTRY:e}")]
    Entry { name: String, value: f64 },
}

impl ComplexRows {
    /// Converts to a matrix; `name` is for the error.
    pub fn matrix(&self, name: &str) -> Result<CMatrix, MatrixError> {
        let rows = self.re.len();
        let columns = self.re.first().map_or(0, Vec::len);
        let even = |part: &Vec<Vec<f64>>| part.len() == rows && part.iter().all(|row| row.len() == columns);
        if !even(&self.re) || !even(&self.im) {
            return Err(MatrixError::Ragged { name: name.into() });
        }
        if rows.max(columns) > MOST_SIDE {
            return Err(MatrixError::Size { name: name.into(), rows, columns });
        }
        let mut entries = self.re.iter().chain(&self.im).flatten();
        if let Some(&value) = entries.find(|value| !value.is_finite() || value.abs() > LARGEST_ENTRY) {
            return Err(MatrixError::Entry { name: name.into(), value });
        }
        Ok(CMatrix::from_fn(rows, columns, |i, j| Complex64::new(self.re[i][j], self.im[i][j])))
    }
}

impl From<&CMatrix> for ComplexRows {
    fn from(matrix: &CMatrix) -> Self {
        let part =
            |f: fn(&Complex64) -> f64| matrix.row_iter().map(|row| row.iter().map(f).collect()).collect();
        Self { re: part(|z| z.re), im: part(|z| z.im) }
    }
}

impl From<&[Complex64]> for ComplexVector {
    fn from(values: &[Complex64]) -> Self {
        Self { re: values.iter().map(|z| z.re).collect(), im: values.iter().map(|z| z.im).collect() }
    }
}
