//! The IRSs as the likelihood knows them, and a point in space as they see it, with derivatives.
//!
//! Arrays appear only through the response of their elements to a point and its derivatives ([`model::panel`]), so that
//! line arrays and panels, plane and spherical waves are one case. Subcarriers are kept in the order of their owners:
//! those of one IRS are contiguous.

use std::f64::consts::TAU;
use std::ops::Range;

use model::algebra::unit_phasor;
use model::units::SPEED_OF_LIGHT_M_S;
use model::{Aperture, CMatrix, Carrier, SpacePoint};
use num_complex::Complex64;

/// Why IRSs make no layout.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum LayoutError {
    #[error("no IRS at all: at least one is needed")]
    Empty,
    #[error("wavelength = {value} m: must be positive and finite")]
    Wavelength { value: f64 },
    #[error("IRS {k}: there are no {what}")]
    Nothing { k: usize, what: &'static str },
    #[error("IRS {k}: {what} is {rows} x {columns}, expected {expected_rows} x {expected_columns}")]
    Shape {
        k: usize,
        what: &'static str,
        rows: usize,
        columns: usize,
        expected_rows: usize,
        expected_columns: usize,
    },
    #[error("IRS {k}: {what} holds a value that is not finite")]
    NotFinite { k: usize, what: &'static str },
    #[error("IRS {k} radiates nothing: its reflected signal or its codes are zero")]
    Dark { k: usize },
}

/// One IRS as the likelihood knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutIrs {
    /// Point to which phases and delays refer: the centre of a panel.
    pub centre_m: SpacePoint,
    /// Sensors, M.
    pub sensors: Aperture,
    /// Reflecting elements, N.
    pub elements: Aperture,
    /// S_k, N x D.
    pub reflected_signal: CMatrix,
    /// X_k, D x n.
    pub codes: CMatrix,
    /// Baseband frequencies of its n subcarriers.
    pub frequencies_hz: Vec<f64>,
}

/// The IRSs of a likelihood.
#[derive(Debug, Clone)]
pub struct Layout {
    carrier: Carrier,
    irs: Vec<LayoutIrs>,
    /// Free coordinates of a target: 0 and 1 in a plane, 0 to 2 in space.
    axes: Vec<usize>,
    /// Where the subcarriers of IRS k are.
    ranges: Vec<Range<usize>>,
    /// Angular baseband frequency of all subcarriers, rad/s.
    frequencies_rad_s: Vec<f64>,
    /// `(S_k X_k)^T`, N columns of n values each.
    radiated: Vec<CMatrix>,
}

/// A point as one IRS sees it. Every list of vectors has the value first, then the derivatives with respect to the free
/// coordinates, if these were asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    pub distance_m: f64,
    /// Gradient of the distance with respect to the free coordinates.
    pub direction: Vec<f64>,
    /// `a_l(p)`.
    pub arrival: Vec<Vec<Complex64>>,
    /// `(S_k X_k)^T g_k(p)` on the IRS's own subcarriers, without delay.
    pub streams: Vec<Vec<Complex64>>,
    /// `exp(-j w d / c)` on all subcarriers.
    pub phasors: Vec<Complex64>,
}

impl Layout {
    /// Checks the parts; targets are free to move along `axes` (0, 1 or 2).
    pub fn new(carrier: Carrier, irs: Vec<LayoutIrs>, axes: Vec<usize>) -> Result<Self, LayoutError> {
        let value = carrier.wavelength_m;
        if !(value.is_finite() && value > 0.0) {
            return Err(LayoutError::Wavelength { value });
        }
        if irs.is_empty() {
            return Err(LayoutError::Empty);
        }
        let radiated = irs.iter().enumerate().map(|(k, irs)| irs.radiated(k)).collect::<Result<_, _>>()?;
        let mut ranges = Vec::with_capacity(irs.len());
        let mut frequencies_rad_s = Vec::new();
        for irs in &irs {
            let begin = frequencies_rad_s.len();
            frequencies_rad_s.extend(irs.frequencies_hz.iter().map(|f| TAU * f));
            ranges.push(begin..frequencies_rad_s.len());
        }
        Ok(Self { carrier, irs, axes, ranges, frequencies_rad_s, radiated })
    }

    /// The IRSs.
    pub fn irs(&self) -> &[LayoutIrs] {
        &self.irs
    }

    /// Free coordinates of a target.
    pub fn axes(&self) -> &[usize] {
        &self.axes
    }

    /// Angular baseband frequency of all subcarriers, by owner.
    pub(super) fn frequencies_rad_s(&self) -> &[f64] {
        &self.frequencies_rad_s
    }

