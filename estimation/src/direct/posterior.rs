//! The posterior of the position of a direct fix over the searched area.
//!
//! The likelihood of [`super::likelihood`] fits every path's gain freely. Where the paths are weak a fitted gain is
//! mostly noise: the peak is then too sharp, by the factor `1 + 1/S` at an SNR of S per path, and other peaks weigh
//! too little. So the gains are integrated out instead, with phases uniform and `|alpha_lk|^2` of mean
//! `kappa g_lk^2(x)`, g from the radar equation. A path of energy `J = |m^H Y|^2 / (||m||^2 sigma^2)` then contributes
//! `ln p(Y_lk | x, kappa) / p(Y_lk | noise)`, with `S = kappa s_lk(x)` and the SNR s at unit cross-section,
//!
//! - `J S / (1 + S) - ln(1 + S)` for a target that fluctuates (Swerling I: the gain is complex normal),
//! - `ln I_0(2 sqrt(S J)) - S` for one that does not (the gain has that modulus).
//!
//! Cross-section kappa, common to all paths, and kind of target are unknown: densities are averaged over both kinds and
//! over a range of kappa around what the energies at the fix suggest. For large S the shape in x is
//! that of J, so that strong fixes do not change. A posterior is calibrated whatever the fix was selected by, such as a
//! detection threshold.
//!
//! From it follow the covariance, which is the second moment about the fix, so that the normalised squared error has
//! the number of free coordinates as its mean for any shape of the posterior; the probability that the target is beyond five deviations; and its possible
//! positions there. Strong fixes have a normal peak, with the curvature of the likelihood and every path weighted
//! by `S / (1 + S)`; weak ones are integrated numerically. Further away the posterior is taken from the coarse grid.

use std::f64::consts::TAU;

use model::CrossSectionPrior;
use nalgebra::{DMatrix, DVector};

use super::likelihood::Term;

/// Cross-sections that are averaged over, in half octaves around the one that the energies suggest. Energies of
/// weak paths are mostly noise, which biases that one upwards: the range reaches further down than up.
const HALF_OCTAVES: std::ops::RangeInclusive<i32> = -8..=2;
/// The prior of kappa is `kappa^-2` per octave. Detection selects frames in which noise adds to the energies; with a
/// log-uniform prior the fixes of targets that are seen in one frame of six then have a NEES of 2.7, with this one 2.2.
const PRIOR_EXPONENT: f64 = 2.0;
/// A position beyond this many standard deviations from the fix counts as elsewhere.
pub(super) const ELSEWHERE: f64 = 5.0;
/// Below this energy per path the covariance is the second moment of the posterior.
const WEAK_ENERGY: f64 = 20.0;
/// Nodes of the quadrature lie this many deviations apart: the trapezoidal rule is exact to 3e-4 for a normal peak.
const NODE_SPACING: f64 = 1.5;
/// Nodes on each side of the fix.
const NODES: i32 = 4;
/// Deviations of the curvature's peak that the quadrature covers.
const COVERED: f64 = NODE_SPACING * (NODES as f64 + 0.5);

/// Hypotheses of less than this share of the most probable one are left out of a weight.
const NO_SHARE: f64 = 1e-9;

/// The hypotheses about the target over which the posterior is averaged, and the noise power in units of which energies
/// are measured.
#[derive(Debug, Clone)]
pub(super) struct Hypotheses {
    targets: Vec<Hypothesis>,
    noise_factor: f64,
}

#[derive(Debug, Clone, Copy)]
struct Hypothesis {
    kappa: f64,
    fluctuates: bool,
    log_prior: f64,
}

impl Hypothesis {
    fn both(kappa: f64, log_prior: f64) -> [Self; 2] {
        [true, false].map(|fluctuates| Self { kappa, fluctuates, log_prior })
    }

