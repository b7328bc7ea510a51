//! Coherent refinement: the delay once the angles are known, from the block and its derivative alone.
//!
//! With `a(theta_l)` and `b_k` known, the path is one complex gain times a known signal, whose delay
//! maximises `|z(tau)|^2`, `z = a^H R(tau) b / (|a| |b|)`. Without noise `log |z|^2` is the parabola
//! `-B^2 d^2` in the offset d from the maximum, up to terms of fourth order, with B the effective bandwidth
//! of the reflected spectrum, whatever the gain; and B is known. So one scoring step,
//! `d = Re(z' / z) / B^2`, reaches the maximum, and block and first derivative are all it takes. A Newton
//! step with the measured curvature would need the second derivative as well and does worse where the SNR
//! is low (Table I, one frame, 200 scenes, beamformed start: 0.3 dB above the bound against 0.1 dB), since
//! it divides by a noisy estimate of a known number.
//!
//! The step is valid for starts within about 1 / B of the truth (3.3 m at Table I, some five standard
//! deviations of the beamformed estimate), and is limited to that.

use model::{CMatrix, CVector};

use super::filter::check_energy;
use super::{BlockExpansion, DelayError};

/// A delay after coherent refinement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RefinedDelay {
    /// Cascade delay tau_lk.
    pub delay_s: f64,
    /// Variance of the delay, from the measured SNR.
    pub delay_variance_s2: f64,
    /// SNR of the path, `|z|^2 / sigma^2` less the noise's share; at least 0.5.
    pub snr: f64,
}

/// Refines a delay: `arrival` is a(theta_l), `illumination` is `b_k = S_k^H a(theta_k)`, `noise_power_w`
/// the noise variance per entry of the block, `effective_bandwidth_rad_s` that of the reflected spectrum
/// ([`super::MatchedFilter::effective_bandwidth_rad_s`]).
pub fn coherent_refinement(
    expansion: &BlockExpansion,
    arrival: &CVector,
    illumination: &CVector,
    noise_power_w: f64,
    effective_bandwidth_rad_s: f64,
) -> Result<RefinedDelay, DelayError> {
    check(expansion, arrival, illumination)?;
    DelayError::check_positive("noise_power_w", noise_power_w)?;
    DelayError::check_positive("effective_bandwidth_rad_s", effective_bandwidth_rad_s)?;
    let norm = arrival.norm() * illumination.norm();
    let project = |block: &CMatrix| arrival.dotc(&(block * illumination)) / norm;
    let (z, first) = (project(&expansion.block), project(&expansion.block_derivative));
    if z.norm_sqr() < f64::MIN_POSITIVE {
        return Err(DelayError::NoEnergy { what: "block in the direction of both angles" });
    }
    let reach_s = 1.0 / effective_bandwidth_rad_s;
    let shift_s = ((first / z).re * reach_s.powi(2)).clamp(-reach_s, reach_s);
    // |z|^2 at the maximum, along the parabola of its logarithm; less the noise's share, and at least half
    // of that.
    let energy = z.norm_sqr() * (shift_s / reach_s).powi(2).exp();
    let snr = (energy / noise_power_w - 1.0).max(0.5);
    let refined = RefinedDelay {
        delay_s: expansion.delay_s + shift_s,
        delay_variance_s2: reach_s.powi(2) / (2.0 * snr),
        snr,
    };
    if refined.delay_s.is_finite() && refined.delay_variance_s2.is_finite() {
        Ok(refined)
    } else {
        Err(DelayError::NotFinite { what: "refined delay" })
    }
}

fn check(expansion: &BlockExpansion, arrival: &CVector, illumination: &CVector) -> Result<(), DelayError> {
    for (what, block) in [("block", &expansion.block), ("block derivative", &expansion.block_derivative)] {
        DelayError::check_shape(what, block.shape(), (arrival.len(), illumination.len()))?;
    }
    let derivative_finite = expansion.block_derivative.iter().all(|v| v.is_finite());
    if !derivative_finite || !expansion.delay_s.is_finite() {
        return Err(DelayError::NotFinite { what: "block derivative or delay" });
    }
    for (what, vector) in [("arrival", arrival), ("illumination", illumination)] {
        check_energy(what, &CMatrix::from_column_slice(vector.len(), 1, vector.as_slice()))?;
    }
    check_energy("block", &expansion.block)
}
