//! The node's estimator: tables made once per system, then one pass per frame.
//!
//! Steps per frame: average, split by IRS, scan the direction, search each delay, expand each block, refine the
//! direction on the blocks, measure the noise on the residual, and compute the variance of each delay. Cost at K paths of n
//! subcarriers, M sensors, D streams, A beams and T delays: K A (M n + n^2 / 2 + T n) for scan and search,
//! 4 K M n D for the blocks.

use std::f64::consts::TAU;

use model::algebra::unit_phasor;
use model::{CMatrix, CVector, System, SystemParts};
use num_complex::Complex64;

use super::arrival::{ArrivalSearch, Beam};
use super::filter::{BlockExpansion, MatchedFilter, check_energy};
use super::quality::{Quality, Sensitivity, StreamPrior, noise_power_w};
use super::window::searched_delays;
use super::{DelayError, DelayEstimate, DelaySettings, DelayWindow, NodeDelays, Statistic};
use crate::harmonic::{Grid, HarmonicSeries, Peak};

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
    paths: Vec<PathTables>,
    /// The same for a clock whose offset is known, where that is not trusted.
    known: Option<Box<DelayEstimator>>,
}

/// Tables of the path from one reflecting IRS.
#[derive(Debug, Clone)]
struct PathTables {
    filter: MatchedFilter,
    subcarriers: Vec<usize>,
    sensors: usize,
    window: DelayWindow,
    grid: Grid,
    kernel: CMatrix,
    weights: CMatrix,
    sensitivity: Sensitivity,
}

impl PathTables {
    fn new(system: &System, l: usize, k: usize, settings: &DelaySettings) -> Result<Self, DelayError> {
        let filter = MatchedFilter::of_system(system, k)?;
        let window = searched_delays(system, l, k, settings.guard_samples / system.bandwidth_hz)?;
        filter.check_window(&window)?;
        let streams = StreamPrior::new(system, l, k, system.noise_power_w / settings.frames as f64);
        let weights = streams.mean_weights();
        let codes = filter.codes();
        let kernel = match settings.statistic {
            Statistic::Illuminated => codes.ad_mul(&(&weights * codes)),
            _ => codes.ad_mul(codes),
        };
        let sensitivity = Sensitivity::new(&filter, &kernel, streams);
        let subcarriers = system.irs[k].waveform.subcarriers.clone();
        let grid = filter.grid(&window);
        Ok(Self {
            filter,
            subcarriers,
            sensors: system.sensors(),
            window,
            grid,
            kernel,
            weights,
            sensitivity,
        })
    }

    fn row_energy(&self, beam: &[Complex64], spectrum: &CMatrix) -> HarmonicSeries {
        let row: Vec<Complex64> =
            spectrum.column_iter().map(|column| column.iter().zip(beam).map(|(y, a)| a * y).sum()).collect();
        self.filter.row_energy(&row, &self.kernel)
    }

