//! The direct method with clocks that are not trusted: surveys, the search over lags, and the test for a step.
//!
//! A prior that is narrow against the resolution in delay only shifts the evidence: the grid sees it at the mean of the prior.
//! Otherwise every node's offset is maximised on its own at every point of the grid, over lags within [`REACH`] deviations; the
//! evidence then refers to the best of them. Ascents are over position and offsets together in both cases.

use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::DVector;

use super::clocks::{ClockPrior, ClockUpdate, SurveyClocks};
use super::evidence::{Evidence, NodeEvidence, PathEvidence};
use super::lags::Lag;
use super::likelihood::{TargetState, Term, TermMemory, each_term};
use super::locate::DirectLocator;
use super::survey::Survey;

/// Spacing of the lags in units of the width of the peak in delay, and largest deviation of a narrow prior in that unit.
const LAG_SPACING: f64 = 0.35;
/// Lags are searched within this many standard deviations.
const REACH: f64 = 4.0;
/// An innovation above this says that a clock has stepped: five standard deviations.
const STEPPED: f64 = 25.0;
/// A node is searched for a step where its paths have less than this share of the energy that the others suggest,
const WEAK_SHARE: f64 = 0.5;
/// and that would be at least this much.
const LEAST_EXPECTED: f64 = 20.0;
/// Log-likelihood ratio of the best lag to the present offset above which a clock has stepped.
const BETTER_LAG: f64 = 20.0;

impl DirectLocator {
    /// Computes the likelihood on the coarse grid where the clocks have this prior; evidence for another system is ignored.
    pub fn survey_with_clocks(&self, evidence: Evidence, prior: ClockPrior) -> Survey {
        let count = self.scene.irs_count();
        let reference_s = DVector::zeros(count);
        match SurveyClocks::new(prior, reference_s).filter(|clocks| clocks.nodes() == count) {
            Some(clocks) => self.timed_survey(evidence, clocks),
            None => self.survey(evidence),
        }
    }

    /// The survey of evidence from which the reference of `clocks` was removed.
    pub(super) fn timed_survey(&self, mut evidence: Evidence, clocks: SurveyClocks) -> Survey {
        let count = self.scene.irs_count();
        let prior = clocks.prior;
        self.retime(&mut evidence, &(prior.mean_s() - clocks.reference_s));
        let mut reference_s = prior.mean_s().clone();
        let mut lags_m = Vec::new();
        let mut profile = None;
        if (0..count).any(|l| prior.deviation_s(l) > self.narrow_s()) {
            let (total, mut found_m) = self.lag_map(&evidence, &prior);
            let best = (0..total.len()).max_by(|&a, &b| total[a].total_cmp(&total[b]));
            if let Some(best_m) = best.map(|point| found_m[point].clone()) {
                let best_s = &best_m / SPEED_OF_LIGHT_M_S;
                self.retime(&mut evidence, &best_s);
                reference_s += best_s;
                found_m.iter_mut().for_each(|lags_m| *lags_m -= &best_m);
            }
            (lags_m, profile) = (found_m, Some(total));
        }
        let mut survey = self.survey(evidence);
        survey.profile = profile;
        survey.clocks = SurveyClocks::new(prior, reference_s);
        if let Some(clocks) = &mut survey.clocks {
            clocks.lags_m = lags_m;
        }
        survey
    }

    /// The survey of the same frame with these clock offsets removed, one per node, and the clocks trusted from then on, such as
    /// [`followed`](Self::followed) needs it. None for a survey of another system or offsets that are not one finite value per node.
    pub fn with_offsets_removed(&self, survey: &Survey, offsets_s: &[f64]) -> Option<Survey> {
        let usable =
            offsets_s.len() == self.scene.irs_count() && offsets_s.iter().all(|offset| offset.is_finite());
        if !self.fits(survey) || !usable {
            return None;
        }
        let mut left_s = DVector::from_row_slice(offsets_s);
        if let Some(clocks) = &survey.clocks {
            left_s -= &clocks.reference_s;
        }
        let mut evidence = survey.evidence.clone();
        self.retime(&mut evidence, &left_s);
        Some(self.survey(evidence))
    }

    /// Removes clock offsets from evidence.
    fn retime(&self, evidence: &mut Evidence, offsets_s: &DVector<f64>) {
        for (l, &offset_s) in offsets_s.iter().enumerate().filter(|(_, offset_s)| **offset_s != 0.0) {
            evidence.nodes[l].retime(offset_s, &self.scene.layout().phasors(offset_s));
        }
    }

    /// Largest standard deviation of a narrow prior.
    fn narrow_s(&self) -> f64 {
        LAG_SPACING / self.spread_rad_s
    }

