//! Where the echo comes from, as the sensors of one node see it: the beam in which delays are searched.
//!
//! A line array in the plane of the targets has one angle of arrival, and the energy in a direction is a trigonometric polynomial
//! of its sine. A panel, or a line array that sees spherical waves or targets at other heights, is steered to points: the best
//! of a set of beams over the coverage area, then an ascent of `a(p)^H C a(p)` over the direction of p (and its distance, if
//! waves are spherical), C the covariance of all blocks.

use std::f64::consts::TAU;

use model::algebra::unit_phasor;
use model::{Aperture, CMatrix, CVector, Carrier, Point, System, Wavefront};
use nalgebra::{DMatrix, DVector, Matrix3};
use num_complex::Complex64;

use super::window::{SineSector, coverage_points, coverage_sines};
use crate::ascent::{Expansion, climb};
use crate::beams::Beams;
use crate::harmonic::{HarmonicSeries, grid_points};
use crate::location::Bearing;

/// Beams of the scan per beamwidth 1 / (M s).
const BEAMS_PER_BEAMWIDTH: f64 = 4.0;
/// Longest step of the ascent in the logarithm of the distance.
const LONGEST_RANGE_STEP: f64 = 0.3;

/// How a node searches the direction of the echo.
#[derive(Debug, Clone)]
pub(super) enum ArrivalSearch {
    Line(LineSearch),
    Panel(PanelSearch),
}

/// A direction: the conjugate response of the sensors, and the sine of the AOA of a line array.
#[derive(Debug, Clone)]
pub(super) struct Beam {
    pub conjugate: Vec<Complex64>,
    sine: Option<f64>,
}

#[derive(Debug, Clone)]
pub(super) struct LineSearch {
    sensors: usize,
    /// 2 pi s.
    step_rad: f64,
    sector: SineSector,
    scan: Vec<Beam>,
}

#[derive(Debug, Clone)]
pub(super) struct PanelSearch {
    carrier: Carrier,
    aperture: Aperture,
    relative_m: Vec<Point>,
    scan: Vec<Beam>,
    /// Longest step of the ascent across the line of sight, radians.
    longest_rad: f64,
}

impl ArrivalSearch {
    /// The search of node `l`, which exists.
    pub fn new(system: &System, l: usize) -> Self {
        match system.beyond_the_plane() {
            None => Self::Line(LineSearch::new(system, l)),
            Some(_) => Self::Panel(PanelSearch::new(system, l)),
        }
    }

    /// Beams over the coverage area.
    pub fn scan(&self) -> &[Beam] {
        match self {
            Self::Line(line) => &line.scan,
            Self::Panel(panel) => &panel.scan,
        }
    }

    /// The beam with the most energy under a covariance of the sensors.
    pub fn sharpened(&self, covariance: &CMatrix) -> Beam {
        match self {
            Self::Line(line) => line.sharpened(covariance),
            Self::Panel(panel) => panel.sharpened(covariance),
        }
    }

    /// The AOA of a beam with its variance at the SNR of all paths together, for a line array in the plane of the targets.
    pub fn bearing(&self, beam: &Beam, snr: f64) -> Option<Bearing> {
        let (Self::Line(line), Some(sine)) = (self, beam.sine) else { return None };
        let bearing_rad = sine.clamp(-1.0, 1.0).asin();
        Some(Bearing { bearing_rad, variance_rad2: line.variance_rad2(bearing_rad, snr) })
    }

    /// Number of real parameters of a direction.
    pub fn parameters(&self) -> usize {
        match self {
            Self::Line(_) => 1,
            Self::Panel(panel) => panel.parameters(),
        }
    }
}

impl Beam {
    /// `a`.
    pub fn response(&self) -> CVector {
        CVector::from_iterator(self.conjugate.len(), self.conjugate.iter().map(Complex64::conj))
    }
}

impl LineSearch {
    fn new(system: &System, l: usize) -> Self {
        let (sensors, step_rad) = (system.sensors(), TAU * system.spacing_wavelengths);
        let beamwidth = 1.0 / (sensors as f64 * system.spacing_wavelengths);
        let sector = coverage_sines(system, &system.irs[l].pose, beamwidth / 4.0);
        let sines = grid_points(sector.min, sector.max, beamwidth / BEAMS_PER_BEAMWIDTH);
        let scan = sines.into_iter().map(|sine| line_beam(sensors, step_rad, sine)).collect();
        Self { sensors, step_rad, sector, scan }
    }

