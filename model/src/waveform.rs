//! Sensing streams: the subcarriers of each IRS and the codes on them.
//!
//! Eq. (6) requires `X_k X_k^H = I` and `X_k X_k'^H = 0`. As printed this is impossible: K sets of N_t = 50 rows do not
//! fit into L = 100 columns; and it would have to hold at *every* delay, or cross-talk of about -20 dB per row dominates
//! the bound. Here each IRS has a disjoint pseudo-random set of the subcarriers with D_k orthonormal codes on it: streams
//! of different IRSs have no subcarrier in common, so that they are orthogonal at all delays. Subcarrier i is at
//! `(i - L/2) W / L`.

use nalgebra::linalg::QR;
use rand::seq::SliceRandom;

use crate::algebra::CMatrix;
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
