//! The chain: search, climb, detect, take out what disagrees, say how sure.

use std::fmt;

use model::{Point, System};
use nalgebra::{Matrix2, Vector2};

use super::certainty::Certainty;
use super::coarse::{CoarseGrid, TooLarge, Values};
use super::detection::{Extent, resolution_m};
use super::evidence::Evidence;
use super::likelihood::{each_term, log_likelihood};
use super::newton::{Climb, Summit};
use super::posterior::{Part, Posterior, log_mean};
use super::scene::Scene;
use crate::location::{Caution, Fault};

/// Peaks of the grid that are climbed at most.
const MOST_CLIMBS: usize = 6;
/// Share of a peak that the grid may lose.
const GRID_LOSS: f64 = 0.06;
/// Peaks of the grid that are this much lower than the highest, as log-likelihood ratios, are climbed too.
const NEARLY_AS_HIGH: f64 = 4.6;
/// A place whose log-likelihood ratio against the fix is below minus this does not weigh.
pub(super) const NEGLIGIBLE: f64 = 18.0;
/// The noise is measured anew on at least this many complex entries.
const LEAST_FREEDOM: f64 = 100.0;
/// Less than this share of the noise that the nodes told is not believed.
const LEAST_NOISE: f64 = 0.5;

/// How to locate directly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DirectSettings {
    /// Share of frames without a target in which one is claimed. Default: 5e-4.
    pub false_alarm_probability: f64,
    /// Share of sound fixes in which a path is claimed to disagree. Default: 5e-4.
    pub fault_probability: f64,
    /// Largest share of the paths that may be taken out. Default: one half.
    pub most_excluded_share: f64,
    /// A fix is doubtful where noise alone looks like it more often than this share of the allowed false alarms.
    /// Default: 0.02, one frame in 100 000 with the default false-alarm probability.
    pub doubt_share: f64,
    /// The same where noise alone looks better than it is, because the best of many was selected: of all delays by a
    /// node that delivers a block or a delay, of all velocities by a batch. Default: 1e-4.
    pub selected_doubt_share: f64,
    /// A fix is doubtful where the target is elsewhere with more than this probability. Default: 2e-3.
    pub doubt_probability: f64,
    /// Share of fixes whose error may exceed the protection level. Default: 1e-3.
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

/// Another place where the target may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alternative {
    /// Where it is.
    pub position_m: Point,
    /// Posterior probability that the target is thereabouts.
    pub probability: f64,
}

/// Evidence that points elsewhere than the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disagreement {
    /// The paths concerned.
    pub fault: Fault,
    /// What they lose at the fix against their own best place, as a log-likelihood ratio.
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

/// A position found directly.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectFix {
    /// Where the likelihood is highest.
    pub position_m: Point,
    /// Covariance of its error: the posterior's, about the fix.
    pub covariance_m2: Matrix2<f64>,
    /// Radius that holds the error with probability `1 - integrity_risk`, given one possible undetected fault; none
    /// where there is no such radius.
    pub protection_level_m: Option<f64>,
    /// Log-likelihood ratio against noise alone.
    pub log_likelihood: f64,
    /// Probability that noise alone reaches it.
    pub false_alarm_probability: f64,
    /// What disagrees and was taken out, in the order found.
    pub excluded: Vec<Disagreement>,
    /// Posterior probability that the target is not where the covariance says.
    pub elsewhere_probability: f64,
    /// Why the fix is in doubt: the target may be elsewhere, or there may be none.
    pub doubts: Vec<Caution>,
    /// Where the target then may be, likeliest first.
    pub alternatives: Vec<Alternative>,
    /// Paths in use.
    pub paths: usize,
}

/// Why there is no direct fix.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Missed {
    /// There is nothing to locate from.
    #[error("no path delivered anything")]
    NoEvidence,
    /// What came can well be noise.
    #[error("no target: noise alone looks like this with probability {probability:.1e}")]
    NoTarget {
        /// Probability that noise alone reaches the highest peak.
        probability: f64,
    },
    /// The peak has no curvature in some direction.
    #[error("the paths that came do not determine a position")]
    Unobservable,
}

/// A frame's evidence with its likelihood on the coarse grid: what every fix from that frame begins with.
#[derive(Debug, Clone)]
pub struct Survey {
    pub(super) evidence: Evidence,
    pub(super) values: Values,
}

/// Locates directly; made once per system.
#[derive(Debug, Clone)]
pub struct DirectLocator {
    pub(super) scene: Scene,
    pub(super) grid: CoarseGrid,
    pub(super) extent: Extent,
    pub(super) settings: DirectSettings,
    pub(super) resolution_m: f64,
}

impl DirectLocator {
    /// The locator of a system; refuses a coverage area that is too large to search.
    pub fn new(system: &System, settings: DirectSettings) -> Result<Self, TooLarge> {
        let scene = Scene::new(system);
        let grid = CoarseGrid::new(&scene)?;
        let extent = Extent::new(&scene, grid.min_m, grid.max_m);
        Ok(Self { extent, grid, scene, settings, resolution_m: resolution_m(system) })
    }

