//! How good a delay is: what the streams can carry, the variance of the maximum, the noise power.
//!
//! After the beam, path k is a row `z = s D(-tau) + w` of n subcarriers with `s = c X`, and the statistic
//! is `J(tau) = z D(tau) K D(tau)^H z^H` with the kernel `K = X^H W X` (W = I: no weights). With F =
//! diag(w_i), `J' = z A z^H`, `A = j (F K - K F)`, and `J'' = z B z^H`, `B = j (F A - A F)`, tr B = 0. The
//! maximum therefore has the variance `(2 sigma^2 |s A|^2 + rows sigma^4 tr A^2) / (s B s^H)^2`. The second
//! term, noise against noise, is about `rows D / SNR` times the first: as large where the SNR is at the
//! number of streams, and Table I has 9 to 16 dB for ten of them. `rows` is the number of sensor directions
//! that enter the statistic: one beam, or all M of them.
//!
//! The row c (1 x D) is what the target receives, `alpha sqrt(M) b_k^H`. The target is in the coverage
//! area, so that `c^H` has the covariance `C = M E |alpha|^2 b_k b_k^H` over it, of few directions in
//! practice. With noise `sigma^2`, `W = C (C + sigma^2 I)^-1` gives the optimum weights of a Gaussian c,
//! its posterior mean `W c^H` and posterior covariance `sigma^2 W`.

use model::{CMatrix, CVector, System};
use nalgebra::linalg::Cholesky;
use num_complex::Complex64;

use super::filter::MatchedFilter;
use super::{DelaySettings, NoiseCheck};

/// Points per side of the coverage area over which C is averaged.
const COVERAGE_POINTS: usize = 9;

/// W of path (l, k), D_k x D_k.
pub(super) fn stream_weights(system: &System, l: usize, k: usize, noise_power_w: f64) -> CMatrix {
    let streams = system.irs[k].reflected_signal.ncols();
    let mut covariance = CMatrix::zeros(streams, streams);
    let fraction = |i: usize| (i as f64 + 0.5) / COVERAGE_POINTS as f64;
    for (i, j) in (0..COVERAGE_POINTS).flat_map(|i| (0..COVERAGE_POINTS).map(move |j| (i, j))) {
        let target = system.coverage.at(fraction(i), fraction(j));
        let power = system.sensors as f64 * system.echo_gain(l, k, target).powi(2);
        let illumination = system.illumination(k, target);
        let scale = Complex64::from(power / (COVERAGE_POINTS * COVERAGE_POINTS) as f64 / noise_power_w);
        covariance.gerc(scale, &illumination, &illumination, Complex64::ONE);
    }
    let identity = CMatrix::identity(streams, streams);
    // C and (C + I)^-1 commute.
    match Cholesky::new(&covariance + &identity) {
        Some(factor) => factor.solve(&covariance),
        None => identity,
    }
}

/// What the variance of one path's delay depends on, D x D each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sensitivity {
    weights: CMatrix,
    weight_trace: f64,
    /// `X A^2 X^H` with `c N c^H = |s A|^2`, and its trace against W.
    slope: CMatrix,
    slope_trace: f64,
    /// `-X B X^H`, and its trace against W.
    curvature: CMatrix,
    curvature_trace: f64,
    /// tr A^2.
    noise_against_noise: f64,
}

impl Sensitivity {
    /// For a filter with the kernel that its search maximises and the weights of its streams.
    pub fn new(filter: &MatchedFilter, kernel: &CMatrix, weights: CMatrix) -> Self {
        let w = filter.frequencies_rad_s();
        let commutator = |k: &CMatrix| {
            CMatrix::from_fn(w.len(), w.len(), |i, j| k[(i, j)] * Complex64::new(0.0, w[i] - w[j]))
        };
        let (codes, a) = (filter.codes(), commutator(kernel));
        let b = commutator(&a);
        let carried = codes * &a;
        let slope = &carried * carried.adjoint();
        let curvature = -(codes * b * codes.adjoint());
        let trace = |n: &CMatrix| (n * &weights).trace().re;
        Self {
            weight_trace: weights.trace().re,
            slope_trace: trace(&slope),
            curvature_trace: trace(&curvature),
            noise_against_noise: a.norm_squared(),
            weights,
            slope,
            curvature,
        }
    }

    /// Measured SNR of the beamformed row `c`, given as the column `c^H`: the energy above the noise in the
    /// streams' directions.
    pub fn snr(&self, row: &CVector, noise_power_w: f64) -> f64 {
        (quadratic(&self.weights, row) / noise_power_w - self.weight_trace).max(0.0)
    }

    /// Variance of the delay for the row `c`, given as the column `c^H`, and a statistic of `rows` sensor
    /// directions.
    pub fn variance_s2(&self, row: &CVector, noise_power_w: f64, rows: f64) -> f64 {
        let mean = &self.weights * row;
        let slope = quadratic(&self.slope, &mean) + noise_power_w * self.slope_trace;
        let curvature = quadratic(&self.curvature, &mean) + noise_power_w * self.curvature_trace;
        if curvature <= 0.0 {
            return f64::INFINITY;
        }
        let signal = 2.0 * noise_power_w * slope;
        let noise = rows * noise_power_w.powi(2) * self.noise_against_noise;
        (signal + noise) / curvature.powi(2)
    }
}

fn quadratic(matrix: &CMatrix, vector: &CVector) -> f64 {
    vector.dotc(&(matrix * vector)).re
}

/// Noise power from the residual's energy and its complex degrees of freedom, held against the scenario's.
pub(super) fn noise_power(
    residual: f64,
    freedom: f64,
    expected_w: f64,
    settings: &DelaySettings,
) -> (f64, NoiseCheck) {
    let measured = residual / freedom;
    if freedom < 1.0 || !(measured.is_finite() && measured > 0.0) {
        return (expected_w, NoiseCheck::NotMeasured);
    }
    let ratio = measured / expected_w;
    let check = if ratio > settings.noise_factor {
        NoiseCheck::TooHigh
    } else if ratio < 1.0 / settings.noise_factor {
        NoiseCheck::TooLow
    } else {
        NoiseCheck::Plausible
    };
    (measured, check)
}

#[cfg(test)]
mod tests {
    use model::Scenario;
    use nalgebra::SymmetricEigen;

    use super::*;

    #[test]
    fn few_streams_reach_the_coverage_area() {
        let (mut total, mut count) = (0.0, 0.0);
        for seed in 1..=50 {
            let system = System::new(&Scenario::default().with_seed(seed)).expect("valid");
            for (l, k) in (0..3).flat_map(|l| (0..3).map(move |k| (l, k))) {
                let weights = stream_weights(&system, l, k, system.noise_power_w);
                let eigenvalues = SymmetricEigen::new(weights.clone()).eigenvalues;
                assert!(eigenvalues.iter().all(|e| (-1e-9..=1.0).contains(e)));
                total += weights.trace().re;
                count += 1.0;
            }
        }
        // Of ten streams; 2.82 measured.
        assert!((2.5..3.2).contains(&(total / count)), "{}", total / count);
    }
}