    /// Log-likelihood ratio of a path of this energy, and its derivative with respect to the energy.
    fn term(&self, energy: f64, unit_snr: f64) -> (f64, f64) {
        let snr = self.kappa * unit_snr;
        if self.fluctuates {
            let share = snr / (1.0 + snr);
            return (energy * share - snr.ln_1p(), share);
        }
        let argument = 2.0 * (snr * energy.max(0.0)).sqrt();
        (ln_bessel(argument) - snr, snr * bessel_ratio(argument))
    }
}

impl Hypotheses {
    /// Hypotheses around the cross-section that the energies at a fix suggest.
    pub fn around(terms: &[Term], noise_factor: f64) -> Self {
        let fitted = || terms.iter().filter_map(|term| Some((term.value(), term.unit_snr?)));
        let (energy, snr) = fitted().fold((0.0, 0.0), |(e, s), (value, snr)| (e + value, s + snr));
        let suggested = if snr > 0.0 { energy / noise_factor / snr } else { 1.0 };
        let kappas = HALF_OCTAVES.map(|i| suggested * 2f64.powf(0.5 * f64::from(i)));
        let targets = kappas.flat_map(|kappa| Hypothesis::both(kappa, -PRIOR_EXPONENT * kappa.ln()));
        Self { targets: targets.collect(), noise_factor }
    }

    /// Hypotheses from a prior of the cross-section, whatever the data are.
    pub fn expected(prior: &CrossSectionPrior, noise_factor: f64) -> Self {
        let each = prior.grid().into_iter().flat_map(|(kappa, share)| Hypothesis::both(kappa, share.ln()));
        Self { targets: each.collect(), noise_factor }
    }

    /// Logarithm of the ratio of the density of the data with a target to that without one.
    pub fn log_bayes_factor(&self, terms: &[Term]) -> f64 {
        self.log_density(terms) - log_mean(&self.prior())
    }

    /// [`Self::log_bayes_factor`] with [`Self::weights`].
    pub fn weighed(&self, terms: &[Term]) -> (f64, Vec<f64>) {
        let sums = self.sums(terms);
        (log_mean(&sums) - log_mean(&self.prior()), self.weights_of(terms, &sums))
    }

    pub fn noise_factor(&self) -> f64 {
        self.noise_factor
    }

    pub fn count(&self) -> usize {
        self.targets.len()
    }

    /// Prior log-weights of the hypotheses: counted once, however many frames are added up.
    pub fn prior(&self) -> Vec<f64> {
        self.targets.iter().map(|target| target.log_prior).collect()
    }

    /// Adds the log-likelihood ratio of one term, for each hypothesis.
    pub fn add(&self, sums: &mut [f64], value: f64, unit_snr: Option<f64>) {
        let value = value / self.noise_factor;
        for (sum, target) in sums.iter_mut().zip(&self.targets) {
            *sum += unit_snr.map_or(value, |unit_snr| target.term(value, unit_snr).0);
        }
    }

    fn sums(&self, terms: &[Term]) -> Vec<f64> {
        let mut sums = self.prior();
        terms.iter().for_each(|term| self.add(&mut sums, term.value(), term.unit_snr));
        sums
    }

    /// Log-density, averaged over the hypotheses.
    pub fn log_density(&self, terms: &[Term]) -> f64 {
        log_mean(&self.sums(terms))
    }

    /// Derivative of the log-density with respect to the value of every term: one for strong paths, less for weak ones.
    pub fn weights(&self, terms: &[Term]) -> Vec<f64> {
        self.weights_of(terms, &self.sums(terms))
    }

    fn weights_of(&self, terms: &[Term], sums: &[f64]) -> Vec<f64> {
        let top = sums.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = sums.iter().map(|sum| (sum - top).exp()).collect();
        let total: f64 = shares.iter().sum();
        let weight = |term: &Term, unit_snr: f64| {
            let value = term.value() / self.noise_factor;
            // Hypotheses without a share have no say.
            let each = shares.iter().zip(&self.targets).filter(|(share, _)| **share > NO_SHARE);
            each.map(|(share, target)| share * target.term(value, unit_snr).1).sum::<f64>() / total
        };
        terms.iter().map(|term| term.unit_snr.map_or(1.0, |unit_snr| weight(term, unit_snr))).collect()
    }
}

