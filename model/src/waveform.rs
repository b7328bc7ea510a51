//! Sensing streams: the subcarriers of each IRS and the codes on them.
//!
//! Eq. (6) requires `X_k X_k^H = I` and `X_k X_k'^H = 0`. As printed this is impossible: K sets of N_t = 50 rows do not
//! fit into L = 100 columns; and it would have to hold at *every* delay, or cross-talk of about -20 dB per row dominates
//! the bound. Here each IRS has a disjoint pseudo-random set of the subcarriers with D_k orthonormal codes on it: streams
//! of different IRSs have no subcarrier in common, so that they are orthogonal at all delays. Subcarrier i is at
//! `(i - L/2) W / L`.

use std::f64::consts::TAU;

use nalgebra::linalg::QR;
use num_complex::Complex64;
use rand::seq::SliceRandom;

use crate::algebra::{CMatrix, unit_phasor};
use crate::random::{Purpose, complex_normal, stream};

/// The streams of one IRS.
#[derive(Debug, Clone, PartialEq)]
pub struct Waveform {
    /// Indices of the subcarriers of this IRS, ascending.
    pub subcarriers: Vec<usize>,
    /// Codes X_k, D_k x (number of subcarriers of this IRS), with orthonormal rows.
    pub codes: CMatrix,
}

/// Baseband frequency of a subcarrier.
pub fn subcarrier_frequency_hz(index: usize, subcarriers: usize, bandwidth_hz: f64) -> f64 {
    (index as f64 - subcarriers as f64 / 2.0) * bandwidth_hz / subcarriers as f64
}

/// The subcarriers Y of samples y in time, both M x L: L samples at the rate W, of which sample n is taken at `n / W`.
///
/// `Y(i) = L^(-1/2) sum_n y(n) exp(-j 2 pi f_i n / W)`, with `f_i = (i - L/2) W / L`, is unitary: it keeps the variance of white noise,
/// and an echo with delay tau turns subcarrier i by `exp(-j 2 pi f_i tau)`. The exponent is `-j 2 pi i n / L + j pi n`: a DFT of samples with
/// alternating signs, for even and odd L. Takes M L^2 operations.
pub fn subcarriers_of_samples(samples: &CMatrix) -> CMatrix {
    let length = samples.ncols();
    let phasor = |step: usize| unit_phasor(-TAU * step as f64 / length as f64);
    let phasors: Vec<Complex64> = (0..length).map(phasor).collect();
    let scale = (length as f64).sqrt().recip();
    CMatrix::from_fn(samples.nrows(), length, |m, i| {
        let term = |n: usize| {
            let sign = if n.is_multiple_of(2) { scale } else { -scale };
            samples[(m, n)] * phasors[i * n % length] * sign
        };
        (0..length).map(term).sum()
    })
}

/// Waveforms for IRSs with `streams[k]` streams each, which share `subcarriers` equally.
pub(crate) fn waveforms(seed: u64, subcarriers: usize, streams: &[usize]) -> Vec<Waveform> {
    let share = subcarriers / streams.len();
    let mut order: Vec<usize> = (0..subcarriers).collect();
    order.shuffle(&mut stream(seed, Purpose::Subcarriers, [0, 0]));
    let waveform = |(k, (&streams, own)): (usize, (&usize, &[usize]))| {
        let mut subcarriers = own.to_vec();
        subcarriers.sort_unstable();
        Waveform { subcarriers, codes: orthonormal_codes(seed, k, streams, share) }
    };
    streams.iter().zip(order.chunks_exact(share)).enumerate().map(waveform).collect()
}

fn orthonormal_codes(seed: u64, k: usize, streams: usize, subcarriers: usize) -> CMatrix {
    let mut codes = stream(seed, Purpose::Codes, [k as u64, 0]);
    let gaussian = CMatrix::from_fn(subcarriers, streams, |_, _| complex_normal(&mut codes, 1.0));
    QR::new(gaussian).q().adjoint()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Even and odd lengths: an echo in time is turned by its delay on every subcarrier, and energy is kept.
    #[test]
    fn samples_in_time_become_subcarriers() {
        let bandwidth_hz = 50e6;
        for length in [8, 9] {
            let frequency_hz = |i: usize| subcarrier_frequency_hz(i, length, bandwidth_hz);
            let sent: Vec<Complex64> = (0..length).map(|i| unit_phasor((i * i) as f64)).collect();
            let delay_s = 2.5 / bandwidth_hz;
            // The waveform of period L / W, delayed, at the times n / W.
            let echo = CMatrix::from_fn(2, length, |m, n| {
                let time_s = n as f64 / bandwidth_hz - delay_s;
                let wave = |i: usize| sent[i] * unit_phasor(TAU * frequency_hz(i) * time_s);
                (0..length).map(wave).sum::<Complex64>() * (1.0 + m as f64) / (length as f64).sqrt()
            });
            let received = subcarriers_of_samples(&echo);
            assert!((received.norm() - echo.norm()).abs() < 1e-12 * echo.norm());
            for i in 0..length {
                let expected = sent[i] * unit_phasor(-TAU * frequency_hz(i) * delay_s);
                assert!((received[(1, i)] - expected * 2.0).norm() < 1e-12, "{length}: subcarrier {i}");
            }
        }
    }
}
