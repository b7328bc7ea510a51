//! Quality of a delay: the covariance of the streams, the variance of the maximum and the noise power, for an unknown
//! cross-section of the target.
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
//! area, so that `c^H` has the covariance `kappa C`, `C = M E |alpha|^2 b_k b_k^H` over the area at unit cross-section, of
//! few directions in practice. With noise `sigma^2`, `W(kappa) = kappa C (kappa C + sigma^2 I)^-1` gives the optimum
//! weights of a Gaussian c of known cross-section kappa, its posterior mean `W c^H` and posterior covariance `sigma^2 W`.
//!
//! The cross-section is not known. The search maximises the energy under W averaged over its prior
//! ([`model::CrossSectionPrior`]). Once a delay is found, its row determines the strength of the echo: with the eigenvalues
//! `lambda_i` of `C / sigma^2` and `y_i` the row along their eigenvectors, kappa has the posterior
//! `p(kappa) prod_i exp(w_i |y_i|^2 / sigma^2) / (1 + kappa lambda_i)`, `w_i = kappa lambda_i / (1 + kappa lambda_i)`, over the
//! grid of the prior, per path. SNR and variance are averages over it. A believed noise power that is wrong by some
//! factor scales all lambda_i alike, and results in another kappa.

use model::{CMatrix, Point, System};
use nalgebra::SymmetricEigen;
use num_complex::Complex64;

use super::filter::MatchedFilter;

/// Points per side of the coverage area over which C is averaged, and heights.
const COVERAGE_POINTS: usize = 9;
const HEIGHTS: usize = 3;

/// Positions in the coverage area, evenly spread.
fn targets(system: &System) -> Vec<Point> {
    let fraction = |i: usize, count: usize| (i as f64 + 0.5) / count as f64;
    let heights = if system.coverage.is_flat() { 1 } else { HEIGHTS };
    let sides = (0..COVERAGE_POINTS).flat_map(|i| (0..COVERAGE_POINTS).map(move |j| (i, j)));
    let at = |(i, j)| (fraction(i, COVERAGE_POINTS), fraction(j, COVERAGE_POINTS));
    let levels = |(u, v)| (0..heights).map(move |w| system.coverage.at_height(u, v, fraction(w, heights)));
    sides.map(at).flat_map(levels).collect()
}

/// Prior of the row c of path (l, k): directions of the streams of IRS k with their weights.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StreamPrior {
    /// Eigenvectors of C, D x D.
    directions: CMatrix,
    /// For every cross-section of the prior's grid: the weights along them, the probability, and its logarithm with that of
    /// `prod_i 1 / (1 + kappa lambda_i)`.
    weights: Vec<(Vec<f64>, f64, f64)>,
}

impl StreamPrior {
    /// The prior for an assumed noise power.
    pub fn new(system: &System, l: usize, k: usize, noise_power_w: f64) -> Self {
        let streams = system.irs[k].reflected_signal.ncols();
        let mut covariance = CMatrix::zeros(streams, streams);
        let targets = targets(system);
        for &target in &targets {
            let (gain, light) = (system.echo_gain(l, k, target, 1.0), system.illumination(k, target));
            let (Some(gain), Some(illumination)) = (gain, light) else { continue };
            let power = system.sensors() as f64 * gain.powi(2);
            let scale = Complex64::from(power / targets.len() as f64 / noise_power_w);
            covariance.gerc(scale, &illumination, &illumination, Complex64::ONE);
        }
        let eigen = SymmetricEigen::new(covariance);
        let weights = |rcs_m2: f64| -> Vec<f64> {
            let strengths = eigen.eigenvalues.iter().map(|value| rcs_m2 * value.max(0.0));
            strengths.map(|strength| strength / (1.0 + strength)).collect()
        };
        let grid = system.prior.grid().into_iter();
        let weights = grid.map(|(rcs_m2, probability)| {
            let weights = weights(rcs_m2);
            // 1 / (1 + kappa lambda) = 1 - w.
            let log: f64 = weights.iter().map(|w| (1.0 - w).max(f64::MIN_POSITIVE).ln()).sum();
            (weights, probability, log + probability.ln())
        });
        let weights = weights.collect();
        Self { directions: eigen.eigenvectors, weights }
    }