/// `ln I_0(x)`, `x >= 0` (Abramowitz and Stegun 9.8.1 and 9.8.2: to 2e-7).
fn ln_bessel(x: f64) -> f64 {
    let polynomial = |coefficients: &[f64], t: f64| coefficients.iter().rev().fold(0.0, |sum, c| sum * t + c);
    const SMALL: [f64; 7] =
        [1.0, 3.515_622_9, 3.089_942_4, 1.206_749_2, 0.265_973_2, 0.036_076_8, 0.004_581_3];
    const LARGE: [f64; 9] = [
        0.398_942_28,
        0.013_285_92,
        0.002_253_19,
        -0.001_575_65,
        0.009_162_81,
        -0.020_577_06,
        0.026_355_37,
        -0.016_476_33,
        0.003_923_77,
    ];
    let t = x / 3.75;
    if t < 1.0 { polynomial(&SMALL, t * t).ln() } else { x - 0.5 * x.ln() + polynomial(&LARGE, 1.0 / t).ln() }
}

/// `2 I_1(x) / (x I_0(x))`, by a lower bound that is within 5 % of it (Amos 1974).
fn bessel_ratio(x: f64) -> f64 {
    2.0 / (0.5 + (x * x + 2.25).sqrt())
}

/// `ln(mean(exp))`.
pub(super) fn log_mean(logs: &[f64]) -> f64 {
    let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    top + (logs.iter().map(|log| (log - top).exp()).sum::<f64>() / logs.len() as f64).ln()
}

/// A normal peak: its covariance, and its mass relative to the density at its top.
#[derive(Debug, Clone)]
pub(super) struct NormalPeak {
    pub mass: f64,
    pub covariance: DMatrix<f64>,
}

impl NormalPeak {
    /// None where the covariance is not positive definite.
    pub fn new(covariance: DMatrix<f64>) -> Option<Self> {
        let root: f64 = covariance.clone().cholesky()?.l_dirty().diagonal().iter().product();
        Some(Self { mass: TAU.powf(0.5 * covariance.nrows() as f64) * root, covariance })
    }
}

/// The posterior about a fix: masses at displacements from it along the free coordinates, all relative to the density at the fix.
#[derive(Debug, Clone)]
pub(super) struct Posterior {
    /// Second moment of the mass that is not in `places`, times that mass.
    moment: DMatrix<f64>,
    mass: f64,
    places: Vec<(DVector<f64>, f64)>,
    /// Displacements outside of this ellipsoid are taken from the grid.
    pub covered: Ellipsoid,
}

impl Posterior {
    /// The posterior of a normal peak.
    pub fn normal(peak: &NormalPeak) -> Option<Self> {
        Some(Self {
            moment: &peak.covariance * peak.mass,
            mass: peak.mass,
            places: Vec::new(),
            covered: Ellipsoid::new(&peak.covariance, ELSEWHERE)?,
        })
    }

    /// By quadrature about a fix whose curvature is that of `peak`; `log_density` is relative to that at the fix.
    pub fn integrated(peak: &NormalPeak, log_density: impl Fn(&DVector<f64>) -> f64) -> Option<Self> {
        let count = peak.covariance.nrows();
        let root = peak.covariance.clone().cholesky()?.l() * NODE_SPACING;
        let cell: f64 = root.diagonal().iter().product();
        let side = (2 * NODES + 1) as usize;
        let nodes = (0..side.pow(count as u32)).map(|code| {
            DVector::from_fn(count, |i, _| {
                // The last coordinate varies fastest.
                f64::from((code / side.pow((count - 1 - i) as u32) % side) as i32 - NODES)
            })
        });
        let places = nodes.filter(|node| node.norm_squared() <= f64::from(NODES * NODES)).map(|node| {
            let displacement = &root * node;
            let mass = log_density(&displacement).exp() * cell;
            (displacement, mass)
        });
        Some(Self {
            moment: DMatrix::zeros(count, count),
            mass: 0.0,
            places: places.collect(),
            covered: Ellipsoid::new(&peak.covariance, COVERED)?,
        })
    }