    /// Where the subcarriers of IRS `k` are.
    pub(super) fn range(&self, k: usize) -> Range<usize> {
        self.ranges[k].clone()
    }

    /// The point as IRS `k` sees it, with derivatives if `expand` says so. Buffers of `view` are reused.
    pub(super) fn look(&self, k: usize, point: &SpacePoint, expand: bool, view: &mut View) {
        let irs = &self.irs[k];
        let relative_m = point - irs.centre_m;
        view.distance_m = relative_m.norm();
        view.direction.clear();
        view.direction.extend(self.axes.iter().map(|&axis| relative_m[axis] / view.distance_m));
        let count = if expand { 1 + self.axes.len() } else { 1 };
        view.arrival.resize_with(count, Vec::new);
        view.streams.resize_with(count, Vec::new);
        for values in &mut view.arrival {
            values.clear();
        }
        for values in &mut view.streams {
            values.clear();
            values.resize(irs.frequencies_hz.len(), Complex64::ZERO);
        }
        for offset in &irs.sensors.offsets_m {
            let (phase, gradient) = self.carrier.phase_rad(offset, &relative_m);
            let response = unit_phasor(phase);
            view.arrival[0].push(response);
            for (values, &axis) in view.arrival[1..].iter_mut().zip(&self.axes) {
                values.push(response * Complex64::new(0.0, gradient[axis]));
            }
        }
        for (offset, column) in irs.elements.offsets_m.iter().zip(self.radiated[k].column_iter()) {
            let (phase, gradient) = self.carrier.phase_rad(offset, &relative_m);
            let response = unit_phasor(phase);
            add_scaled(&mut view.streams[0], column.as_slice(), response);
            for (values, &axis) in view.streams[1..].iter_mut().zip(&self.axes) {
                add_scaled(values, column.as_slice(), response * Complex64::new(0.0, gradient[axis]));
            }
        }
        let delay_s = view.distance_m / SPEED_OF_LIGHT_M_S;
        view.phasors.clear();
        view.phasors.extend(self.frequencies_rad_s.iter().map(|w| unit_phasor(-w * delay_s)));
    }

    /// The point as every IRS sees it.
    pub(super) fn views(&self, point: &SpacePoint, expand: bool) -> Vec<View> {
        let mut views = vec![View::default(); self.irs.len()];
        self.look_all(point, expand, &mut views);
        views
    }

    /// [`Self::views`] into buffers that exist.
    pub(super) fn look_all(&self, point: &SpacePoint, expand: bool, views: &mut [View]) {
        for (k, view) in views.iter_mut().enumerate() {
            self.look(k, point, expand, view);
        }
    }
}

/// `sum += values * factor`.
#[inline]
fn add_scaled(sum: &mut [Complex64], values: &[Complex64], factor: Complex64) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += value * factor;
    }
}

impl LayoutIrs {
    /// `(S X)^T`, after the checks.
    fn radiated(&self, k: usize) -> Result<CMatrix, LayoutError> {
        for (what, aperture) in [("sensors", &self.sensors), ("elements", &self.elements)] {
            if aperture.is_empty() {
                return Err(LayoutError::Nothing { k, what });
            }
            if aperture.offsets_m.iter().flatten().any(|v| !v.is_finite()) {
                return Err(LayoutError::NotFinite { k, what });
            }
        }
        if self.frequencies_hz.is_empty() {
            return Err(LayoutError::Nothing { k, what: "subcarriers" });
        }
        let streams = self.reflected_signal.ncols();
        let expected = [
            ("reflected signal", &self.reflected_signal, (self.elements.len(), streams)),
            ("matrix of codes", &self.codes, (streams, self.frequencies_hz.len())),
        ];
        for (what, matrix, (expected_rows, expected_columns)) in expected {
            let (rows, columns) = matrix.shape();
            if (rows, columns) != (expected_rows, expected_columns) || matrix.is_empty() {
                return Err(LayoutError::Shape { k, what, rows, columns, expected_rows, expected_columns });
            }
            if matrix.iter().any(|v| !v.is_finite()) {
                return Err(LayoutError::NotFinite { k, what });
            }
        }
        if self.frequencies_hz.iter().chain(self.centre_m.iter()).any(|v| !v.is_finite()) {
            return Err(LayoutError::NotFinite { k, what: "centre or list of frequencies" });
        }
        let radiated = (&self.reflected_signal * &self.codes).transpose();
        if radiated.norm_squared() > 0.0 { Ok(radiated) } else { Err(LayoutError::Dark { k }) }
    }
}
