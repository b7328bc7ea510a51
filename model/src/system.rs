//! The sensing system as its processors know it, the *site*: poses, streams, reflected signals, coverage, noise, and a
//! prior on what is to be located. It holds nothing of the target, of imperfections or of the seed: what only the
//! simulator knows stays in the [`Scenario`] and in the echo source.
//!
//! `S_k = Theta_k H_k W_k` (N x D_k) is what IRS k radiates, stream by stream. Where the channel
//! estimate is wrong this is the *believed* signal; what is truly radiated is known only
//! to the echo source ([`crate::echo`]).

mod validate;

use std::f64::consts::TAU;

use nalgebra::linalg::SVD;
use num_complex::Complex64;
use rand::RngExt;

use crate::algebra::{CMatrix, CVector, unit_phasor};
use crate::array::UniformLinearArray;
use crate::beamforming::{aligned_phases, apply_phases, zero_forcing};
use crate::channel::{base_station_channels, echo_gain};
use crate::geometry::{Point, Pose};
use crate::prior::CrossSectionPrior;
use crate::random::{Purpose, complex_normal, stream};
use crate::scenario::{Coverage, Phases, Scenario, ScenarioError};
use crate::waveform::{Waveform, subcarrier_frequency_hz, waveforms};

/// One IRS: where it stands, what it radiates and the streams that carry it.
#[derive(Debug, Clone, PartialEq)]
pub struct Irs {
    /// Position and orientation.
    pub pose: Pose,
    /// S_k, N x D_k.
    pub reflected_signal: CMatrix,
    /// Subcarriers and codes.
    pub waveform: Waveform,
}

/// Everything that an estimator may know.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// Carrier wavelength.
    pub wavelength_m: f64,
    /// Element spacing in wavelengths.
    pub spacing_wavelengths: f64,
    /// Bandwidth W.
    pub bandwidth_hz: f64,
    /// Subcarriers L of a frame.
    pub subcarriers: usize,
    /// Noise power per sensor and subcarrier.
    pub noise_power_w: f64,
    /// Transmit power P_max.
    pub transmit_power_w: f64,
    /// Frames over which path phases hold.
    pub coherent_frames: u64,
    /// What may be assumed of a target's radar cross-section.
    pub prior: CrossSectionPrior,
    /// Where the base station stands.
    pub base_station_m: Point,
    /// Sensors M per IRS.
    pub sensors: usize,
    /// Reflecting elements N per IRS.
    pub elements: usize,
    /// Where targets can be.
    pub coverage: Coverage,
    /// The IRSs.
    pub irs: Vec<Irs>,
}

/// How much of the reflected signal can be told apart (Section IV-B).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankCase {
    /// Case 1, rank N.
    Full,
    /// Case 2, between.
    Partial,
    /// Case 3, rank one: the AOD is not observable.
    One,
}

/// Channels, beams and phases: what a scenario draws before anything is radiated.
pub(crate) struct Illumination {
    pub channels: Vec<CMatrix>,
    pub beams: Vec<CMatrix>,
    pub phases: Vec<CVector>,
    pub believed: Vec<CMatrix>,
}

impl Illumination {
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        scenario.validate()?;
        let channels = base_station_channels(scenario);
        let estimates: Vec<CMatrix> =
            channels.iter().enumerate().map(|(k, h)| estimated_channel(scenario, k, h)).collect();
        let beams = zero_forcing(&estimates, scenario.frame_power_w())
            .map_err(|e| ScenarioError::new("irs", scenario.irs.len(), e.to_string()))?;
        let incident: Vec<CMatrix> = estimates.iter().zip(&beams).map(|(h, w)| h * w).collect();
        let phases: Vec<CVector> =
            incident.iter().enumerate().map(|(k, signal)| element_phases(scenario, k, signal)).collect();
        let believed = phases.iter().zip(&incident).map(|(p, signal)| apply_phases(p, signal)).collect();
        Ok(Self { channels, beams, phases, believed })
    }
}

/// H_k plus white error of the configured relative rms.
fn estimated_channel(scenario: &Scenario, k: usize, channel: &CMatrix) -> CMatrix {
    let error = scenario.imperfections.channel_error;
    if error == 0.0 {
        return channel.clone();
    }
    let variance = error.powi(2) * channel.norm_squared() / channel.len() as f64;
    let mut errors = stream(scenario.seed, Purpose::ChannelError, [k as u64, 0]);
    channel.map(|h| h + complex_normal(&mut errors, variance))
}

fn element_phases(scenario: &Scenario, k: usize, incident: &CMatrix) -> CVector {
    let elements = scenario.surface.elements;
    match scenario.surface.phases {
        Phases::Random => {
            let mut phases = stream(scenario.seed, Purpose::IrsPhases, [k as u64, 0]);
            CVector::from_fn(elements, |_, _| unit_phasor(phases.random_range(0.0..TAU)))
        }
        Phases::Aligned { toward_m } => {
            let array =
                UniformLinearArray { elements, spacing_wavelengths: scenario.signal.spacing_wavelengths };
            let toward = scenario.pose(k).local_angle_rad(Point::from(toward_m));
            aligned_phases(incident, &array.steering(toward))
        }
    }
}

