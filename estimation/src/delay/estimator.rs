//! The node's estimator: tables made once per system, then one pass per frame.
//!
//! Steps per frame: average, split by IRS, scan the direction, search each delay, refine the direction on the blocks at these
//! delays, search and refine again, expand each block, measure the noise on the residual, and compute the variance of each delay.
//! Cost at K paths of n subcarriers with lags Q <= n^2 / 2 between them, M sensors, D streams, A beams and T delays:
//! K A (M n + n^2 / 2 + T Q / 2) for the scan, 4 K M n D for the blocks. What a frame needs beyond its result is kept for the
//! next frame, whichever thread takes it.

use std::borrow::Cow;
use std::f64::consts::TAU;

use model::algebra::unit_phasor;
use model::{CMatrix, System, SystemParts};
use num_complex::Complex64;

use super::arrival::{ArrivalSearch, Beam};
use super::energy::{Energy, Scan, ScanBeams, ScanScratch};
use super::filter::{MatchedFilter, check_energy};
use super::quality::{Quality, QualityScratch, Sensitivity, StreamPrior, dot, noise_power_w};
use super::turned::{Covariance, TurnScratch, TurnedCodes};
use super::window::searched_delays;
use super::{BlockExpansion, DelayError, DelayEstimate, DelaySettings, DelayWindow, NodeDelays, Statistic};
use crate::harmonic::HarmonicSeries;
use crate::idle::Idle;
use crate::linalg::{Instructions, dispatch};

/// Estimates the delays at one node.
#[derive(Debug, Clone)]
pub struct DelayEstimator {
    settings: DelaySettings,
    sensors: usize,
    subcarriers: usize,
    /// Baseband frequencies of all subcarriers.
    frequencies_hz: Vec<f64>,
    noise_power_w: f64,
    arrival: ArrivalSearch,
    scan: ScanBeams,
    paths: Vec<PathTables>,
    /// The same for a clock whose offset is known, where that is not trusted.
    known: Option<Box<DelayEstimator>>,
    scratch: Idle<FrameScratch>,
}

/// Tables of the path from one reflecting IRS.
#[derive(Debug, Clone)]
struct PathTables {
    filter: MatchedFilter,
    subcarriers: Vec<usize>,
    sensors: usize,
    window: DelayWindow,
    energy: Energy,
    /// `X^H F`, `F F^H` the weights of the streams.
    weighted_codes: TurnedCodes,
    sensitivity: Sensitivity,
}

/// Scratch of a frame.
#[derive(Debug, Default)]
struct FrameScratch {
    scan: ScanScratch,
    /// One row of a path, its energy over the delay and the values of that on a grid.
    row: Vec<Complex64>,
    series: HarmonicSeries,
    values: Vec<f64>,
    turn: TurnScratch,
    quality: QualityScratch,
}

impl PathTables {
    fn new(system: &System, l: usize, k: usize, settings: &DelaySettings) -> Result<Self, DelayError> {
        let filter = MatchedFilter::of_system(system, k)?;
        let window = searched_delays(system, l, k, settings.guard_samples / system.bandwidth_hz)?;
        filter.check_window(&window)?;
        let streams = StreamPrior::new(system, l, k, system.noise_power_w / settings.frames as f64);
        let codes = filter.codes();
        let weighted = codes.ad_mul(&streams.mean_weights());
        let kernel = match settings.statistic {
            Statistic::Illuminated => &weighted * weighted.adjoint(),
            _ => codes.ad_mul(codes),
        };
        let weighted_codes =
            TurnedCodes::new(filter.frequencies_rad_s(), weighted.ncols(), |i, j| weighted[(i, j)]);
        let energy = Energy::new(&filter, &kernel, &window);
        let sensitivity = Sensitivity::new(&filter, &kernel, streams);
        let subcarriers = system.irs[k].waveform.subcarriers.clone();
        let sensors = system.sensors();
        Ok(Self { filter, subcarriers, sensors, window, energy, weighted_codes, sensitivity })
    }

    /// SNR and variance of the delay for `row`, `c^H`; the variance is at most that of a uniform guess in the window.
    fn quality(
        &self,
        row: &[Complex64],
        noise_power_w: f64,
        statistic: Statistic,
        scratch: &mut QualityScratch,
    ) -> Quality {
        let (sensors, streams) = (self.sensors as f64, row.len() as f64);
        let directions = match statistic {
            Statistic::Frobenius => sensors,
            // A rank-one fit: all streams of one direction, all sensors of one stream.
            Statistic::Spectral => 1.0 + sensors / streams,
            Statistic::Beamformed | Statistic::Illuminated => 1.0,
        };
        let Quality { snr, variance_s2 } = self.sensitivity.quality(row, noise_power_w, directions, scratch);
        Quality { snr, variance_s2: variance_s2.min(self.window.width_s().powi(2) / 12.0) }
    }
}

