//! Tracks followed in the signals themselves: the frame as an [`Observation`] of a tracker (track-before-detect).
//!
//! No detection is made. The predicted law of a track is the prior of its position, and the data enter by their Bayes factor
//! `B(x) = p(Y | target at x) / p(Y | none)`, with the gains integrated out ([`posterior`](super::posterior)) and the cross-section
//! averaged over its prior. With the prior N of the position, by Laplace's method at the maximum s of `B N`,
//!
//! `ln integral B N = ln B(s) + ln N(s) + (d / 2) ln 2 pi - (1 / 2) ln |H|`,
//!
//! H the curvature there. This is the factor by which the odds of existence change, and N(s, H^-1) the law of the position. A target too
//! weak to be detected in any one frame is confirmed by the frames together.
//!
//! Other tracks that probably exist are projected out of data and atoms, so that the factor of a track counts what it adds; laws
//! of several tracks are found in turn, each given the others. New targets are peaks of the residual with the factor
//! `density * integral B` about them. A track is one of a target inside the searched area: where its maximum lies outside, existence
//! is also multiplied by the mass of its law inside, so that a target that walks out ends its track within a few frames.
//!
//! Clocks count as known here. Where they are not, a survey from which the offsets were removed is followed
//! ([`DirectLocator::with_offsets_removed`]), such as the posterior means that the fix of the same frame has found. Their uncertainty is
//! not part of the laws: it is common to all targets and to many frames, which a law per track and frame cannot say.

use model::Point;
use nalgebra::{DMatrix, DVector};
use statrs::function::erf::erfc;
use tracking::{Birth, FrameUpdate, Observation, PositionLaw, Predicted, Updated, existence_after};

use super::certainty::without_noise;
use super::joint::{JointLikelihood, OthersNode};
use super::likelihood::Term;
use super::locate::{DirectLocator, Survey, noise_factor};
use super::posterior::Hypotheses;
use super::residual::ResidualMaps;
use crate::ascent::{Expansion, climb};

/// Tracks that exist with more than this probability are projected out for the others.
const PRESENT: f64 = 0.5;
/// Two laws whose distance, squared, in units of its variance is below this may be those of one target.
const SAME: f64 = 9.0;
/// Sweeps over tracks that influence each other.
const SWEEPS: usize = 2;

/// What is assumed about new targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FollowSettings {
    /// Expected number of new targets per frame and square or cubic metre. Default: 1e-6.
    pub birth_density: f64,
    /// Largest number of possible new targets per frame. Default: 3.
    pub most_births: usize,
}

impl Default for FollowSettings {
    fn default() -> Self {
        Self { birth_density: 1e-6, most_births: 3 }
    }
}

/// A frame in which tracks are followed.
#[derive(Debug)]
pub struct FollowedFrame<'a> {
    locator: &'a DirectLocator,
    survey: &'a Survey,
    settings: FollowSettings,
    hypotheses: Hypotheses,
}

/// A maximum of the posterior of a position.
struct FollowedPeak {
    law: PositionLaw,
    log_bayes_factor: f64,
    /// Probability that the target is in the searched area; one where the maximum is.
    inside: f64,
}

impl DirectLocator {
    /// The frame of a survey of spectra, as a tracker takes it; none for a survey of another system or with unknown clocks,
    /// whose offsets have to be removed first ([`Self::with_offsets_removed`]).
    pub fn followed<'a>(&'a self, survey: &'a Survey, settings: FollowSettings) -> Option<FollowedFrame<'a>> {
        if !self.fits(survey) || survey.evidence.spectra() == 0 || survey.clocks.is_some() {
            return None;
        }
        let (energy, entries) = survey.evidence.spectral_energy();
        // The strongest target is not noise.
        let top = survey.values.total.iter().copied().fold(0.0, f64::max);
        let freedom = entries as f64 - survey.evidence.spectra() as f64;
        let noise_factor = noise_factor(energy - top, freedom);
        let hypotheses = Hypotheses::expected(&self.system().prior, noise_factor);
        Some(FollowedFrame { locator: self, survey, settings, hypotheses })
    }
}

