//! Beamforming over both roles of an angle.
//!
//! IRS i receives with a(theta_i) and reflects `b_i = S_i^H a(theta_i)`. With the angles at the other ends unknown,
//! the statistic of its blocks is
//! `sum_{k != i} ||a^H R_ik||^2 / M + sum_{l != i} ||R_li b_i||^2 / ||b_i||^2 + |a^H R_ii b_i|^2 / (M ||b_i||^2)`:
//! a sum and quotient of trigonometric polynomials in sin(theta), searched and refined as such.

use model::CMatrix;
use num_complex::Complex64;

use super::{Array, BaselineError, Extent, largest_entry};
use crate::blocks::Blocks;
use crate::harmonic::{HarmonicSeries, grid_points, refined_maximum};

/// An illumination below this share of its mean over the angles is ignored.
const DARK: f64 = 1e-9;

/// sin(theta) of the maximum.
pub(super) fn sine(blocks: &Blocks, array: &Array, extent: Extent) -> Result<f64, BaselineError> {
    let objective = Objective::new(blocks, array, extent)?;
    let elements = array.sensors + blocks.elements(array.l);
    let points = grid_points(-array.half_sector(), array.half_sector(), array.grid_spacing(elements));
    let values: Vec<f64> = points.iter().map(|&x| objective.at(x)[0]).collect();
    Ok(refined_maximum(&points, &values, |x| objective.at(x)).at)
}

struct Objective {
    /// sum_k ||a^H R_ik||^2 / M.
    arrival: HarmonicSeries,
    /// ||b_i||^2 times the terms of the AOD.
    departure: HarmonicSeries,
    /// ||b_i||^2.
    illumination: HarmonicSeries,
}

impl Objective {
    fn new(blocks: &Blocks, array: &Array, extent: Extent) -> Result<Self, BaselineError> {
        let (i, sensors) = (array.l, array.sensors);
        let others = |include: bool| (0..blocks.irs_count()).filter(move |&other| include && other != i);
        let all = extent == Extent::AllBlocks;
        let heard: Vec<&CMatrix> = others(all).filter_map(|k| blocks.block(i, k)).collect();
        let sent: Vec<&CMatrix> = others(all).filter_map(|l| blocks.block(l, i)).collect();
        let own: Vec<&CMatrix> = blocks.block(i, i).into_iter().collect();
        let scale = [&heard, &sent, &own].map(|used| largest_entry(used)).into_iter().fold(0.0, f64::max);
        if heard.is_empty() && sent.is_empty() && own.is_empty() {
            return Err(BaselineError::Missing { l: i });
        }
        if scale == 0.0 {
            return Err(BaselineError::NoEnergy { l: i });
        }
        let signal = blocks.signal(i);
        let signal = signal.unscale(largest_entry(&[signal]));
        let mut arrival = CMatrix::zeros(sensors, sensors);
        for block in heard {
            let block = block.unscale(scale);
            arrival += (&block * block.adjoint()).unscale(sensors as f64);
        }
        let elements = signal.nrows();
        let mut departure = vec![Complex64::ZERO; elements + sensors - 1];
        for block in sent {
            // ||R b||^2 = a^H (S R^H)(R S^H) a.
            let reflected = block.unscale(scale) * signal.adjoint();
            add_lags(&mut departure, &HarmonicSeries::of_hermitian(&reflected.ad_mul(&reflected), 1.0));
        }
        for block in own {
            let reflected = block.unscale(scale) * signal.adjoint();
            add_lags(&mut departure, &squared_modulus(&reflected.unscale((sensors as f64).sqrt())));
        }
        Ok(Self {
            arrival: HarmonicSeries::of_hermitian(&arrival, array.step_rad),
            departure: HarmonicSeries::new(departure, array.step_rad),
            illumination: HarmonicSeries::of_hermitian(&(&signal * signal.adjoint()), array.step_rad),
        })
    }

    /// Value and derivatives: `f = n / d` has `f' = (n' - f d') / d` and `f'' = (n'' - 2 f' d' - f d'') / d`.
    fn at(&self, sine: f64) -> [f64; 3] {
        let mut total = self.arrival.at(sine);
        let (n, d) = (self.departure.at(sine), self.illumination.at(sine));
        if d[0] > DARK * self.illumination.lags()[0].re {
            let value = n[0] / d[0];
            let slope = (n[1] - value * d[1]) / d[0];
            total[0] += value;
            total[1] += slope;
            total[2] += (n[2] - 2.0 * slope * d[1] - value * d[2]) / d[0];
        }
        total
    }
}

fn add_lags(lags: &mut [Complex64], series: &HarmonicSeries) {
    lags.iter_mut().zip(series.lags()).for_each(|(sum, g)| *sum += g);
}

/// `|a^H G a'|^2` with a and a' of one angle, on arrays of G's rows and columns: the autocorrelation of the
/// sums of G's diagonals.
fn squared_modulus(matrix: &CMatrix) -> HarmonicSeries {
    let (rows, columns) = matrix.shape();
    let mut diagonals = vec![Complex64::ZERO; rows + columns - 1];
    for (m, n) in (0..rows).flat_map(|m| (0..columns).map(move |n| (m, n))) {
        diagonals[n + rows - 1 - m] += matrix[(m, n)];
    }
    let size = diagonals.len();
    let lag = |d: usize| (d..size).map(|i| diagonals[i] * diagonals[i - d].conj()).sum();
    HarmonicSeries::new((0..size).map(lag).collect(), 1.0)
}
