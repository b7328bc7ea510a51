//! Several targets in one frame: how many there are, where, and how certain that is.
//!
//! The likelihood is that of the direct method with T positions: on every path the mean is a sum of T atoms with free gains
//! ([`moments`](super::moments)). Targets are born one at a time. The first comes from the survey; every further one from the
//! map of the residual, in which the present targets are projected out of the data and of each candidate, and the energy is
//! divided by what is left of the candidate. From its best peaks all positions climb together. A target is accepted if noise alone
//! would raise the likelihood by as much, anywhere in the area, with at most the allowed false-alarm probability: the
//! residual of a path is noise where all targets are accounted for, so that the law of the first detection holds. At last every
//! target is searched anew against the others, and one whose absence costs too little is removed.
//!
//! Two targets whose distance is within its own uncertainty cannot be told apart; they are reported as one that is unresolved.
//! Only spectra carry several targets: a block holds the echoes about one delay.

use model::Point;
use nalgebra::{DMatrix, DVector};
use num_complex::Complex64;

use super::clocks::{ClockUpdate, SurveyClocks};
use super::coarse::energy;
use super::evidence::{Evidence, NodeEvidence};
use super::joint::{JointLikelihood, PresentNode};
use super::locate::{DirectLocator, Missed, Survey, noise_factor};
use super::moments::inner;
use crate::ascent::{Expansion, Summit, climb};

/// Ascents from the map of the first target, and from that of every further one.
const FIRST_STARTS: usize = 4;
const LATER_STARTS: usize = 3;
/// Rounds in which every target is searched anew.
const MOST_ROUNDS: usize = 3;
/// A path is left out at candidates of which less than this share is left.
const LEAST_LEFT: f64 = 0.05;
/// Two targets are one if their distance, squared, in units of its variance is below this.
const LEAST_SEPARATION: f64 = 9.0;
/// Targets closer than this share of the resolution have fallen together: their atoms are the same to rounding.
const SAME_PLACE: f64 = 1e-3;
/// A larger relative gain of the likelihood is an improvement.
const BETTER: f64 = 1e-9;
/// Largest number of targets of a frame.
pub const MOST_TARGETS: usize = 16;

/// One of several targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocatedTarget {
    /// Its position, metres.
    pub position_m: Point,
    /// What the log-likelihood ratio of the frame loses without it.
    pub energy: f64,
    /// Probability that noise alone has this energy.
    pub false_alarm_probability: f64,
    /// Whether there may be two targets here that cannot be told apart.
    pub unresolved: bool,
}

/// The targets of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetList {
    /// Strongest first; empty where none is detected.
    pub targets: Vec<LocatedTarget>,
    /// Covariance of the free coordinates of all of them, in their order.
    pub covariance_m2: DMatrix<f64>,
    /// Log-likelihood ratio of the targets together to noise alone.
    pub log_likelihood: f64,
    /// What the frame says about the clocks, the positions of all targets marginalised; none where clocks are trusted or there
    /// is no target.
    pub clocks: Option<ClockUpdate>,
}

impl TargetList {
    /// Number of free coordinates of a target; 0 without targets.
    pub fn axes(&self) -> usize {
        self.covariance_m2.nrows() / self.targets.len().max(1)
    }

    /// Covariance of the free coordinates of one target; none without such a target.
    pub fn covariance_of_m2(&self, target: usize) -> Option<DMatrix<f64>> {
        let axes = self.axes();
        let own = || self.covariance_m2.view((target * axes, target * axes), (axes, axes)).into_owned();
        (target < self.targets.len()).then(own)
    }
}

/// The joint likelihood of a survey, with the prior of its clocks.
struct SeveralSearch<'a> {
    locator: &'a DirectLocator,
    survey: &'a Survey,
    likelihood: JointLikelihood<'a>,
}

/// The accepted targets.
struct Accepted {
    summit: Summit,
    /// Those that may be two.
    unresolved: Vec<usize>,
}

impl DirectLocator {
    /// The targets of a survey, at most `most` of them. A frame without a target gives an empty list.
    pub fn locate_several(&self, survey: &Survey, most: usize) -> Result<TargetList, Missed> {
        if !self.fits(survey) || survey.evidence.spectra() == 0 {
            return Err(Missed::NoEvidence);
        }
        let likelihood = JointLikelihood {
            layout: self.scene.layout(),
            evidence: &survey.evidence,
            offsets: survey.clocks.is_some(),
        };
        let search = SeveralSearch { locator: self, survey, likelihood };
        let accepted = search.run(most.min(MOST_TARGETS));
        search.list(accepted)
    }
}

