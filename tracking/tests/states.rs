//! States against a plain Kalman filter, their covariances against their errors, and their errors against the bound.

mod support;

use hyloc_tracking::*;
use nalgebra::{DMatrix, DVector};
use support::*;

/// The textbook update of a state by a measured position.
fn kalman(
    state: &DVector<f64>,
    covariance: &DMatrix<f64>,
    measured: &PositionLaw,
) -> (DVector<f64>, DMatrix<f64>) {
    let (n, d) = (state.len(), state.len() / 2);
    let mut choice = DMatrix::zeros(d, n);
    choice.view_mut((0, 0), (d, d)).fill_with_identity();
    let innovation = &choice * covariance * choice.transpose() + measured.covariance_m2();
    let gain = covariance * choice.transpose() * innovation.try_inverse().unwrap();
    let mean = state + &gain * (measured.mean_m() - &choice * state);
    (mean, (DMatrix::identity(n, n) - gain * choice) * covariance)
}

/// 200 updates in each of 1, 2 and 3 dimensions. With one detection, no clutter and no chance of a miss the mixture of JIPDA
/// has one term, and tracker and Kalman filter are the same.
#[test]
fn states_are_those_of_a_kalman_filter() {
    for d in 1..=3 {
        let mut rng = seeded(20 + d as u64);
        let motion = MotionModel::default();
        let mut state = DVector::from_fn(2 * d, |_, _| normal(&mut rng));
        let mut spread = covariance(&mut rng, 2 * d, 1.0);
        for _ in 0..200 {
            let law = StateLaw::new(state.clone(), spread.clone()).unwrap();
            let law = motion.predict(&law, 0.3).unwrap();
            let prior = law.position().unwrap();
            let noise = covariance(&mut rng, d, 0.3);
            let measured_m = prior.mean_m() + normal_vector(&mut rng, &(prior.covariance_m2() + &noise));
            let measured = PositionLaw::new(measured_m, noise).unwrap();
            let expected = kalman(law.mean(), law.covariance(), &measured);
            // The posterior of the position in the form of information.
            let (prior_inverse, noise_inverse) = (
                prior.covariance_m2().clone().try_inverse().unwrap(),
                measured.covariance_m2().clone().try_inverse().unwrap(),
            );
            let after = (&prior_inverse + &noise_inverse).try_inverse().unwrap();
            let mean = &after * (prior_inverse * prior.mean_m() + noise_inverse * measured.mean_m());
            let found = law.condition(&PositionLaw::new(mean, after).unwrap()).unwrap();
            assert!((found.mean() - &expected.0).amax() < 1e-12, "{d}: {}", found.mean() - &expected.0);
            assert!((found.covariance() - &expected.1).amax() < 1e-12, "{d}");
            (state, spread) = (found.mean().clone(), found.covariance().clone());
        }
    }
}

#[test]
fn two_short_steps_are_one_long_step() {
    let motion = MotionModel::default();
    let mut rng = seeded(1);
    let law = StateLaw::new(DVector::from_element(6, 1.0), covariance(&mut rng, 6, 1.0)).unwrap();
    let once = motion.predict(&law, 0.7).unwrap();
    let twice = motion.predict(&motion.predict(&law, 0.3).unwrap(), 0.4).unwrap();
    assert!((once.covariance() - twice.covariance()).amax() < 1e-12);
    assert!((once.mean() - twice.mean()).amax() < 1e-12);
    assert!((motion.survival(0.7) - motion.survival(0.3) * motion.survival(0.4)).abs() < 1e-15);
}

