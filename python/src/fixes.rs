//! Fixes as columns.

use fusion_center::fix::FixRecord;
use fusion_center::place::symmetric;
use numpy::{PyArray1, PyArray2, PyArray3};
use pyo3::prelude::*;

use crate::arrays::{array, rows};
use crate::errors::ErrorKind;

/// Solved frames, with or without a fix.
#[pyclass(name = "FixesHandle", module = "hyloc._hyloc", frozen)]
pub struct FixesHandle {
    pub records: Vec<FixRecord>,
    /// Free coordinates of a position: 2 or 3.
    pub axes: usize,
}

/// Coordinates of a position, NaN where there is none.
fn coordinates(at: Option<&fusion_center::place::FixPlace>) -> [f64; 3] {
    at.map_or([f64::NAN; 3], |place| place.point().into())
}

/// A covariance row by row, NaN where there is none of `size` coordinates.
fn covariance(triangle: Option<&[f64]>, size: usize) -> Vec<f64> {
    let matrix = triangle.and_then(symmetric).filter(|matrix| matrix.nrows() == size);
    matrix.map_or_else(|| vec![f64::NAN; size * size], |matrix| rows(&matrix).collect())
}

impl FixesHandle {
    fn numbers<'py>(
        &self,
        py: Python<'py>,
        value: impl Fn(&FixRecord) -> Option<f64>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let values = self.records.iter().map(|record| value(record).unwrap_or(f64::NAN));
        array(py, [self.records.len()], values.collect())
    }

    fn texts(&self, text: impl Fn(&FixRecord) -> String) -> Vec<String> {
        self.records.iter().map(text).collect()
    }
}

/// Row of the fix, position, covariance, probability of a false alarm, and whether it may be two.
type TargetColumns<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray3<f64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<bool>>,
);

/// Row of the fix, identity, position, velocity, covariance of both, existence, whether it is predicted, and age.
type TrackColumns<'py> = (
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray3<f64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<bool>>,
    Bound<'py, PyArray1<f64>>,
);

#[pymethods]
impl FixesHandle {
    fn __len__(&self) -> usize {
        self.records.len()
    }

    #[getter]
    fn axes(&self) -> usize {
        self.axes
    }

    fn frames<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        array(py, [self.records.len()], self.records.iter().map(|record| record.frame as i64).collect())
    }

    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        array(py, [self.records.len()], self.records.iter().map(|record| record.run).collect())
    }

    fn times_ns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        array(py, [self.records.len()], self.records.iter().map(|record| record.timing.time_ns).collect())
    }

    fn paths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        array(py, [self.records.len()], self.records.iter().map(|record| record.paths as i64).collect())
    }

    fn positions_m<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let places = self.records.iter().flat_map(|record| coordinates(record.position_m.as_ref()));
        array(py, [self.records.len(), 3], places.collect())
    }

    fn covariances_m2<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f64>>> {
        let axes = self.axes;
        let all = self.records.iter().flat_map(|record| covariance(record.covariance_m2.as_deref(), axes));
        array(py, [self.records.len(), axes, axes], all.collect())
    }

    fn protection_levels_m<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        self.numbers(py, |record| record.protection_level_m)
    }

    /// True positions where these are known.
    fn truths_m<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let truth = |record: &FixRecord| {
            coordinates(record.truth.as_ref().and_then(|truth| truth.position_m.as_ref()))
        };
        array(py, [self.records.len(), 3], self.records.iter().flat_map(truth).collect())
    }

    fn bounds_rms_m<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        self.numbers(py, |record| record.truth.as_ref()?.bound_rms_m)
    }

    fn statuses(&self) -> Vec<String> {
        self.texts(|record| record.status.clone())
    }

    fn methods(&self) -> Vec<String> {
        self.texts(|record| record.method.clone().unwrap_or_default())
    }

    fn cautions(&self) -> Vec<String> {
        self.texts(|record| record.cautions.join("; "))
    }

    fn excluded(&self) -> Vec<String> {
        self.texts(|record| record.excluded.join("; "))
    }

    fn targets<'py>(&self, py: Python<'py>) -> PyResult<TargetColumns<'py>> {
        let all = self.records.iter().enumerate();
        let all: Vec<_> =
            all.flat_map(|(row, record)| record.targets.iter().map(move |t| (row, t))).collect();
        let (count, axes) = (all.len(), self.axes);
        let covariances = all.iter().flat_map(|(_, target)| covariance(Some(&target.covariance_m2), axes));
        let chances = all.iter().map(|(_, target)| target.false_alarm_probability.unwrap_or(f64::NAN));
        Ok((
            array(py, [count], all.iter().map(|(row, _)| *row as i64).collect())?,
            array(py, [count, 3], all.iter().flat_map(|(_, t)| coordinates(Some(&t.position_m))).collect())?,
            array(py, [count, axes, axes], covariances.collect())?,
            array(py, [count], chances.collect())?,
            array(py, [count], all.iter().map(|(_, target)| target.unresolved).collect())?,
        ))
    }

    fn tracks<'py>(&self, py: Python<'py>) -> PyResult<TrackColumns<'py>> {
        let all = self.records.iter().enumerate();
        let all: Vec<_> =
            all.flat_map(|(row, record)| record.tracks().iter().map(move |t| (row, t))).collect();
        let (count, states) = (all.len(), 2 * self.axes);
        let covariances = all.iter().flat_map(|(_, track)| covariance(Some(&track.covariance), states));
        Ok((
            array(py, [count], all.iter().map(|(row, _)| *row as i64).collect())?,
            array(py, [count], all.iter().map(|(_, track)| track.identity as i64).collect())?,
            array(py, [count, 3], all.iter().flat_map(|(_, t)| coordinates(Some(&t.position_m))).collect())?,
            array(
                py,
                [count, 3],
                all.iter().flat_map(|(_, t)| coordinates(Some(&t.velocity_m_s))).collect(),
            )?,
            array(py, [count, states, states], covariances.collect())?,
            array(py, [count], all.iter().map(|(_, track)| track.existence).collect())?,
            array(py, [count], all.iter().map(|(_, track)| track.coasting).collect())?,
            array(py, [count], all.iter().map(|(_, track)| track.age_s).collect())?,
        ))
    }

    /// The lines of a fix log.
    fn json_lines(&self) -> PyResult<String> {
        let lines = self.records.iter().map(|record| serde_json::to_string(record).map(|line| line + "\n"));
        lines.collect::<Result<_, _>>().map_err(|error| ErrorKind::Internal.error(error))
    }
}