    /// Adds the mass at a displacement that is not covered.
    pub fn add(&mut self, displacement: DVector<f64>, mass: f64) {
        self.places.push((displacement, mass));
    }

    /// Total mass.
    pub fn total(&self) -> f64 {
        self.mass + self.places.iter().map(|(_, mass)| mass).sum::<f64>()
    }

    /// Second moment about the fix.
    pub fn covariance(&self) -> DMatrix<f64> {
        let mut sum = self.moment.clone();
        self.places.iter().for_each(|(d, mass)| sum.ger(*mass, d, d, 1.0));
        sum / self.total()
    }

    /// Displacements and masses that lie outside of an ellipsoid.
    pub fn outside(&self, ellipsoid: &Ellipsoid) -> Vec<(DVector<f64>, f64)> {
        self.places.iter().filter(|(displacement, _)| !ellipsoid.contains(displacement)).cloned().collect()
    }
}

/// The displacements within some number of standard deviations.
#[derive(Debug, Clone)]
pub(super) struct Ellipsoid(DMatrix<f64>);

impl Ellipsoid {
    /// None where the covariance is not positive definite.
    pub fn new(covariance: &DMatrix<f64>, deviations: f64) -> Option<Self> {
        Some(Self(covariance.clone().cholesky()?.inverse() / deviations.powi(2)))
    }

    pub fn contains(&self, displacement: &DVector<f64>) -> bool {
        let mut sum = 0.0;
        for (i, a) in displacement.iter().enumerate() {
            sum += a * displacement.iter().enumerate().map(|(j, b)| self.0[(i, j)] * b).sum::<f64>();
        }
        sum <= 1.0
    }
}

