//! The matched filter of one path: blocks over the delay and the search for the delay.
//!
//! `R(tau) = sum_f Y(f) exp(+j 2 pi f tau) X(f)^H` (M x D). Its energy is a quadratic form in the delay's
//! phasors, `||R(tau)||_F^2 = sum_ij (Y^H Y)_ji (X^H X)_ij exp(j (w_i - w_j) tau)`: a trigonometric
//! polynomial over the lags of the subcarriers ([`Energy`]), from which search and Newton refinement are exact and need no block.

use std::f64::consts::TAU;

use model::algebra::unit_phasor;
use model::{CMatrix, CVector, System};
use nalgebra::SymmetricEigen;
use num_complex::Complex64;

use super::energy::Energy;
use super::turned::{Turn, TurnScratch, TurnedCodes};
use super::{DelayError, DelayWindow};
use crate::harmonic::{HarmonicSeries, Peak, grid_points, refined_maximum};
use crate::linalg::{Instructions, dispatch};
use crate::planar;

/// Points of the search grid per sample 1 / W.
const POINTS_PER_SAMPLE: f64 = 8.0;

/// Norm of the block that is maximised over the delay where nothing is known about the AOA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockNorm {
    /// Frobenius norm, as in the paper: the energy of the whole block.
    Frobenius,
    /// Spectral norm: the energy of the best rank-one fit.
    Spectral,
}

/// Codes of one IRS on its subcarriers.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchedFilter {
    /// Position of every owned subcarrier above the lowest one.
    offsets: Vec<usize>,
    /// Angular baseband frequency of every owned subcarrier, rad/s.
    frequencies_rad_s: Vec<f64>,
    /// X, D x n.
    codes: CMatrix,
    /// X^H, n x D: what the spectrum is multiplied with.
    conjugate_codes: CMatrix,
    /// X^H, and `j W X^H` to the right of it.
    expansion_codes: TurnedCodes,
    /// Spacing of the subcarriers, rad/s.
    step_rad_s: f64,
    bandwidth_hz: f64,
    subcarriers: usize,
}

/// A block and its derivative by the delay: `R(tau + d) = R + d R' + O(d^2)`.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockExpansion {
    /// Delay of the expansion.
    pub delay_s: f64,
    /// R, M x D.
    pub block: CMatrix,
    /// dR/dtau, per second.
    pub block_derivative: CMatrix,
}

/// Delay and block found by [`MatchedFilter::search`].
#[derive(Debug, Clone, PartialEq)]
pub struct FoundDelay {
    /// Delay of the maximum.
    pub delay_s: f64,
    /// R at that delay.
    pub block: CMatrix,
}

impl MatchedFilter {
    /// The filter for codes X (D x n) on the subcarriers `subcarrier_index` of `subcarriers` over
    /// `bandwidth_hz`.
    pub fn new(
        codes: CMatrix,
        subcarrier_index: &[usize],
        subcarriers: usize,
        bandwidth_hz: f64,
    ) -> Result<Self, DelayError> {
        check_codes(&codes, subcarrier_index, subcarriers, bandwidth_hz)?;
        let frequency =
            |&i: &usize| TAU * model::waveform::subcarrier_frequency_hz(i, subcarriers, bandwidth_hz);
        let lowest = subcarrier_index.iter().min().copied().unwrap_or(0);
        let frequencies_rad_s: Vec<f64> = subcarrier_index.iter().map(frequency).collect();
        let streams = codes.nrows();
        let expansion_codes = TurnedCodes::new(&frequencies_rad_s, 2 * streams, |i, column| {
            let derivative =
                if column < streams { Complex64::ONE } else { Complex64::new(0.0, frequencies_rad_s[i]) };
            codes[(column % streams, i)].conj() * derivative
        });
        Ok(Self {
            offsets: subcarrier_index.iter().map(|i| i - lowest).collect(),
            frequencies_rad_s,
            expansion_codes,
            conjugate_codes: codes.adjoint(),
            codes,
            step_rad_s: TAU * bandwidth_hz / subcarriers as f64,
            bandwidth_hz,
            subcarriers,
        })
    }

    /// The filter of IRS `k`.
    pub fn of_system(system: &System, k: usize) -> Result<Self, DelayError> {
        DelayError::check_index(system, k)?;
        let waveform = &system.irs[k].waveform;
        Self::new(waveform.codes.clone(), &waveform.subcarriers, system.subcarriers, system.bandwidth_hz)
    }

    /// X, D x n.
    pub fn codes(&self) -> &CMatrix {
        &self.codes
    }