    /// F, D x D, of which `F F^H` is W averaged over the prior.
    pub fn mean_weights(&self) -> CMatrix {
        let mut mean = vec![0.0; self.directions.ncols()];
        for (weights, probability, _) in &self.weights {
            mean.iter_mut().zip(weights).for_each(|(mean, weight)| *mean += probability * weight);
        }
        let mut scaled = self.directions.clone();
        for (mut column, weight) in scaled.column_iter_mut().zip(&mean) {
            column *= Complex64::from(weight.sqrt());
        }
        scaled
    }

    /// Mean of a function of the weights over a posterior.
    fn mean(&self, posterior: &[f64], of: impl Fn(&[f64]) -> f64) -> f64 {
        self.weights.iter().zip(posterior).map(|((weights, ..), p)| p * of(weights)).sum()
    }

    /// Probability of every cross-section given the row, as its coordinates along the directions and noise power.
    fn posterior(&self, along: &[Complex64], noise_power_w: f64, posterior: &mut Vec<f64>) {
        posterior.clear();
        posterior.extend(self.weights.iter().map(|(weights, _, log)| {
            let energies = along.iter().map(|y| y.norm_sqr() / noise_power_w);
            log + weights.iter().zip(energies).map(|(w, energy)| w * energy).sum::<f64>()
        }));
        let most = posterior.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        posterior.iter_mut().for_each(|log| *log = (*log - most).exp());
        let total: f64 = posterior.iter().sum();
        posterior.iter_mut().for_each(|value| *value /= total);
    }
}

/// Matrices from which SNR and variance of the delay of one path follow.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sensitivity {
    streams: StreamPrior,
    /// `X A^2 X^H` with `c N c^H = |s A|^2`, in the directions of the streams.
    slope: CMatrix,
    /// `-X B X^H`, in the same.
    curvature: CMatrix,
    /// tr A^2.
    noise_against_noise: f64,
}

/// Quality of a delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Quality {
    /// The energy above the noise in the streams' directions.
    pub snr: f64,
    /// Variance of the delay; infinite where the statistic has no curvature.
    pub variance_s2: f64,
}

impl Sensitivity {
    /// For a filter, the kernel of its statistic and the prior of its streams.
    pub fn new(filter: &MatchedFilter, kernel: &CMatrix, streams: StreamPrior) -> Self {
        let w = filter.frequencies_rad_s();
        let commutator = |k: &CMatrix| {
            CMatrix::from_fn(w.len(), w.len(), |i, j| k[(i, j)] * Complex64::new(0.0, w[i] - w[j]))
        };
        let (codes, a) = (filter.codes(), commutator(kernel));
        let b = commutator(&a);
        let carried = codes * &a;
        let turned = |matrix: CMatrix| streams.directions.ad_mul(&(matrix * &streams.directions));
        Self {
            slope: turned(&carried * carried.adjoint()),
            curvature: turned(-(codes * b * codes.adjoint())),
            noise_against_noise: a.norm_squared(),
            streams,
        }
    }

    /// For the beamformed row `c`, given as the column `c^H`, and a statistic of `rows` sensor directions.
    ///
    /// The expectation of `c N c^H` over the posterior is the sum over i, j of `E[w_i w_j] Re(conj(y_i) N_ij y_j)`, and of
    /// `sigma^2 E[w_i] N_ii`.
    pub fn quality(
        &self,
        row: &[Complex64],
        noise_power_w: f64,
        rows: f64,
        scratch: &mut QualityScratch,
    ) -> Quality {
        let QualityScratch { along, posterior } = scratch;
        along.clear();
        along.extend(self.streams.directions.column_iter().map(|direction| dot(direction.as_slice(), row)));
        self.streams.posterior(along, noise_power_w, posterior);
        let (mut snr, mut slope, mut curvature) = (0.0, 0.0, 0.0);
        for (i, y) in along.iter().enumerate() {
            let weight = self.streams.mean(posterior, |weights| weights[i]);
            snr += weight * (y.norm_sqr() / noise_power_w - 1.0);
            slope += noise_power_w * weight * self.slope[(i, i)].re;
            curvature += noise_power_w * weight * self.curvature[(i, i)].re;
            for (j, other) in along[..=i].iter().enumerate() {
                let both = self.streams.mean(posterior, |weights| weights[i] * weights[j]);
                // Both matrices are Hermitian.
                let gram = if i == j { both } else { 2.0 * both } * y * other.conj();
                slope += (gram * self.slope[(j, i)]).re;
                curvature += (gram * self.curvature[(j, i)]).re;
            }
        }
        let signal = 2.0 * noise_power_w * slope;
        let noise = rows * noise_power_w.powi(2) * self.noise_against_noise;
        let variance_s2 = if curvature > 0.0 { (signal + noise) / curvature.powi(2) } else { f64::INFINITY };
        Quality { snr: snr.max(0.0), variance_s2 }
    }
}

