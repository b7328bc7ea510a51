//! Several targets in one frame: how many there are, where, and how certain that is.
//!
//! The likelihood is that of the direct method with T positions: on every path the mean is a sum of T atoms with free gains
//! ([`moments`](super::moments)). Targets are born one at a time. The first comes from the survey; every further one from the
//! map of the residual, in which the present targets are projected out of the data and of each candidate, and the energy is
//! divided by what is left of the candidate ([`residual`](super::residual)). From its best peak the new target climbs alone, then all
//! positions climb together. Where the map without one of the targets has its highest value elsewhere, that target is searched anew.
//! A target is accepted if noise alone would raise the likelihood by as much, anywhere in the area, with at most the
//! allowed false-alarm probability: the residual of a path is noise where all targets are accounted for, so that the law of
//! the first detection holds. One whose absence costs too little in the end is removed.
//!
//! Two targets whose distance is within its own uncertainty cannot be told apart; they are reported as one that is unresolved.
//! Only spectra carry several targets: a block holds the echoes about one delay.

use nalgebra::{DMatrix, DVector};

use super::clocks::SurveyClocks;
use super::joint::{JointLikelihood, OthersNode, losses};
use super::locate::{DirectLocator, Missed, noise_factor};
use super::residual::ResidualMaps;
use super::survey::Survey;
use super::target_list::{LocatedTarget, MOST_TARGETS, TargetList};
use crate::ascent::{Expansion, Summit, climb, climb_roughly};

/// Peaks of a map that are tried.
const MOST_STARTS: usize = 4;
/// Before all targets are there, an ascent ends where one more step would raise the likelihood by less than this.
const ROUGH_GAIN: f64 = 0.3;
/// Rounds in which every target is searched anew.
const MOST_ROUNDS: usize = 3;
/// A target is searched anew where the map of the others has its highest value more than this many steps away,
const ANEW_STEPS: f64 = 2.5;
/// and moved there with the others if that place alone has this share of its energy.
const ANEW_SHARE: f64 = 0.9;
/// The others are free to move where that explains more than this share of a target's energy.
const MOVED_SHARE: f64 = 0.05;
/// Two targets are one if their distance, squared, in units of its variance is below this.
const LEAST_SEPARATION: f64 = 9.0;
/// Targets closer than this share of the resolution have fallen together: their atoms are the same to rounding.
const SAME_PLACE: f64 = 1e-3;
/// A larger relative gain of the likelihood is an improvement.
const BETTER: f64 = 1e-5;
/// The search in a survey, with the prior of its clocks.
struct SeveralSearch<'a> {
    locator: &'a DirectLocator,
    survey: &'a Survey,
    likelihood: JointLikelihood<'a>,
    maps: ResidualMaps<'a>,
    /// Energy of the spectra and number of their entries.
    energy: (f64, usize),
}

/// A state, and what the likelihood is there.
struct Resolved {
    at: DVector<f64>,
    /// With the prior of the clocks.
    value: f64,
    /// Without it.
    here: Expansion,
    /// Ratio of the noise power in the residual to the one that the nodes reported.
    noise_factor: f64,
    /// Targets that may be two.
    unresolved: Vec<usize>,
    /// Whether every target was searched anew against the others.
    searched_anew: bool,
}

impl DirectLocator {
    /// The targets of a survey, at most `most` of them. A frame without a target gives an empty list. Where clocks are unknown, a
    /// clock whose offset contradicts its prior is searched anew as in a fix of one target.
    pub fn locate_several(&self, survey: &Survey, most: usize) -> Result<TargetList, Missed> {
        if !self.fits(survey) || survey.evidence.spectra() == 0 {
            return Err(Missed::NoEvidence);
        }
        let mut list = self.list_several(survey, most)?;
        let (mut stepped, mut kept) = (Vec::new(), None);
        while let Some(l) = list.clocks.as_ref().and_then(|update| self.shifted(update)) {
            let wider = self.with_unknown_clock(kept.as_ref().unwrap_or(survey), l);
            let Some(wider) = wider.filter(|_| !stepped.contains(&l)) else { break };
            stepped.push(l);
            list = self.list_several(&wider, most)?;
            kept = Some(wider);
        }
        if let Some(update) = &mut list.clocks {
            update.stepped = stepped;
        }
        Ok(list)
    }

