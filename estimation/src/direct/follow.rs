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

use super::certainty::informative_share;
use super::joint::{JointLikelihood, OthersNode};
use super::likelihood::Term;
use super::locate::{DirectLocator, noise_factor};
use super::posterior::Hypotheses;
use super::residual::ResidualMaps;
use super::survey::Survey;
use crate::ascent::{Expansion, climb_roughly};

/// Tracks that exist with more than this probability are projected out for the others.
const PRESENT: f64 = 0.5;
/// Two laws whose distance, squared, in units of its variance is below this may be those of one target.
const SAME: f64 = 9.0;
/// The same for two that the frame shows in one place.
const MERGED: f64 = 1.0;
/// Rounds in which tracks are followed beside the new targets of the round before.
const BIRTH_ROUNDS: usize = 3;
/// An ascent ends where one more step would gain less than this.
const LEAST_GAIN: f64 = 0.02;
/// What the Bayes factor of a birth may gain from its grid point to its maximum and by its integral, at most.
const MOST_GAIN: f64 = 6.0;
/// Births that cannot have this existence are left out.
const LEAST_EXISTENCE: f64 = 1e-7;
/// Sweeps over tracks that influence each other until it is clear which of them exist, and joint steps after them.
const MOST_SWEEPS: usize = 4;
const JOINT_STEPS: usize = 2;

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
    /// Energy of the spectra, what the best single target explains of it, and the number of entries.
    energy: f64,
    top: f64,
    entries: usize,
}

/// A maximum of the posterior of a position.
struct FollowedPeak {
    law: PositionLaw,
    log_bayes_factor: f64,
    /// Probability that the target is in the searched area; one where the maximum is.
    inside: f64,
    /// Per path: weights of gradient and information there.
    weights: Vec<[f64; 2]>,
}

impl DirectLocator {
    /// The frame of a survey of spectra, as a tracker takes it; none for a survey of another system or with unknown clocks,
    /// whose offsets have to be removed first ([`Self::with_offsets_removed`]).
    pub fn followed<'a>(&'a self, survey: &'a Survey, settings: FollowSettings) -> Option<FollowedFrame<'a>> {
        if !self.fits(survey) || survey.evidence.spectra() == 0 || survey.clocks.is_some() {
            return None;
        }
        let (energy, entries) = survey.evidence.spectral_energy();
        let top = self.all_totals(survey).iter().copied().fold(0.0, f64::max);
        Some(FollowedFrame { locator: self, survey, settings, energy, top, entries })
    }
}

