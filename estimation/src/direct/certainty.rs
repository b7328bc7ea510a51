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
fn without_noise(terms: &mut [Term], noise_factor: f64) {
    for term in terms.iter_mut().filter(|term| term.unit_snr.is_some()) {
        term.expansion.information *= informative_share(term.value() / noise_factor);
    }
}

/// Share of the information of a path of this energy that is not due to noise.
pub(super) fn informative_share(energy: f64) -> f64 {
    1.0 - 1.0 / energy.max(LEAST_ENERGY)
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::test_scene::{Kind, TARGET_M, TestScene};
    use super::super::{ClockPrior, Survey};
    use super::*;

    fn certainty(scene: &TestScene, survey: &Survey) -> Certainty {
        let locator = &scene.locator;
        let here = super::super::likelihood::terms(
            &locator.scene,
            &survey.evidence,
            TARGET_M.into(),
            true,
            &mut Default::default(),
        );
        Certainty::new(locator, here, 1.0, Expansion::zeros(2)).unwrap()
    }

    #[test]
    fn widening_is_the_largest_ratio_of_deviations() {
        let scene = TestScene::new(60.0);
        let survey = scene.locator.survey(scene.evidence(0, TARGET_M, |_, _| Kind::Spectrum));
        let certainty = certainty(&scene, &survey);
        let own = certainty.position.covariance.clone();
        assert!((certainty.widening(&(&own * 9.0)) - 3.0).abs() < 1e-9);
        assert_eq!(certainty.widening(&(&own * 0.25)), 1.0);
        // Longer along one direction: twice the deviation.
        let half = own.clone().cholesky().unwrap().l();
        let longer = &half * DMatrix::from_diagonal(&DVector::from_row_slice(&[1.0, 4.0])) * half.transpose();
        assert!((certainty.widening(&longer) - 2.0).abs() < 1e-9);
        assert_eq!(certainty.followed(&DVector::from_row_slice(&[1.0, 2.0])).as_slice(), [1.0, 2.0]);
    }

    /// Grid points that count and are not covered, each with the mass of a cell; those beyond five deviations are elsewhere.
    #[test]
    fn what_is_not_covered_is_taken_from_the_grid() {
        let locator = TestScene::new(50.0).locator;
        let places = &locator.grid.places;
        let middle = places.points() / 2;
        let at = places.coordinates(middle);
        let step = places.step[0];
        let covariance = DMatrix::from_diagonal_element(2, 2, (0.3 * step).powi(2));
        let peak = NormalPeak::new(covariance.clone()).unwrap();
        let mut posterior = Posterior::normal(&peak).unwrap();
        // The next point is three deviations and a third away, the third ten.
        let far = [middle + 3, middle - 3, 0];
        let asked = RefCell::new(Vec::new());
        locator.look_around(
            &mut posterior,
            &at,
            |point| [middle, middle + 1].contains(&point) || far.contains(&point),
            |points| {
                asked.borrow_mut().extend_from_slice(points);
                points.iter().map(|&point| if point == 0 { -1.0 } else { -2.0 }).collect()
            },
        );
        assert_eq!(*asked.borrow(), [0, middle - 3, middle + 3]);
        let masses = [(-1f64).exp(), (-2f64).exp(), (-2f64).exp()].map(|density| density * places.cell());
        let total = peak.mass + masses.iter().sum::<f64>();
        assert!((posterior.total() / total - 1.0).abs() < 1e-12);
        let (probability, alternatives) = locator.elsewhere(&posterior, &at, &covariance).unwrap();
        assert!((probability * total / masses.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        // Points within the resolution, five steps, are one position; those three steps to either side are two.
        let found: Vec<f64> = alternatives.iter().map(|place| place.probability * total).collect();
        assert_eq!(found.len(), 3);
        assert!(found.iter().zip(masses).all(|(found, mass)| (found / mass - 1.0).abs() < 1e-9));
        let corner_m = locator.position_m(&places.coordinates(0));
        assert!((alternatives[0].position_m - corner_m).norm() < 1e-9);
        // Nothing to add where nothing counts.
        locator.look_around(&mut posterior, &at, |_| false, |_| unreachable!());
    }

    /// With unknown clocks the offsets follow a displacement as their covariance with the position says.
    #[test]
    fn offsets_follow_the_position() {
        let scene = TestScene::new(60.0);
        let evidence = scene.evidence(0, TARGET_M, |_, _| Kind::Spectrum);
        let prior = ClockPrior::independent(3, 100e-9).unwrap();
        let survey = scene.locator.survey_with_clocks(evidence, prior);
        let clocks = survey.clocks.as_ref().unwrap();
        let offsets_m = -&clocks.reference_s * model::units::SPEED_OF_LIGHT_M_S;
        let state = DVector::from_iterator(5, [4.0, 6.0].into_iter().chain(offsets_m.iter().copied()));
        let target =
            super::super::likelihood::TargetState { position_m: TARGET_M, offsets_m: &state.as_slice()[2..] };
        let here = super::super::likelihood::terms(
            &scene.locator.scene,
            &survey.evidence,
            target,
            true,
            &mut Default::default(),
        );
        let certainty = Certainty::new(&scene.locator, here, 1.0, clocks.expansion(&state)).unwrap();
        let step = DVector::from_row_slice(&[0.01, -0.02]);
        let followed = certainty.followed(&step);
        assert!((followed.rows(0, 2) - &step).amax() < 1e-9);
        // Along the offsets the information pulls nowhere.
        let pull = certainty.terms.information() * followed;
        assert!(pull.rows(2, 3).amax() < 1e-6 * pull.rows(0, 2).amax());
    }
}