    /// Angular baseband frequencies of the owned subcarriers, rad/s.
    pub fn frequencies_rad_s(&self) -> &[f64] {
        &self.frequencies_rad_s
    }

    /// Distance of the points of a search grid.
    pub(crate) fn grid_spacing_s(&self) -> f64 {
        1.0 / (POINTS_PER_SAMPLE * self.bandwidth_hz)
    }

    /// Position of every owned subcarrier above the lowest one.
    pub(super) fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Spacing of the subcarriers, rad/s.
    pub(super) fn step_rad_s(&self) -> f64 {
        self.step_rad_s
    }

    /// Root mean square bandwidth about its centre of mass, rad/s, of the spectrum `b^H X` that a target with
    /// illumination `b` reflects: the delay of a known spectrum has the bound `1 / (2 SNR bandwidth^2)`.
    pub fn effective_bandwidth_rad_s(&self, illumination: &CVector) -> Result<f64, DelayError> {
        DelayError::check_shape("illumination", illumination.shape(), (self.codes.nrows(), 1))?;
        let spectrum = self.codes.ad_mul(illumination);
        let energy = spectrum.norm_squared();
        if !(energy.is_finite() && energy > 0.0) {
            return Err(DelayError::NoEnergy { what: "illumination" });
        }
        let weights = || spectrum.iter().map(|s| s.norm_sqr() / energy).zip(&self.frequencies_rad_s);
        let centre: f64 = weights().map(|(p, w)| p * w).sum();
        Ok(weights().map(|(p, w)| p * (w - centre).powi(2)).sum::<f64>().sqrt())
    }

    /// R(tau), M x D, of a spectrum Y (M x n).
    pub fn block(&self, spectrum: &CMatrix, delay_s: f64) -> Result<CMatrix, DelayError> {
        self.check_spectrum(spectrum)?;
        Ok(spectrum * self.turned_codes(delay_s))
    }

    /// R(tau) with its derivative.
    pub fn expansion(&self, spectrum: &CMatrix, delay_s: f64) -> Result<BlockExpansion, DelayError> {
        self.check_spectrum(spectrum)?;
        Ok(self.expand(spectrum, delay_s, &mut TurnScratch::default()))
    }

    pub(super) fn expand(
        &self,
        spectrum: &CMatrix,
        delay_s: f64,
        scratch: &mut TurnScratch,
    ) -> BlockExpansion {
        let codes = &self.expansion_codes;
        dispatch(Instructions::detect(), Turn { codes, spectrum, delay_s, scratch });
        let (sensors, streams) = (spectrum.nrows(), self.codes.nrows());
        let columns = |first: usize| {
            CMatrix::from_fn(sensors, streams, |i, j| planar::entry(&scratch.out, sensors, i, first + j))
        };
        BlockExpansion { delay_s, block: columns(0), block_derivative: columns(streams) }
    }

    /// R, R' and R'' at a delay.
    fn derivatives(&self, spectrum: &CMatrix, delay_s: f64) -> [CMatrix; 3] {
        let mut codes = self.turned_codes(delay_s);
        std::array::from_fn(|order| {
            if order > 0 {
                self.differentiate(&mut codes);
            }
            spectrum * &codes
        })
    }

    /// `exp(j w tau) X^H`, n x D.
    fn turned_codes(&self, delay_s: f64) -> CMatrix {
        let mut codes = self.conjugate_codes.clone();
        let phasors: Vec<Complex64> =
            self.frequencies_rad_s.iter().map(|w| unit_phasor(w * delay_s)).collect();
        for mut column in codes.column_iter_mut() {
            column.iter_mut().zip(&phasors).for_each(|(c, p)| *c *= p);
        }
        codes
    }

    /// Multiplies every row by `j w`.
    fn differentiate(&self, codes: &mut CMatrix) {
        for mut column in codes.column_iter_mut() {
            for (c, w) in column.iter_mut().zip(&self.frequencies_rad_s) {
                *c = Complex64::new(-w * c.im, w * c.re);
            }
        }
    }