impl FollowedFrame<'_> {
    fn likelihood(&self) -> JointLikelihood<'_> {
        let layout = self.locator.scene.layout();
        JointLikelihood { layout, evidence: &self.survey.evidence, offsets: false }
    }

    /// What a target at a place adds on every path to others that are there.
    fn terms(&self, others: &[OthersNode], at: &DVector<f64>) -> Vec<Term> {
        let scene = &self.locator.scene;
        let views = scene.layout().views(&scene.layout().position_m(at), true);
        let mut terms = Vec::new();
        self.likelihood().each_beside(others, &views, |sensor, reflector, moments, left| {
            let (sensor_m, reflector_m) = (views[sensor].distance_m, views[reflector].distance_m);
            let unit_snr = scene.unit_snr(views[reflector].strength(), sensor_m, reflector_m) * left;
            let expansion = moments.expansion();
            terms.push(Term { sensor, reflector, expansion, moments: None, unit_snr: Some(unit_snr) });
        });
        terms
    }

    /// The maximum of Bayes factor and prior from a start; without a prior the factor is relative to a density of one.
    fn peak(
        &self,
        others: &[OthersNode],
        start: DVector<f64>,
        prior: Option<&PositionLaw>,
    ) -> Option<FollowedPeak> {
        let known = match prior {
            Some(law) => Some((law.mean_m().clone(), law.covariance_m2().clone().cholesky()?)),
            None => None,
        };
        let prior_information =
            known.as_ref().map_or(DMatrix::zeros(start.len(), start.len()), |(_, factor)| factor.inverse());
        let objective = |at: &DVector<f64>| {
            let terms = self.terms(others, at);
            let mut total = Expansion::zeros(at.len());
            total.value = self.hypotheses.log_bayes_factor(&terms);
            for (term, weight) in terms.iter().zip(self.hypotheses.weights(&terms)) {
                total.gradient += &term.expansion.gradient * weight;
                total.information += &term.expansion.information * weight;
            }
            if let Some((mean, factor)) = &known {
                let away = at - mean;
                let pull = factor.solve(&away);
                total.value -= 0.5 * away.dot(&pull);
                total.gradient -= pull;
                total.information += &prior_information;
            }
            total
        };
        let longest = DVector::repeat(start.len(), self.locator.longest_step_m());
        let summit = climb(start, &longest, objective);
        // The energy of a path holds one unit of noise on average, which carries no information; near nothing may be left.
        let mut terms = self.terms(others, &summit.at);
        let weights = self.hypotheses.weights(&terms);
        without_noise(&mut terms, self.hypotheses.noise_factor());
        let mut information = prior_information.clone();
        terms
            .iter()
            .zip(weights)
            .for_each(|(term, weight)| information += &term.expansion.information * weight);
        let factor = match information.cholesky() {
            Some(factor) => factor,
            None => objective(&summit.at).information.cholesky()?,
        };
        let log_determinant = |diagonal: DVector<f64>| 2.0 * diagonal.map(f64::ln).sum();
        let curvature = log_determinant(factor.l_dirty().diagonal());
        let log_bayes_factor = summit.value
            - 0.5 * curvature
            - match &known {
                Some((_, factor)) => 0.5 * log_determinant(factor.l_dirty().diagonal()),
                None => -0.5 * summit.at.len() as f64 * std::f64::consts::TAU.ln(),
            };
        let law = PositionLaw::new(summit.at, factor.inverse()).ok()?;
        let inside = if self.locator.searched(law.mean_m()) { 1.0 } else { self.mass_inside(&law) };
        Some(FollowedPeak { law, log_bayes_factor, inside })
    }

    /// Probability that a position of this law is on the grid, its coordinates taken as independent.
    fn mass_inside(&self, law: &PositionLaw) -> f64 {
        let places = &self.locator.grid.places;
        let axis = |i: usize| {
            let deviation_m = law.covariance_m2()[(i, i)].sqrt();
            let below = |edge_m: f64| {
                0.5 * erfc((law.mean_m()[i] - edge_m) / (deviation_m * std::f64::consts::SQRT_2))
            };
            below(places.min[i] + places.extent(i)) - below(places.min[i])
        };
        (0..places.dimensions()).map(axis).product::<f64>().clamp(0.0, 1.0)
    }

    /// These targets, node by node.
    fn others(&self, positions_m: &[Point]) -> Vec<OthersNode> {
        self.likelihood().others(&self.locator.scene.layout().joint_coordinates(positions_m))
    }

    /// The possible new targets beside these. One that probably exists is taken out of the data for the next ones, so that its side
    /// peaks are not born as well; so is one outside of the searched area, which is not born itself.
    fn births(&self, mut present_m: Vec<Point>, tracks: &[Updated]) -> Vec<Birth> {
        let places = &self.locator.grid.places;
        let mut maps = ResidualMaps::new(self.locator, self.likelihood());
        let mut looked = |present_m: &[Point]| {
            let others = self.others(present_m);
            let state = self.locator.scene.layout().joint_coordinates(present_m);
            let map = (!present_m.is_empty()).then(|| maps.map(&state, &others));
            (places.peaks(map.as_ref().unwrap_or(&self.survey.values.total)).into_iter(), others)
        };
        let mut births: Vec<Birth> = Vec::new();
        let (mut peaks, mut others) = looked(&present_m);
        for _ in 0..self.settings.most_births {
            let Some((point, _)) = peaks.next() else { break };
            let Some(peak) = self.peak(&others, places.coordinates(point), None) else { continue };
            let mut known =
                tracks.iter().map(|track| &track.law).chain(births.iter().map(|birth| &birth.law));
            if known.any(|law| distance(law, &peak.law) < SAME) {
                continue;
            }
            let odds = self.settings.birth_density.ln() + peak.log_bayes_factor;
            let existence = existence_after(0.5, odds);
            if existence > PRESENT {
                present_m.push(self.locator.position_m(peak.law.mean_m()));
                (peaks, others) = looked(&present_m);
            }
            if peak.inside == 1.0 {
                births.push(Birth { law: peak.law, existence });
            }
        }
        births
    }
}

