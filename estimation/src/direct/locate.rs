//! The chain: coarse search, ascents from its peaks, exclusion of paths that disagree, detection, certainty.

mod search;

use std::fmt;

use model::{Point, System};
use nalgebra::{DMatrix, DVector};

use super::certainty::Certainty;
use super::clocks::{ClockUpdate, SurveyClocks};
use super::coarse::{CoarseGrid, TooLarge};
use super::detection::{SearchRegion, resolution_m};
use super::evidence::Evidence;
use super::likelihood::{TargetState, Term, terms, total};
use super::posterior::{Posterior, log_mean};
use super::scene::Scene;
use super::survey::Survey;
use super::timing::too_weak;
use crate::ascent::Expansion;
use crate::idle::Idle;
use crate::location::{Caution, Fault};
use search::{Candidate, SearchMemory};
pub(super) use search::{NEARLY_AS_HIGH, noise_factor};

/// A position whose log-likelihood ratio to the fix is below minus this is neglected.
pub(super) const NEGLIGIBLE: f64 = 18.0;

/// Settings of the direct method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DirectSettings {
    /// Allowed share of frames without a target in which one is detected. Default: 5e-4.
    pub false_alarm_probability: f64,
    /// Allowed share of fixes without a fault in which one is detected. Default: 5e-4.
    pub fault_probability: f64,
    /// Largest share of the paths that may be excluded. Default: one half.
    pub most_excluded_share: f64,
    /// A fix is doubtful where its false-alarm probability exceeds this share of the allowed one. Default: 0.02, one frame
    /// in 100 000 with the default false-alarm probability.
    pub doubt_share: f64,
    /// The same where the false-alarm probability is underestimated, because the best of many values was selected: of all
    /// delays by a node that delivers a block or a delay, of all velocities by a batch. Default: 1e-4.
    pub selected_doubt_share: f64,
    /// A fix is doubtful where the target is elsewhere with more than this probability. Default: 2e-3.
    pub doubt_probability: f64,
    /// Allowed share of fixes whose error exceeds the protection level. Default: 1e-3.
    pub integrity_risk: f64,
}

impl Default for DirectSettings {
    fn default() -> Self {
        Self {
            false_alarm_probability: 5e-4,
            fault_probability: 5e-4,
            most_excluded_share: 0.5,
            doubt_share: 0.02,
            selected_doubt_share: 1e-4,
            doubt_probability: 2e-3,
            integrity_risk: 1e-3,
        }
    }
}

/// Another possible position of the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AlternativePosition {
    /// The most probable point, metres.
    pub position_m: Point,
    /// Posterior probability that the target is within the resolution of this point.
    pub probability: f64,
}

/// Paths that contradict the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disagreement {
    /// The paths concerned.
    pub fault: Fault,
    /// Log-likelihood ratio of their own best position to the fix.
    pub loss: f64,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            Fault::Path { sensor, reflector } => format!("path (sensor {sensor}, reflector {reflector})"),
            fault => format!("paths with the {fault}"),
        };
        write!(f, "{what}: points elsewhere, likelihood ratio e^{:.0}", self.loss)
    }
}

/// A fix by the direct method from one frame.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectFix {
    /// The maximum of the likelihood, metres.
    pub position_m: Point,
    /// Second moment of the posterior about the fix, over the free coordinates.
    pub covariance_m2: DMatrix<f64>,
    /// Radius that contains the error with probability `1 - integrity_risk`, given one possible undetected fault; none
    /// where there is no such radius.
    pub protection_level_m: Option<f64>,
    /// Probability that noise alone reaches the likelihood of the fix.
    pub false_alarm_probability: f64,
    /// Excluded paths, in the order found.
    pub excluded: Vec<Disagreement>,
    /// Why the target may be elsewhere, or may not exist.
    pub doubts: Vec<Caution>,
    /// Other possible positions, most probable first.
    pub alternatives: Vec<AlternativePosition>,
    /// Number of paths in use.
    pub paths: usize,
    /// What the frame says about the clocks; none where they are trusted.
    pub clocks: Option<ClockUpdate>,
}

/// Why there is no direct fix.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum Missed {
    #[error("no path delivered anything")]
    NoEvidence,
    #[error("no target: noise alone looks like this with probability {probability:.1e}")]
    NoTarget { probability: f64 },
    #[error("the paths that came do not determine a position")]
    Unobservable,
}

