//! The sensing system as estimators know it, the *site*: poses, streams, reflected signals, coverage, noise, and a
//! prior on the cross-section. It contains neither target, imperfections nor seed, which only the [`Scenario`] and the
//! echo source contain.
//!
//! `S_k = Theta_k H_k W_k` (N x D_k) is what IRS k radiates, stream by stream. If the channel estimate has errors, this
//! is the *believed* signal; only the echo source ([`crate::echo`]) knows the radiated one.

mod validate;

use std::f64::consts::TAU;
use std::ops::Deref;

use nalgebra::linalg::SVD;
use num_complex::Complex64;
use rand::RngExt;

use crate::algebra::{CMatrix, CVector, unit_phasor};
use crate::array::UniformLinearArray;
use crate::beamforming::{aligned_phases, apply_phases, zero_forcing};
use crate::channel::{base_station_channels, echo_gain};
use crate::geometry::{Point, Pose};
use crate::panel::{Aperture, Carrier, ElementGrid, Wavefront};
use crate::prior::CrossSectionPrior;
use crate::random::{Purpose, complex_normal, stream};
use crate::scenario::{Coverage, Phases, Scenario, ScenarioError};
use crate::waveform::{Waveform, subcarrier_frequency_hz, waveforms};

/// Largest `2 D^2 / (lambda d)` at which plane waves are a good approximation.
const MOST_PLANE: f64 = 0.5;

/// One IRS: its pose, what it radiates and the streams that carry it.
#[derive(Debug, Clone, PartialEq)]
pub struct Irs {
    /// Position and orientation, common to sensors and elements.
    pub pose: Pose,
    /// S_k, N x D_k, sqrt(W).
    pub reflected_signal: CMatrix,
    /// Subcarriers and codes X_k.
    pub waveform: Waveform,
}

/// Everything that an estimator may know, as plain data; [`System::checked`] makes a system of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemParts {
    /// Wavelength lambda of the carrier.
    pub wavelength_m: f64,
    /// Distance between neighbouring elements of all arrays, in wavelengths.
    pub spacing_wavelengths: f64,
    /// Shape of the waves that estimators assume.
    pub wavefront: Wavefront,
    /// Bandwidth W.
    pub bandwidth_hz: f64,
    /// Subcarriers L of a frame.
    pub subcarriers: usize,
    /// Noise power per sensor and subcarrier.
    pub noise_power_w: f64,
    /// Transmit power P_max.
    pub transmit_power_w: f64,
    /// Frames over which the path phases are constant, at least 1.
    pub coherent_frames: u64,
    /// Prior on the radar cross-section of a target.
    pub prior: CrossSectionPrior,
    /// Standard deviation of the clock offset of every node before anything is received; 0 where clocks are trusted.
    pub clock_prior_s: f64,
    /// Position of the base station.
    pub base_station_m: Point,
    /// Sensors of every IRS, M in all.
    pub sensor_grid: ElementGrid,
    /// Reflecting elements of every IRS, N in all.
    pub element_grid: ElementGrid,
    /// Where targets may be.
    pub coverage: Coverage,
    /// The K IRSs, indexed by k (or l, as sensors).
    pub irs: Vec<Irs>,
}

/// A consistent system: its parts can be read, but not changed.
#[derive(Debug, Clone, PartialEq)]
pub struct System(SystemParts);

impl Deref for System {
    type Target = SystemParts;

    fn deref(&self) -> &SystemParts {
        &self.0
    }
}

/// Rank of the reflected signal S_k (Section IV-B).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankCase {
    /// Case 1, rank N.
    Full,
    /// Case 2, rank between 1 and N.
    Partial,
    /// Case 3, rank one: the AOD is not observable.
    One,
}

/// What a scenario draws for each IRS: true channel H_k, beam W_k, phases and believed reflected signal S_k.
pub(crate) struct Illumination {
    pub channels: Vec<CMatrix>,
    pub beams: Vec<CMatrix>,
    pub phases: Vec<CVector>,
    pub believed: Vec<CMatrix>,
}

impl Illumination {
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let channels = base_station_channels(scenario)?;
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
    let grid = scenario.surface.elements;
    match scenario.surface.phases {
        Phases::Random => {
            let mut phases = stream(scenario.seed, Purpose::IrsPhases, [k as u64, 0]);
            CVector::from_fn(grid.count(), |_, _| unit_phasor(phases.random_range(0.0..TAU)))
        }
        Phases::Aligned { toward_m } => {
            let spacing_m = scenario.signal.spacing_wavelengths * scenario.signal.wavelength_m;
            let towards = departure(&scenario.carrier(), grid, spacing_m, &scenario.pose(k), toward_m.into());
            aligned_phases(incident, &towards)
        }
    }
}

