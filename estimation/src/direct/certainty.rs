//! How sure a fix is, from the terms of its likelihood: peak, protection level, and places elsewhere.

use model::Point;
use nalgebra::{Matrix2, SMatrix, SVector};

use super::locate::{Alternative, DirectLocator};
use super::newton::{Expansion, expansions};
use super::posterior::{ELSEWHERE, Ellipse, Hypotheses, Part, Peak, Posterior, is_weak};
use super::protection::{Terms, largest_eigenvalue};

/// Places elsewhere that are named at most.
const MOST_ALTERNATIVES: usize = 4;
/// Places elsewhere that are less likely than this are not named.
const LEAST_NAMED: f64 = 1e-3;

/// What the terms of the likelihood say at a fix.
#[derive(Debug)]
pub(super) struct Certainty<const N: usize> {
    parts: Vec<Part>,
    expansions: Vec<Expansion<N>>,
    weights: Vec<f64>,
    prior: SMatrix<f64, N, N>,
    irs_count: usize,
    pub hypotheses: Hypotheses,
    /// Of the posterior at the fix.
    pub log_density: f64,
    /// Normal, with the curvature of the weighted terms.
    pub peak: Peak<N>,
    /// Whether the paths are so weak that the peak is not normal.
    pub weak: bool,
}

impl<const N: usize> Certainty<N> {
    /// At a fix; `parts` are the terms at a state, `prior` is information from elsewhere. None where some direction is not determined.
    pub fn new(
        locator: &DirectLocator,
        at: &SVector<f64, N>,
        noise_factor: f64,
        difference: &SVector<f64, N>,
        prior: &SMatrix<f64, N, N>,
        parts: impl Fn(&SVector<f64, N>) -> Vec<Part>,
    ) -> Option<Self> {
        let here = parts(at);
        let values = |parts: &[Part]| parts.iter().map(|part| part.value).collect::<Vec<f64>>();
        let expansions = expansions(difference, at, &values(&here), |state| values(&parts(state)));
        let hypotheses = Hypotheses::around(&here, noise_factor);
        let weights = hypotheses.weights(&here).iter().map(|weight| weight / noise_factor).collect();
        let irs_count = locator.system().irs_count();
        let mut certainty = Self {
            log_density: hypotheses.log_density(&here),
            weak: is_weak(&here, noise_factor),
            parts: here,
            expansions,
            weights,
            prior: *prior,
            irs_count,
            hypotheses,
            peak: Peak { mass: 0.0, covariance: SMatrix::zeros() },
        };
        let information = certainty.terms().information();
        certainty.peak = Peak::new(information.cholesky()?.inverse())?;
        Some(certainty)
    }

    fn terms(&self) -> Terms<'_, N> {
        Terms {
            parts: &self.parts,
            expansions: &self.expansions,
            weights: &self.weights,
            prior: self.prior,
            irs_count: self.irs_count,
        }
    }

    /// See [`Terms::protection_level_m`].
    pub fn protection_level_m(
        &self,
        to_position: &SMatrix<f64, 2, N>,
        widening: f64,
        risk: f64,
    ) -> Option<f64> {
        self.terms().protection_level_m(to_position, widening, risk)
    }
}

impl Certainty<2> {
    /// By how much the deviations of a covariance exceed those of the normal peak.
    pub fn widening(&self, covariance_m2: &Matrix2<f64>) -> f64 {
        let Some(factor) = self.peak.covariance.cholesky() else { return 1.0 };
        let whitened = factor.l().solve_lower_triangular(covariance_m2);
        let whitened = whitened.and_then(|half| factor.l().solve_lower_triangular(&half.transpose()));
        whitened.map_or(1.0, |ratio| largest_eigenvalue(&ratio).sqrt().max(1.0))
    }
}

/// Where else the target may be.
#[derive(Debug, Clone, Default)]
pub(super) struct Elsewhere {
    /// That it is elsewhere at all.
    pub probability: f64,
    pub places: Vec<Alternative>,
}

impl DirectLocator {
    /// Adds what the grid tells of places that a posterior does not cover, where there are any that count.
    /// `log_densities` are relative to that at the fix, for all points.
    pub(super) fn look_around(
        &self,
        posterior: &mut Posterior,
        at: Point,
        counts: impl Fn(usize) -> bool,
        log_densities: impl FnOnce() -> Vec<f64>,
    ) {
        let displacement = |point: usize| self.grid.position_m(point) - at;
        let outside: Vec<usize> = (0..self.grid.points())
            .filter(|&point| counts(point) && !posterior.covered.contains(&displacement(point)))
            .collect();
        if outside.is_empty() {
            return;
        }
        let cell_m2 = self.grid.step_m.x * self.grid.step_m.y;
        let logs = log_densities();
        outside.into_iter().for_each(|point| posterior.add(displacement(point), logs[point].exp() * cell_m2));
    }

    /// What a posterior says of places beyond the reach of a covariance.
    pub(super) fn elsewhere(
        &self,
        posterior: &Posterior,
        at: Point,
        covariance_m2: &Matrix2<f64>,
    ) -> Option<Elsewhere> {
        let mut outside = posterior.outside(&Ellipse::new(covariance_m2, ELSEWHERE)?);
        let total = posterior.total();
        let probability = outside.iter().map(|(_, mass)| mass).sum::<f64>() / total;
        let mut places = Vec::new();
        while places.len() < MOST_ALTERNATIVES {
            let Some(top) = outside.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
            // What lies within a resolution of it is the same place.
            let near = |place: &(Point, f64)| (place.0 - top.0).norm() <= self.resolution_m;
            let mass: f64 = outside.iter().filter(|place| near(place)).map(|place| place.1).sum();
            if mass < LEAST_NAMED * total {
                break;
            }
            places.push(Alternative { position_m: at + top.0, probability: mass / total });
            outside.retain(|place| !near(place));
        }
        places.sort_by(|a, b| b.probability.total_cmp(&a.probability));
        Some(Elsewhere { probability, places })
    }
}