impl System {
    /// The system of a scenario.
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        Ok(Self::of(scenario, Illumination::new(scenario)?.believed))
    }

    /// The system of a checked scenario whose IRSs radiate `reflected_signals`.
    pub(crate) fn of(scenario: &Scenario, reflected_signals: Vec<CMatrix>) -> Self {
        let streams: Vec<usize> = reflected_signals.iter().map(CMatrix::ncols).collect();
        let waveforms = waveforms(scenario.seed, scenario.signal.subcarriers, &streams);
        let irs = reflected_signals
            .into_iter()
            .zip(waveforms)
            .enumerate()
            .map(|(k, (reflected_signal, waveform))| Irs {
                pose: scenario.pose(k),
                reflected_signal,
                waveform,
            })
            .collect();
        Self {
            wavelength_m: scenario.signal.wavelength_m,
            spacing_wavelengths: scenario.signal.spacing_wavelengths,
            bandwidth_hz: scenario.signal.bandwidth_hz,
            subcarriers: scenario.signal.subcarriers,
            noise_power_w: scenario.noise_power_w(),
            transmit_power_w: scenario.transmit_power_w(),
            coherent_frames: scenario.signal.coherent_frames,
            prior: scenario.cross_section_prior(),
            base_station_m: scenario.base_station.position(),
            sensors: scenario.surface.sensors,
            elements: scenario.surface.elements,
            coverage: scenario.coverage.clone(),
            irs,
        }
    }

    /// Number of IRSs K.
    pub fn irs_count(&self) -> usize {
        self.irs.len()
    }

    /// The sensors of an IRS.
    pub fn sensor_array(&self) -> UniformLinearArray {
        UniformLinearArray { elements: self.sensors, spacing_wavelengths: self.spacing_wavelengths }
    }

    /// The reflecting elements of an IRS.
    pub fn element_array(&self) -> UniformLinearArray {
        UniformLinearArray { elements: self.elements, spacing_wavelengths: self.spacing_wavelengths }
    }

    /// Baseband frequency of a subcarrier.
    pub fn frequency_hz(&self, subcarrier: usize) -> f64 {
        subcarrier_frequency_hz(subcarrier, self.subcarriers, self.bandwidth_hz)
    }

    /// |alpha_lk| for a target of that cross-section at `target_m`.
    pub fn echo_gain(&self, l: usize, k: usize, target_m: Point, rcs_m2: f64) -> f64 {
        echo_gain(self.wavelength_m, rcs_m2, &self.irs[l].pose, &self.irs[k].pose, target_m)
    }

    /// `b_k = S_k^H a(theta_k)`: what the target receives from IRS `k`, per stream.
    pub fn illumination(&self, k: usize, target_m: Point) -> CVector {
        let theta = self.irs[k].pose.local_angle_rad(target_m);
        self.irs[k].reflected_signal.ad_mul(&self.element_array().steering(theta))
    }

    /// SNR of path (l, k) after the matched filter, `|alpha|^2 M ||b_k||^2 / sigma^2`: the energy of the
    /// noiseless block R_lk over the noise variance of one of its entries.
    pub fn path_snr(&self, l: usize, k: usize, target_m: Point, rcs_m2: f64) -> f64 {
        let energy = self.sensors as f64 * self.illumination(k, target_m).norm_squared();
        self.echo_gain(l, k, target_m, rcs_m2).powi(2) * energy / self.noise_power_w
    }

    /// Directions of S_k that carry signal above the noise, for a target of that cross-section at the centre of the
    /// coverage area and the sensor that hears it best. Direction i has SNR `|alpha|^2 M sigma_i^2 / sigma^2`
    /// on average over the AOD; one below unity is not rank.
    pub fn effective_rank(&self, k: usize, rcs_m2: f64) -> usize {
        let centre = self.coverage.centre();
        let gain = (0..self.irs_count()).map(|l| self.echo_gain(l, k, centre, rcs_m2)).fold(0.0, f64::max);
        let floor = self.noise_power_w / (gain.powi(2) * self.sensors as f64);
        let singular = SVD::new(self.irs[k].reflected_signal.clone(), false, false).singular_values;
        singular.iter().filter(|&&s| s * s > floor).count()
    }

    /// Rank case of IRS `k` by effective rank.
    pub fn rank_case(&self, k: usize, rcs_m2: f64) -> RankCase {
        match self.effective_rank(k, rcs_m2) {
            0 | 1 => RankCase::One,
            rank if rank < self.elements => RankCase::Partial,
            _ => RankCase::Full,
        }
    }

    /// Largest |local angle| at which IRS `k` can see the coverage area, over its corners and a grid.
    pub fn widest_view_rad(&self, k: usize) -> f64 {
        let steps = 20;
        let fraction = |i: usize| i as f64 / steps as f64;
        (0..=steps)
            .flat_map(|i| (0..=steps).map(move |j| (i, j)))
            .map(|(i, j)| self.irs[k].pose.local_angle_rad(self.coverage.at(fraction(i), fraction(j))).abs())
            .fold(0.0, f64::max)
    }

    /// A sentence per IRS whose view of the coverage area is wider than its unambiguous sector.
    pub fn warnings(&self) -> Vec<String> {
        let sector = self.sensor_array().unambiguous_half_sector_rad();
        (0..self.irs_count())
            .filter(|&k| self.widest_view_rad(k) > sector)
            .map(|k| {
                format!(
                    "irs[{k}] sees the coverage area up to {:.1} degrees from broadside, but angles are unambiguous \
                     only within +-{:.1} degrees at a spacing of {} wavelengths",
                    self.widest_view_rad(k).to_degrees(),
                    sector.to_degrees(),
                    self.spacing_wavelengths
                )
            })
            .collect()
    }

    /// `exp(-j 2 pi f tau)` on the subcarriers of IRS `k`.
    pub fn delay_phasors(&self, k: usize, delay_s: f64) -> Vec<Complex64> {
        self.irs[k]
            .waveform
            .subcarriers
            .iter()
            .map(|&i| unit_phasor(-TAU * self.frequency_hz(i) * delay_s))
            .collect()
    }
}