/// Where the elements of a panel at `pose` are, from the point to which phases and delays refer. That is the centre of the
/// panel; for plane waves on a line array it is its end, as in Eq. (2), which differs by a phase that the unknown gain
/// of a path absorbs.
fn aperture(carrier: &Carrier, grid: ElementGrid, spacing_m: f64, pose: &Pose) -> Aperture {
    if carrier.wavefront == Wavefront::Plane && grid.is_line() {
        Aperture::line_from_end(grid.columns, spacing_m, &pose.orientation)
    } else {
        Aperture::grid(grid, spacing_m, &pose.orientation)
    }
}

/// Response of a panel at `pose` to waves from a target.
fn arrival(carrier: &Carrier, grid: ElementGrid, spacing_m: f64, pose: &Pose, target_m: Point) -> CVector {
    aperture(carrier, grid, spacing_m, pose).response(carrier, &(target_m - pose.position_m))
}

/// The paper's `a(theta)` on the reflecting side of a panel at `pose`: the target receives `a^H S`. It is the conjugate of the
/// response with the elements counted from the other end.
fn departure(carrier: &Carrier, grid: ElementGrid, spacing_m: f64, pose: &Pose, target_m: Point) -> CVector {
    let mirrored = aperture(carrier, grid, spacing_m, pose).mirrored();
    mirrored.response(carrier, &(target_m - pose.position_m)).conjugate()
}