/// The direct method for a system, with its tables.
#[derive(Debug, Clone)]
pub struct DirectLocator {
    pub(super) scene: Scene,
    pub(super) grid: CoarseGrid,
    pub(super) region: SearchRegion,
    pub(super) settings: DirectSettings,
    pub(super) resolution_m: f64,
    /// Root mean square width of the subcarriers of an IRS.
    pub(super) spread_rad_s: f64,
    memory: Idle<SearchMemory>,
}

impl DirectLocator {
    /// The locator of a system; an error where the coverage area is too large to search.
    pub fn new(system: &System, settings: DirectSettings) -> Result<Self, TooLarge> {
        let scene = Scene::new(system);
        let grid = CoarseGrid::new(&scene)?;
        let region = SearchRegion::new(&scene, &grid.places);
        let spread_rad_s = scene.layout().spread_rad_s();
        let resolution_m = resolution_m(system);
        Ok(Self { region, grid, scene, settings, resolution_m, spread_rad_s, memory: Idle::default() })
    }

    /// The system whose targets are located.
    pub fn system(&self) -> &System {
        self.scene.system()
    }

    /// Empty evidence of a frame.
    pub fn evidence(&self) -> Evidence {
        Evidence::of_layout(self.scene.layout())
    }

    /// The log-likelihood ratio of a target at a point; NaN for a survey of another system.
    pub fn log_likelihood(&self, survey: &Survey, point: Point) -> f64 {
        if self.fits(survey) { total(&self.terms(&survey.evidence, point.into())) } else { f64::NAN }
    }

    /// The position of the target, if one is detected.
    pub fn locate(&self, survey: &Survey) -> Result<DirectFix, Missed> {
        if !self.fits(survey) {
            return Err(Missed::NoEvidence);
        }
        let mut candidate = self.search(survey)?;
        let mut kept = None;
        let (mut excluded, mut stepped) = (Vec::new(), Vec::new());
        let terms = survey.evidence.terms();
        let most = (self.settings.most_excluded_share * terms as f64) as usize;
        loop {
            let survey = kept.as_ref().unwrap_or(survey);
            if let Some((l, wider)) = self.with_stepped_clock(survey, &candidate, &stepped)
                && let Ok(next) = self.search(&wider)
            {
                stepped.push(l);
                (candidate, kept) = (next, Some(wider));
                continue;
            }
            let Some(worst) = self.disagreeing(survey, self.state(&candidate.summit.at)) else { break };
            let mut less = survey.evidence.clone();
            less.remove(worst.fault);
            let removed = less.present_paths() < survey.evidence.present_paths();
            if !removed || less.terms().saturating_add(most) < terms {
                break;
            }
            let less = match &survey.clocks {
                Some(clocks) => self.timed_survey(less, clocks.clone()),
                None => self.survey(less),
            };
            let Ok(next) = self.search(&less) else { break };
            excluded.push(worst);
            (candidate, kept) = (next, Some(less));
        }
        let mut fix = self.fix(kept.as_ref().unwrap_or(survey), candidate, excluded)?;
        if let Some(clocks) = &mut fix.clocks {
            clocks.at_edge = self.at_edge(clocks);
            clocks.stepped = stepped;
        }
        Ok(fix)
    }

