//! Several frames at once: a target of constant velocity over the batch.
//!
//! The state is the free coordinates of position and velocity at the middle of the batch, (x, y, v_x, v_y) in a flat area; frame f looks at `p + v t_f`. Two ways to add
//! frames: *non-coherent*, every frame with phases of its own, `sum_f sum_lk |z_f|^2`; *coherent*, the
//! phase of a path holds over the batch, `sum_lk |sum_f s_f z_f|^2 / sum_f s_f^2` with the strength s_f of
//! the illumination at the position of the target in that frame. Evidence without a phase (blocks, delays, bearings) is
//! added non-coherently in both.
//!
//! The information is that of the frames together: at the middle of the batch F frames are worth F times one,
//! and a velocity comes with it. The gain of coherence is in the threshold: noise against noise is one term
//! per path instead of F.
//!
//! Search: the frames' grids, each shifted by a velocity of a coarse set, are added; the best few peaks are
//! refined in all variables. The false-alarm probability is that of a field over all of them.

use model::Point;
use nalgebra::{DMatrix, DVector};
use std::collections::BTreeMap;

use super::certainty::Certainty;
use super::detection::Velocities;
use super::likelihood::{Term, TermMemory, spectral_total, terms, total, total_expansion};
use super::locate::{AlternativePosition, DirectLocator, Missed, NEGLIGIBLE, noise_factor};
use super::moments::Moments;
use super::posterior::{Hypotheses, NormalPeak, Posterior, log_mean};
use super::survey::Survey;
use crate::ascent::{Expansion, Summit, climb};
use crate::location::Caution;

/// Largest number of peaks from which an ascent starts.
const MOST_CLIMBS: usize = 3;
/// A frame certainly sees a target where its false-alarm probability is below this.
const CERTAIN: f64 = 1e-6;
/// Largest log-likelihood ratio of the best position of a frame without fault to the fix: half a chi-square variable of
/// two degrees of freedom exceeds it once in 20 000 frames.
pub(crate) const MOST_LOSS: f64 = 10.0;
/// Standard deviation of a velocity that is not searched, at least.
const SLOWEST: f64 = 1e-6;
/// Velocities of the search per resolution moved in half a batch.
const VELOCITIES_PER_RESOLUTION: f64 = 2.0;

/// How the likelihoods of several frames are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combination {
    /// The phase of a path is constant over the batch.
    Coherent,
    /// Every frame has phases of its own.
    #[default]
    NonCoherent,
}

/// A fix by the direct method from several frames.
#[derive(Debug, Clone, PartialEq)]
pub struct MovingFix {
    /// Position at the requested time.
    pub position_m: Point,
    /// Velocity, metres per unit of time.
    pub velocity: Point,
    /// Covariance of the error of position and velocity, over the free coordinates of both.
    pub covariance: DMatrix<f64>,
    /// Radius that contains the error of the position with probability `1 - integrity_risk`, given one possible undetected
    /// fault; none where there is no such radius.
    pub protection_level_m: Option<f64>,
    /// Why the target may be elsewhere, or may not exist.
    pub doubts: Vec<Caution>,
    /// Other possible positions in the middle of the batch, most probable first.
    pub alternatives: Vec<AlternativePosition>,
}

/// Frames with their times relative to the middle of the batch.
struct FrameBatch<'a> {
    frames: Vec<(f64, &'a Survey)>,
    combination: Combination,
}