impl FollowedFrame<'_> {
    fn likelihood(&self) -> JointLikelihood<'_> {
        let layout = self.locator.scene.layout();
        JointLikelihood { layout, evidence: &self.survey.evidence, offsets: false }
    }

    /// The hypotheses about a target where these are; they and the strongest target are not noise.
    fn hypotheses(&self, present: &[OthersNode]) -> Hypotheses {
        let paths = present.iter().flat_map(|node| &node.paths);
        let explained: f64 = paths.map(|path| path.explained.norm_squared()).sum();
        let targets = present.first().map_or(0, |node| node.arrivals.len()).max(1);
        let freedom = self.entries as f64 - (self.survey.evidence.spectra() * targets) as f64;
        let noise_factor = noise_factor(self.energy - explained.max(self.top), freedom);
        Hypotheses::expected(&self.locator.system().prior, noise_factor)
    }

    /// What a target at a place adds on every path to others that are there, with derivatives if `expand` says so.
    fn terms(&self, others: &[OthersNode], at: &DVector<f64>, expand: bool) -> Vec<Term> {
        let scene = &self.locator.scene;
        let views = scene.layout().views(&scene.layout().position_m(at), expand);
        let mut terms = Vec::new();
        self.likelihood().each_beside(others, &views, |sensor, reflector, (moments, memory), left| {
            let (sensor_m, reflector_m) = (views[sensor].distance_m, views[reflector].distance_m);
            let unit_snr = scene.unit_snr(views[reflector].strength(), sensor_m, reflector_m) * left;
            let mut expansion = Expansion::default();
            moments.expand(memory, &mut expansion);
            terms.push(Term { sensor, reflector, expansion, moments: None, unit_snr: Some(unit_snr) });
        });
        terms
    }

    /// The maximum of Bayes factor and prior from a start; without a prior the factor is relative to a density of one.
    fn peak(
        &self,
        (others, hypotheses): (&[OthersNode], &Hypotheses),
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
            let terms = self.terms(others, at, true);
            let (value, weights) = hypotheses.weighed(&terms);
            let mut total = Expansion { value, ..Expansion::zeros(at.len()) };
            for (term, weight) in terms.iter().zip(weights) {
                let weight = weight / hypotheses.noise_factor();
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
        let (summit, _) = climb_roughly(LEAST_GAIN, start, &longest, objective);
        // The energy of a path holds one unit of noise on average, which carries no information; near nothing may be left.
        let terms = self.terms(others, &summit.at, true);
        let mut information = prior_information.clone();
        let mut weights = Vec::with_capacity(terms.len());
        for (term, weight) in terms.iter().zip(hypotheses.weights(&terms)) {
            let weight = weight / hypotheses.noise_factor();
            let informative = weight * informative_share(term.value() / hypotheses.noise_factor());
            information += &term.expansion.information * informative;
            weights.push([weight, informative]);
        }
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
        Some(FollowedPeak { law, log_bayes_factor, inside, weights })
    }

    /// Lets tracks that exist settle together: Newton steps of the joint posterior of their positions, from where each has its maximum
    /// given the others, beside new targets that stay where they are. Their laws are the marginals of the joint one. Paths are weighted as for each of them alone.
    fn settle(
        &self,
        laws: &mut [(&Predicted, &mut Updated, Vec<[f64; 2]>)],
        newborn_m: &[Point],
    ) -> Option<()> {
        let likelihood = self.likelihood();
        let axes = likelihood.dimensions();
        let place = |i: usize| i * axes;
        let means = laws.iter().flat_map(|(_, track, _)| track.law.mean_m().iter().copied());
        let mut state = DVector::from_iterator(laws.len() * axes, means.collect::<Vec<f64>>());
        let factors = laws.iter().map(|(predicted, ..)| predicted.law.covariance_m2().clone().cholesky());
        let factors: Vec<_> = factors.collect::<Option<_>>()?;
        let mut covariance = DMatrix::zeros(0, 0);
        let newborn = self.locator.scene.layout().joint_coordinates(newborn_m);
        for _ in 0..JOINT_STEPS {
            let all = state.iter().chain(newborn.iter()).copied().collect::<Vec<f64>>();
            let sight = likelihood.sight(&DVector::from_vec(all), true);
            let (mut total, mut here) = (Expansion::zeros(state.len()), Expansion::default());
            let mut path = 0;
            for (l, rows) in likelihood.sensing() {
                likelihood.each_moment(&sight, l, rows, |_, moments, memory| {
                    moments.expand(memory, &mut here);
                    let weight = |i: usize| laws[i / axes].2.get(path).copied().unwrap_or([0.0; 2]);
                    for i in 0..state.len() {
                        total.gradient[i] += here.gradient[i] * weight(i)[0];
                        for j in 0..state.len() {
                            let share = (weight(i)[1] * weight(j)[1]).max(0.0).sqrt();
                            total.information[(i, j)] += here.information[(i, j)] * share;
                        }
                    }
                    path += 1;
                });
            }
            for (i, ((predicted, ..), factor)) in laws.iter().zip(&factors).enumerate() {
                let away = state.rows(place(i), axes) - predicted.law.mean_m();
                let mut gradient = total.gradient.rows_mut(place(i), axes);
                gradient -= factor.solve(&away);
                let mut block = total.information.view_mut((place(i), place(i)), (axes, axes));
                block += factor.inverse();
            }
            let factor = total.information.cholesky()?;
            let step = factor.solve(&total.gradient);
            let most = self.locator.longest_step_m();
            state += &step / (step.amax() / most).max(1.0);
            covariance = factor.inverse();
        }
        for (i, (_, track, _)) in laws.iter_mut().enumerate() {
            let own = covariance.view((place(i), place(i)), (axes, axes)).into_owned();
            track.law = PositionLaw::new(state.rows(place(i), axes).into_owned(), own).ok()?;
        }
        Some(())
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
    /// peaks are not born as well, and those before it are judged again: what was a mixture of two targets is none beside them.
    /// One outside of the searched area is taken out, too, but not born.
    fn births(&self, mut present_m: Vec<Point>, tracks: &[Updated]) -> Vec<Birth> {
        let places = &self.locator.grid.places;
        let mut maps = ResidualMaps::new(self.locator, self.survey, self.likelihood());
        let mut looked = |present_m: &[Point]| {
            let others = self.others(present_m);
            let state = self.locator.scene.layout().joint_coordinates(present_m);
            let map = (!present_m.is_empty()).then(|| maps.map(&state, &others, f64::MAX));
            let peaks = match &map {
                Some(map) => places.peaks(map),
                None => places.peaks(self.locator.all_totals(self.survey)),
            };
            (peaks.into_iter(), self.hypotheses(&others), others)
        };
        let log_density = self.settings.birth_density.ln();
        let (mut births, mut tries): (Vec<Birth>, usize) = (Vec::new(), 0);
        let (mut peaks, mut hypotheses, mut others) = looked(&present_m);
        while births.len() < self.settings.most_births && tries < 2 * self.settings.most_births {
            tries += 1;
            let Some((point, _)) = peaks.next() else { break };
            let start = places.coordinates(point);
            let here = hypotheses.log_bayes_factor(&self.terms(&others, &start, false));
            if log_density + here + MOST_GAIN < LEAST_EXISTENCE.ln() {
                break;
            }
            let Some(peak) = self.peak((&others, &hypotheses), start, None) else { continue };
            let mut known =
                tracks.iter().map(|track| &track.law).chain(births.iter().map(|birth| &birth.law));
            if known.any(|law| distance(law, &peak.law) < SAME) {
                continue;
            }
            let existence = existence_after(0.5, log_density + peak.log_bayes_factor);
            let probable = existence > PRESENT;
            if peak.inside == 1.0 {
                births.push(Birth { law: peak.law, existence });
            } else if probable {
                present_m.push(self.locator.position_m(peak.law.mean_m()));
            }
            if probable {
                self.judge_again(&mut births, &present_m);
                let probable = births.iter().filter(|birth| birth.existence > PRESENT);
                let born = probable.map(|birth| self.locator.position_m(birth.law.mean_m()));
                let all_m: Vec<Point> = present_m.iter().copied().chain(born).collect();
                (peaks, hypotheses, others) = looked(&all_m);
            }
        }
        births
    }

    /// Judges every birth that probably exists beside the others and these targets, and removes those that do not.
    fn judge_again(&self, births: &mut Vec<Birth>, present_m: &[Point]) {
        let mut i = 0;
        while i < births.len() {
            let probable =
                births.iter().enumerate().filter(|(j, birth)| *j != i && birth.existence > PRESENT);
            let born = probable.map(|(_, birth)| self.locator.position_m(birth.law.mean_m()));
            let others_m: Vec<Point> = present_m.iter().copied().chain(born).collect();
            if births[i].existence > PRESENT && others_m.len() > present_m.len() {
                let others = self.others(&others_m);
                let start = births[i].law.mean_m().clone();
                let peak = self.peak((&others, &self.hypotheses(&others)), start, None);
                let odds = |peak: &FollowedPeak| self.settings.birth_density.ln() + peak.log_bayes_factor;
                let existence = peak.as_ref().map_or(0.0, |peak| existence_after(0.5, odds(peak)));
                match peak.filter(|peak| existence > PRESENT && peak.inside == 1.0) {
                    Some(peak) => births[i] = Birth { law: peak.law, existence },
                    None => {
                        births.remove(i);
                        continue;
                    }
                }
            }
            i += 1;
        }
    }
}

impl FollowedFrame<'_> {
    /// Every track after the frame, beside new targets, and whether it is seen, also where that is outside of the searched area.
    fn tracks(&self, predicted: &[Predicted], newborn_m: &[Point]) -> (Vec<Updated>, Vec<bool>) {
        let layout = self.locator.scene.layout();
        let mut tracks: Vec<Updated> = predicted.iter().map(Updated::unchanged).collect();
        let mut visible: Vec<bool> = predicted.iter().map(|track| track.existence > PRESENT).collect();
        let mut order: Vec<usize> = (0..tracks.len()).collect();
        order.sort_by(|&a, &b| predicted[b].existence.total_cmp(&predicted[a].existence));
        let mut weights = vec![Vec::new(); tracks.len()];
        // The places of all tracks that probably exist, except for one of them, and the new targets.
        let beside = |tracks: &[Updated], visible: &[bool], except: Option<usize>| -> Vec<Point> {
            let others = (0..tracks.len()).filter(|&j| Some(j) != except && visible[j]);
            let places = others.map(|j| layout.position_m(tracks[j].law.mean_m()));
            places.chain(newborn_m.iter().copied()).collect()
        };
        // A tentative track that turns out to exist is taken out of the data of the others.
        for _ in 0..MOST_SWEEPS {
            let before = visible.clone();
            let hypotheses = self.hypotheses(&self.others(&beside(&tracks, &visible, None)));
            for &i in &order {
                let others = self.others(&beside(&tracks, &visible, Some(i)));
                let start = tracks[i].law.mean_m().clone();
                let Some(peak) = self.peak((&others, &hypotheses), start, Some(&predicted[i].law)) else {
                    continue;
                };
                let existence = existence_after(predicted[i].existence, peak.log_bayes_factor);
                visible[i] = existence > PRESENT;
                weights[i] = peak.weights;
                tracks[i] = Updated {
                    existence: existence * peak.inside,
                    detected: peak.log_bayes_factor > 0.0 && peak.inside == 1.0,
                    law: peak.law,
                    ..Updated::unchanged(&predicted[i])
                };
            }
            if visible == before {
                break;
            }
        }
        let all = predicted.iter().zip(&mut tracks).zip(weights).zip(&visible);
        let mut together: Vec<_> = all
            .filter(|(((_, track), _), visible)| **visible && track.detected)
            .map(|(((predicted, track), weights), _)| (predicted, track, weights))
            .collect();
        if together.len() + newborn_m.len() > 1 {
            // Where that fails, each keeps its own law.
            let _ = self.settle(&mut together, newborn_m);
        }
        (tracks, visible)
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
        let place = |law: &PositionLaw| layout.position_m(law.mean_m());
        let (mut tracks, mut births) = (Vec::new(), Vec::new());
        let mut newborn_m: Vec<Point> = Vec::new();
        // A new target draws tracks near it towards itself until it is taken out of their data.
        for _ in 0..BIRTH_ROUNDS {
            let visible;
            (tracks, visible) = self.tracks(predicted, &newborn_m);
            let seen = tracks.iter().zip(visible).filter(|(_, visible)| *visible);
            births = self.births(seen.map(|(track, _)| place(&track.law)).collect(), &tracks);
            let probable = births.iter().filter(|birth| birth.existence > PRESENT);
            let found_m: Vec<Point> = probable.map(|birth| place(&birth.law)).collect();
            let known = found_m.len() <= newborn_m.len();
            newborn_m = found_m;
            if known || predicted.is_empty() {
                break;
            }
        }
        let near = |i: usize, j: usize| distance(&tracks[i].law, &tracks[j].law);
        let marks: Vec<(bool, Option<usize>)> = (0..tracks.len())
            .map(|i| {
                let others = (0..tracks.len()).filter(|&j| j != i && tracks[j].existence > PRESENT);
                let nearest = others.min_by(|&a, &b| near(i, a).total_cmp(&near(i, b)));
                let within = |most: f64| nearest.filter(|&j| near(i, j) < most);
                (within(SAME).is_some(), within(MERGED))
            })
            .collect();
        for (track, (doubtful, merged)) in tracks.iter_mut().zip(marks) {
            (track.doubtful_identity, track.merged_with) = (doubtful, merged);
        }
        FrameUpdate { tracks, births }
    }
}

/// Squared distance of two laws in units of its variance.
fn distance(a: &PositionLaw, b: &PositionLaw) -> f64 {
    let difference = a.mean_m() - b.mean_m();
    let spread: DMatrix<f64> = a.covariance_m2() + b.covariance_m2();
    spread.cholesky().map_or(0.0, |factor| difference.dot(&factor.solve(&difference)))
}
