//! Several frames at once: a target of constant velocity over the batch.
//!
//! The state is (x, y, v_x, v_y) at the middle of the batch; frame f looks at `p + v t_f`. Two ways to add
//! frames up: *non-coherent*, every frame with phases of its own, `sum_f sum_lk |z_f|^2`; *coherent*, the
//! phase of a path holds over the batch, `sum_lk |sum_f s_f z_f|^2 / sum_f s_f^2` with the strength s_f of
//! the illumination where the target then is. What carries no phase (blocks, delays, bearings) adds up
//! non-coherently in both.
//!
//! The information is that of the frames together: at the middle of the batch F frames are worth F times one,
//! and a velocity comes with it. The gain of coherence is in the threshold: noise against noise is one term
//! per path instead of F.
//!
//! Search: the frames' grids, each shifted by a velocity of a coarse set, are added; the best few peaks are
//! climbed in all four variables. Whether noise alone reaches as high is asked of a field over all four.

use model::Point;
use nalgebra::{Matrix4, Vector4};
use num_complex::Complex64;
use std::collections::BTreeMap;

use super::detection::Velocities;
use super::likelihood::{Term, each_term};
use super::locate::{DirectLocator, Missed, Survey, noise_factor};
use super::newton::{Climb, Summit};

/// Peaks that are climbed at most.
const MOST_CLIMBS: usize = 3;
/// A frame sees a target for certain where noise alone looks like it less often than this.
const CERTAIN: f64 = 1e-6;
/// What a sound frame may lose at a fix to its own best place, as a log-likelihood ratio: half a chi-square variable of
/// two degrees of freedom exceeds it once in 20 000 sound frames.
pub(crate) const MOST_LOSS: f64 = 10.0;
/// What a velocity that is not searched for may be off by.
const SLOWEST: f64 = 1e-6;
/// Velocities of the search per resolution covered in half a batch.
const VELOCITIES_PER_RESOLUTION: f64 = 2.0;

/// How frames add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combination {
    /// A path's phase holds over the batch.
    Coherent,
    /// Every frame has phases of its own.
    #[default]
    NonCoherent,
}

/// How to locate over several frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FramesSettings {
    /// How frames add up.
    pub combination: Combination,
    /// Fastest target that is searched for, metres per unit of the frames' times.
    pub most_speed: f64,
}

/// A position and a velocity.
#[derive(Debug, Clone, PartialEq)]
pub struct MovingFix {
    /// x, y, v_x, v_y at the time that was asked for.
    pub state: Vector4<f64>,
    /// Covariance of the state's error.
    pub covariance: Matrix4<f64>,
    /// Log-likelihood ratio against noise alone.
    pub log_likelihood: f64,
    /// Probability that noise alone reaches it.
    pub false_alarm_probability: f64,
}

/// Frames with their times against the middle of the batch.
struct Batch<'a> {
    frames: Vec<(f64, &'a Survey)>,
    combination: Combination,
}

/// The log-likelihood ratio of a state in two parts.
#[derive(Debug, Clone, Copy, Default)]
struct Terms {
    /// Energy of the spectra that the state explains, in units of the noise.
    spectral: f64,
    /// All else.
    plain: f64,
}

impl Terms {
    fn sum(self) -> f64 {
        self.spectral + self.plain
    }
}

