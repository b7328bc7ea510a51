//! A site: what estimators may know of a scenario.

use std::sync::Arc;

use model::{Aperture, Gain, Information, Point, Scheme, System};
use num_complex::Complex64;
use numpy::{PyArray1, PyArray2, PyArray3, PyReadonlyArray2};
use pyo3::prelude::*;
use rayon::prelude::*;
use settings::check::named;

use crate::arrays::{array, points, rows};
use crate::errors::ErrorKind;
use crate::work::detached;

/// A consistent site.
#[pyclass(name = "SiteHandle", module = "hyloc._hyloc", frozen)]
pub struct SiteHandle {
    pub system: Arc<System>,
}

/// Exact bound and paper's bound on a position; NaN where the position is not observable.
fn bound_m2(system: &System, position_m: Point, rcs_m2: f64, scheme: Scheme) -> [Vec<f64>; 2] {
    let entries = system.axes().len().pow(2);
    [Gain::Unknown, Gain::Known].map(|gain| {
        let bound = Information::new(system, position_m, rcs_m2, gain).position_crb_m2(scheme);
        bound.map_or_else(|_| vec![f64::NAN; entries], |bound| rows(&bound).collect())
    })
}

type BoundArrays<'py> = (Bound<'py, PyArray3<f64>>, Bound<'py, PyArray3<f64>>);

#[pymethods]
impl SiteHandle {
    /// Exact bound and paper's bound for targets at these positions.
    fn bounds<'py>(
        &self,
        py: Python<'py>,
        positions_m: PyReadonlyArray2<'py, f64>,
        scheme: &str,
        rcs_m2: f64,
    ) -> PyResult<BoundArrays<'py>> {
        let refuse = |reason: String| ErrorKind::Argument.error(reason);
        let read = named::<Scheme>("hybrid, angle-only, delay-only or no-collaboration");
        let scheme = read(scheme).map_err(|allowed| refuse(format!("scheme = '{scheme}': {allowed}")))?;
        if !(rcs_m2.is_finite() && rcs_m2 > 0.0) {
            return Err(refuse(format!("rcs_m2 = {rcs_m2}: must be above 0 and finite")));
        }
        let positions_m = points(&positions_m)?;
        let system = &*self.system;
        let both = detached(py, |_| {
            positions_m.par_iter().map(|at| bound_m2(system, *at, rcs_m2, scheme)).collect::<Vec<_>>()
        })?;
        let shape = [positions_m.len(), system.axes().len(), system.axes().len()];
        let (exact, paper): (Vec<_>, Vec<_>) = both.into_iter().map(|[exact, paper]| (exact, paper)).unzip();
        Ok((array(py, shape, exact.concat())?, array(py, shape, paper.concat())?))
    }

    #[getter]
    fn irs_count(&self) -> usize {
        self.system.irs_count()
    }

    #[getter]
    fn sensors(&self) -> usize {
        self.system.sensors()
    }

    #[getter]
    fn elements(&self) -> usize {
        self.system.elements()
    }

    #[getter]
    fn subcarriers(&self) -> usize {
        self.system.subcarriers
    }

    #[getter]
    fn axes(&self) -> usize {
        self.system.axes().len()
    }

    /// Median of the radar cross-section that estimators assume.
    #[getter]
    fn prior_rcs_m2(&self) -> f64 {
        self.system.prior.median_m2
    }

    #[getter]
    fn noise_power_w(&self) -> f64 {
        self.system.noise_power_w
    }

    #[getter]
    fn bandwidth_hz(&self) -> f64 {
        self.system.bandwidth_hz
    }

    #[getter]
    fn wavelength_m(&self) -> f64 {
        self.system.wavelength_m
    }

    /// Least and largest coordinates.
    #[getter]
    fn coverage_m<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let coverage = &self.system.coverage;
        array(py, [2, 3], [coverage.min_m, coverage.max_m].concat())
    }

    #[getter]
    fn base_station_m<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        array(py, [3], self.system.base_station_m.as_slice().to_vec())
    }

    /// Baseband frequencies of all subcarriers.
    #[getter]
    fn frequencies_hz<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let system = &*self.system;
        array(py, [system.subcarriers], (0..system.subcarriers).map(|i| system.frequency_hz(i)).collect())
    }

    #[getter]
    fn irs_positions_m<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let all = &self.system.irs;
        array(
            py,
            [all.len(), 3],
            all.iter().flat_map(|irs| irs.pose.position_m.as_slice().to_vec()).collect(),
        )
    }

    /// Azimuth, elevation and roll.
    #[getter]
    fn irs_orientations_rad<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let all = &self.system.irs;
        let angles = all.iter().flat_map(|irs| {
            let at = &irs.pose.orientation;
            [at.azimuth_rad, at.elevation_rad, at.roll_rad]
        });
        array(py, [all.len(), 3], angles.collect())
    }

    /// Where the sensors of every IRS are, K x M x 3.
    #[getter]
    fn sensor_positions_m<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f64>>> {
        self.apertures(py, self.system.sensors(), System::sensor_aperture)
    }

    /// Where the reflecting elements of every IRS are, K x N x 3.
    #[getter]
    fn element_positions_m<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f64>>> {
        self.apertures(py, self.system.elements(), System::element_aperture)
    }

    /// Response of the sensors of IRS `l` to targets at these positions, n x M.
    fn sensor_responses<'py>(
        &self,
        py: Python<'py>,
        l: usize,
        positions_m: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<Complex64>>> {
        self.responses(py, l, &positions_m, System::sensor_aperture)
    }

    /// What targets at these positions receive from the elements of IRS `k`, n x N.
    fn element_responses<'py>(
        &self,
        py: Python<'py>,
        k: usize,
        positions_m: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<Complex64>>> {
        self.responses(py, k, &positions_m, System::element_aperture)
    }

    /// S_k of every IRS, N x D_k.
    #[getter]
    fn reflected_signals<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyArray2<Complex64>>>> {
        let all = self.system.irs.iter().map(|irs| &irs.reflected_signal);
        all.map(|signal| array(py, [signal.nrows(), signal.ncols()], rows(signal).collect())).collect()
    }

    /// X_k of every IRS, D_k x n_k.
    #[getter]
    fn codes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyArray2<Complex64>>>> {
        let all = self.system.irs.iter().map(|irs| &irs.waveform.codes);
        all.map(|codes| array(py, [codes.nrows(), codes.ncols()], rows(codes).collect())).collect()
    }

    /// The subcarriers of every IRS.
    #[getter]
    fn owned_subcarriers<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyArray1<i64>>>> {
        let all = self.system.irs.iter().map(|irs| &irs.waveform.subcarriers);
        all.map(|owned| array(py, [owned.len()], owned.iter().map(|i| *i as i64).collect())).collect()
    }
}