impl DirectLocator {
    /// Position and velocity of the target at `time` from frames with their times, up to the speed `most_speed` in metres per
    /// unit of time.
    pub fn locate_frames(
        &self,
        frames: &[(f64, &Survey)],
        time: f64,
        combination: Combination,
        most_speed: f64,
    ) -> Result<MovingFix, Missed> {
        let usable: Vec<(f64, &Survey)> = frames
            .iter()
            .copied()
            .filter(|(_, survey)| self.fits(survey) && survey.evidence.terms() > 0)
            .collect();
        let (first, last) =
            usable.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (t, _)| (a.min(*t), b.max(*t)));
        if usable.is_empty() || ![last - first, time, most_speed].iter().all(|value| value.is_finite()) {
            return Err(Missed::NoEvidence);
        }
        let (middle, half) = (0.5 * (first + last), 0.5 * (last - first));
        let frames = usable.into_iter().map(|(t, survey)| (t - middle, survey)).collect();
        let batch = FrameBatch { frames, combination };
        let velocities = batch.velocities(half, most_speed, self.resolution_m);
        let summit = self.search_batch(&batch, half, most_speed, velocities)?;
        if batch.frames.iter().any(|(time, survey)| self.strays(survey, self.position_at(&summit.at, *time)))
        {
            return Err(Missed::Unobservable);
        }
        let noise_factor = batch.noise_factor(self, &summit.at);
        let false_alarm_probability =
            self.region.false_alarm_probability(summit.value / noise_factor, batch.gains(), velocities, &[]);
        if false_alarm_probability > self.settings.false_alarm_probability {
            return Err(Missed::NoTarget { probability: false_alarm_probability });
        }
        let here = batch.terms(self, &summit.at, combination, true, &mut TermMemory::default());
        // A single time does not determine the velocity.
        let slowness = if half == 0.0 { most_speed.max(SLOWEST).powi(-2) } else { 0.0 };
        let axes = self.grid.places.dimensions();
        let mut prior = Expansion::zeros(2 * axes);
        (axes..2 * axes).for_each(|i| prior.information[(i, i)] = slowness);
        let certainty = Certainty::new(self, here, noise_factor, prior).ok_or(Missed::Unobservable)?;
        let covariance = &certainty.peak.covariance;
        // From the middle of the batch to the requested time.
        let mut carry = DMatrix::identity(2 * axes, 2 * axes);
        (0..axes).for_each(|i| carry[(i, axes + i)] = time - middle);
        let to_position = carry.rows(0, axes).into_owned();
        let tried = self.tried_velocities(half, most_speed);
        let (elsewhere, alternatives) = self
            .elsewhere_in_batch(&batch, &summit, &tried, &certainty, noise_factor)
            .ok_or(Missed::Unobservable)?;
        Ok(MovingFix {
            position_m: self.position_at(&summit.at, time - middle),
            velocity: self.velocity(&summit.at),
            covariance: &carry * covariance * carry.transpose(),
            protection_level_m: certainty.terms.protection_level_m(
                &to_position,
                1.0,
                self.settings.integrity_risk,
            ),
            doubts: self.doubts(
                elsewhere,
                false_alarm_probability,
                velocities.is_some() || batch.is_selected(),
            ),
            alternatives,
        })
    }

    /// Whether a frame certainly sees the target elsewhere: the target does not have a constant velocity.
    fn strays(&self, survey: &Survey, at: Point) -> bool {
        let top = self.all_totals(survey).iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let chance = self.region.false_alarm_probability(top, survey.evidence.gains(), None, &[]);
        chance < CERTAIN && top - self.log_likelihood(survey, at) > MOST_LOSS
    }

    /// Velocities to try: as many as move a target by half a resolution within half a batch.
    fn tried_velocities(&self, half: f64, most_speed: f64) -> Vec<DVector<f64>> {
        let axes = self.grid.places.dimensions();
        let reach = (most_speed * half / self.resolution_m * VELOCITIES_PER_RESOLUTION).floor() as i64;
        if reach == 0 {
            return vec![DVector::zeros(axes)];
        }
        let (step, side) = (most_speed / reach as f64, 2 * reach + 1);
        let grid = (0..side.pow(axes as u32)).map(|code| {
            // The last coordinate varies fastest.
            DVector::from_fn(axes, |i, _| {
                (code / side.pow((axes - 1 - i) as u32) % side - reach) as f64 * step
            })
        });
        grid.filter(|v| v.norm() <= most_speed * 1.0001).collect()
    }

    fn search_batch(
        &self,
        batch: &FrameBatch,
        half: f64,
        most_speed: f64,
        velocities: Option<Velocities>,
    ) -> Result<Summit, Missed> {
        let places = &self.grid.places;
        let axes = places.dimensions();
        let mut starts: Vec<(DVector<f64>, f64)> = Vec::new();
        for velocity in self.tried_velocities(half, most_speed) {
            let mut total = vec![0.0; places.points()];
            for (time, survey) in &batch.frames {
                places.add_shifted(&mut total, self.all_totals(survey), &(&velocity * *time));
            }
            for (point, value) in places.peaks(&total).into_iter().take(MOST_CLIMBS) {
                let at = places.coordinates(point);
                let state = at.iter().chain(velocity.iter()).copied();
                starts.push((DVector::from_iterator(2 * axes, state), value));
            }
        }
        starts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (longest, faster) = (self.longest_step_m(), self.longest_step_m() / half.max(1e-3));
        let longest = DVector::from_fn(2 * axes, |i, _| if i < axes { longest } else { faster });
        let mut memory = TermMemory::default();
        let mut expand = |state: &DVector<f64>| {
            total_expansion(&batch.terms(self, state, batch.combination, true, &mut memory), state.len())
        };
        let summits =
            starts.into_iter().take(MOST_CLIMBS).map(|(start, _)| climb(start, &longest, &mut expand));
        let searched = |at: &DVector<f64>| {
            let speed = at.rows(axes, axes).norm();
            self.searched(&at.rows(0, axes).into_owned())
                && velocities.is_none_or(|searched| speed <= searched.most_speed)
        };
        summits
            .filter(|summit| searched(&summit.at))
            .max_by(|a, b| a.value.total_cmp(&b.value))
            .ok_or(Missed::Unobservable)
    }

    /// Position of the target of a state at a time.
    fn position_at(&self, state: &DVector<f64>, time: f64) -> Point {
        let axes = self.grid.places.dimensions();
        self.position_m(&(state.rows(0, axes) + state.rows(axes, axes) * time))
    }

    /// Velocity of a state; zero along fixed coordinates.
    fn velocity(&self, state: &DVector<f64>) -> Point {
        let axes = self.grid.places.dimensions();
        let mut velocity = Point::zeros();
        for (i, &axis) in self.scene.layout().axes().iter().enumerate() {
            velocity[axis] = state[axes + i];
        }
        velocity
    }

    /// Probability of other positions in the middle of the batch, each with the velocity that fits it best. The width of a peak
    /// in velocity is assumed to be the same everywhere, so that it cancels. Frames are combined non-coherently, which gives
    /// the larger probability.
    fn elsewhere_in_batch(
        &self,
        batch: &FrameBatch,
        summit: &Summit,
        tried: &[DVector<f64>],
        certainty: &Certainty,
        noise_factor: f64,
    ) -> Option<(f64, Vec<AlternativePosition>)> {
        let axes = self.grid.places.dimensions();
        let at = summit.at.rows(0, axes).into_owned();
        let position = certainty.peak.covariance.view((0, 0), (axes, axes)).into_owned();
        let mut posterior = Posterior::normal(&NormalPeak::new(position.clone())?)?;
        let here = batch.terms(self, &summit.at, Combination::NonCoherent, false, &mut TermMemory::default());
        let near = total(&here) - NEGLIGIBLE * noise_factor;
        let totals = batch.frames.iter().map(|(_, survey)| self.all_totals(survey)).collect();
        let totals = self.best_along(batch, tried, totals, &[0.0]);
        self.look_around(
            &mut posterior,
            &at,
            |point| totals[point] > near,
            |points| {
                let all: Vec<usize> = (0..self.grid.points()).collect();
                let hypotheses = Hypotheses::around(&here, noise_factor);
                let frames = batch.frames.iter().map(|(_, survey)| &survey.evidence);
                let logs: Vec<Vec<f64>> = frames
                    .map(|evidence| self.grid.log_likelihoods(&self.scene, evidence, &hypotheses, &all))
                    .collect();
                let logs = self.best_along(
                    batch,
                    tried,
                    logs.iter().map(Vec::as_slice).collect(),
                    &hypotheses.prior(),
                );
                let log_here = hypotheses.log_density(&here);
                points.iter().map(|&point| logs[point] - log_here).collect()
            },
        );
        self.elsewhere(&posterior, &at, &position)
    }

    /// Per grid point: the mean likelihood of the frames, added along the velocity that fits the point best.
    /// `values` has as many logarithms for every frame and point as `prior`, which is added once.
    fn best_along(
        &self,
        batch: &FrameBatch,
        tried: &[DVector<f64>],
        values: Vec<&[f64]>,
        prior: &[f64],
    ) -> Vec<f64> {
        let stride = prior.len();
        let mut sums = prior.to_vec();
        let places = &self.grid.places;
        let mut along = |from: &DVector<f64>, velocity: &DVector<f64>| {
            sums.copy_from_slice(prior);
            for ((time, _), values) in batch.frames.iter().zip(&values) {
                let point = places.nearest(&(from + velocity * *time))?;
                let own = &values[point * stride..(point + 1) * stride];
                sums.iter_mut().zip(own).for_each(|(sum, value)| *sum += value);
            }
            Some(log_mean(&sums))
        };
        let best = |point: usize| {
            let from = places.coordinates(point);
            tried.iter().filter_map(|velocity| along(&from, velocity)).fold(f64::NEG_INFINITY, f64::max)
        };
        (0..self.grid.points()).map(best).collect()
    }
}