    /// Tests whether there is a target, and makes the fix.
    fn fix(
        &self,
        survey: &Survey,
        Candidate { summit, noise_factor }: Candidate,
        excluded: Vec<Disagreement>,
    ) -> Result<DirectFix, Missed> {
        let gains = survey.evidence.gains();
        let clocks = survey.clocks.as_ref();
        let value = summit.value / noise_factor;
        let probability = self.region.false_alarm_probability(value, gains, None, &self.offset_sizes(clocks));
        if probability > self.settings.false_alarm_probability {
            return Err(Missed::NoTarget { probability });
        }
        if !self.searched(&summit.at) {
            return Err(Missed::Unobservable);
        }
        let at = &summit.at;
        let position_m = self.position_m(at);
        let axes = self.grid.places.dimensions();
        let certainty = self.certainty(survey, at, noise_factor).ok_or(Missed::Unobservable)?;
        // Relative to the fix, with the prior of the clocks.
        let log_density = |state: &DVector<f64>| {
            let state = self.state(state);
            let density = certainty.hypotheses.log_density(&self.terms(&survey.evidence, state));
            let prior = clocks.map_or(0.0, |clocks| clocks.log_prior(state.offsets_m));
            density + prior - certainty.log_density - certainty.terms.prior.value
        };
        let posterior = if certainty.weak {
            Posterior::integrated(&certainty.position, |displacement| {
                log_density(&(at + certainty.followed(displacement)))
            })
        } else {
            Posterior::normal(&certainty.position)
        };
        let mut posterior = posterior.ok_or(Missed::Unobservable)?;
        let near = summit.value - NEGLIGIBLE * noise_factor;
        let total = self.totals_above(survey, near);
        self.look_around(
            &mut posterior,
            &at.rows(0, axes).into_owned(),
            |point| total[point] > near,
            |points| {
                if let Some(clocks) = clocks.filter(|clocks| !clocks.lags_m.is_empty()) {
                    return points
                        .iter()
                        .map(|&point| log_density(&self.start(point, Some(clocks))))
                        .collect();
                }
                let hypotheses = &certainty.hypotheses;
                let prior = hypotheses.prior();
                let mut logs = self.grid.log_likelihoods(&self.scene, &survey.evidence, hypotheses, points);
                let density = |of_point: &mut [f64]| {
                    of_point.iter_mut().zip(&prior).for_each(|(log, prior)| *log += prior);
                    log_mean(of_point) - certainty.log_density
                };
                logs.chunks_mut(hypotheses.count()).map(density).collect()
            },
        );
        let covariance_m2 = posterior.covariance();
        let places = &self.grid.places;
        let diagonal_m = (0..axes).map(|i| places.extent(i).powi(2)).sum::<f64>().sqrt();
        let deviation_m = covariance_m2.trace().sqrt();
        if !deviation_m.is_finite() || deviation_m > diagonal_m {
            return Err(Missed::Unobservable);
        }
        let widening = certainty.widening(&covariance_m2);
        let protection_level_m = certainty.terms.protection_level_m(
            &DMatrix::identity(axes, at.len()),
            widening,
            self.settings.integrity_risk,
        );
        let (elsewhere, alternatives) = self
            .elsewhere(&posterior, &at.rows(0, axes).into_owned(), &covariance_m2)
            .ok_or(Missed::Unobservable)?;
        Ok(DirectFix {
            position_m,
            covariance_m2,
            protection_level_m,
            false_alarm_probability: probability,
            excluded,
            doubts: self.doubts(elsewhere, probability, survey.evidence.is_selected()),
            alternatives,
            paths: survey.evidence.present_paths(),
            clocks: self.clock_update(survey, at, &certainty),
        })
    }

    /// The certainty of a fix at a state; none where some direction is not determined.
    fn certainty(&self, survey: &Survey, at: &DVector<f64>, noise_factor: f64) -> Option<Certainty> {
        let here = self.memory.with(|memory| {
            terms(&self.scene, &survey.evidence, self.state(at), true, &mut memory.expansions)
        });
        let prior = survey.clocks.as_ref().map_or(Expansion::zeros(at.len()), |clocks| clocks.expansion(at));
        Certainty::new(self, here, noise_factor, prior)
    }

    /// A node whose clock has stepped and not been seen to before, and the survey with that clock unknown.
    fn with_stepped_clock(
        &self,
        survey: &Survey,
        Candidate { summit, noise_factor }: &Candidate,
        before: &[usize],
    ) -> Option<(usize, Survey)> {
        survey.clocks.as_ref()?;
        let certainty = self.certainty(survey, &summit.at, *noise_factor)?;
        let update = self.clock_update(survey, &summit.at, &certainty)?;
        let l = self.stepped(survey, self.state(&summit.at), &update)?;
        if before.contains(&l) { None } else { Some((l, self.with_unknown_clock(survey, l)?)) }
    }

    /// What a fix says about the clocks.
    fn clock_update(&self, survey: &Survey, at: &DVector<f64>, certainty: &Certainty) -> Option<ClockUpdate> {
        let (gradient, information) = certainty.terms.likelihood();
        let covariance = &certainty.peak.covariance;
        let mut update = survey.clocks.as_ref()?.update(at, (&gradient, &information), covariance)?;
        update.weak = too_weak(&certainty.terms.terms, self.scene.irs_count());
        Some(update)
    }