    fn list_several(&self, survey: &Survey, most: usize) -> Result<TargetList, Missed> {
        let likelihood = JointLikelihood {
            layout: self.scene.layout(),
            evidence: &survey.evidence,
            offsets: survey.clocks.is_some(),
        };
        let maps = ResidualMaps::new(self, survey, likelihood);
        let energy = survey.evidence.spectral_energy();
        SeveralSearch { locator: self, survey, likelihood, maps, energy }.run(most.min(MOST_TARGETS))
    }
}

impl SeveralSearch<'_> {
    fn axes(&self) -> usize {
        self.locator.grid.places.dimensions()
    }

    fn clocks(&self) -> Option<&SurveyClocks> {
        self.survey.clocks.as_ref()
    }

    fn run(&mut self, most: usize) -> Result<TargetList, Missed> {
        let mut present = self.empty();
        while self.likelihood.targets(&present.at) < most {
            let Some(next) = self.next(&mut present) else { break };
            present = next;
        }
        if self.likelihood.targets(&present.at) == 0 {
            let covariance_m2 = DMatrix::zeros(0, 0);
            let targets = Vec::new();
            return Ok(TargetList { targets, covariance_m2, log_likelihood: 0.0, clocks: None });
        }
        loop {
            let unresolved = std::mem::take(&mut present.unresolved);
            present = Resolved { unresolved, ..self.resolved(self.climb(present.at).at) };
            let energies = self.energies(&present);
            let weakest = (0..energies.len()).min_by(|&a, &b| energies[a].total_cmp(&energies[b]));
            match weakest
                .filter(|&t| energies.len() > 1 && !self.is_detected(energies[t], present.noise_factor))
            {
                Some(superfluous) => {
                    present.at = self.likelihood.without(&present.at, superfluous);
                    present.unresolved.clear();
                }
                None => return self.list(present, &energies),
            }
        }
    }

    /// The state with one target more, if one is detected that can be told from the others.
    fn next(&mut self, present: &mut Resolved) -> Option<Resolved> {
        let targets = self.likelihood.targets(&present.at);
        let others = self.likelihood.others(&present.at);
        let map = (targets > 0)
            .then(|| self.maps.map(&present.at, &others, self.sharpness(&present.here, targets)));
        let places = &self.locator.grid.places;
        let peaks = match &map {
            Some(map) => places.peaks(map),
            None => places.peaks(self.locator.all_totals(self.survey)),
        };
        // What a peak may have between the points.
        let most = |value: f64| value * (1.0 + 2.0 * self.locator.grid.loss);
        let promising = |value: f64| {
            let noise = self.noise_factor(present.here.value + most(value), targets + 1);
            self.is_detected(most(value), noise)
        };
        let top = peaks.first().map_or(0.0, |peak| peak.1);
        let least = self.locator.grid.least_peak(top);
        let peaks: Vec<(usize, f64)> =
            peaks.into_iter().take(MOST_STARTS).filter(|peak| promising(peak.1)).collect();
        // What is left may be due to a target in the wrong place.
        if !peaks.is_empty() && !present.searched_anew {
            if let Some(better) = self.improved(present) {
                return Some(better);
            }
            present.searched_anew = true;
        }
        let started = |this: &Self, &(point, _): &(usize, f64)| {
            let found = this.locator.grid.places.coordinates(point);
            if targets > 0 {
                return this.climb_beside(&others, found);
            }
            let offsets_m = this.clocks().map(|clocks| clocks.start_m(point).clone());
            let start = DVector::from_iterator(
                found.len() + this.likelihood.offset_count(),
                found.iter().chain(offsets_m.iter().flatten()).copied(),
            );
            this.climb_roughly(start).0
        };
        let high = peaks.iter().take_while(|peak| peak.1 >= least).count();
        let mut starts: Vec<Summit> = peaks[..high].iter().map(|peak| started(self, peak)).collect();
        starts.sort_by(|a, b| b.value.total_cmp(&a.value));
        let mut lower = peaks[high..].iter();
        let mut starts = starts.into_iter();
        loop {
            let start = starts.next().or_else(|| lower.next().map(|peak| started(self, peak)))?;
            let start = if targets > 0 { self.likelihood.with(&present.at, &start.at) } else { start.at };
            let Some(next) = self.apart(self.climb_roughly(start)) else { continue };
            if !self.is_detected(next.value - present.value, next.noise_factor) {
                continue;
            }
            match self.unresolved_pair(&next) {
                None => return Some(next),
                // Another peak may be a target of its own.
                Some(pair) => present.unresolved = self.nearest(present, &next, pair),
            }
        }
    }

    /// A state whose targets are all in the searched area and apart from each other.
    fn apart(&self, (summit, mut here): (Summit, Expansion)) -> Option<Resolved> {
        let coordinates = self.likelihood.targets(&summit.at) * self.axes();
        let mut targets = summit.at.as_slice()[..coordinates].chunks(self.axes());
        let inside = targets.all(|at| self.locator.searched(&DVector::from_row_slice(at)));
        let least_m = SAME_PLACE * self.locator.resolution_m;
        let mut pairs = self.pairs(&summit.at);
        let apart = pairs.all(|pair| self.difference(&summit.at, pair).norm() > least_m);
        if !summit.value.is_finite() || !inside || !apart {
            return None;
        }
        // What is left of the ascent does not matter here.
        if let Some(clocks) = self.clocks() {
            let prior = clocks.expansion(&summit.at);
            here.value -= prior.value;
            here.information -= prior.information;
        }
        let noise_factor = self.noise_factor(here.value, self.likelihood.targets(&summit.at));
        Some(Resolved {
            at: summit.at,
            value: summit.value,
            here,
            noise_factor,
            unresolved: Vec::new(),
            searched_anew: false,
        })
    }

    fn resolved(&self, at: DVector<f64>) -> Resolved {
        let here = self.likelihood.expand(&at);
        let targets = self.likelihood.targets(&at);
        let offsets_m = &at.as_slice()[targets * self.axes()..];
        let prior = self.clocks().map_or(0.0, |clocks| clocks.log_prior(offsets_m));
        let noise_factor = self.noise_factor(here.value, targets);
        Resolved {
            value: here.value + prior,
            at,
            here,
            noise_factor,
            unresolved: Vec::new(),
            searched_anew: false,
        }
    }

    /// The state without targets, which says nothing about the clocks.
    fn empty(&self) -> Resolved {
        let offsets = self.likelihood.offset_count();
        let (at, here) = (DVector::zeros(offsets), Expansion::zeros(offsets));
        Resolved { at, value: 0.0, here, noise_factor: 1.0, unresolved: Vec::new(), searched_anew: false }
    }

    fn longest_m(&self, count: usize) -> DVector<f64> {
        DVector::repeat(count, self.locator.longest_step_m())
    }

    fn climb(&self, start: DVector<f64>) -> Summit {
        let longest = self.longest_m(start.len());
        climb(start, &longest, |state| self.expand(state))
    }

    fn climb_roughly(&self, start: DVector<f64>) -> (Summit, Expansion) {
        let longest = self.longest_m(start.len());
        climb_roughly(ROUGH_GAIN, start, &longest, |state| self.expand(state))
    }

    /// One target beside others that stay.
    fn climb_beside(&self, others: &[OthersNode], start: DVector<f64>) -> Summit {
        let longest = self.longest_m(start.len());
        let expand = |at: &DVector<f64>| self.likelihood.expand_beside(others, &self.locator.position_m(at));
        climb_roughly(ROUGH_GAIN, start, &longest, expand).0
    }

    fn expand(&self, state: &DVector<f64>) -> Expansion {
        let mut total = self.likelihood.expand(state);
        if let Some(clocks) = self.clocks() {
            clocks.add_to(&mut total, state);
        }
        total
    }

    /// Every target searched anew against the others where their map has its highest value elsewhere, as long as that helps; none
    /// where it does not.
    fn improved(&mut self, present: &Resolved) -> Option<Resolved> {
        let targets = self.likelihood.targets(&present.at);
        if targets < 2 {
            return None;
        }
        let mut found = None;
        for _ in 0..MOST_ROUNDS {
            let best = found.as_ref().unwrap_or(present);
            let energies = losses(&self.likelihood.others(&best.at));
            let sharpness = self.sharpness(&best.here, targets);
            let mut better = None;
            for (t, energy) in energies.iter().enumerate() {
                let rest = self.likelihood.without(&best.at, t);
                let others = self.likelihood.others(&rest);
                let values = self.maps.map(&rest, &others, sharpness);
                let Some(top) = (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b])) else {
                    continue;
                };
                let places = &self.locator.grid.places;
                let found = places.coordinates(top);
                let away = &found - best.at.rows(t * self.axes(), self.axes());
                if away.iter().zip(&places.step).all(|(away, step)| away.abs() <= ANEW_STEPS * step) {
                    continue;
                }
                let alone = self.climb_beside(&others, found);
                if alone.value < ANEW_SHARE * energy {
                    continue;
                }
                let tried = self.apart(self.climb_roughly(self.likelihood.with(&rest, &alone.at)));
                better = tried.filter(|found| found.value > best.value + BETTER * (1.0 + best.value.abs()));
                if better.is_some() {
                    break;
                }
            }
            if better.is_none() {
                break;
            }
            found = better;
        }
        found.map(|found| Resolved { searched_anew: true, ..found })
    }

    /// The largest information on one of some targets.
    fn sharpness(&self, here: &Expansion, targets: usize) -> f64 {
        let axes = self.axes();
        let trace = |t: usize| here.information.view((t * axes, t * axes), (axes, axes)).trace();
        (0..targets).map(trace).fold(0.0, f64::max)
    }

    /// Log-likelihood that each target adds, the others free to move.
    fn energies(&self, present: &Resolved) -> Vec<f64> {
        let targets = self.likelihood.targets(&present.at);
        if targets == 1 {
            return vec![present.value];
        }
        let energy = |t: usize| {
            let rest = self.likelihood.without(&present.at, t);
            let here = self.expand(&rest);
            // What one step gains; where that is much, it is not enough.
            let step = here.information.cholesky().map(|factor| factor.solve(&here.gradient));
            let gained = step.map_or(f64::INFINITY, |step| 0.5 * step.dot(&here.gradient));
            let energy = present.value - here.value;
            if gained < MOVED_SHARE * energy {
                energy - gained
            } else {
                present.value - self.climb(rest).value
            }
        };
        (0..targets).map(energy).collect()
    }

    fn probability(&self, energy: f64, noise_factor: f64) -> f64 {
        let (locator, gains) = (self.locator, self.survey.evidence.spectra());
        let offsets = locator.offset_sizes(self.clocks());
        locator.region.false_alarm_probability(energy / noise_factor, gains, None, &offsets)
    }

    fn is_detected(&self, energy: f64, noise_factor: f64) -> bool {
        self.probability(energy, noise_factor) <= self.locator.settings.false_alarm_probability
    }

    /// Ratio of the noise power in the residual of some targets that explain so much to the one that the nodes reported.
    fn noise_factor(&self, explained: f64, targets: usize) -> f64 {
        let (energy, entries) = self.energy;
        let gains = self.survey.evidence.spectra() * targets;
        let unknowns = targets * self.axes() + self.likelihood.offset_count();
        noise_factor(energy - explained, entries as f64 - gains as f64 - 0.5 * unknowns as f64)
    }

    /// Covariance of the whole state, given the prior of the clocks.
    fn covariance(&self, present: &Resolved) -> Option<DMatrix<f64>> {
        let mut information = &present.here.information / present.noise_factor;
        if let Some(clocks) = self.clocks() {
            information += clocks.expansion(&present.at).information;
        }
        let covariance = information.cholesky()?.inverse();
        covariance.iter().all(|value| value.is_finite()).then_some(covariance)
    }

    /// Two targets that cannot be told apart, if there are such.
    fn unresolved_pair(&self, next: &Resolved) -> Option<[usize; 2]> {
        let axes = self.axes();
        let mut pairs = self.pairs(&next.at);
        let Some(covariance) = self.covariance(next) else {
            // Two atoms are the same: those of the nearest pair.
            let distance = |[s, t]: &[usize; 2]| self.difference(&next.at, [*s, *t]).norm();
            return pairs.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        };
        let block = |s: usize, t: usize| covariance.view((s * axes, t * axes), (axes, axes)).into_owned();
        pairs.find(|&[s, t]| {
            let difference = self.difference(&next.at, [s, t]);
            let spread = block(s, s) + block(t, t) - block(s, t) - block(t, s);
            let whitened = spread.cholesky().map(|factor| difference.dot(&factor.solve(&difference)));
            whitened.is_none_or(|distance| distance < LEAST_SEPARATION)
        })
    }

    fn pairs(&self, state: &DVector<f64>) -> impl Iterator<Item = [usize; 2]> + use<> {
        let targets = self.likelihood.targets(state);
        (0..targets).flat_map(move |s| (s + 1..targets).map(move |t| [s, t]))
    }

    fn difference(&self, state: &DVector<f64>, [s, t]: [usize; 2]) -> DVector<f64> {
        let axes = self.axes();
        state.rows(s * axes, axes) - state.rows(t * axes, axes)
    }

    /// The target of `present` that is nearest to a pair of `next`.
    fn nearest(&self, present: &Resolved, next: &Resolved, [s, t]: [usize; 2]) -> Vec<usize> {
        let axes = self.axes();
        let middle = (next.at.rows(s * axes, axes) + next.at.rows(t * axes, axes)) * 0.5;
        let distance = |target: &usize| (present.at.rows(target * axes, axes) - &middle).norm();
        let targets = 0..self.likelihood.targets(&present.at);
        targets.min_by(|a, b| distance(a).total_cmp(&distance(b))).into_iter().collect()
    }

    fn list(&self, present: Resolved, energies: &[f64]) -> Result<TargetList, Missed> {
        let (count, axes) = (energies.len(), self.axes());
        let covariance = self.covariance(&present).ok_or(Missed::Unobservable)?;
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| energies[b].total_cmp(&energies[a]));
        let positions_m = self.likelihood.positions_m(&present.at);
        let target = |&t: &usize| LocatedTarget {
            position_m: positions_m[t],
            energy: energies[t],
            false_alarm_probability: self.probability(energies[t], present.noise_factor),
            unresolved: present.unresolved.contains(&t),
        };
        let place = |i: usize| order[i / axes] * axes + i % axes;
        let clocks = self.clocks().and_then(|clocks| {
            let Expansion { gradient, information, .. } = &present.here;
            let likelihood = (&(gradient / present.noise_factor), &(information / present.noise_factor));
            let mut update = clocks.update(&present.at, likelihood, &covariance)?;
            update.at_edge = self.locator.at_edge(&update);
            Some(update)
        });
        Ok(TargetList {
            targets: order.iter().map(target).collect(),
            covariance_m2: DMatrix::from_fn(count * axes, count * axes, |i, j| {
                covariance[(place(i), place(j))]
            }),
            log_likelihood: present.here.value,
            clocks,
        })
    }
}