/// The system with trusted clocks; none where they are trusted already.
fn trusted(system: &System) -> Option<System> {
    let parts = SystemParts { clock_prior_s: 0.0, ..SystemParts::clone(system) };
    (system.clock_prior_s > 0.0).then(|| System::checked(parts).ok()).flatten()
}

impl DelayEstimator {
    /// The estimator of node `node` with default settings.
    pub fn new(system: &System, node: usize) -> Result<Self, DelayError> {
        Self::with_settings(system, node, DelaySettings::default())
    }

    /// The estimator of node `node`.
    pub fn with_settings(system: &System, node: usize, settings: DelaySettings) -> Result<Self, DelayError> {
        settings.validate()?;
        let count = system.irs_count();
        DelayError::check_index(system, node)?;
        let paths =
            (0..count).map(|k| PathTables::new(system, node, k, &settings)).collect::<Result<_, _>>()?;
        let known = trusted(system)
            .map(|system| Self::with_settings(&system, node, settings.clone()).map(Box::new))
            .transpose()?;
        let arrival = ArrivalSearch::new(system, node);
        Ok(Self {
            settings,
            sensors: system.sensors(),
            subcarriers: system.subcarriers,
            frequencies_hz: (0..system.subcarriers).map(|i| system.frequency_hz(i)).collect(),
            noise_power_w: system.noise_power_w,
            scan: ScanBeams::new(arrival.scan(), system.sensors()),
            arrival,
            paths,
            known,
            scratch: Idle::default(),
        })
    }

    /// Delay window of the path reflected by IRS `k`; none where IRS `k` does not exist.
    pub fn window(&self, k: usize) -> Option<DelayWindow> {
        self.paths.get(k).map(|path| path.window)
    }

    /// Delays from one frame, M x L.
    pub fn estimate(&self, frame: &CMatrix) -> Result<NodeDelays, DelayError> {
        self.check(frame)?;
        Ok(self.estimate_average(frame, 1))
    }

    /// Delays from the average of several frames over which the path phases are constant.
    pub fn estimate_frames(&self, frames: &[CMatrix]) -> Result<NodeDelays, DelayError> {
        let average = self.average(frames)?;
        Ok(self.estimate_average(&average, frames.len()))
    }

    /// The same for a node whose clock is known to have this offset, if it is: echoes are then searched at delays that are later by
    /// it, and only as far from it as those of a trusted clock. All delays are by the clock of the node.
    pub fn estimate_timed(
        &self,
        frames: &[CMatrix],
        offset_s: Option<f64>,
    ) -> Result<NodeDelays, DelayError> {
        let average = self.average(frames)?;
        let Some((known, offset_s)) =
            self.known.as_ref().zip(offset_s.filter(|offset_s| offset_s.is_finite()))
        else {
            return Ok(self.estimate_average(&average, frames.len()));
        };
        let mut retimed = average.clone().into_owned();
        for (mut column, frequency_hz) in retimed.column_iter_mut().zip(&self.frequencies_hz) {
            column *= unit_phasor(TAU * frequency_hz * offset_s);
        }
        let mut delays = known.estimate_average(&retimed, frames.len());
        for (estimate, path) in delays.paths.iter_mut().zip(&self.paths) {
            estimate.delay_s += offset_s;
            estimate.spectrum = average.select_columns(&path.subcarriers);
        }
        Ok(delays)
    }