    /// The system whose targets are located.
    pub fn system(&self) -> &System {
        self.scene.system()
    }

    /// Room for the evidence of a frame.
    pub fn evidence(&self) -> Evidence {
        Evidence::of_scene(&self.scene)
    }

    /// The log-likelihood ratio of a target at a point.
    pub fn log_likelihood(&self, survey: &Survey, point: Point) -> f64 {
        log_likelihood(&self.scene, &survey.evidence, point)
    }

    /// Looks at the whole area.
    pub fn survey(&self, evidence: Evidence) -> Survey {
        let values = self.grid.values(&self.scene, &evidence);
        Survey { evidence, values }
    }

    /// Where the target is, if there is one.
    pub fn locate(&self, survey: &Survey) -> Result<DirectFix, Missed> {
        let mut found = self.search(survey)?;
        let mut kept = None;
        let mut excluded = Vec::new();
        let terms = survey.evidence.terms();
        let most = (self.settings.most_excluded_share * terms as f64) as usize;
        loop {
            let survey = kept.as_ref().unwrap_or(survey);
            let Some(worst) = self.disagreeing(survey, found.summit.at) else { break };
            let mut less = survey.evidence.clone();
            less.remove(worst.fault);
            if less.terms() + most < terms {
                break;
            }
            let less = self.survey(less);
            let Ok(next) = self.search(&less) else { break };
            excluded.push(worst);
            (found, kept) = (next, Some(less));
        }
        self.judge(kept.as_ref().unwrap_or(survey), found, excluded)
    }

    /// Tests whether there is a target, and states the fix.
    fn judge(&self, survey: &Survey, found: Found, excluded: Vec<Disagreement>) -> Result<DirectFix, Missed> {
        let summit = &found.summit;
        let log_likelihood = summit.value / found.noise_factor;
        let probability = self.extent.false_alarm_probability(log_likelihood, found.gains, None);
        if probability > self.settings.false_alarm_probability {
            return Err(Missed::NoTarget { probability });
        }
        if !self.searched(summit.at) {
            return Err(Missed::Unobservable);
        }
        let at = summit.at;
        let parts = |point: &Point| self.parts(&survey.evidence, *point);
        let certainty =
            Certainty::new(self, &at, found.noise_factor, &self.climb().difference, &Matrix2::zeros(), parts)
                .ok_or(Missed::Unobservable)?;
        let log_density =
            |point: Point| certainty.hypotheses.log_density(&parts(&point)) - certainty.log_density;
        let posterior = if certainty.weak {
            Posterior::integrated(&certainty.peak, |displacement| log_density(at + displacement))
        } else {
            Posterior::normal(&certainty.peak)
        };
        let mut posterior = posterior.ok_or(Missed::Unobservable)?;
        let near = summit.value - NEGLIGIBLE * found.noise_factor;
        self.look_around(
            &mut posterior,
            at,
            |point| survey.values.total[point] > near,
            || {
                let hypotheses = &certainty.hypotheses;
                let prior = hypotheses.prior();
                let likelihoods = self.grid.log_likelihoods(&self.scene, &survey.evidence, hypotheses);
                let density = |own: &[f64]| {
                    let sums: Vec<f64> = prior.iter().zip(own).map(|(prior, own)| prior + own).collect();
                    log_mean(&sums) - certainty.log_density
                };
                likelihoods.chunks(hypotheses.count()).map(density).collect()
            },
        );
        let covariance_m2 = posterior.covariance();
        let diagonal_m = (self.grid.max_m - self.grid.min_m).norm();
        let deviation_m = covariance_m2.trace().sqrt();
        if !deviation_m.is_finite() || deviation_m > diagonal_m {
            return Err(Missed::Unobservable);
        }
        let widening = certainty.widening(&covariance_m2);
        let protection_level_m =
            certainty.protection_level_m(&Matrix2::identity(), widening, self.settings.integrity_risk);
        let elsewhere = self.elsewhere(&posterior, at, &covariance_m2).ok_or(Missed::Unobservable)?;
        Ok(DirectFix {
            position_m: at,
            covariance_m2,
            protection_level_m,
            log_likelihood,
            false_alarm_probability: probability,
            excluded,
            doubts: self.doubts(elsewhere.probability, probability, survey.evidence.is_selected()),
            elsewhere_probability: elsewhere.probability,
            alternatives: elsewhere.places,
            paths: found.paths,
        })
    }

    /// Why a fix is in doubt, from the probabilities that the target is elsewhere and that noise alone looks like this,
    /// and whether the best of many delays or velocities was selected.
    pub(super) fn doubts(&self, elsewhere: f64, false_alarm: f64, selected: bool) -> Vec<Caution> {
        let DirectSettings { doubt_probability, false_alarm_probability, .. } = self.settings;
        let doubt_share =
            if selected { self.settings.selected_doubt_share } else { self.settings.doubt_share };
        let all = [
            (elsewhere > doubt_probability, Caution::Ambiguous),
            (false_alarm > doubt_share * false_alarm_probability, Caution::BarelyDetected),
        ];
        all.into_iter().filter_map(|(applies, caution)| applies.then_some(caution)).collect()
    }