/// Scratch of [`Sensitivity::quality`].
#[derive(Debug, Default)]
pub(super) struct QualityScratch {
    along: Vec<Complex64>,
    posterior: Vec<f64>,
}

/// `a^H b`.
pub(super) fn dot(a: &[Complex64], b: &[Complex64]) -> Complex64 {
    a.iter().zip(b).map(|(a, b)| a.conj() * b).sum()
}

/// Noise power from the energy of the residual and its complex degrees of freedom; `expected_w` where it cannot be measured.
pub(super) fn noise_power_w(residual: f64, freedom: f64, expected_w: f64) -> f64 {
    let measured = residual / freedom;
    if freedom < 1.0 || !(measured.is_finite() && measured > 0.0) { expected_w } else { measured }
}

#[cfg(test)]
mod tests {
    use model::random::{Purpose, complex_normal, stream};
    use model::{CVector, Scenario};

    use super::*;

    #[test]
    fn few_streams_reach_the_coverage_area() {
        let (mut total, mut count) = (0.0, 0.0);
        for seed in 1..=50 {
            let system = System::new(&Scenario::default().with_seed(seed)).expect("valid");
            for (l, k) in (0..3).flat_map(|l| (0..3).map(move |k| (l, k))) {
                let root = StreamPrior::new(&system, l, k, system.noise_power_w).mean_weights();
                let weights = &root * root.adjoint();
                let eigenvalues = SymmetricEigen::new(weights.clone()).eigenvalues;
                assert!(eigenvalues.iter().all(|e| (-1e-9..=1.0).contains(e)));
                total += weights.trace().re;
                count += 1.0;
            }
        }
        // Of ten streams; 2.01 measured, 2.82 where a cross-section of 7 dBsm is known.
        assert!((1.8..2.2).contains(&(total / count)), "{}", total / count);
    }

    /// The row tells the cross-section: drawn 12 dB above and below the prior's median, the posterior's mean is within
    /// 3 dB of it on average over 200 rows.
    #[test]
    fn the_posterior_finds_the_cross_section() {
        let system = System::new(&Scenario::default()).expect("valid");
        let streams = StreamPrior::new(&system, 0, 0, 1e-3 * system.noise_power_w);
        let grid_db: Vec<f64> = system.prior.grid().iter().map(|(m2, _)| 10.0 * m2.log10()).collect();
        for true_db in [-12.0, 0.0, 12.0] {
            let rcs_m2 = 10f64.powf(true_db / 10.0);
            // w = strength / (1 + strength) at the median, which the middle of the grid is.
            let middle = &streams.weights[grid_db.len() / 2].0;
            let mut draws = stream(1, Purpose::Study, [0, 0]);
            let (mut sum, mut posterior) = (0.0, Vec::new());
            for _ in 0..200 {
                let row = CVector::from_fn(middle.len(), |i, _| {
                    complex_normal(&mut draws, 1.0 + rcs_m2 * middle[i] / (1.0 - middle[i]))
                });
                streams.posterior(row.as_slice(), 1.0, &mut posterior);
                sum += posterior.iter().zip(&grid_db).map(|(p, db)| p * db).sum::<f64>() / 200.0;
            }
            assert!((sum - true_db).abs() < 3.0, "{sum} for {true_db}");
        }
    }
}
