//! Reports of all nodes about some frames: delays, noise, and blocks or spectra.

use std::sync::Arc;

use estimation::fusion::{FrameBlocks, Payload};
use model::{CMatrix, System};
use num_complex::Complex64;
use numpy::{PyArray1, PyArray2, PyArray3, PyArray4};
use proto::convert::FrameId;
use pyo3::prelude::*;

use crate::arrays::array;
use crate::errors::ErrorKind;

/// Frames with the received paths of each.
#[pyclass(name = "BlocksHandle", module = "hyloc._hyloc", frozen)]
pub struct BlocksHandle {
    pub system: Arc<System>,
    pub frames: Vec<(FrameId, FrameBlocks)>,
}

/// Matrices of all paths reflected by one IRS, frames x K x M x columns.
type PathArray<'py> = Bound<'py, PyArray4<Complex64>>;

impl BlocksHandle {
    /// A number of every path, NaN where the path was not received.
    fn per_path<'py>(
        &self,
        py: Python<'py>,
        value: impl Fn(&estimation::fusion::PathBlock) -> f64,
    ) -> PyResult<Bound<'py, PyArray3<f64>>> {
        let count = self.system.irs_count();
        let path = |place: usize, blocks: &FrameBlocks| blocks.path(place / count, place % count).map(&value);
        let values = self.frames.iter().flat_map(|(_, blocks)| {
            (0..count * count).map(|place| path(place, blocks).unwrap_or(f64::NAN)).collect::<Vec<_>>()
        });
        array(py, [self.frames.len(), count, count], values.collect())
    }

    /// A number of every node, NaN where it did not report.
    fn per_node<'py>(
        &self,
        py: Python<'py>,
        value: impl Fn(&estimation::fusion::NodeReport) -> Option<f64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let count = self.system.irs_count();
        let values = self.frames.iter().flat_map(|(_, blocks)| {
            let node = |l: usize| blocks.node(l).and_then(&value).unwrap_or(f64::NAN);
            (0..count).map(node).collect::<Vec<_>>()
        });
        array(py, [self.frames.len(), count], values.collect())
    }

    /// One matrix of every path reflected by IRS `k`, NaN where there is none.
    fn matrices<'py>(
        &self,
        py: Python<'py>,
        k: usize,
        columns: usize,
        matrix: impl Fn(&Payload) -> Option<&CMatrix>,
    ) -> PyResult<PathArray<'py>> {
        let (count, sensors) = (self.system.irs_count(), self.system.sensors());
        let missing = Complex64::new(f64::NAN, f64::NAN);
        let mut values = Vec::with_capacity(self.frames.len() * count * sensors * columns);
        for (_, blocks) in &self.frames {
            for l in 0..count {
                match blocks.path(l, k).and_then(|path| matrix(&path.payload)) {
                    Some(found) => values.extend_from_slice(found.transpose().as_slice()),
                    None => values.resize(values.len() + sensors * columns, missing),
                }
            }
        }
        array(py, [self.frames.len(), count, sensors, columns], values)
    }

    fn of_every_irs<'py>(
        &self,
        py: Python<'py>,
        columns: impl Fn(&System, usize) -> usize,
        matrix: impl Fn(&Payload) -> Option<&CMatrix>,
    ) -> PyResult<Vec<PathArray<'py>>> {
        let columns_of = |k: usize| columns(&self.system, k);
        (0..self.system.irs_count()).map(|k| self.matrices(py, k, columns_of(k), &matrix)).collect()
    }
}

fn streams(system: &System, k: usize) -> usize {
    system.irs[k].reflected_signal.ncols()
}

#[pymethods]
impl BlocksHandle {
    fn __len__(&self) -> usize {
        self.frames.len()
    }

    /// The frames from `start` to before `stop`.
    fn part(&self, start: usize, stop: usize) -> PyResult<Self> {
        let frames = self.frames.get(start..stop).map(<[_]>::to_vec);
        let frames = frames.ok_or_else(|| {
            ErrorKind::Argument.error(format!("frames {start} to {stop} of {}", self.frames.len()))
        })?;
        Ok(Self { system: self.system.clone(), frames })
    }

    #[getter]
    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        array(py, [self.frames.len()], self.frames.iter().map(|(id, _)| id.run).collect())
    }

    #[getter]
    fn numbers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        array(py, [self.frames.len()], self.frames.iter().map(|(id, _)| id.frame as i64).collect())
    }

    #[getter]
    fn delays_s<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f64>>> {
        self.per_path(py, |path| path.delay_s)
    }

    #[getter]
    fn delay_variances_s2<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f64>>> {
        self.per_path(py, |path| path.delay_variance_s2)
    }

    #[getter]
    fn snrs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f64>>> {
        self.per_path(py, |path| path.snr)
    }

    #[getter]
    fn noise_powers_w<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        self.per_node(py, |node| Some(node.noise_power_w))
    }

    #[getter]
    fn arrivals_rad<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        self.per_node(py, |node| node.arrival.map(|arrival| arrival.bearing_rad))
    }

    /// R_lk of every IRS k, frames x K x M x D_k.
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Vec<PathArray<'py>>> {
        self.of_every_irs(py, streams, |payload| match payload {
            Payload::Block { block, .. } => Some(block),
            _ => None,
        })
    }

    /// Derivatives of R_lk by the delay.
    fn block_derivatives<'py>(&self, py: Python<'py>) -> PyResult<Vec<PathArray<'py>>> {
        self.of_every_irs(py, streams, |payload| match payload {
            Payload::Block { block_derivative, .. } => Some(block_derivative),
            _ => None,
        })
    }

    /// Y_lk of every IRS k, frames x K x M x n_k.
    fn spectra<'py>(&self, py: Python<'py>) -> PyResult<Vec<PathArray<'py>>> {
        let columns = |system: &System, k: usize| system.irs[k].waveform.subcarriers.len();
        self.of_every_irs(py, columns, |payload| match payload {
            Payload::Spectrum(spectrum) => Some(spectrum),
            _ => None,
        })
    }
}