    fn sharpened(&self, covariance: &CMatrix) -> Beam {
        let spacing = TAU / (self.step_rad * self.sensors as f64 * 8.0);
        let series = HarmonicSeries::of_hermitian(covariance, self.step_rad);
        line_beam(self.sensors, self.step_rad, series.maximum(self.sector.min, self.sector.max, spacing).at)
    }

    /// Variance bound of the AOA; at most that of a uniform guess in the sector.
    fn variance_rad2(&self, arrival_rad: f64, snr: f64) -> f64 {
        let slope = self.step_rad * arrival_rad.cos();
        let aperture = ((self.sensors as f64).powi(2) - 1.0) / 12.0;
        let guess = (self.sector.max - self.sector.min).powi(2) / 12.0;
        (2.0 * snr * slope.powi(2) * aperture).recip().min(guess)
    }
}

/// The beam of a line array at a sine of the local angle.
fn line_beam(sensors: usize, step_rad: f64, sine: f64) -> Beam {
    let phase_rad = step_rad * sine;
    Beam { conjugate: (0..sensors).map(|m| unit_phasor(-phase_rad * m as f64)).collect(), sine: Some(sine) }
}

impl PanelSearch {
    fn new(system: &System, l: usize) -> Self {
        let beams = Beams::new(system, l, coverage_points(system).into_iter(), BEAMS_PER_BEAMWIDTH);
        let conjugated = |response: &Vec<Complex64>| response.iter().map(Complex64::conj).collect();
        let longest = system.sensor_grid.columns.max(system.sensor_grid.rows) as f64;
        Self {
            carrier: system.carrier(),
            aperture: system.sensor_aperture(l).unwrap_or_default(),
            scan: beams.responses.iter().map(|r| Beam { conjugate: conjugated(r), sine: None }).collect(),
            relative_m: beams.relative_m,
            longest_rad: 0.25 / (longest * system.spacing_wavelengths),
        }
    }

    fn parameters(&self) -> usize {
        if self.carrier.wavefront == Wavefront::Spherical { 3 } else { 2 }
    }

    fn sharpened(&self, covariance: &CMatrix) -> Beam {
        let energy = |beam: &Beam| {
            let a = beam.response();
            a.dotc(&(covariance * &a)).re
        };
        let energies = self.scan.iter().map(energy).enumerate();
        let best = energies.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(beam, _)| beam);
        let Some(start_m) = self.relative_m.get(best) else {
            return Beam { conjugate: vec![Complex64::ONE; self.aperture.len()], sine: None };
        };
        // Two directions across the line of sight, and the line of sight itself.
        let direction = start_m.normalize();
        let across = direction.cross(&Point::ith(direction.iamin(), 1.0)).normalize();
        let frame = Matrix3::from_columns(&[across, direction.cross(&across), direction]);
        let count = self.parameters();
        let place = |state: &DVector<f64>| {
            let range = start_m.norm() * state.get(2).map_or(1.0, |log| log.exp());
            frame * Point::new(state[0], state[1], 1.0) * range
        };
        let expand = |state: &DVector<f64>| {
            let at_m = place(state);
            let range_m = at_m.dot(&direction);
            let (a, by_point) = self.aperture.expansion(&self.carrier, &at_m);
            let along = [across * range_m, frame.column(1) * range_m, at_m];
            let derivatives: Vec<CVector> = along[..count]
                .iter()
                .map(|step| (0..3).map(|axis| by_point[axis].scale(step[axis])).sum())
                .collect();
            expansion(covariance, &a, &derivatives)
        };
        let longest =
            DVector::from_fn(count, |i, _| if i < 2 { self.longest_rad } else { LONGEST_RANGE_STEP });
        let summit = climb(DVector::zeros(count), &longest, expand);
        let response = self.aperture.response(&self.carrier, &place(&summit.at));
        Beam { conjugate: response.iter().map(Complex64::conj).collect(), sine: None }
    }
}

/// `a^H C a / M` with its gradient and the information of a rank-one fit; the modulus of `a` is constant.
fn expansion(covariance: &CMatrix, a: &CVector, derivatives: &[CVector]) -> Expansion {
    let sensors = a.len() as f64;
    let received = covariance * a;
    let value = a.dotc(&received).re / sensors;
    let along: Vec<Complex64> = derivatives.iter().map(|d| a.dotc(d)).collect();
    let gradient = derivatives.iter().map(|d| 2.0 * received.dotc(d).re / sensors);
    Expansion {
        value,
        gradient: DVector::from_iterator(derivatives.len(), gradient),
        information: DMatrix::from_fn(derivatives.len(), derivatives.len(), |i, j| {
            let free = derivatives[i].dotc(&derivatives[j]) - along[i].conj() * along[j] / sensors;
            2.0 * value / sensors * free.re
        }),
    }
}