    /// The delay within `window` at which the block's norm is highest, to the resolution of double precision.
    pub fn search(
        &self,
        spectrum: &CMatrix,
        window: &DelayWindow,
        norm: BlockNorm,
    ) -> Result<FoundDelay, DelayError> {
        self.check_spectrum(spectrum)?;
        self.check_window(&DelayWindow::new(window.min_s, window.max_s)?)?;
        let peak = match norm {
            BlockNorm::Frobenius => {
                let kernel = &self.conjugate_codes * &self.codes;
                let gram = |i: usize, j: usize| spectrum.column(i).dotc(&spectrum.column(j));
                let (mut series, mut values) = (HarmonicSeries::default(), Vec::new());
                Energy::new(self, &kernel, window).maximum(gram, &mut series, &mut values)
            }
            BlockNorm::Spectral => self.spectral_peak(spectrum, window),
        };
        let block = spectrum * self.turned_codes(peak.at);
        Ok(FoundDelay { delay_s: peak.at, block })
    }

    pub(crate) fn spectral_peak(&self, spectrum: &CMatrix, window: &DelayWindow) -> Peak {
        let points = grid_points(window.min_s, window.max_s, self.grid_spacing_s());
        let energy = |delay_s| largest_eigenvalue(&self.derivatives(spectrum, delay_s));
        let values: Vec<f64> = points.iter().map(|&delay_s| energy(delay_s)[0]).collect();
        refined_maximum(&points, &values, energy)
    }

    /// Checks that delays are unambiguous within a window.
    pub(crate) fn check_window(&self, window: &DelayWindow) -> Result<(), DelayError> {
        let (width_s, unambiguous_s) = (window.width_s(), self.subcarriers as f64 / self.bandwidth_hz);
        if width_s > unambiguous_s {
            Err(DelayError::AmbiguousWindow { width_s, unambiguous_s })
        } else {
            Ok(())
        }
    }

    fn check_spectrum(&self, spectrum: &CMatrix) -> Result<(), DelayError> {
        DelayError::check_shape("spectrum", spectrum.shape(), (spectrum.nrows().max(1), self.codes.ncols()))?;
        check_energy("spectrum", spectrum)
    }
}

/// Largest eigenvalue of `R R^H` with its derivatives by the delay, from perturbation theory: with H = R
/// R^H and its eigenpairs (l_i, u_i), `l' = u^H H' u` and
/// `l'' = u^H H'' u + 2 sum_i |u_i^H H' u|^2 / (l - l_i)`.
fn largest_eigenvalue([r, first, second]: &[CMatrix; 3]) -> [f64; 3] {
    let eigen = SymmetricEigen::new(r * r.adjoint());
    let top = eigen.eigenvalues.imax();
    let (value, u) = (eigen.eigenvalues[top], eigen.eigenvectors.column(top).into_owned());
    let (row, row_first) = (r.ad_mul(&u), first.ad_mul(&u));
    // H' u = R' R^H u + R R'^H u.
    let turned = first * &row + r * &row_first;
    let slope = u.dotc(&turned).re;
    let mut curvature = 2.0 * (row_first.norm_squared() + second.ad_mul(&u).dotc(&row).re);
    for i in (0..eigen.eigenvalues.len()).filter(|&i| i != top) {
        let gap = value - eigen.eigenvalues[i];
        if gap > 0.0 {
            curvature += 2.0 * eigen.eigenvectors.column(i).dotc(&turned).norm_sqr() / gap;
        }
    }
    [value, slope, curvature]
}

fn check_codes(
    codes: &CMatrix,
    subcarrier_index: &[usize],
    subcarriers: usize,
    bandwidth_hz: f64,
) -> Result<(), DelayError> {
    DelayError::check_positive("bandwidth_hz", bandwidth_hz)?;
    // Codes without a row or a column are refused below: they have no energy.
    DelayError::check_shape("codes", codes.shape(), (codes.nrows(), subcarrier_index.len()))?;
    let mut sorted = subcarrier_index.to_vec();
    sorted.sort_unstable();
    let repeated = sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    let outside = sorted.iter().copied().find(|&i| i >= subcarriers);
    match repeated.or(outside) {
        Some(index) => Err(DelayError::Subcarrier { index, subcarriers }),
        None => check_energy("codes", codes),
    }
}

/// Checks that a matrix is finite, not zero, and that its squares are in range.
pub(crate) fn check_energy(what: &'static str, matrix: &CMatrix) -> Result<(), DelayError> {
    if matrix.iter().any(|v| !v.is_finite()) {
        return Err(DelayError::NotFinite { what });
    }
    let energy = matrix.norm_squared();
    if !(MIN_ENERGY..=1.0 / MIN_ENERGY).contains(&energy) {
        return Err(DelayError::NoEnergy { what });
    }
    Ok(())
}

/// Energies are products of up to four factors in places: keep them well inside the range of a double.
const MIN_ENERGY: f64 = 1e-60;