    /// Offsets of a node that are tried, about its mean.
    fn lags_s(&self, deviation_s: f64) -> Vec<f64> {
        if deviation_s <= self.narrow_s() {
            return vec![0.0];
        }
        // The clock of a node that has been away for long may be anywhere; beyond half a period delays are ambiguous.
        let reach_s =
            (REACH * deviation_s).min(0.5 * self.system().subcarriers as f64 / self.system().bandwidth_hz);
        let reach = (reach_s / self.narrow_s()).ceil() as i64;
        (-reach..=reach).map(|i| i as f64 * self.narrow_s()).collect()
    }

    /// Per point: the likelihood and prior with the best lag of every node, and these lags in metres.
    fn lag_map(&self, evidence: &Evidence, prior: &ClockPrior) -> (Vec<f64>, Vec<DVector<f64>>) {
        let (count, points) = (self.scene.irs_count(), self.grid.points());
        let mut total = vec![0.0; points];
        let mut lags_m = vec![DVector::zeros(count); points];
        let reporting =
            |(_, node): &(usize, &NodeEvidence)| node.paths.iter().any(|path| *path != PathEvidence::Missing);
        for (l, node) in evidence.nodes.iter().enumerate().filter(reporting) {
            let deviation_s = prior.deviation_s(l);
            let lag = |offset_s: f64| Lag { offset_s, log_prior: -0.5 * (offset_s / deviation_s).powi(2) };
            let lags: Vec<Lag> = self.lags_s(deviation_s).into_iter().map(lag).collect();
            let best = self.grid.best_lags(&self.scene, l, node, &lags);
            for (point, (value, offset_s)) in best.into_iter().enumerate() {
                total[point] += value;
                lags_m[point][l] = offset_s * SPEED_OF_LIGHT_M_S;
            }
        }
        (total, lags_m)
    }

    /// The node whose clock most probably has stepped, if one has: its offset contradicts its prior, or its echoes are found at
    /// another lag.
    pub(super) fn stepped(&self, survey: &Survey, state: TargetState, update: &ClockUpdate) -> Option<usize> {
        self.shifted(update).or_else(|| {
            let suspects = update.weak.iter().copied().filter(|l| self.is_narrow(update, *l));
            let gains = suspects.map(|l| (l, self.gain_of_lag(survey, l, state)));
            let gains = gains.filter(|(_, gain)| *gain > BETTER_LAG);
            gains.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(l, _)| l)
        })
    }

    /// The node whose offset contradicts its prior most, if one does.
    pub(super) fn shifted(&self, update: &ClockUpdate) -> Option<usize> {
        let nodes = (0..self.scene.irs_count()).filter(|l| self.is_narrow(update, *l));
        let shifted = nodes.map(|l| (l, update.innovation(l)));
        let shifted = shifted.filter(|(_, innovation)| *innovation > STEPPED);
        shifted.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(l, _)| l)
    }

    /// Whether the offset of a node was known well enough to contradict it.
    fn is_narrow(&self, update: &ClockUpdate, l: usize) -> bool {
        update.prior.deviation_s(l) < 0.5 * self.system().clock_prior_s
    }

    /// Log-likelihood ratio of the best lag of node `l` to its present offset, with the target where it is.
    fn gain_of_lag(&self, survey: &Survey, l: usize, state: TargetState) -> f64 {
        let mut alone = survey.evidence.clone();
        (0..alone.nodes.len()).filter(|&other| other != l).for_each(|other| alone.nodes[other].clear());
        let mut memory = TermMemory::default();
        let mut offsets_m = state.offsets_m.to_vec();
        let mut value = |lag_m: f64| -> f64 {
            offsets_m[l] = state.offsets_m[l] + lag_m;
            let tried = TargetState { offsets_m: &offsets_m, ..state };
            let mut sum = 0.0;
            each_term(&self.scene, &alone, tried, false, &mut memory, |term| sum += term.expansion.value);
            sum
        };
        let present = value(0.0);
        let lags = self.lags_s(self.system().clock_prior_s);
        let best = lags.iter().map(|lag_s| value(lag_s * SPEED_OF_LIGHT_M_S)).fold(present, f64::max);
        best - present
    }

    /// The survey with the clock of a node as unknown as at the beginning.
    pub(super) fn with_unknown_clock(&self, survey: &Survey, l: usize) -> Option<Survey> {
        let clocks = survey.clocks.as_ref()?;
        let prior = clocks.prior.widened(l, self.system().clock_prior_s);
        let clocks = SurveyClocks::new(prior, clocks.reference_s.clone())?;
        Some(self.timed_survey(survey.evidence.clone(), clocks))
    }

    /// Nodes whose offset is at the edge of the window that was searched.
    pub(super) fn at_edge(&self, update: &ClockUpdate) -> Vec<usize> {
        let past = |l: &usize| {
            let deviation_s = update.prior.deviation_s(*l);
            let from_mean_s = update.posterior.mean_s()[*l] - update.prior.mean_s()[*l];
            deviation_s > self.narrow_s() && from_mean_s.abs() > REACH * deviation_s - self.narrow_s()
        };
        (0..self.scene.irs_count()).filter(past).collect()
    }

    /// Sizes of the offsets for the probability of a false alarm: what a normal prior is worth as an interval, in units of
    /// the roughness of the field.
    pub(super) fn offset_sizes(&self, clocks: Option<&SurveyClocks>) -> Vec<f64> {
        let Some(clocks) = clocks else { return Vec::new() };
        let count = self.scene.irs_count();
        // The paths of one node are one of K of all paths.
        let roughness = self.spread_rad_s / (count as f64).sqrt();
        let size = |l: usize| std::f64::consts::TAU.sqrt() * clocks.prior.deviation_s(l) * roughness;
        (0..count).map(size).collect()
    }
}