impl SiteHandle {
    fn responses<'py>(
        &self,
        py: Python<'py>,
        k: usize,
        positions_m: &PyReadonlyArray2<'py, f64>,
        aperture: impl Fn(&System, usize) -> Option<Aperture>,
    ) -> PyResult<Bound<'py, PyArray2<Complex64>>> {
        let system = &*self.system;
        let aperture = aperture(system, k).ok_or_else(|| {
            let count = system.irs_count();
            ErrorKind::Argument
                .error(format!("there is no IRS {k}: the scenario has {count}, counted from 0"))
        })?;
        let (centre_m, carrier) = (system.irs[k].pose.position_m, system.carrier());
        let positions_m = points(positions_m)?;
        let all = positions_m
            .iter()
            .flat_map(|at| aperture.response(&carrier, &(at - centre_m)).data.as_vec().clone());
        array(py, [positions_m.len(), aperture.len()], all.collect())
    }

    fn apertures<'py>(
        &self,
        py: Python<'py>,
        count: usize,
        aperture: impl Fn(&System, usize) -> Option<Aperture>,
    ) -> PyResult<Bound<'py, PyArray3<f64>>> {
        let system = &*self.system;
        let places = system.irs.iter().enumerate().flat_map(|(k, irs)| {
            let offsets_m = aperture(system, k).unwrap_or_default().offsets_m;
            offsets_m.into_iter().flat_map(|offset_m| <[f64; 3]>::from(irs.pose.position_m + offset_m))
        });
        array(py, [system.irs_count(), count, 3], places.collect())
    }
}