    /// Where an ascent from a grid point begins.
    fn start(&self, point: usize, clocks: Option<&SurveyClocks>) -> DVector<f64> {
        let at = self.grid.places.coordinates(point);
        let Some(clocks) = clocks else { return at };
        let offsets_m = clocks.start_m(point);
        DVector::from_iterator(at.len() + offsets_m.len(), at.iter().chain(offsets_m.iter()).copied())
    }

    /// The target of a state.
    fn state<'a>(&self, at: &'a DVector<f64>) -> TargetState<'a> {
        let axes = self.grid.places.dimensions();
        TargetState { position_m: self.position_m(at), offsets_m: &at.as_slice()[axes..] }
    }

    /// Doubts about a fix, from the probability that the target is elsewhere and the false-alarm probability; `selected` is
    /// whether the best of many delays or velocities was selected.
    pub(crate) fn doubts(&self, elsewhere: f64, false_alarm: f64, selected: bool) -> Vec<Caution> {
        let DirectSettings { doubt_probability, false_alarm_probability, .. } = self.settings;
        let doubt_share =
            if selected { self.settings.selected_doubt_share } else { self.settings.doubt_share };
        let all = [
            (elsewhere > doubt_probability, Caution::Ambiguous),
            (false_alarm > doubt_share * false_alarm_probability, Caution::BarelyDetected),
        ];
        all.into_iter().filter_map(|(applies, caution)| applies.then_some(caution)).collect()
    }

    fn terms(&self, evidence: &Evidence, state: TargetState) -> Vec<Term> {
        self.memory.with(|memory| terms(&self.scene, evidence, state, false, &mut memory.values))
    }

    /// The position with these free coordinates.
    pub(super) fn position_m(&self, at: &DVector<f64>) -> Point {
        self.scene.layout().position_m(at)
    }

    /// Longest step of an ascent.
    pub(super) fn longest_step_m(&self) -> f64 {
        0.25 * self.resolution_m
    }

    /// Whether a place is inside the grid or at most one step outside.
    pub(super) fn searched(&self, at: &DVector<f64>) -> bool {
        self.grid.places.holds(at, 1.0)
    }

    /// The loss from which on a path or node disagrees.
    ///
    /// The loss of a path without a fault is half a chi-square variable of a few degrees of freedom. A path of noise alone
    /// has its peak anywhere, and over n resolution cells exceeds t with probability n e^-t. The threshold is the larger of
    /// the two.
    pub(super) fn least_loss(&self, evidence: &Evidence) -> f64 {
        let places = &self.grid.places;
        let cells: f64 = (0..places.dimensions()).map(|i| places.extent(i) / self.resolution_m).product();
        (cells.max(1.0) * evidence.terms() as f64 / self.settings.fault_probability).ln()
    }

    /// The path or sensing node with the largest loss at the fix compared with its own best position, if that is significant.
    /// A path or node whose highest value is below the threshold has no such loss: terms of spectra are not negative.
    fn disagreeing(&self, survey: &Survey, at: TargetState) -> Option<Disagreement> {
        let (evidence, values) = (&survey.evidence, self.searched_values(survey));
        let count = self.scene.irs_count();
        let mut here = vec![f64::INFINITY; count * count];
        let mut sensor_here = vec![0.0; count];
        for term in self.terms(evidence, at) {
            sensor_here[term.sensor] += term.value();
            if term.reflector < count {
                here[term.sensor * count + term.reflector] = term.value();
            }
        }
        let paths = (0..count * count).map(|path| Disagreement {
            fault: Fault::Path { sensor: path / count, reflector: path % count },
            loss: values.highest[path] - here[path],
        });
        let sensors = (0..count).map(|node| Disagreement {
            fault: Fault::SensorDelays { node },
            loss: values.highest_sensor[node] - sensor_here[node],
        });
        let threshold = self.least_loss(evidence);
        // The fault is that of the whole node where all of its paths disagree.
        let worst = paths.chain(sensors).filter(|d| d.loss.is_finite() && d.loss > threshold);
        worst.max_by(|a, b| a.loss.total_cmp(&b.loss))
    }
}

#[cfg(test)]
mod tests;