impl FrameBatch<'_> {
    /// The velocities that a fix may have: the ascent may leave the tried ones by a step. None where all frames have the
    /// same time.
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

    /// Whether any node sent only selected evidence.
    fn is_selected(&self) -> bool {
        self.frames.iter().any(|(_, survey)| survey.evidence.is_selected())
    }

    /// Number of fitted gains.
    fn gains(&self) -> usize {
        let plain = self.frames.iter().map(|(_, survey)| survey.evidence.gains() - survey.evidence.spectra());
        plain.sum::<usize>() + self.spectral_gains()
    }

    /// Number of fitted gains of spectra: one per path and frame, or one per path where its phase is constant.
    fn spectral_gains(&self) -> usize {
        let spectra = self.frames.iter().map(|(_, survey)| survey.evidence.spectra());
        match self.combination {
            Combination::NonCoherent => spectra.sum(),
            Combination::Coherent => spectra.max().unwrap_or(0),
        }
    }

    /// [`noise_factor`] over all frames.
    fn noise_factor(&self, locator: &DirectLocator, state: &DVector<f64>) -> f64 {
        let energies = self.frames.iter().map(|(_, survey)| survey.evidence.spectral_energy());
        let (energy, entries) =
            energies.fold((0.0, 0), |(e, n), (energy, entries)| (e + energy, n + entries));
        // Positions and velocities are real unknowns besides the gains.
        let freedom = entries as f64 - self.spectral_gains() as f64 - 0.5 * state.len() as f64;
        let terms = self.terms(locator, state, self.combination, false, &mut TermMemory::default());
        noise_factor(energy - spectral_total(&terms), freedom)
    }

    /// The terms of the likelihood at a state, with derivatives if `expand` says so; those of spectra are added over the frames
    /// where these are coherent.
    fn terms(
        &self,
        locator: &DirectLocator,
        state: &DVector<f64>,
        combination: Combination,
        expand: bool,
        memory: &mut TermMemory,
    ) -> Vec<Term> {
        let mut all: Vec<Term> = Vec::new();
        let mut coherent: BTreeMap<(usize, usize), (Moments, f64)> = BTreeMap::new();
        for (time, survey) in &self.frames {
            let map = position_map(state.len() / 2, *time);
            for mut term in terms(
                &locator.scene,
                &survey.evidence,
                locator.position_at(state, *time).into(),
                expand,
                memory,
            ) {
                match (combination, term.moments.take()) {
                    (Combination::Coherent, Some(moments)) => {
                        let moments = if expand { moments.mapped(&map) } else { moments };
                        let unit_snr = term.unit_snr.unwrap_or(0.0);
                        let sums = coherent.entry((term.sensor, term.reflector));
                        sums.and_modify(|(sum, snr)| {
                            sum.add(&moments);
                            *snr += unit_snr;
                        })
                        .or_insert((moments, unit_snr));
                    }
                    (_, moments) => {
                        if expand {
                            term.expansion = term.expansion.mapped(&map);
                        }
                        all.push(Term { moments, ..term });
                    }
                }
            }
        }
        all.extend(coherent.into_iter().map(|((sensor, reflector), (moments, unit_snr))| Term {
            sensor,
            reflector,
            expansion: moments.expansion(),
            moments: Some(moments),
            unit_snr: Some(unit_snr),
        }));
        all
    }
}