    /// SNR and variance of the delay for `row`, `c^H`; the variance is at most that of a uniform guess in the window.
    fn quality(&self, row: &CVector, noise_power_w: f64, statistic: Statistic) -> Quality {
        let (sensors, streams) = (self.sensors as f64, self.weights.nrows() as f64);
        let directions = match statistic {
            Statistic::Frobenius => sensors,
            // A rank-one fit: all streams of one direction, all sensors of one stream.
            Statistic::Spectral => 1.0 + sensors / streams,
            Statistic::Beamformed | Statistic::Illuminated => 1.0,
        };
        let Quality { snr, variance_s2 } = self.sensitivity.quality(row, noise_power_w, directions);
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
        Ok(Self {
            settings,
            sensors: system.sensors(),
            subcarriers: system.subcarriers,
            frequencies_hz: (0..system.subcarriers).map(|i| system.frequency_hz(i)).collect(),
            noise_power_w: system.noise_power_w,
            arrival: ArrivalSearch::new(system, node),
            paths,
            known,
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
        Ok(self.estimate_average(&self.average(frames)?, frames.len()))
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
        let mut retimed = average.clone();
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

    fn average(&self, frames: &[CMatrix]) -> Result<CMatrix, DelayError> {
        let (first, rest) = frames.split_first().ok_or(DelayError::Empty)?;
        self.check(first)?;
        let mut sum = first.clone();
        for frame in rest {
            self.check(frame)?;
            sum += frame;
        }
        let average = sum.unscale(frames.len() as f64);
        check_energy("frame", &average)?;
        Ok(average)
    }

    fn check(&self, frame: &CMatrix) -> Result<(), DelayError> {
        DelayError::check_shape("frame", frame.shape(), (self.sensors, self.subcarriers))?;
        check_energy("frame", frame)
    }

    fn estimate_average(&self, frame: &CMatrix, frames: usize) -> NodeDelays {
        let spectra: Vec<CMatrix> =
            self.paths.iter().map(|path| frame.select_columns(&path.subcarriers)).collect();
        let (peaks, expansions, beam) = self.search(&spectra);
        let response = beam.response();
        // c^H = R^H a / sqrt(M).
        let rows: Vec<CVector> = expansions
            .iter()
            .map(|expansion| expansion.block.ad_mul(&response).unscale((self.sensors as f64).sqrt()))
            .collect();
        let explained: f64 = rows.iter().map(CVector::norm_squared).sum();
        let expected_w = self.noise_power_w / frames as f64;
        let residual = frame.norm_squared() - explained;
        let noise_power_w = noise_power_w(residual, self.residual_freedom(), expected_w);
        let paths = self.paths.iter().zip(peaks).zip(expansions.into_iter().zip(&rows)).zip(spectra);
        let paths: Vec<DelayEstimate> = paths
            .map(|(((path, peak), (expansion, row)), spectrum)| {
                let quality = path.quality(row, noise_power_w, self.settings.statistic);
                DelayEstimate {
                    delay_s: peak.at,
                    delay_variance_s2: quality.variance_s2,
                    snr: quality.snr,
                    block: expansion.block,
                    block_derivative: expansion.block_derivative,
                    spectrum,
                }
            })
            .collect();
        let arrival = self.arrival.bearing(&beam, paths.iter().map(|path| path.snr).sum());
        NodeDelays { paths, arrival, noise_power_w, frames }
    }

    /// Complex degrees of freedom of the residual: those of a frame without a row of streams per path, and half a degree
    /// per delay and per parameter of the direction.
    fn residual_freedom(&self) -> f64 {
        let fitted: usize = self.paths.iter().map(|path| path.filter.codes().nrows()).sum();
        let real_parameters = self.paths.len() + self.arrival.parameters();
        (self.sensors * self.subcarriers) as f64 - fitted as f64 - real_parameters as f64 / 2.0
    }

    /// Delays and blocks of all paths, and the beam towards the target.
    fn search(&self, spectra: &[CMatrix]) -> (Vec<Peak>, Vec<BlockExpansion>, Beam) {
        match self.settings.statistic {
            Statistic::Frobenius => {
                let peaks = self.paths.iter().zip(spectra).map(|(path, spectrum)| {
                    path.filter.energy(spectrum, &path.kernel).maximum_on(&path.grid)
                });
                self.with_blocks(spectra, peaks.collect())
            }
            Statistic::Spectral => {
                let peaks = self
                    .paths
                    .iter()
                    .zip(spectra)
                    .map(|(path, spectrum)| path.filter.spectral_peak(spectrum, &path.window));
                self.with_blocks(spectra, peaks.collect())
            }
            Statistic::Beamformed | Statistic::Illuminated => {
                let coarse = self.with_blocks(spectra, self.beamformed(spectra, self.scanned(spectra)));
                self.with_blocks(spectra, self.beamformed(spectra, &coarse.2.conjugate))
            }
        }
    }

    fn with_blocks(&self, spectra: &[CMatrix], peaks: Vec<Peak>) -> (Vec<Peak>, Vec<BlockExpansion>, Beam) {
        let expansions: Vec<BlockExpansion> = self
            .paths
            .iter()
            .zip(spectra)
            .zip(&peaks)
            .map(|((path, spectrum), peak)| path.filter.expand(spectrum, peak.at))
            .collect();
        let beam = self.sharpened(&expansions);
        (peaks, expansions, beam)
    }

    /// The beam of the scan whose K best delays have the most energy.
    fn scanned(&self, spectra: &[CMatrix]) -> &[Complex64] {
        let energy = |beam: &Beam| -> f64 {
            let paths = self.paths.iter().zip(spectra);
            let each = paths.map(|(path, spectrum)| path.row_energy(&beam.conjugate, spectrum));
            each.zip(&self.paths).map(|(series, path)| series.grid_maximum(&path.grid)).sum()
        };
        let scanned = self.arrival.scan().iter().map(|beam| (beam, energy(beam)));
        scanned.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(&[], |(beam, _)| &beam.conjugate)
    }

    fn beamformed(&self, spectra: &[CMatrix], beam: &[Complex64]) -> Vec<Peak> {
        let paths = self.paths.iter().zip(spectra);
        paths.map(|(path, spectrum)| path.row_energy(beam, spectrum).maximum_on(&path.grid)).collect()
    }

    /// The beam with the most energy in all blocks, streams weighted.
    fn sharpened(&self, expansions: &[BlockExpansion]) -> Beam {
        let mut covariance = CMatrix::zeros(self.sensors, self.sensors);
        for (path, expansion) in self.paths.iter().zip(expansions) {
            covariance += &expansion.block * &path.weights * expansion.block.adjoint();
        }
        self.arrival.sharpened(&covariance)
    }
}