impl System {
    /// The site of a scenario, which is validated.
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        match Self::measured(scenario)? {
            Some(measured) => Ok(measured),
            None => Self::of(scenario, Illumination::new(scenario)?.believed),
        }
    }

    /// The site of a scenario whose signals were measured; none if the channel model draws them.
    pub(crate) fn measured(scenario: &Scenario) -> Result<Option<Self>, ScenarioError> {
        let Some(measured) = &scenario.measured else { return Ok(None) };
        scenario.validate()?;
        let (signals, waveforms) = measured.at_power(scenario.transmit_power_w());
        Self::with_waveforms(scenario, signals, waveforms).map(Some)
    }

    /// A system of these parts; refuses impossible values, inconsistent parts and values that are not finite. The error
    /// names the key.
    pub fn checked(parts: SystemParts) -> Result<Self, ScenarioError> {
        parts.validate()?;
        Ok(Self(parts))
    }

    /// The system of a validated scenario whose IRSs radiate `reflected_signals`.
    pub(crate) fn of(scenario: &Scenario, reflected_signals: Vec<CMatrix>) -> Result<Self, ScenarioError> {
        let streams: Vec<usize> = reflected_signals.iter().map(CMatrix::ncols).collect();
        let waveforms = waveforms(scenario.seed, scenario.signal.subcarriers, &streams);
        Self::with_waveforms(scenario, reflected_signals, waveforms)
    }

    fn with_waveforms(
        scenario: &Scenario,
        reflected_signals: Vec<CMatrix>,
        waveforms: Vec<Waveform>,
    ) -> Result<Self, ScenarioError> {
        let parts = reflected_signals.into_iter().zip(waveforms).enumerate();
        let irs = parts.map(|(k, (reflected_signal, waveform))| Irs {
            pose: scenario.pose(k),
            reflected_signal,
            waveform,
        });
        Self::checked(SystemParts {
            wavelength_m: scenario.signal.wavelength_m,
            spacing_wavelengths: scenario.signal.spacing_wavelengths,
            wavefront: scenario.prior.wavefront.unwrap_or(scenario.signal.wavefront),
            bandwidth_hz: scenario.signal.bandwidth_hz,
            subcarriers: scenario.signal.subcarriers,
            noise_power_w: scenario.noise_power_w(),
            transmit_power_w: scenario.transmit_power_w(),
            coherent_frames: scenario.signal.coherent_frames,
            prior: scenario.cross_section_prior(),
            clock_prior_s: scenario.clocks.prior_s(),
            base_station_m: scenario.base_station.position(),
            sensor_grid: scenario.surface.sensors,
            element_grid: scenario.surface.elements,
            coverage: scenario.coverage.clone(),
            irs: irs.collect(),
        })
    }

    /// Number of IRSs K.
    pub fn irs_count(&self) -> usize {
        self.irs.len()
    }

    /// Sensors M per IRS.
    pub fn sensors(&self) -> usize {
        self.sensor_grid.count()
    }

    /// Reflecting elements N per IRS.
    pub fn elements(&self) -> usize {
        self.element_grid.count()
    }

    /// Free coordinates of a target: x and y, and the height unless the coverage area is flat.
    pub fn axes(&self) -> &'static [usize] {
        self.coverage.axes()
    }

    /// Why fixes are better located directly than by the three-stage method of the paper, if so: [`Self::beyond_the_plane`], or
    /// clocks that are not trusted.
    pub fn needs_direct(&self) -> Option<&'static str> {
        let clocks = (self.clock_prior_s > 0.0).then_some("the clocks of the nodes are not trusted");
        self.beyond_the_plane().or(clocks)
    }

    /// Why the angles of the paper do not describe this site: they are those of plane waves at line arrays in the plane of
    /// the targets. None where they do.
    pub fn beyond_the_plane(&self) -> Option<&'static str> {
        let height_m = self.coverage.min_m[2];
        let level = |irs: &Irs| irs.pose.position_m.z == height_m && irs.pose.orientation.is_level();
        if self.wavefront == Wavefront::Spherical {
            Some("this site has spherical waves")
        } else if !(self.sensor_grid.is_line() && self.element_grid.is_line()) {
            Some("the IRSs of this site are panels of several rows")
        } else if !self.coverage.is_flat() {
            Some("the coverage area of this site has a height")
        } else if !self.irs.iter().all(level) {
            Some("an IRS of this site is not level at the height of the targets")
        } else {
            None
        }
    }

    /// The line array of the M sensors of an IRS, where [`Self::beyond_the_plane`] is none.
    pub fn sensor_array(&self) -> UniformLinearArray {
        UniformLinearArray { elements: self.sensors(), spacing_wavelengths: self.spacing_wavelengths }
    }

    /// The line array of the N reflecting elements of an IRS, where [`Self::beyond_the_plane`] is none.
    pub fn element_array(&self) -> UniformLinearArray {
        UniformLinearArray { elements: self.elements(), spacing_wavelengths: self.spacing_wavelengths }
    }

    /// The carrier as estimators assume it.
    pub fn carrier(&self) -> Carrier {
        Carrier { wavelength_m: self.wavelength_m, wavefront: self.wavefront }
    }

    /// Distance between neighbouring elements and sensors.
    pub fn spacing_m(&self) -> f64 {
        self.spacing_wavelengths * self.wavelength_m
    }

    /// Where the sensors of IRS `l` are; none if there is no such IRS.
    pub fn sensor_aperture(&self, l: usize) -> Option<Aperture> {
        Some(aperture(&self.carrier(), self.sensor_grid, self.spacing_m(), &self.irs.get(l)?.pose))
    }

    /// Where the reflecting elements of IRS `k` are; none if there is no such IRS. The paper's `a(theta)^H` counts them from
    /// the other end.
    pub fn element_aperture(&self, k: usize) -> Option<Aperture> {
        let pose = &self.irs.get(k)?.pose;
        Some(aperture(&self.carrier(), self.element_grid, self.spacing_m(), pose).mirrored())
    }

    /// Response of the sensors of an IRS at `pose` to a target, for waves of this shape.
    pub(crate) fn arrival(&self, wavefront: Wavefront, pose: &Pose, target_m: Point) -> CVector {
        arrival(&Carrier { wavefront, ..self.carrier() }, self.sensor_grid, self.spacing_m(), pose, target_m)
    }

    /// `a(theta_k)` of the reflecting elements of an IRS at `pose`, for waves of this shape: the target receives `a^H S`.
    pub(crate) fn departure(&self, wavefront: Wavefront, pose: &Pose, target_m: Point) -> CVector {
        departure(
            &Carrier { wavefront, ..self.carrier() },
            self.element_grid,
            self.spacing_m(),
            pose,
            target_m,
        )
    }

    /// `2 D^2 / (lambda d)` of the larger grid of IRS `k` at the centre of the coverage area: plane waves are a good
    /// approximation well below one. None if there is no such IRS.
    pub fn near_field_ratio(&self, k: usize) -> Option<f64> {
        let irs = self.irs.get(k)?;
        let length_m = self.sensor_grid.diagonal().max(self.element_grid.diagonal()) * self.spacing_m();
        Some(2.0 * length_m.powi(2) / (self.wavelength_m * irs.pose.distance_m(self.coverage.centre())))
    }

    /// Baseband frequency of a subcarrier.
    pub fn frequency_hz(&self, subcarrier: usize) -> f64 {
        subcarrier_frequency_hz(subcarrier, self.subcarriers, self.bandwidth_hz)
    }

    /// |alpha_lk| for a target of cross-section `rcs_m2` at `target_m`; none if there is no such path.
    pub fn echo_gain(&self, l: usize, k: usize, target_m: Point, rcs_m2: f64) -> Option<f64> {
        let (sensor, reflector) = (self.irs.get(l)?, self.irs.get(k)?);
        Some(echo_gain(self.wavelength_m, rcs_m2, &sensor.pose, &reflector.pose, target_m))
    }

    /// `b_k = S_k^H a(theta_k)`: what the target receives from IRS `k`, per stream; none if there is no such IRS.
    pub fn illumination(&self, k: usize, target_m: Point) -> Option<CVector> {
        let irs = self.irs.get(k)?;
        Some(irs.reflected_signal.ad_mul(&self.departure(self.wavefront, &irs.pose, target_m)))
    }

    /// SNR of path (l, k) after the matched filter, `|alpha|^2 M ||b_k||^2 / sigma^2`: the energy of the
    /// noiseless block R_lk over the noise variance of one of its entries. None if there is no such path.
    pub fn path_snr(&self, l: usize, k: usize, target_m: Point, rcs_m2: f64) -> Option<f64> {
        let energy = self.sensors() as f64 * self.illumination(k, target_m)?.norm_squared();
        Some(self.echo_gain(l, k, target_m, rcs_m2)?.powi(2) * energy / self.noise_power_w)
    }

    /// Number of directions of S_k that carry signal above the noise, for a target of cross-section `rcs_m2` at the
    /// centre of the coverage area and the IRS with the strongest echo. Direction i has SNR
    /// `|alpha|^2 M sigma_i^2 / sigma^2` on average over the AOD; it counts if that exceeds one. None if there is no
    /// such IRS.
    pub fn effective_rank(&self, k: usize, rcs_m2: f64) -> Option<usize> {
        let (irs, centre) = (self.irs.get(k)?, self.coverage.centre());
        let gains = (0..self.irs_count()).filter_map(|l| self.echo_gain(l, k, centre, rcs_m2));
        let floor = self.noise_power_w / (gains.fold(0.0, f64::max).powi(2) * self.sensors() as f64);
        let singular = SVD::new(irs.reflected_signal.clone(), false, false).singular_values;
        Some(singular.iter().filter(|&&s| s * s > floor).count())
    }

    /// Rank case of IRS `k` by [`System::effective_rank`].
    pub fn rank_case(&self, k: usize, rcs_m2: f64) -> Option<RankCase> {
        Some(match self.effective_rank(k, rcs_m2)? {
            0 | 1 => RankCase::One,
            rank if rank < self.elements() => RankCase::Partial,
            _ => RankCase::Full,
        })
    }

    /// Largest |local angle| of the coverage area seen from IRS `k`, over a grid that includes the corners; none if
    /// there is no such IRS.
    pub fn widest_view_rad(&self, k: usize) -> Option<f64> {
        let pose = &self.irs.get(k)?.pose;
        let fractions = || (0..=20).map(|i| f64::from(i) / 20.0);
        let points_m = fractions().flat_map(|u| fractions().map(move |v| self.coverage.at(u, v)));
        Some(points_m.map(|point_m| pose.local_angle_rad(point_m).abs()).fold(0.0, f64::max))
    }

    /// A warning where waves are assumed to be plane in the near field of an IRS.
    pub fn near_field_warning(&self) -> Option<String> {
        let ratios = (0..self.irs_count()).filter_map(|k| Some((k, self.near_field_ratio(k)?)));
        let (k, ratio) = ratios.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (self.wavefront == Wavefront::Plane && ratio > MOST_PLANE).then(|| {
            format!(
                "irs[{k}] sees the coverage area in its near field: 2 D^2 / (lambda d) is {ratio:.1}, and plane waves are \
                 a good approximation up to {MOST_PLANE}; real waves are spherical there (signal.wavefront)"
            )
        })
    }

    /// A warning for each IRS whose view of the coverage area is wider than its unambiguous sector.
    pub fn warnings(&self) -> Vec<String> {
        let sector = self.sensor_array().unambiguous_half_sector_rad();
        (0..self.irs_count())
            .filter_map(|k| Some((k, self.widest_view_rad(k).filter(|widest| *widest > sector)?)))
            .map(|(k, widest)| {
                format!(
                    "irs[{k}] sees the coverage area up to {:.1} degrees from broadside, but angles are unambiguous \
                     only within +-{:.1} degrees at a spacing of {} wavelengths",
                    widest.to_degrees(),
                    sector.to_degrees(),
                    self.spacing_wavelengths
                )
            })
            .collect()
    }

    /// `exp(-j 2 pi f tau)` on the subcarriers of IRS `k`; none if there is no such IRS.
    pub fn delay_phasors(&self, k: usize, delay_s: f64) -> Option<Vec<Complex64>> {
        let phasor = |&i: &usize| unit_phasor(-TAU * self.frequency_hz(i) * delay_s);
        Some(self.irs.get(k)?.waveform.subcarriers.iter().map(phasor).collect())
    }
}