/// Whether the paths are so weak that the posterior has no normal peak.
pub(super) fn is_weak(terms: &[Term], noise_factor: f64) -> bool {
    let fitted = || terms.iter().filter(|term| term.unit_snr.is_some());
    let energy: f64 = fitted().map(Term::value).sum();
    energy / noise_factor < WEAK_ENERGY * fitted().count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of I_0 and I_1 from Abramowitz and Stegun, table 9.8.
    #[test]
    fn bessel_functions_are_close() {
        for (x, i0, i1) in [
            (0.5f64, 1.063_483_370_7f64, 0.257_894_305_4),
            (1.0, 1.266_065_877_8, 0.565_159_104_0),
            (3.0, 4.880_792_585_9, 3.953_370_217_4),
            (5.0, 27.239_871_823_6, 24.335_642_142_5),
            (10.0, 2_815.716_628_5, 2_670.988_303_7),
        ] {
            assert!((ln_bessel(x) - i0.ln()).abs() < 3e-7, "{x}");
            let ratio = bessel_ratio(x) / (2.0 * i1 / (x * i0));
            assert!((0.95..=1.0).contains(&ratio), "{x}: {ratio}");
        }
    }

    /// The slope of a term in its energy is its derivative.
    #[test]
    fn slopes_are_derivatives() {
        for fluctuates in [true, false] {
            let hypothesis = Hypothesis { kappa: 1.7, fluctuates, log_prior: 0.0 };
            let (_, slope) = hypothesis.term(6.0, 2.0);
            let difference = (hypothesis.term(6.001, 2.0).0 - hypothesis.term(5.999, 2.0).0) / 0.002;
            assert!((slope / difference - 1.0).abs() < 0.05, "{slope} {difference}");
        }
    }

    /// A normal density, integrated or taken as it is, has its own mass and covariance.
    #[test]
    fn a_normal_posterior_is_its_peak() {
        let covariance = DMatrix::from_row_slice(2, 2, &[4.0, 1.0, 1.0, 0.5]);
        let peak = NormalPeak::new(covariance.clone()).unwrap();
        assert!((peak.mass - TAU * f64::sqrt(4.0 * 0.5 - 1.0)).abs() < 1e-12);
        let information = covariance.clone().try_inverse().unwrap();
        let log_density = |d: &DVector<f64>| -0.5 * d.dot(&(&information * d));
        let integrated = Posterior::integrated(&peak, log_density).unwrap();
        let normal = Posterior::normal(&peak).unwrap();
        for (posterior, covered) in [(&integrated, 6.75), (&normal, 5.0)] {
            assert!((posterior.total() / peak.mass - 1.0).abs() < 1e-3);
            assert!((posterior.covariance() - &covariance).amax() < 1e-2 * covariance.amax());
            let edge = DVector::from_row_slice(&[2.0, 0.5]) * covered;
            assert!(
                posterior.covered.contains(&(&edge * 0.999)) && !posterior.covered.contains(&(edge * 1.001))
            );
        }
        // Half of the mass moved to three deviations on either side makes it five times as wide.
        let mut split = normal.clone();
        for side in [1.0, -1.0] {
            split.add(DVector::from_row_slice(&[6.0 * side, 1.5 * side]), 0.5 * peak.mass);
        }
        let far = DMatrix::from_row_slice(2, 2, &[36.0, 9.0, 9.0, 2.25]);
        assert!((split.covariance() - (covariance.clone() + far) * 0.5).amax() < 1e-9);
        let inner = Ellipsoid::new(&covariance, 2.9).unwrap();
        assert!(split.outside(&inner).len() == 2 && split.outside(&normal.covered).is_empty());
    }

    #[test]
    fn means_and_weakness_by_hand() {
        assert!((log_mean(&[1000.0, 1000.0 + 3f64.ln()]) - (1000.0 + 2f64.ln())).abs() < 1e-9);
        let term = |value: f64, unit_snr| Term {
            sensor: 0,
            reflector: 0,
            expansion: crate::ascent::Expansion { value, ..crate::ascent::Expansion::zeros(0) },
            moments: None,
            unit_snr,
        };
        // Two fitted paths of 20 each, in units of the noise; a delay does not count.
        let terms = |energy: f64| [term(energy, Some(1.0)), term(30.0, Some(1.0)), term(1e3, None)];
        assert!(is_weak(&terms(29.9), 1.5) && !is_weak(&terms(30.1), 1.5));
        let around = Hypotheses::around(&terms(60.0), 1.5);
        // The energies suggest (60 + 30) / 1.5 / 2.
        let kappas: Vec<f64> = around.targets.iter().map(|target| target.kappa / 30.0).collect();
        assert!((kappas[0] - 1.0 / 16.0).abs() < 1e-12 && (kappas[around.count() - 1] - 2.0).abs() < 1e-12);
    }

    /// The weight of a term is the derivative of the log-density, and one where nothing is fitted.
    #[test]
    fn weights_are_derivatives_of_the_density() {
        let term = |value: f64, unit_snr| Term {
            sensor: 0,
            reflector: 0,
            expansion: crate::ascent::Expansion { value, ..crate::ascent::Expansion::zeros(0) },
            moments: None,
            unit_snr,
        };
        let terms = |a: f64, b: f64| [term(a, Some(1.0)), term(9.0, Some(0.3)), term(b, None)];
        let here = terms(12.0, 3.0);
        let hypotheses = Hypotheses::around(&here, 1.2);
        let weights = hypotheses.weights(&here);
        let density = |a: f64, b: f64| hypotheses.log_density(&terms(a, b));
        let by_energy = (density(12.001, 3.0) - density(11.999, 3.0)) / 0.002 * 1.2;
        assert!((weights[0] / by_energy - 1.0).abs() < 0.05, "{} {by_energy}", weights[0]);
        assert!((0.1..weights[0]).contains(&weights[1]), "{}", weights[1]);
        let by_delay = (density(12.0, 3.001) - density(12.0, 2.999)) / 0.002 * 1.2;
        assert!(weights[2] == 1.0 && (by_delay - 1.0).abs() < 1e-6);
    }
}