/// The position at a time as a linear function of the state: `[1, t 1]`.
fn position_map(axes: usize, time: f64) -> DMatrix<f64> {
    DMatrix::from_fn(axes, 2 * axes, |i, j| match j {
        _ if j == i => 1.0,
        _ if j == axes + i => time,
        _ => 0.0,
    })
}

#[cfg(test)]
mod tests {
    use model::{Scenario, System};

    use super::super::DirectSettings;
    use super::super::test_scene::{Kind, TARGET_M, TestScene};
    use super::*;

    #[test]
    fn velocities_are_tried_in_all_directions() {
        let system = System::new(&Scenario::default()).unwrap();
        let locator = DirectLocator::new(&system, DirectSettings::default()).unwrap();
        let (half, most_speed) = (4.0, 2.0);
        let tried = locator.tried_velocities(half, most_speed);
        assert!(tried.len() > 20 && tried.contains(&DVector::zeros(2)));
        for velocity in &tried {
            assert!(velocity.norm() <= 1.001 * most_speed);
            assert!(tried.iter().any(|other| (other + velocity).norm() < 1e-9), "{velocity} has no opposite");
            let turned = DVector::from_row_slice(&[-velocity[1], velocity[0]]);
            assert!(tried.iter().any(|other| (other - &turned).norm() < 1e-9), "{velocity} is not turned");
        }
        // Half a resolution in half a batch, from one to the next.
        let slowest = tried.iter().map(|v| v.norm()).filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        assert!(slowest * half <= 0.75 * locator.resolution_m, "{slowest}");
        assert_eq!(locator.tried_velocities(0.0, most_speed), [DVector::<f64>::zeros(2)]);
    }