    /// The terms of the likelihood at a point.
    pub(super) fn parts(&self, evidence: &Evidence, point: Point) -> Vec<Part> {
        let mut parts = Vec::with_capacity(evidence.terms());
        each_term(&self.scene, evidence, point, |l, k, term| parts.push(Part::new(l, k, &term)));
        parts
    }

    fn search(&self, Survey { evidence, values }: &Survey) -> Result<Found, Missed> {
        if evidence.terms() == 0 {
            return Err(Missed::NoEvidence);
        }
        let peaks = self.grid.peaks(&values.total);
        let top = peaks.first().map_or(0.0, |peak| peak.1);
        // No lower peak of the grid can be the highest of the plane, or a rival of it.
        let least = top - GRID_LOSS * top.abs() - NEARLY_AS_HIGH;
        let objective = |point: &Vector2<f64>| log_likelihood(&self.scene, evidence, *point);
        let climb = self.climb();
        let mut summits: Vec<Summit<2>> = peaks
            .iter()
            .take(MOST_CLIMBS)
            .filter(|peak| peak.1 >= least)
            .map(|peak| climb.climb(self.grid.position_m(peak.0), objective))
            .collect();
        // A peak outside the area counts only where there is none inside.
        let rank = |summit: &Summit<2>| (self.searched(summit.at), summit.value);
        summits.sort_by(|a, b| {
            let ((a_inside, a_value), (b_inside, b_value)) = (rank(a), rank(b));
            b_inside.cmp(&a_inside).then(b_value.total_cmp(&a_value))
        });
        let summit = *summits.first().ok_or(Missed::Unobservable)?;
        let (paths, gains) = (evidence.present_paths(), evidence.gains());
        let (energy, entries) = evidence.spectral_energy();
        // Two real unknowns beside the gains.
        let freedom = entries as f64 - evidence.spectra() as f64 - 1.0;
        let noise_factor = noise_factor(energy - self.explained(evidence, summit.at), freedom);
        Ok(Found { summit, paths, gains, noise_factor })
    }

    /// Energy of the spectra that a target at a point explains, in units of the noise.
    fn explained(&self, evidence: &Evidence, at: Point) -> f64 {
        self.parts(evidence, at).iter().filter(|part| part.spectral).map(|part| part.value).sum()
    }

    pub(super) fn climb(&self) -> Climb<2> {
        Climb {
            difference: Vector2::repeat(1e-3 * self.resolution_m),
            longest: Vector2::repeat(0.25 * self.resolution_m),
        }
    }

    /// Whether a point is where the grid has looked, give or take a step.
    pub(super) fn searched(&self, point: Point) -> bool {
        let (low, high) = (self.grid.min_m - self.grid.step_m, self.grid.max_m + self.grid.step_m);
        (low.x..=high.x).contains(&point.x) && (low.y..=high.y).contains(&point.y)
    }

    /// The path or sensing node that loses most at the fix against its own best place, if that is more than
    /// chance.
    ///
    /// What is sound loses half a chi-square variable of the few parameters that it could choose for itself;
    /// a path that holds noise alone peaks anywhere, and over n resolution cells exceeds t with probability
    /// n e^-t. The larger bar is asked of both.
    fn disagreeing(&self, Survey { evidence, values }: &Survey, at: Point) -> Option<Disagreement> {
        let count = self.scene.irs_count();
        let mut here = vec![f64::INFINITY; count * count];
        let mut sensor_here = vec![0.0; count];
        each_term(&self.scene, evidence, at, |l, k, term| {
            sensor_here[l] += term.value;
            if k < count {
                here[l * count + k] = term.value;
            }
        });
        let paths = (0..count * count).map(|path| Disagreement {
            fault: Fault::Path { sensor: path / count, reflector: path % count },
            loss: values.highest[path] - here[path],
        });
        let sensors = (0..count).map(|node| Disagreement {
            fault: Fault::SensorDelays { node },
            loss: values.highest_sensor[node] - sensor_here[node],
        });
        let size = (self.grid.max_m - self.grid.min_m) / self.resolution_m;
        let cells = (size.x * size.y).max(1.0);
        let bar = (cells * evidence.terms() as f64 / self.settings.fault_probability).ln();
        // A node whose paths all lose is at fault as a whole; a path alone is the smaller claim.
        let worst = paths.chain(sensors).filter(|d| d.loss.is_finite() && d.loss > bar);
        worst.max_by(|a, b| a.loss.total_cmp(&b.loss))
    }
}

/// Noise power that a fix leaves over the one that the nodes told, from the energy that it leaves in the spectra and
/// their degrees of freedom.
///
/// A node measures its noise on what its own fit leaves, which is the best of many fits and so leaves a
/// little less than the noise; against a threshold in the far tail that is several times too many false
/// alarms. This fit is the best of a few.
pub(super) fn noise_factor(left: f64, freedom: f64) -> f64 {
    if freedom < LEAST_FREEDOM { 1.0 } else { (left / freedom).max(LEAST_NOISE) }
}

/// Outcome of one search.
struct Found {
    summit: Summit<2>,
    paths: usize,
    gains: usize,
    noise_factor: f64,
}