/// 400 runs of 60 frames at 10 a second, one target, deviation 0.1 m, P_D = 1, no clutter. The band of the mean of 400
/// normalised errors with 4 coordinates at 99.9 % is 3.55 to 4.48; a filter with twice the density q or half the noise is
/// outside. The rms error over the bound is chi-square as well: 800 coordinates, 0.92 to 1.08 at 99.9 %.
#[test]
fn errors_have_their_covariance_and_reach_the_bound() {
    const RUNS: usize = 400;
    const DEVIATION_M: f64 = 0.1;
    let settings = TrackerSettings::default();
    let motion = settings.motion;
    // The gate is so wide that no detection is outside: with P_D = 1 a track without detection would end.
    let model = DetectionModel {
        detection_probability: 1.0,
        clutter_density: 0.0,
        birth_density: 1e-6,
        gate_probability: 1.0 - 1e-10,
    };
    let hall = Hall { half_m: 100.0, deviation_m: DEVIATION_M, model };
    let mut rng = seeded(3);
    let (mut normalised, mut squares_m2) = (vec![0.0; 60], vec![0.0; 60]);
    for _ in 0..RUNS {
        let mut tracker = Tracker::new(2, settings).unwrap();
        let mut state = DVector::from_fn(4, |row, _| if row < 2 { 0.0 } else { 1.5 * normal(&mut rng) });
        for frame in 0..60 {
            if frame > 0 {
                state = walk(&mut rng, &motion, &state, 0.1);
            }
            let position = state.rows(0, 2).into_owned();
            tracker.step(0.1 * frame as f64, &hall.frame(&mut rng, &[position])).unwrap();
            let track = tracker.tracks().next().unwrap();
            let error = &track.state - &state;
            normalised[frame] += nees(&error, &track.covariance).unwrap() / RUNS as f64;
            squares_m2[frame] += error.rows(0, 2).norm_squared() / RUNS as f64;
        }
        assert_eq!(tracker.tracks().next().unwrap().id, 1, "the first track is kept");
        assert_eq!(tracker.confirmed().count(), 1);
    }
    let band = nees_band(4, RUNS, 0.999).unwrap();
    let information = DMatrix::identity(2, 2) / DEVIATION_M.powi(2);
    let mut initial = DMatrix::identity(4, 4) * motion.birth_speed_m_s.powi(2);
    initial.view_mut((0, 0), (2, 2)).copy_from(&(DMatrix::identity(2, 2) * DEVIATION_M.powi(2)));
    let mut bound = PosteriorBound::new(motion, initial).unwrap();
    for frame in 1..60 {
        bound.step(0.1, &information).unwrap();
        if [1, 5, 20, 40, 59].contains(&frame) {
            let mean = normalised[frame];
            assert!((band.0..band.1).contains(&mean), "frame {frame}: {mean} outside {band:?}");
            let ratio = squares_m2[frame] / bound.position_m().powi(2);
            let limits = nees_band(2, RUNS, 0.999).unwrap();
            assert!((limits.0 / 2.0..limits.1 / 2.0).contains(&ratio), "frame {frame}: {ratio}");
            println!("frame {frame}: NEES {mean:.3}, rms over bound {:.3}", ratio.sqrt());
        }
    }
}

/// 200 runs of 100 frames with P_D = 0.9 and one false detection per frame in 100 square metres: the moments of the
/// mixture are not normal, but their covariance holds. Band of 200 runs at 99.9 %: 3.37 to 4.70.
#[test]
fn covariances_hold_with_misses_and_clutter() {
    const RUNS: usize = 200;
    let settings = TrackerSettings::default();
    let model = DetectionModel { clutter_density: 0.01, ..Default::default() };
    let hall = Hall { half_m: 5.0, deviation_m: 0.1, model };
    let mut rng = seeded(4);
    let (mut sum, mut followed) = ([0.0; 3], 0);
    for _ in 0..RUNS {
        let mut tracker = Tracker::new(2, settings).unwrap();
        let mut state = DVector::from_fn(4, |row, _| if row < 2 { 0.0 } else { 0.3 * normal(&mut rng) });
        let mut run = [0.0; 3];
        for frame in 0..100 {
            state = walk(&mut rng, &settings.motion, &state, 0.05);
            let position = state.rows(0, 2).into_owned();
            tracker
                .step(0.05 * frame as f64, &hall.frame(&mut rng, std::slice::from_ref(&position)))
                .unwrap();
            let nearest = tracker.confirmed().min_by(|a, b| {
                (a.position_m() - &position).norm().total_cmp(&(b.position_m() - &position).norm())
            });
            if let (Some(at), Some(track)) = ([30, 60, 99].iter().position(|&at| at == frame), nearest) {
                run[at] = nees(&(&track.state - &state), &track.covariance).unwrap();
            }
        }
        // A run in which the track is lost counts as such, not as an error of 20 deviations.
        if run.iter().all(|value| (1e-9..40.0).contains(value)) {
            followed += 1;
            sum.iter_mut().zip(run).for_each(|(sum, value)| *sum += value);
        }
    }
    assert!(followed >= RUNS - 4, "{followed} of {RUNS} runs followed");
    let band = nees_band(4, followed, 0.999).unwrap();
    for value in sum {
        let mean = value / followed as f64;
        println!("NEES {mean:.3} in {band:.3?}, {followed} of {RUNS} runs");
        assert!((band.0..band.1).contains(&mean), "{mean} outside {band:?}");
    }
}