    /// Three frames of a target that moves by twice the resolution: the fix is where it is at the requested time.
    #[test]
    fn a_moving_target_is_where_it_is_at_the_requested_time() {
        let scene = TestScene::new(60.0);
        let velocity = Point::new(1.6, -1.2, 0.0);
        let times = [10.0, 11.5, 13.0];
        let at = |time: f64| TARGET_M + velocity * (time - 11.0);
        let surveys: Vec<Survey> = (0..3)
            .map(|f| scene.evidence(f as u64, at(times[f]), |_, _| Kind::Spectrum))
            .map(|evidence| scene.locator.survey(evidence))
            .collect();
        let timed: Vec<(f64, &Survey)> = times.into_iter().zip(&surveys).collect();
        let locate = |frames: &[(f64, &Survey)], time: f64, most_speed: f64| {
            scene.locator.locate_frames(frames, time, Combination::NonCoherent, most_speed)
        };
        for time in [10.5, 14.0] {
            let fix = locate(&timed, time, 2.5).unwrap();
            let error = [fix.position_m - at(time), fix.velocity - velocity];
            let error = DVector::from_row_slice(&[error[0].x, error[0].y, error[1].x, error[1].y]);
            let nees = error.dot(&fix.covariance.clone().cholesky().unwrap().solve(&error));
            // Chi-square with four degrees of freedom: 99.9 %.
            assert!((0.05..18.5).contains(&nees), "{time}: {nees}");
        }
        // At a single time the velocity is what was assumed, and two equal frames are worth two.
        let [one, two] = [1, 2].map(|n| locate(&[(5.0, &surveys[1]); 2][..n], 5.0, 0.7).unwrap());
        assert!((two.covariance.view((2, 2), (2, 2)) - DMatrix::identity(2, 2) * 0.49).amax() < 1e-9);
        let [one, two] = [one, two].map(|fix| fix.covariance.view((0, 0), (2, 2)).trace());
        assert!((one / two - 2.0).abs() < 0.05, "{one} {two}");
        for (time, most_speed) in [(f64::NAN, 0.7), (12.0, f64::INFINITY)] {
            assert_eq!(locate(&timed, time, most_speed), Err(Missed::NoEvidence));
        }
        assert_eq!(locate(&[], 12.0, 0.7), Err(Missed::NoEvidence));
    }

    /// Times of -2, 0 and 2 about the middle, two logarithms per point.
    #[test]
    fn values_are_added_along_the_best_velocity() {
        let scene = TestScene::new(50.0);
        let survey = scene.locator.survey(scene.locator.evidence());
        let frames = [-2.0, 0.0, 2.0].map(|time| (time, &survey)).to_vec();
        let batch = FrameBatch { frames, combination: Combination::Coherent };
        let expected =
            Velocities { most_speed: 3.0 + 0.5 / 4.0, time_spread: (8f64 / 3.0).sqrt(), coherent: true };
        assert_eq!(batch.velocities(2.0, 3.0, 0.5), Some(expected));
        assert_eq!(batch.velocities(0.0, 3.0, 0.5), None);
        let places = &scene.locator.grid.places;
        let middle = places.points() / 2;
        let step = DVector::from_row_slice(&[places.step[0], 0.0]) / 2.0;
        let mut values = vec![vec![0.0; 2 * places.points()]; 3];
        // One step to the right in every two units of time.
        for (frame, values) in values.iter_mut().enumerate() {
            let point = middle + frame - 1;
            (values[2 * point], values[2 * point + 1]) = (1.0, 2.0);
        }
        let lists = || values.iter().map(Vec::as_slice).collect();
        let best = scene.locator.best_along(&batch, &[DVector::zeros(2), step], lists(), &[0.1, 0.2]);
        assert!((best[middle] - log_mean(&[3.1, 6.2])).abs() < 1e-12);
        assert!((best[middle + 1] - log_mean(&[1.1, 2.2])).abs() < 1e-12);
        assert!((best[0] - log_mean(&[0.1, 0.2])).abs() < 1e-12);
    }
}