impl DirectLocator {
    /// Where the target is at `time` and how it moves, from frames taken at the times given.
    pub fn locate_frames(
        &self,
        frames: &[(f64, &Survey)],
        time: f64,
        settings: &FramesSettings,
    ) -> Result<MovingFix, Missed> {
        let usable: Vec<(f64, &Survey)> =
            frames.iter().copied().filter(|(_, survey)| survey.evidence.terms() > 0).collect();
        let (first, last) =
            usable.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (t, _)| (a.min(*t), b.max(*t)));
        if usable.is_empty() || !(last - first).is_finite() {
            return Err(Missed::NoEvidence);
        }
        let (middle, half) = (0.5 * (first + last), 0.5 * (last - first));
        let frames = usable.into_iter().map(|(t, survey)| (t - middle, survey)).collect();
        let batch = Batch { frames, combination: settings.combination };
        let velocities = batch.velocities(half, settings.most_speed, self.resolution_m);
        let summit = self.search_batch(&batch, half, settings.most_speed, velocities)?;
        if batch.frames.iter().any(|(time, survey)| self.strays(survey, position_at(&summit.at, *time))) {
            return Err(Missed::Unobservable);
        }
        let noise_factor = batch.noise_factor(self, &summit.at);
        let log_likelihood = summit.value / noise_factor;
        let false_alarm_probability =
            self.extent.false_alarm_probability(log_likelihood, batch.gains(), velocities);
        if false_alarm_probability > self.settings.false_alarm_probability {
            return Err(Missed::NoTarget { probability: false_alarm_probability });
        }
        let mut information = summit.information / noise_factor;
        if half == 0.0 {
            // One frame says nothing of the velocity.
            information.m33 = 1.0 / settings.most_speed.max(SLOWEST).powi(2);
            information.m44 = information.m33;
        }
        let covariance = information.cholesky().ok_or(Missed::Unobservable)?.inverse();
        // From the middle of the batch to the time asked for.
        let mut carry = Matrix4::identity();
        (carry.m13, carry.m24) = (time - middle, time - middle);
        Ok(MovingFix {
            state: carry * summit.at,
            covariance: carry * covariance * carry.transpose(),
            log_likelihood,
            false_alarm_probability,
        })
    }

    /// Whether a frame that sees a target for certain sees it elsewhere: the target does not keep its velocity.
    fn strays(&self, survey: &Survey, at: Point) -> bool {
        let top = survey.values.total.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let chance = self.extent.false_alarm_probability(top, survey.evidence.gains(), None);
        chance < CERTAIN && top - self.log_likelihood(survey, at) > MOST_LOSS
    }

    /// Velocities to try: as many as move a target by half a resolution within half a batch.
    fn tried_velocities(&self, half: f64, most_speed: f64) -> Vec<Point> {
        let reach = (most_speed * half / self.resolution_m * VELOCITIES_PER_RESOLUTION).floor() as i64;
        if reach == 0 {
            return vec![Point::zeros()];
        }
        let step = most_speed / reach as f64;
        let grid = (-reach..=reach).flat_map(|i| (-reach..=reach).map(move |j| (i, j)));
        let grid = grid.map(|(i, j)| Point::new(i as f64, j as f64) * step);
        grid.filter(|v| v.norm() <= most_speed * 1.0001).collect()
    }

    fn search_batch(
        &self,
        batch: &Batch,
        half: f64,
        most_speed: f64,
        velocities: Option<Velocities>,
    ) -> Result<Summit<4>, Missed> {
        let mut starts: Vec<(Vector4<f64>, f64)> = Vec::new();
        for velocity in self.tried_velocities(half, most_speed) {
            let mut total = vec![0.0; self.grid.points()];
            for (time, survey) in &batch.frames {
                self.grid.add_shifted(&mut total, &survey.values.total, velocity * *time);
            }
            for (point, value) in self.grid.peaks(&total).into_iter().take(MOST_CLIMBS) {
                let at = self.grid.position_m(point);
                starts.push((Vector4::new(at.x, at.y, velocity.x, velocity.y), value));
            }
        }
        starts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let climb = self.climb();
        let (difference, longest) = (climb.difference.x, climb.longest.x);
        let half = half.max(1e-3);
        let climb = Climb {
            difference: Vector4::new(difference, difference, difference / half, difference / half),
            longest: Vector4::new(longest, longest, longest / half, longest / half),
        };
        let summits = starts
            .iter()
            .take(MOST_CLIMBS)
            .map(|(start, _)| climb.climb(*start, |state| batch.terms(self, state).sum()));
        let searched = |at: &Vector4<f64>| {
            let speed = at.z.hypot(at.w);
            self.searched(at.xy()) && velocities.is_none_or(|searched| speed <= searched.most_speed)
        };
        summits
            .filter(|summit| searched(&summit.at))
            .max_by(|a, b| a.value.total_cmp(&b.value))
            .ok_or(Missed::Unobservable)
    }
}

/// Where a target is at a time.
fn position_at(state: &Vector4<f64>, time: f64) -> Point {
    state.xy() + Point::new(state.z, state.w) * time
}

impl Batch<'_> {
    /// The velocities that a fix may have: the climb may leave those tried by a step. One moment tells of none.
    fn velocities(&self, half: f64, most_speed: f64, resolution_m: f64) -> Option<Velocities> {
        let count = self.frames.len() as f64;
        let mean = self.frames.iter().map(|(time, _)| time).sum::<f64>() / count;
        let square = self.frames.iter().map(|(time, _)| (time - mean).powi(2)).sum::<f64>() / count;
        let step = resolution_m / (VELOCITIES_PER_RESOLUTION * half);
        (half > 0.0).then(|| Velocities {
            most_speed: most_speed + step,
            time_spread: square.sqrt(),
            coherent: self.combination == Combination::Coherent,
        })
    }

    /// Gains that are fitted.
    fn gains(&self) -> usize {
        let plain = self.frames.iter().map(|(_, survey)| survey.evidence.gains() - survey.evidence.spectra());
        plain.sum::<usize>() + self.spectral_gains()
    }

    /// Those of spectra: one per path and frame, or one per path where its phase holds.
    fn spectral_gains(&self) -> usize {
        let spectra = self.frames.iter().map(|(_, survey)| survey.evidence.spectra());
        match self.combination {
            Combination::NonCoherent => spectra.sum(),
            Combination::Coherent => spectra.max().unwrap_or(0),
        }
    }

    /// As for a single frame, over all of them.
    fn noise_factor(&self, locator: &DirectLocator, state: &Vector4<f64>) -> f64 {
        let energies = self.frames.iter().map(|(_, survey)| survey.evidence.spectral_energy());
        let (energy, entries) =
            energies.fold((0.0, 0), |(e, n), (energy, entries)| (e + energy, n + entries));
        // Four real unknowns beside the gains.
        let freedom = entries as f64 - self.spectral_gains() as f64 - 2.0;
        noise_factor(energy - self.terms(locator, state).spectral, freedom)
    }

    fn terms(&self, locator: &DirectLocator, state: &Vector4<f64>) -> Terms {
        let mut terms = Terms::default();
        let mut coherent: BTreeMap<(usize, usize), (Complex64, f64)> = BTreeMap::new();
        for (time, survey) in &self.frames {
            each_term(&locator.scene, &survey.evidence, position_at(state, *time), |l, k, term| {
                match (self.combination, &term) {
                    (Combination::Coherent, Term::Coherent { z, strength }) => {
                        let entry = coherent.entry((l, k)).or_insert((Complex64::ZERO, 0.0));
                        entry.0 += z * strength;
                        entry.1 += strength.powi(2);
                    }
                    (Combination::NonCoherent, Term::Coherent { .. }) => terms.spectral += term.value(),
                    (_, Term::Plain(value)) => terms.plain += value,
                }
            });
        }
        terms.spectral += coherent.values().map(|(z, energy)| z.norm_sqr() / energy).sum::<f64>();
        terms
    }
}
