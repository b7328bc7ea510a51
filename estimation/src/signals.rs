//! The reflected signals S_k of all IRSs with what depends on them alone: computed once per system, used by every frame.

use std::sync::OnceLock;

use model::array::UniformLinearArray;
use model::{CMatrix, CVector, System};
use nalgebra::DVector;
use nalgebra::linalg::SVD;

use crate::linalg::ComplexLanes;

/// Grid points of a scan per element of the largest array.
const POINTS_PER_ELEMENT: usize = 8;

/// The reflected signals of a system with its array geometry.
#[derive(Debug)]
pub struct ReflectedSignals {
    spacing_wavelengths: f64,
    sensors: usize,
    signals: Vec<CMatrix>,
    tables: OnceLock<SignalTables>,
}

/// What depends on the signals alone.
#[derive(Debug)]
pub(crate) struct SignalTables {
    /// Singular values of every S_k.
    pub singular_values: Vec<DVector<f64>>,
    /// Mean of the largest singular values.
    pub mean_norm: f64,
    /// Angles of a scan over the unambiguous sector.
    pub grid_rad: Vec<f64>,
    /// Responses `a(theta)` of the sensors to the angles of the grid: the sensors of all angles of a group of lanes, then those of the next.
    pub arrivals: Vec<ComplexLanes<f32>>,
    /// `b_k(theta) = S_k^H a(theta)` of unit norm (zero where nothing is sent), by IRS in the same order.
    pub departures: Vec<Vec<ComplexLanes<f32>>>,
}

impl PartialEq for ReflectedSignals {
    fn eq(&self, other: &Self) -> bool {
        (self.spacing_wavelengths, self.sensors, &self.signals)
            == (other.spacing_wavelengths, other.sensors, &other.signals)
    }
}

impl ReflectedSignals {
    /// The signals S_k (N x D_k) reflected to nodes of so many sensors. They are checked where they are used.
    pub fn new(spacing_wavelengths: f64, sensors: usize, signals: Vec<CMatrix>) -> Self {
        Self { spacing_wavelengths, sensors, signals, tables: OnceLock::new() }
    }

    /// The signals of a system.
    pub fn of_system(system: &System) -> Self {
        let signals = system.irs.iter().map(|irs| irs.reflected_signal.clone()).collect();
        Self::new(system.spacing_wavelengths, system.sensors(), signals)
    }

    /// Element spacing in wavelengths.
    pub fn spacing_wavelengths(&self) -> f64 {
        self.spacing_wavelengths
    }

    /// Number of sensors M per IRS.
    pub fn sensors(&self) -> usize {
        self.sensors
    }

    /// S_k by IRS.
    pub fn signals(&self) -> &[CMatrix] {
        &self.signals
    }

    /// The sensor array of every IRS.
    pub(crate) fn sensor_array(&self) -> UniformLinearArray {
        UniformLinearArray { elements: self.sensors, spacing_wavelengths: self.spacing_wavelengths }
    }

    /// The reflecting array of IRS `k`.
    pub(crate) fn element_array(&self, k: usize) -> UniformLinearArray {
        UniformLinearArray {
            elements: self.signals[k].nrows(),
            spacing_wavelengths: self.spacing_wavelengths,
        }
    }

    /// `b_k(theta) = S_k^H a(theta)`.
    pub(crate) fn illumination(&self, k: usize, theta_rad: f64) -> CVector {
        self.signals[k].ad_mul(&self.element_array(k).steering(theta_rad))
    }

    /// The tables; made when they are first asked for. The signals must be finite.
    pub(crate) fn tables(&self) -> &SignalTables {
        self.tables.get_or_init(|| SignalTables::new(self))
    }
}

impl SignalTables {
    fn new(signals: &ReflectedSignals) -> Self {
        let svd = |signal: &CMatrix| SVD::new(signal.clone(), false, false).singular_values;
        let singular_values: Vec<DVector<f64>> = signals.signals.iter().map(svd).collect();
        let mean_norm = singular_values.iter().map(DVector::max).sum::<f64>() / singular_values.len() as f64;
        let sensors = signals.sensor_array();
        let largest = signals.signals.iter().map(CMatrix::nrows).fold(sensors.elements, usize::max);
        let points = POINTS_PER_ELEMENT * largest;
        let sector = sensors.unambiguous_half_sector_rad().sin();
        let grid_rad: Vec<f64> =
            (0..points).map(|i| (sector * ((2 * i + 1) as f64 / points as f64 - 1.0)).asin()).collect();
        let of_grid = |vector: &dyn Fn(f64) -> CVector| {
            let vectors: Vec<CVector> = grid_rad.iter().map(|&theta| vector(theta)).collect();
            ComplexLanes::of_vectors(vectors.iter().map(CVector::as_slice))
        };
        let unit = |k: usize, theta: f64| {
            let b = signals.illumination(k, theta);
            let norm = b.norm();
            if norm > 0.0 { b.unscale(norm) } else { b }
        };
        Self {
            singular_values,
            mean_norm,
            arrivals: of_grid(&|theta| sensors.steering(theta)),
            departures: (0..signals.signals.len()).map(|k| of_grid(&|theta| unit(k, theta))).collect(),
            grid_rad,
        }
    }
}
