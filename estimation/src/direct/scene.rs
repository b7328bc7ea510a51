//! The constants of a system and the template of a point of the plane for every IRS.
//!
//! Subcarriers are kept in the order of their owners, so that those of one IRS are contiguous; a cascade delay is a
//! sum of two, so that the phasors of a path are a product of those of its two IRSs.

use std::f64::consts::{PI, TAU};
use std::ops::Range;

use model::algebra::unit_phasor;
use model::units::SPEED_OF_LIGHT_M_S;
use model::{CMatrix, CVector, Point, System};
use num_complex::Complex64;

/// Constants of a system.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    system: System,
    /// Subcarriers by owner.
    order: Vec<usize>,
    /// Where the subcarriers of IRS k are in `order`.
    ranges: Vec<Range<usize>>,
    /// Angular baseband frequency, rad/s, in `order`.
    frequencies_rad_s: Vec<f64>,
    /// `X_k^H`, n x D.
    conjugate_codes: Vec<CMatrix>,
}

/// A point as one IRS sees it.
#[derive(Debug, Clone)]
pub(super) struct IrsView {
    pub distance_m: f64,
    pub bearing_rad: f64,
    /// Sine of the local angle.
    pub sine: f64,
    /// `a(theta)^* / sqrt(M)`.
    pub arrival: Vec<Complex64>,
    /// `exp(j w d / c)` on all subcarriers.
    pub phasors: Vec<Complex64>,
    /// `b_k / ||b_k||`.
    pub light: CVector,
    /// `||b_k||`.
    pub strength: f64,
    /// `(X_k^H b_k)^T .* exp(j w d / c) / ||b_k||` on the IRS's own subcarriers.
    pub template: Vec<Complex64>,
    /// Centre of mass and root mean square width of the template's spectrum, rad/s.
    pub centre_rad_s: f64,
    pub width_rad_s: f64,
}

impl Scene {
    pub fn new(system: &System) -> Self {
        let (mut order, mut ranges) = (Vec::with_capacity(system.subcarriers), Vec::new());
        for irs in &system.irs {
            let begin = order.len();
            order.extend_from_slice(&irs.waveform.subcarriers);
            ranges.push(begin..order.len());
        }
        Self {
            frequencies_rad_s: order.iter().map(|&i| TAU * system.frequency_hz(i)).collect(),
            conjugate_codes: system.irs.iter().map(|irs| irs.waveform.codes.adjoint()).collect(),
            system: system.clone(),
            order,
            ranges,
        }
    }

    pub fn system(&self) -> &System {
        &self.system
    }

    pub fn irs_count(&self) -> usize {
        self.ranges.len()
    }

    /// Subcarriers in use.
    pub fn channels(&self) -> usize {
        self.order.len()
    }

    /// Where the subcarriers of IRS `k` are.
    pub fn range(&self, k: usize) -> Range<usize> {
        self.ranges[k].clone()
    }

    /// Streams of IRS `k`.
    pub fn streams(&self, k: usize) -> usize {
        self.conjugate_codes[k].ncols()
    }

    /// `a^* / sqrt(M)` at a sine of the local angle.
    pub fn arrival(&self, sine: f64) -> Vec<Complex64> {
        let (count, step) = (self.system.sensors, TAU * self.system.spacing_wavelengths * sine);
        let scale = 1.0 / (count as f64).sqrt();
        (0..count).map(|m| unit_phasor(-step * m as f64) * scale).collect()
    }

    /// SNR of a path after the matched filter for a cross-section of one square metre.
    pub fn unit_snr(&self, sensor: &IrsView, reflector: &IrsView) -> f64 {
        let system = &self.system;
        let energy = system.sensors as f64 * reflector.strength.powi(2) / system.noise_power_w;
        let spread = (64.0 * PI.powi(3)) * (sensor.distance_m * reflector.distance_m).powi(2);
        energy * system.wavelength_m.powi(2) / spread
    }

    fn view(&self, k: usize, point: Point) -> IrsView {
        let pose = &self.system.irs[k].pose;
        let distance_m = pose.distance_m(point);
        let sine = pose.local_angle_rad(point).sin();
        let phasors = self.phasors(distance_m / SPEED_OF_LIGHT_M_S);
        let light = self.system.illumination(k, point).unwrap_or_else(|| CVector::zeros(self.streams(k)));
        let strength = light.norm().max(f64::MIN_POSITIVE);
        let light = light.unscale(strength);
        let spectrum = &self.conjugate_codes[k] * &light;
        let own = self.range(k);
        let powers = || spectrum.iter().map(Complex64::norm_sqr).zip(&self.frequencies_rad_s[own.clone()]);
        let energy: f64 = powers().map(|(p, _)| p).sum::<f64>().max(f64::MIN_POSITIVE);
        let centre_rad_s = powers().map(|(p, w)| p * w).sum::<f64>() / energy;
        let spread = powers().map(|(p, w)| p * (w - centre_rad_s).powi(2)).sum::<f64>() / energy;
        let template = spectrum.iter().zip(&phasors[own.clone()]).map(|(s, p)| s * p).collect();
        IrsView {
            distance_m,
            bearing_rad: pose.bearing_rad(point),
            sine,
            arrival: self.arrival(sine),
            phasors,
            light,
            strength,
            template,
            centre_rad_s,
            width_rad_s: spread.sqrt(),
        }
    }

    /// `point` as every IRS sees it.
    pub fn views(&self, point: Point) -> Vec<IrsView> {
        (0..self.irs_count()).map(|k| self.view(k, point)).collect()
    }

    /// `exp(j w t)` on all subcarriers, from two tables of steps: the subcarriers are equally spaced.
    fn phasors(&self, time_s: f64) -> Vec<Complex64> {
        const STRIDE: usize = 16;
        let lowest = TAU * self.system.frequency_hz(0) * time_s;
        let step = TAU * self.system.bandwidth_hz / self.system.subcarriers as f64 * time_s;
        let fine: [Complex64; STRIDE] = std::array::from_fn(|i| unit_phasor(step * i as f64));
        let blocks = self.system.subcarriers.div_ceil(STRIDE);
        let rough: Vec<Complex64> =
            (0..blocks).map(|i| unit_phasor(lowest + step * (i * STRIDE) as f64)).collect();
        self.order.iter().map(|&i| rough[i / STRIDE] * fine[i % STRIDE]).collect()
    }
}
