//! Complex arrays in JSON: `{"re": [[...]], "im": [[...]]}`.

use model::CMatrix;
use num_complex::Complex64;
use serde::{Deserialize, Serialize};

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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: the rows of re and im differ in number or length")]
pub struct Ragged {
    pub name: String,
}

impl ComplexRows {
    /// Converts to a matrix; `name` is for the error.
    pub fn matrix(&self, name: &str) -> Result<CMatrix, Ragged> {
        let rows = self.re.len();
        let columns = self.re.first().map_or(0, Vec::len);
        let even = |part: &Vec<Vec<f64>>| part.len() == rows && part.iter().all(|row| row.len() == columns);
        if !even(&self.re) || !even(&self.im) {
            return Err(Ragged { name: name.into() });
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