    fn average<'a>(&self, frames: &'a [CMatrix]) -> Result<Cow<'a, CMatrix>, DelayError> {
        frames.iter().try_for_each(|frame| self.check(frame))?;
        let (first, rest) = frames.split_first().ok_or(DelayError::Empty)?;
        if rest.is_empty() {
            return Ok(Cow::Borrowed(first));
        }
        let mut average = first.clone();
        rest.iter().for_each(|frame| average += frame);
        average.unscale_mut(frames.len() as f64);
        check_energy("frame", &average)?;
        Ok(Cow::Owned(average))
    }

    fn check(&self, frame: &CMatrix) -> Result<(), DelayError> {
        DelayError::check_shape("frame", frame.shape(), (self.sensors, self.subcarriers))?;
        check_energy("frame", frame)
    }

    fn estimate_average(&self, frame: &CMatrix, frames: usize) -> NodeDelays {
        self.scratch.with(|scratch| self.estimate_with(frame, frames, scratch))
    }

    fn estimate_with(&self, frame: &CMatrix, frames: usize, scratch: &mut FrameScratch) -> NodeDelays {
        let estimates = self.paths.iter().map(|path| DelayEstimate {
            delay_s: 0.0,
            delay_variance_s2: 0.0,
            snr: 0.0,
            block: CMatrix::default(),
            block_derivative: CMatrix::default(),
            spectrum: frame.select_columns(&path.subcarriers),
        });
        let mut estimates: Vec<DelayEstimate> = estimates.collect();
        let beam = self.search(&mut estimates, scratch);
        let response: Vec<Complex64> = beam.conjugate.iter().map(Complex64::conj).collect();
        // c^H = R^H a / sqrt(M).
        scratch.row.clear();
        for (path, estimate) in self.paths.iter().zip(&mut estimates) {
            let expansion = path.filter.expand(&estimate.spectrum, estimate.delay_s, &mut scratch.turn);
            BlockExpansion { block: estimate.block, block_derivative: estimate.block_derivative, .. } =
                expansion;
            let streams = estimate.block.column_iter();
            scratch.row.extend(
                streams.map(|column| dot(column.as_slice(), &response) / (self.sensors as f64).sqrt()),
            );
        }
        let explained: f64 = scratch.row.iter().map(Complex64::norm_sqr).sum();
        let expected_w = self.noise_power_w / frames as f64;
        let residual = frame.norm_squared() - explained;
        let noise_power_w = noise_power_w(residual, self.residual_freedom(), expected_w);
        let mut rows = scratch.row.as_slice();
        for (path, estimate) in self.paths.iter().zip(&mut estimates) {
            let (row, others) = rows.split_at(estimate.block.ncols());
            let quality = path.quality(row, noise_power_w, self.settings.statistic, &mut scratch.quality);
            (estimate.delay_variance_s2, estimate.snr) = (quality.variance_s2, quality.snr);
            rows = others;
        }
        let arrival = self.arrival.bearing(&beam, estimates.iter().map(|path| path.snr).sum());
        NodeDelays { paths: estimates, arrival, noise_power_w, frames }
    }

    /// Complex degrees of freedom of the residual: those of a frame without a row of streams per path, and half a degree
    /// per delay and per parameter of the direction.
    fn residual_freedom(&self) -> f64 {
        let fitted: usize = self.paths.iter().map(|path| path.filter.codes().nrows()).sum();
        let real_parameters = self.paths.len() + self.arrival.parameters();
        (self.sensors * self.subcarriers) as f64 - fitted as f64 - real_parameters as f64 / 2.0
    }

    /// Finds the delays of all paths from their spectra; returns the beam towards the target.
    fn search(&self, paths: &mut [DelayEstimate], scratch: &mut FrameScratch) -> Beam {
        match self.settings.statistic {
            Statistic::Frobenius => {
                for (path, DelayEstimate { spectrum, delay_s, .. }) in self.paths.iter().zip(&mut *paths) {
                    let gram = |i: usize, j: usize| spectrum.column(i).dotc(&spectrum.column(j));
                    *delay_s = path.energy.maximum(gram, &mut scratch.series, &mut scratch.values).at;
                }
            }
            Statistic::Spectral => {
                for (path, estimate) in self.paths.iter().zip(&mut *paths) {
                    estimate.delay_s = path.filter.spectral_peak(&estimate.spectrum, &path.window).at;
                }
            }
            Statistic::Beamformed | Statistic::Illuminated => {
                let energies =
                    self.paths.iter().zip(&*paths).map(|(path, found)| (&path.energy, &found.spectrum));
                let scan = Scan { beams: &self.scan, paths: energies, scratch: &mut scratch.scan };
                let best =
                    dispatch(Instructions::detect(), scan).and_then(|beam| self.arrival.scan().get(beam));
                self.beamform(paths, best.map_or(&[], |beam| &beam.conjugate), scratch);
                let coarse = self.sharpened(paths, scratch);
                self.beamform(paths, &coarse.conjugate, scratch);
            }
        }
        self.sharpened(paths, scratch)
    }

    /// Finds the delays in the direction of a beam.
    fn beamform(&self, paths: &mut [DelayEstimate], beam: &[Complex64], scratch: &mut FrameScratch) {
        let FrameScratch { row, series, values, .. } = scratch;
        for (path, DelayEstimate { spectrum, delay_s, .. }) in self.paths.iter().zip(paths) {
            row.clear();
            row.extend(
                spectrum
                    .column_iter()
                    .map(|column| column.iter().zip(beam).map(|(y, a)| a * y).sum::<Complex64>()),
            );
            *delay_s = path.energy.maximum(|i, j| row[i].conj() * row[j], series, values).at;
        }
    }

    /// The beam with the most energy in the blocks at the delays found, streams weighted.
    fn sharpened(&self, paths: &[DelayEstimate], scratch: &mut FrameScratch) -> Beam {
        let tables = self.paths.iter().zip(paths);
        let paths = tables.map(|(path, found)| (&path.weighted_codes, &found.spectrum, found.delay_s));
        let covariance = Covariance { sensors: self.sensors, paths, scratch: &mut scratch.turn };
        self.arrival.sharpened(&dispatch(Instructions::detect(), covariance))
    }
}