impl DirectLocator {
    /// The exact bound on the free coordinates of several targets together, in their order, from echoes without noise: the gains of
    /// all paths are unknown, clocks known. None where the positions are not determined.
    pub fn joint_bound_m2(&self, noiseless: &Evidence, positions_m: &[Point]) -> Option<DMatrix<f64>> {
        if positions_m.is_empty() || !noiseless.is_like(&self.evidence()) {
            return None;
        }
        let layout = self.scene.layout();
        let likelihood = JointLikelihood { layout, evidence: noiseless, offsets: false };
        let coordinates: Vec<f64> = positions_m
            .iter()
            .flat_map(|p| layout.coordinates(p).iter().copied().collect::<Vec<_>>())
            .collect();
        let information = likelihood.expand(&DVector::from_vec(coordinates)).information;
        information.cholesky().map(|factor| factor.inverse())
    }
}

impl SeveralSearch<'_> {
    fn axes(&self) -> usize {
        self.locator.grid.places.dimensions()
    }

    fn clocks(&self) -> Option<&SurveyClocks> {
        self.survey.clocks.as_ref()
    }

    fn run(&self, most: usize) -> Accepted {
        let offsets = self.clocks().map_or(0, SurveyClocks::nodes);
        let none = Summit { at: DVector::zeros(offsets), value: 0.0 };
        let mut accepted = Accepted { summit: none, unresolved: Vec::new() };
        while self.likelihood.targets(&accepted.summit.at) < most {
            let Some(next) = self.next(&mut accepted) else { break };
            accepted = Accepted { summit: next, unresolved: Vec::new() };
        }
        self.without_superfluous(accepted)
    }

    /// The state with one target more, if one is detected that can be told from the others.
    fn next(&self, accepted: &mut Accepted) -> Option<Summit> {
        let present = &accepted.summit;
        for born in self.born(&present.at) {
            let next = self.improved(born);
            if !self.is_detected(next.value - present.value, self.noise_factor(&next)) {
                break;
            }
            match self.unresolved_pair(&next) {
                None => return Some(next),
                // Another peak may be a target of its own.
                Some(pair) => accepted.unresolved = self.nearest(present, &next, pair),
            }
        }
        None
    }

    /// The states with one target more, highest first.
    fn born(&self, state: &DVector<f64>) -> Vec<Summit> {
        let places = &self.locator.grid.places;
        let targets = self.likelihood.targets(state);
        let (values, starts) = match targets {
            0 => (None, FIRST_STARTS),
            _ => {
                let nodes = self.likelihood.present(state);
                (Some(residual_map(self.locator, self.survey, &nodes)), LATER_STARTS)
            }
        };
        let peaks = places.peaks(values.as_ref().unwrap_or(&self.survey.values.total));
        let summits = peaks.into_iter().take(starts).map(|(point, _)| {
            let coordinates = targets * self.axes();
            let offsets_m: Vec<f64> = match self.clocks() {
                Some(clocks) if targets == 0 => clocks.start_m(point).iter().copied().collect(),
                _ => state.iter().skip(coordinates).copied().collect(),
            };
            let found = places.coordinates(point);
            let start = state.iter().take(coordinates).chain(found.iter()).copied().chain(offsets_m);
            self.climb(DVector::from_vec(start.collect()))
        });
        self.inside(summits)
    }

    /// Those of some states whose targets are all in the searched area and apart from each other, highest first.
    fn inside(&self, summits: impl Iterator<Item = Summit>) -> Vec<Summit> {
        let inside = |summit: &Summit| {
            let coordinates = self.likelihood.targets(&summit.at) * self.axes();
            let mut targets = summit.at.as_slice()[..coordinates].chunks(self.axes());
            summit.value.is_finite() && targets.all(|at| self.locator.searched(&DVector::from_row_slice(at)))
        };
        let least_m = SAME_PLACE * self.locator.resolution_m;
        let apart = |summit: &Summit| {
            let mut pairs = self.pairs(&summit.at);
            pairs.all(|pair| self.difference(&summit.at, pair).norm() > least_m)
        };
        let mut kept: Vec<Summit> = summits.filter(|summit| inside(summit) && apart(summit)).collect();
        kept.sort_by(|a, b| b.value.total_cmp(&a.value));
        kept
    }

    fn climb(&self, start: DVector<f64>) -> Summit {
        let longest = DVector::repeat(start.len(), self.locator.longest_step_m());
        climb(start, &longest, |state| self.expand(state))
    }

    fn expand(&self, state: &DVector<f64>) -> Expansion {
        let mut total = self.likelihood.expand(state);
        if let Some(clocks) = self.clocks() {
            total += clocks.expansion(state);
        }
        total
    }

    /// Every target searched anew against the others, as long as that helps.
    fn improved(&self, mut best: Summit) -> Summit {
        let targets = self.likelihood.targets(&best.at);
        if targets < 2 {
            return best;
        }
        for _ in 0..MOST_ROUNDS {
            let tried = (0..targets).flat_map(|t| self.born(&self.without(&best.at, t)));
            let highest = tried.max_by(|a, b| a.value.total_cmp(&b.value));
            match highest.filter(|found| found.value > best.value + BETTER * (1.0 + best.value.abs())) {
                Some(better) => best = better,
                None => break,
            }
        }
        best
    }

    /// A state without one of its targets.
    fn without(&self, state: &DVector<f64>, target: usize) -> DVector<f64> {
        let place = target * self.axes()..(target + 1) * self.axes();
        let kept = state.iter().enumerate().filter(|(i, _)| !place.contains(i)).map(|(_, value)| *value);
        DVector::from_vec(kept.collect())
    }

    /// Log-likelihood that each target adds, the others free to move.
    fn energies(&self, summit: &Summit) -> Vec<f64> {
        let targets = self.likelihood.targets(&summit.at);
        if targets == 1 {
            return vec![summit.value];
        }
        let less = |t: usize| summit.value - self.climb(self.without(&summit.at, t)).value;
        (0..targets).map(less).collect()
    }

    /// Removes what no longer earns its place.
    fn without_superfluous(&self, mut accepted: Accepted) -> Accepted {
        loop {
            let summit = &accepted.summit;
            if self.likelihood.targets(&summit.at) < 2 {
                return accepted;
            }
            let energies = self.energies(summit).into_iter().enumerate();
            let Some((weakest, energy)) = energies.min_by(|a, b| a.1.total_cmp(&b.1)) else {
                return accepted;
            };
            if self.is_detected(energy, self.noise_factor(summit)) {
                return accepted;
            }
            accepted.summit = self.climb(self.without(&summit.at, weakest));
            accepted.unresolved.clear();
        }
    }

    fn probability(&self, energy: f64, noise_factor: f64) -> f64 {
        let (locator, gains) = (self.locator, self.survey.evidence.spectra());
        let offsets = locator.offset_sizes(self.clocks());
        locator.region.false_alarm_probability(energy / noise_factor, gains, None, &offsets)
    }

    fn is_detected(&self, energy: f64, noise_factor: f64) -> bool {
        self.probability(energy, noise_factor) <= self.locator.settings.false_alarm_probability
    }

    /// Ratio of the noise power in the residual of a state to the one that the nodes reported.
    fn noise_factor(&self, summit: &Summit) -> f64 {
        let evidence = &self.survey.evidence;
        let (energy, entries) = evidence.spectral_energy();
        let gains = evidence.spectra() * self.likelihood.targets(&summit.at);
        let freedom = entries as f64 - gains as f64 - 0.5 * summit.at.len() as f64;
        noise_factor(energy - self.likelihood.expand(&summit.at).value, freedom)
    }

    /// Covariance of the free coordinates of all targets.
    fn covariance_m2(&self, summit: &Summit) -> Option<DMatrix<f64>> {
        let coordinates = self.likelihood.targets(&summit.at) * self.axes();
        let whole = self.expand(&summit.at).information.cholesky()?.inverse();
        let covariance = whole.view((0, 0), (coordinates, coordinates)) * self.noise_factor(summit);
        covariance.iter().all(|value| value.is_finite()).then_some(covariance)
    }

    /// Two targets that cannot be told apart, if there are such.
    fn unresolved_pair(&self, summit: &Summit) -> Option<[usize; 2]> {
        let axes = self.axes();
        let mut pairs = self.pairs(&summit.at);
        let Some(covariance) = self.covariance_m2(summit) else {
            // Two atoms are the same: those of the nearest pair.
            let distance = |[s, t]: &[usize; 2]| self.difference(&summit.at, [*s, *t]).norm();
            return pairs.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        };
        let block = |s: usize, t: usize| covariance.view((s * axes, t * axes), (axes, axes)).into_owned();
        pairs.find(|&[s, t]| {
            let difference = self.difference(&summit.at, [s, t]);
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
    fn nearest(&self, present: &Summit, next: &Summit, [s, t]: [usize; 2]) -> Vec<usize> {
        let axes = self.axes();
        let middle = (next.at.rows(s * axes, axes) + next.at.rows(t * axes, axes)) * 0.5;
        let distance = |target: &usize| (present.at.rows(target * axes, axes) - &middle).norm();
        let targets = 0..self.likelihood.targets(&present.at);
        targets.min_by(|a, b| distance(a).total_cmp(&distance(b))).into_iter().collect()
    }

    fn list(&self, Accepted { summit, unresolved }: Accepted) -> Result<TargetList, Missed> {
        let (count, axes) = (self.likelihood.targets(&summit.at), self.axes());
        if count == 0 {
            let covariance_m2 = DMatrix::zeros(0, 0);
            return Ok(TargetList { targets: Vec::new(), covariance_m2, log_likelihood: 0.0, clocks: None });
        }
        let covariance = self.covariance_m2(&summit).ok_or(Missed::Unobservable)?;
        let (energies, noise) = (self.energies(&summit), self.noise_factor(&summit));
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| energies[b].total_cmp(&energies[a]));
        let positions_m = self.likelihood.positions_m(&summit.at);
        let target = |&t: &usize| LocatedTarget {
            position_m: positions_m[t],
            energy: energies[t],
            false_alarm_probability: self.probability(energies[t], noise),
            unresolved: unresolved.contains(&t),
        };
        let place = |i: usize| order[i / axes] * axes + i % axes;
        Ok(TargetList {
            targets: order.iter().map(target).collect(),
            covariance_m2: DMatrix::from_fn(count * axes, count * axes, |i, j| {
                covariance[(place(i), place(j))]
            }),
            log_likelihood: self.likelihood.expand(&summit.at).value,
            clocks: self.clock_update(&summit),
        })
    }

    /// What the targets together say about the clocks, in units of the noise of the residual.
    fn clock_update(&self, summit: &Summit) -> Option<ClockUpdate> {
        let clocks = self.clocks()?;
        let noise = self.noise_factor(summit);
        let here = self.likelihood.expand(&summit.at);
        let (gradient, information) = (here.gradient / noise, here.information / noise);
        let whole = &information + clocks.expansion(&summit.at).information;
        let covariance = whole.cholesky()?.inverse();
        let mut update = clocks.update(&summit.at, (&gradient, &information), &covariance)?;
        update.at_edge = self.locator.at_edge(&update);
        Some(update)
    }
}

/// The likelihood of one target more on the grid, with the present ones taken out.
pub(super) fn residual_map(locator: &DirectLocator, survey: &Survey, nodes: &[PresentNode]) -> Vec<f64> {
    let (grid, scene) = (&locator.grid, &locator.scene);
    let mut values = vec![0.0; grid.points()];
    for node in nodes {
        let l = node.l;
        let untimed = |row: &Vec<Complex64>| -> Vec<Complex64> {
            match &node.turn {
                Some(turn) => row.iter().zip(turn).map(|(y, turn)| y * turn.conj()).collect(),
                None => row.clone(),
            }
        };
        let residual = NodeEvidence {
            spectrum: Some(node.rows.iter().map(untimed).collect()),
            ..survey.evidence.nodes[l].clone()
        };
        let beamed = grid.beamed(l, &residual);
        // Per beam and target: what they have in common.
        let shared: Vec<Vec<Complex64>> = grid
            .responses(l)
            .iter()
            .map(|beam| node.arrivals.iter().map(|arrival| inner(arrival, beam)).collect())
            .collect();
        for (point, value) in values.iter_mut().enumerate() {
            let beam = grid.beam_of(l, point);
            let (y_re, y_im) = &beamed.spectra[beam];
            let (w_re, w_im) = grid.atom(scene, point, l);
            for path in &node.paths {
                let own = scene.range(path.k);
                let Some(factor) = &path.factor else { continue };
                // <m_t, m> of every present target with the unit atom of the point.
                let along = path.streams.iter().zip(&shared[beam]).map(|(stream, shared)| {
                    let mut sum = Complex64::ZERO;
                    for (n, stream) in own.clone().zip(stream) {
                        let turned = match &node.turn {
                            Some(turn) => stream * turn[n].conj(),
                            None => *stream,
                        };
                        sum += turned * Complex64::new(f64::from(w_re[n]), f64::from(w_im[n]));
                    }
                    shared * sum.conj()
                });
                let along = DVector::from_iterator(path.streams.len(), along);
                let left = 1.0 - along.dotc(&factor.solve(&along)).re;
                if left > LEAST_LEFT {
                    let y = (&y_re[own.clone()], &y_im[own.clone()]);
                    *value += f64::from(energy(y, (&w_re[own.clone()], &w_im[own]))) / left;
                }
            }
        }
    }
    values
}
