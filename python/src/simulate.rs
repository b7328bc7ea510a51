//! Echoes of a scenario.

use model::TrueTarget;
use num_complex::Complex64;
use numpy::{PyArray1, PyArray2, PyArray4, PyArrayMethods};
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::arrays::array;
use crate::scenario::ScenarioHandle;
use crate::work::detached;

/// Echoes, clock offsets, and the targets: index of the frame, identity, position and cross-section.
type SimulatedArrays<'py> = (
    Bound<'py, PyArray4<Complex64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray1<f64>>,
);

/// What all nodes receive in `frames` frames from `start` on.
#[pyfunction]
pub fn simulate<'py>(
    py: Python<'py>,
    scenario: &ScenarioHandle,
    start: u64,
    frames: usize,
) -> PyResult<SimulatedArrays<'py>> {
    let (source, system) = (&scenario.source, &scenario.system);
    let [nodes, sensors, subcarriers] = [system.irs_count(), system.sensors(), system.subcarriers];
    let truth: Vec<Vec<TrueTarget>> =
        (0..frames).map(|f| source.targets(start.saturating_add(f as u64))).collect();
    let echoes = PyArray4::<Complex64>::zeros(py, [frames, nodes, sensors, subcarriers], false);
    let mut out = echoes.readwrite();
    let samples = out.as_slice_mut().map_err(|error| crate::errors::ErrorKind::Internal.error(error))?;
    let truth_of = &truth;
    detached(py, move |cancelled| {
        let receive = |(place, out): (usize, &mut [Complex64])| {
            let (f, node) = (place / nodes, place % nodes);
            if cancelled.get() {
                return;
            }
            let received = source.frame_of(node, start.saturating_add(f as u64), &truth_of[f]);
            // Rows of the array are columns of its transpose.
            out.copy_from_slice(received.transpose().as_slice());
        };
        samples.par_chunks_exact_mut((sensors * subcarriers).max(1)).enumerate().for_each(receive);
    })?;
    drop(out);
    let offsets_s = (0..frames as u64)
        .flat_map(|f| (0..nodes).map(move |node| source.clock_offset_s(node, start.saturating_add(f))));
    let rows =
        truth.iter().enumerate().flat_map(|(f, targets)| targets.iter().map(move |target| (f, target)));
    let rows: Vec<(usize, &TrueTarget)> = rows.collect();
    let count = rows.len();
    Ok((
        echoes,
        array(py, [frames, nodes], offsets_s.collect())?,
        array(py, [count], rows.iter().map(|(f, _)| *f as i64).collect())?,
        array(py, [count], rows.iter().map(|(_, target)| target.identity as i64).collect())?,
        array(
            py,
            [count, 3],
            rows.iter().flat_map(|(_, target)| <[f64; 3]>::from(target.position_m)).collect(),
        )?,
        array(py, [count], rows.iter().map(|(_, target)| target.rcs_m2).collect())?,
    ))
}