/// Nodes whose paths are much weaker than those of the others suggest.
pub(super) fn too_weak(here: &[Term], nodes: usize) -> Vec<usize> {
    (0..nodes).filter(|&l| is_too_weak(here, l)).collect()
}

fn is_too_weak(here: &[Term], l: usize) -> bool {
    let sums = |own: bool| {
        let fitted = here.iter().filter(|term| (term.sensor == l) == own);
        fitted
            .filter_map(|term| Some((term.value(), term.unit_snr?)))
            .fold((0.0, 0.0), |(energy, snr), (value, unit)| (energy + value, snr + unit))
    };
    let ((energy, snr), (other_energy, other_snr)) = (sums(true), sums(false));
    let expected = if other_snr > 0.0 { other_energy / other_snr * snr } else { 0.0 };
    expected > LEAST_EXPECTED && energy < WEAK_SHARE * expected
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;

    use super::super::test_scene::{KINDS, Kind, TARGET_M, TestScene};
    use super::*;
    use crate::ascent::Expansion;

    const PRIOR_S: f64 = 100e-9;

    #[test]
    fn lags_cover_four_deviations_or_half_a_period() {
        let TestScene { locator, source } = TestScene::new(50.0);
        let narrow_s = 0.35 / locator.spread_rad_s;
        assert_eq!(locator.lags_s(narrow_s), [0.0]);
        let lags = locator.lags_s(10.1 * narrow_s);
        let expected: Vec<f64> = (-41..=41).map(|i| f64::from(i) * narrow_s).collect();
        assert_eq!(lags, expected);
        let half_s = 0.5 * source.system().subcarriers as f64 / source.system().bandwidth_hz;
        let last_s = *locator.lags_s(1.0).last().unwrap();
        assert!((half_s..half_s + narrow_s).contains(&last_s), "{last_s} {half_s}");
    }

    /// The nodes' best lags at a point are independent of each other; a node that is silent adds nothing.
    #[test]
    fn the_map_is_the_sum_over_the_nodes() {
        let scene = TestScene::new(50.0);
        let locator = &scene.locator;
        let kind = |l: usize, _| if l == 1 { Kind::Missing } else { Kind::Spectrum };
        let evidence = scene.evidence(0, TARGET_M, kind);
        let (total, lags_m) = locator.lag_map(&evidence, &ClockPrior::independent(3, 20e-9).unwrap());
        let lag = |offset_s: f64| Lag { offset_s, log_prior: -0.5 * (offset_s / 20e-9).powi(2) };
        let lags: Vec<Lag> = locator.lags_s(20e-9).into_iter().map(lag).collect();
        let best = [0, 2].map(|l| locator.grid.best_lags(&locator.scene, l, &evidence.nodes[l], &lags));
        for (point, (total, lags_m)) in total.iter().zip(&lags_m).enumerate() {
            assert_eq!(*total, best[0][point].0 + best[1][point].0);
            let offsets_s = [best[0][point].1, 0.0, best[1][point].1];
            assert_eq!(lags_m.as_slice(), offsets_s.map(|offset_s| offset_s * SPEED_OF_LIGHT_M_S));
        }
    }

    /// A clock that is 30 ns late is found where its prior allows it, and said to have stepped where it does not.
    #[test]
    fn a_late_clock_is_found() {
        let scene = TestScene::new(60.0);
        let locator = &scene.locator;
        for kind in KINDS {
            let mut evidence = scene.evidence(0, TARGET_M, |_, _| kind);
            evidence.nodes[1].retime(-30e-9, &locator.scene.layout().phasors(-30e-9));
            // Delays that contradict the prior count as gross errors.
            let cases = [(PRIOR_S, vec![]), (0.5e-9, vec![1])];
            for (deviation_s, stepped) in cases.into_iter().take(if kind == Kind::Delay { 1 } else { 2 }) {
                let prior = ClockPrior::independent(3, deviation_s).unwrap();
                let fix = locator.locate(&locator.survey_with_clocks(evidence.clone(), prior)).unwrap();
                let clocks = fix.clocks.unwrap();
                let late_s = clocks.posterior.mean_s()[1] - clocks.posterior.mean_s()[0];
                assert!((late_s - 30e-9).abs() < 5e-9, "{kind:?}, {deviation_s}: {late_s}");
                let error_m = (fix.position_m - TARGET_M).norm();
                assert!(error_m < 5.0 * fix.covariance_m2.trace().sqrt(), "{kind:?}: {error_m}");
                assert_eq!((clocks.stepped, clocks.at_edge), (stepped, vec![]), "{kind:?}, {deviation_s}");
            }
        }
    }

    fn law(mean_s: f64, deviation_s: f64) -> ClockPrior {
        let covariance_s2 = DMatrix::from_diagonal_element(3, 3, deviation_s * deviation_s);
        ClockPrior::new(DVector::from_row_slice(&[0.0, 0.0, mean_s]), covariance_s2).unwrap()
    }

    fn update(deviation_s: f64, change_s: f64) -> ClockUpdate {
        ClockUpdate {
            prior: law(0.0, deviation_s),
            posterior: law(change_s, 1e-3 * deviation_s),
            information: DMatrix::zeros(3, 3),
            weighted: DVector::zeros(3),
            stepped: Vec::new(),
            at_edge: Vec::new(),
            weak: Vec::new(),
        }
    }

    /// An offset has stepped beyond five deviations of a prior that is narrower than half the widest; it is at the edge of a
    /// window of four deviations.
    #[test]
    fn steps_and_edges_are_counted_in_deviations() {
        let scene = TestScene::new(50.0);
        let locator = &scene.locator;
        let survey = locator.survey(scene.evidence(0, TARGET_M, |_, _| Kind::Spectrum));
        let state = TargetState { position_m: TARGET_M, offsets_m: &[0.0; 3] };
        for (share, deviations, stepped) in
            [(0.45, 5.1, Some(2)), (0.45, -5.1, Some(2)), (0.45, 4.9, None), (0.55, 5.1, None)]
        {
            let update = update(share * PRIOR_S, deviations * share * PRIOR_S);
            assert_eq!(locator.stepped(&survey, state, &update), stepped, "{share} {deviations}");
        }
        let narrow = locator.narrow_s() / PRIOR_S;
        for (deviations, at_edge) in
            [(4.01 - narrow, vec![2]), (narrow - 4.01, vec![2]), (3.99 - narrow, vec![])]
        {
            assert_eq!(locator.at_edge(&update(PRIOR_S, deviations * PRIOR_S)), at_edge, "{deviations}");
        }
        assert!(locator.at_edge(&update(0.9 * locator.narrow_s(), PRIOR_S)).is_empty());
    }

    /// Three nodes with a unit SNR each: the energies of the others, 60, are what is expected of a node.
    #[test]
    fn weak_is_less_than_half_of_what_the_others_suggest() {
        let term = |sensor: usize, value: f64, unit_snr| Term {
            sensor,
            reflector: 0,
            expansion: Expansion { value, ..Expansion::zeros(0) },
            moments: None,
            unit_snr,
        };
        let weak = |energy: f64, other: f64| {
            let here = [
                term(0, energy, Some(2.0)),
                term(1, other, Some(1.0)),
                term(2, other, Some(1.0)),
                term(0, 1e3, None),
            ];
            is_too_weak(&here, 0)
        };
        assert!(weak(29.0, 30.0) && !weak(31.0, 30.0));
        assert!(weak(1.0, 10.1) && !weak(1.0, 9.9));
    }

    /// `sqrt(2 pi)` deviations of a normal prior are worth an interval.
    #[test]
    fn sizes_of_offsets_are_those_of_their_priors() {
        let locator = TestScene::new(50.0).locator;
        assert!(locator.offset_sizes(None).is_empty());
        let clocks = SurveyClocks::new(law(0.0, PRIOR_S), DVector::zeros(3)).unwrap();
        let expected = std::f64::consts::TAU.sqrt() * PRIOR_S * locator.spread_rad_s / 3f64.sqrt();
        for size in locator.offset_sizes(Some(&clocks)) {
            assert!((size / expected - 1.0).abs() < 1e-12, "{size} {expected}");
        }
    }
}
