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
use nalgebra::{Cholesky, DMatrix, DVector, Dyn};
use statrs::function::erf::erfc;
use tracking::{Birth, FrameUpdate, Observation, PositionLaw, Predicted, Updated, existence_after};

use super::certainty::informative_share;
use super::joint::{JointLikelihood, OthersNode};
use super::likelihood::Term;
use super::locate::{DirectLocator, Survey, noise_factor};
use super::posterior::Hypotheses;
use super::residual::ResidualMaps;
use crate::ascent::{Expansion, climb_roughly};

/// Tracks that exist with more than this probability are projected out for the others.
const PRESENT: f64 = 0.5;
/// Two laws whose distance, squared, in units of its variance is below this may be those of one target.
const SAME: f64 = 9.0;
/// An ascent ends where one more step would raise the logarithm of the posterior by less than this.
const LEAST_GAIN: f64 = 0.02;
/// What the Bayes factor of a birth may gain from its grid point to its maximum and by its integral, at most.
const MOST_GAIN: f64 = 6.0;
/// Births that cannot have this existence are left out.
const LEAST_EXISTENCE: f64 = 1e-7;

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
        let top = survey.values.total.iter().copied().fold(0.0, f64::max);
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

    /// Lets tracks that exist settle together: the maximum of the joint posterior of their positions, from where each has its maximum
    /// given the others. Their laws are the marginals of the joint one. A path has the mean weight of the tracks on it.
    fn settle(&self, laws: &mut [(&Predicted, &mut Updated, Vec<[f64; 2]>)]) -> Option<()> {
        let likelihood = self.likelihood();
        let axes = likelihood.dimensions();
        let place = |i: usize| i * axes;
        let means: Vec<f64> =
            laws.iter().flat_map(|(_, track, _)| track.law.mean_m().iter().copied()).collect();
        let priors: Vec<(&DVector<f64>, Cholesky<f64, Dyn>)> = laws
            .iter()
            .map(|(predicted, ..)| {
                let law = &predicted.law;
                Some((law.mean_m(), law.covariance_m2().clone().cholesky()?))
            })
            .collect::<Option<_>>()?;
        let paths = laws.iter().map(|(_, _, weights)| weights.len()).min()?;
        let weight = |path: usize, kind: usize| {
            laws.iter().map(|(_, _, weights)| weights[path][kind]).sum::<f64>() / laws.len() as f64
        };
        let [weights, informative] =
            [0, 1].map(|kind| (0..paths).map(|path| weight(path, kind)).collect::<Vec<f64>>());
        let posterior = |state: &DVector<f64>, weights: &[f64]| {
            let sight = likelihood.sight(state, true);
            let mut total = Expansion::zeros(state.len());
            let mut weights = weights.iter();
            for (l, rows) in likelihood.sensing() {
                likelihood.each_moment(&sight, l, rows, |_, moments| {
                    let (here, weight) = (moments.expansion(), weights.next().copied().unwrap_or(0.0));
                    total.value += here.value * weight;
                    total.gradient += here.gradient * weight;
                    total.information += here.information * weight;
                });
            }
            for (i, (mean, factor)) in priors.iter().enumerate() {
                let away = state.rows(place(i), axes) - *mean;
                let pull = factor.solve(&away);
                total.value -= 0.5 * away.dot(&pull);
                let mut gradient = total.gradient.rows_mut(place(i), axes);
                gradient -= pull;
                let mut block = total.information.view_mut((place(i), place(i)), (axes, axes));
                block += factor.inverse();
            }
            total
        };
        let longest = DVector::repeat(means.len(), self.locator.longest_step_m());
        let (summit, _) =
            climb_roughly(LEAST_GAIN, DVector::from_vec(means), &longest, |state| posterior(state, &weights));
        let covariance = posterior(&summit.at, &informative).information.cholesky()?.inverse();
        let law = |i: usize| {
            let own = covariance.view((place(i), place(i)), (axes, axes)).into_owned();
            PositionLaw::new(summit.at.rows(place(i), axes).into_owned(), own).ok()
        };
        let settled: Vec<PositionLaw> = (0..laws.len()).map(law).collect::<Option<_>>()?;
        laws.iter_mut().zip(settled).for_each(|((_, track, _), law)| track.law = law);
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
            let peaks = places.peaks(map.as_ref().unwrap_or(&self.survey.values.total));
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
        let mut weights = vec![Vec::new(); tracks.len()];
        let hypotheses = {
            let strong = (0..tracks.len()).filter(|&j| visible[j]).map(|j| place(&tracks[j]));
            self.hypotheses(&self.others(&strong.collect::<Vec<Point>>()))
        };
        for (rank, &i) in order.iter().enumerate() {
            let (law, start) = (&predicted[i].law, tracks[i].law.mean_m().clone());
            let beside = |counts: &dyn Fn(usize) -> bool| {
                let strong = (0..tracks.len()).filter(|&j| j != i && visible[j] && counts(j));
                let others = self.others(&strong.map(|j| place(&tracks[j])).collect::<Vec<Point>>());
                self.peak((&others, &hypotheses), start.clone(), Some(law))
            };
            let Some(mut peak) = beside(&|_| true) else { continue };
            // Of two tracks in one place the first answers for what is there; otherwise each would excuse the other.
            let same = |&j: &usize| visible[j] && distance(&tracks[i].law, &tracks[j].law) < SAME;
            if order[rank + 1..].iter().any(same)
                && let Some(alone) = beside(&|j| !(order[rank..].contains(&j) && same(&j)))
            {
                peak.log_bayes_factor = alone.log_bayes_factor;
            }
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
        let all = predicted.iter().zip(&mut tracks).zip(weights).zip(&visible);
        let mut together: Vec<_> = all
            .filter(|(((predicted, track), _), visible)| {
                **visible && track.detected && predicted.existence > PRESENT
            })
            .map(|(((predicted, track), weights), _)| (predicted, track, weights))
            .collect();
        if together.len() > 1 {
            // Where that fails, each keeps its own law.
            let _ = self.settle(&mut together);
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
