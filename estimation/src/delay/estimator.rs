//! The node's estimator: tables made once per system, then one pass per frame.
//!
//! Steps per frame: average, split by IRS, scan the AOA, search each delay, expand each block, refine the
//! AOA on the blocks, measure the noise on the residual, and compute the variance of each delay. Cost at K paths of n
//! subcarriers, M sensors, D streams, A angles and T delays: K A (M n + n^2 / 2 + T n) for scan and search,
//! 4 K M n D for the blocks.

use std::f64::consts::TAU;

use model::algebra::unit_phasor;
use model::{CMatrix, CVector, System};
use num_complex::Complex64;

use super::filter::{BlockExpansion, MatchedFilter, check_energy};
use super::quality::{Quality, Sensitivity, StreamPrior, noise_power_w};
use super::window::{SineSector, coverage_delays, coverage_sines};
use super::{DelayError, DelayEstimate, DelaySettings, DelayWindow, NodeDelays, Statistic};
use crate::harmonic::{Grid, HarmonicSeries, Peak, grid_points};

/// Angles of the AOA scan per beamwidth 1 / (M s).
const ANGLES_PER_BEAM: f64 = 4.0;

/// Estimates the delays at one node.
#[derive(Debug, Clone)]
pub struct DelayEstimator {
    settings: DelaySettings,
    sensors: usize,
    subcarriers: usize,
    noise_power_w: f64,
    /// 2 pi s.
    step_rad: f64,
    sector: SineSector,
    /// Conjugated steering vectors of the AOA scan.
    scan: Vec<(f64, Vec<Complex64>)>,
    paths: Vec<PathTables>,
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
        let window = coverage_delays(system, l, k, settings.guard_samples / system.bandwidth_hz)?;
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
        Ok(Self { filter, subcarriers, sensors: system.sensors, window, grid, kernel, weights, sensitivity })
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
        let beamwidth = 1.0 / (system.sensors as f64 * system.spacing_wavelengths);
        let sector = coverage_sines(system, &system.irs[node].pose, beamwidth / 4.0);
        let step_rad = TAU * system.spacing_wavelengths;
        let scan = grid_points(sector.min, sector.max, beamwidth / ANGLES_PER_BEAM)
            .into_iter()
            .map(|sine| (sine, conjugate_steering(system.sensors, step_rad * sine)))
            .collect();
        Ok(Self {
            settings,
            sensors: system.sensors,
            subcarriers: system.subcarriers,
            noise_power_w: system.noise_power_w,
            step_rad,
            sector,
            scan,
            paths,
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
        let (first, rest) = frames.split_first().ok_or(DelayError::Empty)?;
        self.check(first)?;
        let mut sum = first.clone();
        for frame in rest {
            self.check(frame)?;
            sum += frame;
        }
        let average = sum.unscale(frames.len() as f64);
        check_energy("frame", &average)?;
        Ok(self.estimate_average(&average, frames.len()))
    }

    fn check(&self, frame: &CMatrix) -> Result<(), DelayError> {
        DelayError::check_shape("frame", frame.shape(), (self.sensors, self.subcarriers))?;
        check_energy("frame", frame)
    }

    fn estimate_average(&self, frame: &CMatrix, frames: usize) -> NodeDelays {
        let spectra: Vec<CMatrix> =
            self.paths.iter().map(|path| frame.select_columns(&path.subcarriers)).collect();
        let (peaks, expansions, sine) = self.search(&spectra);
        let beam = CVector::from_vec(conjugate_steering(self.sensors, self.step_rad * sine)).conjugate();
        // c^H = R^H a / sqrt(M).
        let rows: Vec<CVector> = expansions
            .iter()
            .map(|expansion| expansion.block.ad_mul(&beam).unscale((self.sensors as f64).sqrt()))
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
        let arrival_rad = sine.clamp(-1.0, 1.0).asin();
        let snr = paths.iter().map(|path| path.snr).sum();
        let arrival_variance_rad2 = self.arrival_variance_rad2(arrival_rad, snr);
        NodeDelays { paths, arrival_rad, arrival_variance_rad2, noise_power_w, frames }
    }

    /// Variance bound of the AOA at the SNR of all paths together; at most that of a uniform guess in the sector.
    fn arrival_variance_rad2(&self, arrival_rad: f64, snr: f64) -> f64 {
        let slope = self.step_rad * arrival_rad.cos();
        let aperture = ((self.sensors as f64).powi(2) - 1.0) / 12.0;
        let guess = (self.sector.max - self.sector.min).powi(2) / 12.0;
        (2.0 * snr * slope.powi(2) * aperture).recip().min(guess)
    }

    /// Complex degrees of freedom of the residual: those of a frame without a row of streams per path, and half a degree
    /// per delay and for the AOA.
    fn residual_freedom(&self) -> f64 {
        let fitted: usize = self.paths.iter().map(|path| path.filter.codes().nrows()).sum();
        let real_parameters = self.paths.len() + 1;
        (self.sensors * self.subcarriers) as f64 - fitted as f64 - real_parameters as f64 / 2.0
    }

    /// Delays and blocks of all paths, and the sine of the AOA.
    fn search(&self, spectra: &[CMatrix]) -> (Vec<Peak>, Vec<BlockExpansion>, f64) {
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
                let coarse = self.with_blocks(spectra, self.beamformed(spectra, self.scanned_sine(spectra)));
                self.with_blocks(spectra, self.beamformed(spectra, coarse.2))
            }
        }
    }

    fn with_blocks(&self, spectra: &[CMatrix], peaks: Vec<Peak>) -> (Vec<Peak>, Vec<BlockExpansion>, f64) {
        let expansions: Vec<BlockExpansion> = self
            .paths
            .iter()
            .zip(spectra)
            .zip(&peaks)
            .map(|((path, spectrum), peak)| path.filter.expand(spectrum, peak.at))
            .collect();
        let sine = self.sharpened_sine(&expansions);
        (peaks, expansions, sine)
    }

    /// The AOA of the scan whose K best delays have the most energy.
    fn scanned_sine(&self, spectra: &[CMatrix]) -> f64 {
        let energy = |beam: &[Complex64]| -> f64 {
            let paths = self.paths.iter().zip(spectra);
            paths.map(|(path, spectrum)| path.row_energy(beam, spectrum).grid_maximum(&path.grid)).sum()
        };
        let scanned = self.scan.iter().map(|(sine, beam)| (*sine, energy(beam)));
        scanned.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0.0, |(sine, _)| sine)
    }

    fn beamformed(&self, spectra: &[CMatrix], sine: f64) -> Vec<Peak> {
        let beam = conjugate_steering(self.sensors, self.step_rad * sine);
        let paths = self.paths.iter().zip(spectra);
        paths.map(|(path, spectrum)| path.row_energy(&beam, spectrum).maximum_on(&path.grid)).collect()
    }

    /// The AOA with the most energy in all blocks, streams weighted.
    fn sharpened_sine(&self, expansions: &[BlockExpansion]) -> f64 {
        let mut covariance = CMatrix::zeros(self.sensors, self.sensors);
        for (path, expansion) in self.paths.iter().zip(expansions) {
            covariance += &expansion.block * &path.weights * expansion.block.adjoint();
        }
        let spacing = TAU / (self.step_rad * self.sensors as f64 * 8.0);
        let series = HarmonicSeries::of_hermitian(&covariance, self.step_rad);
        series.maximum(self.sector.min, self.sector.max, spacing).at
    }
}

/// `a^*` of a linear array whose phase advances by `phase_rad` per sensor.
fn conjugate_steering(sensors: usize, phase_rad: f64) -> Vec<Complex64> {
    (0..sensors).map(|m| unit_phasor(-phase_rad * m as f64)).collect()
}