impl Observation for FollowedFrame<'_> {
    fn update(&self, predicted: &[Predicted]) -> FrameUpdate {
        let layout = self.locator.scene.layout();
        let axes = layout.axes().len();
        if predicted.iter().any(|track| track.law.dimension() != axes) {
            return FrameUpdate {
                tracks: predicted.iter().map(Updated::unchanged).collect(),
                births: Vec::new(),
            };
        }
        let mut tracks: Vec<Updated> = predicted.iter().map(Updated::unchanged).collect();
        // Also where that is outside of the searched area.
        let mut visible: Vec<bool> = predicted.iter().map(|track| track.existence > PRESENT).collect();
        let mut order: Vec<usize> = (0..tracks.len()).collect();
        order.sort_by(|&a, &b| predicted[b].existence.total_cmp(&predicted[a].existence));
        let place = |track: &Updated| layout.position_m(track.law.mean_m());
        let strong = predicted.iter().filter(|track| track.existence > PRESENT).count();
        for _ in 0..if strong > 1 { SWEEPS } else { 1 } {
            for &i in &order {
                let others: Vec<Point> = (0..tracks.len())
                    .filter(|&j| j != i && predicted[j].existence > PRESENT)
                    .map(|j| place(&tracks[j]))
                    .collect();
                let law = &predicted[i].law;
                let others = self.others(&others);
                let Some(peak) = self.peak(&others, tracks[i].law.mean_m().clone(), Some(law)) else {
                    continue;
                };
                let existence = existence_after(predicted[i].existence, peak.log_bayes_factor);
                visible[i] = existence > PRESENT;
                tracks[i] = Updated {
                    existence: existence * peak.inside,
                    detected: peak.log_bayes_factor > 0.0 && peak.inside == 1.0,
                    law: peak.law,
                    ..Updated::unchanged(&predicted[i])
                };
            }
        }
        for i in 0..tracks.len() {
            let near = |&j: &usize| j != i && distance(&tracks[i].law, &tracks[j].law) < SAME;
            tracks[i].doubtful_identity =
                (0..tracks.len()).filter(near).any(|j| predicted[j].existence > PRESENT);
        }
        let present_m: Vec<Point> = tracks
            .iter()
            .zip(visible)
            .filter(|(_, visible)| *visible)
            .map(|(track, _)| place(track))
            .collect();
        let births = self.births(present_m, &tracks);
        FrameUpdate { tracks, births }
    }
}

/// Squared distance of two laws in units of its variance.
fn distance(a: &PositionLaw, b: &PositionLaw) -> f64 {
    let difference = a.mean_m() - b.mean_m();
    let spread: DMatrix<f64> = a.covariance_m2() + b.covariance_m2();
    spread.cholesky().map_or(0.0, |factor| difference.dot(&factor.solve(&difference)))
}
