//! Certainty of a fix from the terms of its likelihood: normal peak, protection level and alternative positions.

use nalgebra::{DMatrix, DVector};

use super::likelihood::Term;
use super::locate::{AlternativePosition, DirectLocator};
use super::posterior::{ELSEWHERE, Ellipsoid, Hypotheses, NormalPeak, Posterior, is_weak};
use super::protection::{WeightedTerms, largest_eigenvalue};
use crate::ascent::Expansion;

/// Largest number of alternative positions.
const MOST_ALTERNATIVES: usize = 4;
/// Alternative positions that are less probable than this are left out.
const LEAST_NAMED: f64 = 1e-3;

/// Energies below this count as this much when the noise in them is taken out.
const LEAST_ENERGY: f64 = 0.1;

/// Certainty of a fix.
#[derive(Debug)]
pub(super) struct Certainty {
    pub terms: WeightedTerms,
    pub hypotheses: Hypotheses,
    /// Logarithm of the posterior density at the fix.
    pub log_density: f64,
    /// Normal, with the curvature of the weighted terms, over the whole state.
    pub peak: NormalPeak,
    /// The same for the position alone.
    pub position: NormalPeak,
    /// Whether the paths are so weak that the posterior has no normal peak.
    pub weak: bool,
}

impl Certainty {
    /// Certainty of a fix with these terms of the likelihood, expanded at the fix; `prior` is knowledge from other sources.
    /// None where some direction is not determined.
    pub fn new(
        locator: &DirectLocator,
        mut here: Vec<Term>,
        noise_factor: f64,
        prior: Expansion,
    ) -> Option<Self> {
        let hypotheses = Hypotheses::around(&here, noise_factor);
        let weights = hypotheses.weights(&here).iter().map(|weight| weight / noise_factor).collect();
        let (log_density, weak) = (hypotheses.log_density(&here), is_weak(&here, noise_factor));
        without_noise(&mut here, noise_factor);
        let irs_count = locator.system().irs_count();
        let terms = WeightedTerms { terms: here, weights, prior, irs_count };
        let peak = NormalPeak::new(terms.information().cholesky()?.inverse())?;
        let axes = locator.grid.places.dimensions();
        let position = NormalPeak::new(peak.covariance.view((0, 0), (axes, axes)).into_owned())?;
        Some(Self { terms, hypotheses, log_density, peak, position, weak })
    }

    /// The most probable change of the state where the position is displaced.
    pub fn followed(&self, displacement: &DVector<f64>) -> DVector<f64> {
        let axes = displacement.len();
        if self.peak.covariance.nrows() == axes {
            return displacement.clone();
        }
        let position = self.position.covariance.clone().cholesky();
        position.map_or_else(
            || DVector::zeros(self.peak.covariance.nrows()),
            |factor| self.peak.covariance.columns(0, axes) * factor.solve(displacement),
        )
    }

    /// Largest ratio of the standard deviations of a covariance to those of the normal peak, at least 1.
    pub fn widening(&self, covariance_m2: &DMatrix<f64>) -> f64 {
        let Some(factor) = self.position.covariance.clone().cholesky() else { return 1.0 };
        let whitened = factor.l().solve_lower_triangular(covariance_m2);
        let whitened = whitened.and_then(|half| factor.l().solve_lower_triangular(&half.transpose()));
        whitened.map_or(1.0, |ratio| largest_eigenvalue(&ratio).sqrt().max(1.0))
    }
}

/// Takes the noise out of the information of terms: the energy of a fitted gain holds one unit of it on average, which carries no
/// information.
pub(super) fn without_noise(terms: &mut [Term], noise_factor: f64) {
    for term in terms.iter_mut().filter(|term| term.unit_snr.is_some()) {
        let energy = term.value() / noise_factor;
        term.expansion.information *= 1.0 - 1.0 / energy.max(LEAST_ENERGY);
    }
}

impl DirectLocator {
    /// Adds the mass at the grid points that a posterior does not cover, if `counts` selects any of them.
    /// `log_densities` are relative to that at the fix, for the points it is given.
    pub(super) fn look_around(
        &self,
        posterior: &mut Posterior,
        at: &DVector<f64>,
        counts: impl Fn(usize) -> bool,
        log_densities: impl FnOnce(&[usize]) -> Vec<f64>,
    ) {
        let displacement = |point: usize| self.grid.places.coordinates(point) - at;
        let outside: Vec<usize> = (0..self.grid.points())
            .filter(|&point| counts(point) && !posterior.covered.contains(&displacement(point)))
            .collect();
        if outside.is_empty() {
            return;
        }
        let cell = self.grid.places.cell();
        let logs = log_densities(&outside);
        for (point, log) in outside.into_iter().zip(logs) {
            posterior.add(displacement(point), log.exp() * cell);
        }
    }

    /// Probability that the target lies beyond the reach of a covariance, and the positions where it then may be, most
    /// probable first.
    pub(super) fn elsewhere(
        &self,
        posterior: &Posterior,
        at: &DVector<f64>,
        covariance_m2: &DMatrix<f64>,
    ) -> Option<(f64, Vec<AlternativePosition>)> {
        let mut outside = posterior.outside(&Ellipsoid::new(covariance_m2, ELSEWHERE)?);
        let total = posterior.total();
        let probability = outside.iter().map(|(_, mass)| mass).sum::<f64>() / total;
        let mut places = Vec::new();
        while places.len() < MOST_ALTERNATIVES {
            let Some(top) = outside.iter().max_by(|a, b| a.1.total_cmp(&b.1)).cloned() else { break };
            // Points within the resolution belong to the same position.
            let near = |place: &(DVector<f64>, f64)| (&place.0 - &top.0).norm() <= self.resolution_m;
            let mass: f64 = outside.iter().filter(|place| near(place)).map(|place| place.1).sum();
            if mass < LEAST_NAMED * total {
                break;
            }
            let position_m = self.scene.layout().position_m(&(at + &top.0));
            places.push(AlternativePosition { position_m, probability: mass / total });
            outside.retain(|place| !near(place));
        }
        places.sort_by(|a, b| b.probability.total_cmp(&a.probability));
        Some((probability, places))
    }
}
