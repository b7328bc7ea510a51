//! The update of JIPDA against an independent enumeration of all joint events, and its invariances.

mod support;

use hyloc_tracking::*;
use nalgebra::{DMatrix, DVector};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use support::*;

/// A random frame in which everything is inside every gate.
struct Scene {
    predicted: Vec<Predicted>,
    means_m: Vec<DVector<f64>>,
    joint_m2: DMatrix<f64>,
    model: DetectionModel,
}

fn scene(rng: &mut ChaCha8Rng, d: usize, tracks: usize, detections: usize, correlated: bool) -> Scene {
    let law = |rng: &mut ChaCha8Rng| {
        let mean = DVector::from_fn(d, |_, _| 0.3 * normal(rng) + 7.0);
        PositionLaw::new(mean, covariance(rng, d, 0.4)).unwrap()
    };
    let predicted =
        (0..tracks).map(|_| Predicted::new(law(rng), rng.random_range(0.05..0.999)).unwrap()).collect();
    let means_m = (0..detections).map(|_| DVector::from_fn(d, |_, _| 0.3 * normal(rng) + 7.0)).collect();
    let mut joint_m2 = covariance(rng, detections * d, 0.3 / ((detections * d) as f64).sqrt());
    if !correlated {
        for i in 0..detections * d {
            for j in 0..detections * d {
                if i / d != j / d {
                    joint_m2[(i, j)] = 0.0;
                }
            }
        }
    }
    let model = DetectionModel {
        detection_probability: rng.random_range(0.3..0.99),
        clutter_density: rng.random_range(0.01..1.0),
        birth_density: rng.random_range(0.001..0.1),
        gate_probability: 1.0 - 1e-9,
    };
    Scene { predicted, means_m, joint_m2, model }
}

impl Scene {
    fn detections(&self) -> Detections {
        Detections::with_joint_covariance(self.means_m.clone(), self.joint_m2.clone(), self.model).unwrap()
    }
}

/// Existence, mean and covariance of a track.
type Expected = (f64, DVector<f64>, DMatrix<f64>);

/// What is expected of every track and the existence of every birth, by counting through all existences
/// and all associations as digits of a number: the states of all tracks are one vector, updated by the textbook.
fn brute_force(scene: &Scene) -> (Vec<Expected>, Vec<f64>) {
    let Scene { predicted, means_m, joint_m2, model } = scene;
    let (n, m, d) = (predicted.len(), means_m.len(), predicted[0].law.dimension());
    let (detect, gate) = (model.detection_probability, model.gate_probability);
    let unexplained = model.clutter_density + detect * model.birth_density;
    let mut total = 0.0;
    let mut exists = vec![0.0; n];
    let mut first = vec![DVector::zeros(d); n];
    let mut second = vec![DMatrix::zeros(d, d); n];
    let mut explained = vec![0.0; m];
    // A digit per track: 0 does not exist, 1 exists and is missed, 2 + j has caused detection j.
    for code in 0..(m + 2).pow(n as u32) {
        let digits: Vec<usize> = (0..n).map(|track| code / (m + 2).pow(track as u32) % (m + 2)).collect();
        let used: Vec<usize> = digits.iter().filter(|digit| **digit >= 2).map(|digit| digit - 2).collect();
        if (0..used.len()).any(|a| used[..a].contains(&used[a])) {
            continue;
        }
        let mut weight = unexplained.powi((m - used.len()) as i32);
        for (track, digit) in digits.iter().enumerate() {
            let existence = predicted[track].existence;
            weight *= match digit {
                0 => 1.0 - existence,
                1 => existence * (1.0 - detect * gate),
                _ => existence * detect,
            };
        }
        let seen: Vec<usize> = (0..n).filter(|&track| digits[track] >= 2).collect();
        let mut mean = DVector::zeros(n * d);
        let mut spread = DMatrix::zeros(n * d, n * d);
        for (track, predicted) in predicted.iter().enumerate() {
            mean.rows_mut(track * d, d).copy_from(predicted.law.mean_m());
            spread.view_mut((track * d, track * d), (d, d)).copy_from(predicted.law.covariance_m2());
        }
        if !seen.is_empty() {
            let size = seen.len() * d;
            let choice = DMatrix::from_fn(size, n * d, |row, column| {
                f64::from(u8::from(column == seen[row / d] * d + row % d))
            });
            let index = |row: usize| (digits[seen[row / d]] - 2) * d + row % d;
            let noise = DMatrix::from_fn(size, size, |a, b| joint_m2[(index(a), index(b))]);
            let measured = DVector::from_fn(size, |row, _| means_m[index(row) / d][index(row) % d]);
            let innovation = measured - &choice * &mean;
            let sum = &choice * &spread * choice.transpose() + noise;
            let inverse = sum.clone().try_inverse().unwrap();
            let exponent = -0.5 * innovation.dot(&(&inverse * &innovation));
            weight *= exponent.exp() / (sum * std::f64::consts::TAU).determinant().sqrt();
            let gain = &spread * choice.transpose() * inverse;
            mean += &gain * innovation;
            spread = &spread - gain * choice * &spread;
        }
        total += weight;
        for (track, digit) in digits.iter().enumerate().filter(|(_, digit)| **digit > 0) {
            let own = mean.rows(track * d, d).into_owned();
            exists[track] += weight;
            second[track] += (spread.view((track * d, track * d), (d, d)) + &own * own.transpose()) * weight;
            first[track] += own * weight;
            if *digit >= 2 {
                explained[digit - 2] += weight;
            }
        }
    }
    let tracks = (0..n).map(|track| {
        let mean = &first[track] / exists[track];
        let spread = &second[track] / exists[track] - &mean * mean.transpose();
        (exists[track] / total, mean, spread)
    });
    let new = detect * model.birth_density / unexplained;
    (tracks.collect(), explained.iter().map(|weight| new * (1.0 - weight / total)).collect())
}

/// 120 frames: 1 to 3 tracks, 1 to 3 detections, 1 to 3 dimensions, with and without cross terms.
#[test]
fn oracle_all_joint_events() {
    let mut rng = seeded(5);
    for trial in 0..120 {
        let (d, tracks, detections) = (1 + trial % 3, 1 + trial / 3 % 3, 1 + trial / 9 % 3);
        let scene = scene(&mut rng, d, tracks, detections, trial % 2 == 0);
        let (expected, births) = brute_force(&scene);
        let found = scene.detections().update(&scene.predicted);
        for (found, (existence, mean, spread)) in found.tracks.iter().zip(&expected) {
            assert!((found.existence - existence).abs() < 1e-10, "{trial}: {} {existence}", found.existence);
            assert!((found.law.mean_m() - mean).amax() < 1e-10, "{trial}: {} {mean}", found.law.mean_m());
            assert!((found.law.covariance_m2() - spread).amax() < 1e-9, "{trial}");
        }
        for (found, existence) in found.births.iter().zip(&births) {
            assert!((found.existence - existence).abs() < 1e-10, "{trial}: {} {existence}", found.existence);
        }
    }
}

/// Two tracks 50 m apart share no detection, but their detections have correlated errors and are used together.
#[test]
fn oracle_correlation_connects_what_gates_do_not() {
    let mut rng = seeded(14);
    for _ in 0..20 {
        let mut scene = scene(&mut rng, 2, 2, 2, true);
        let near = &scene.predicted[1].law;
        let far = PositionLaw::new(near.mean_m().add_scalar(50.0), near.covariance_m2().clone()).unwrap();
        scene.predicted[1].law = far;
        scene.means_m[1].add_scalar_mut(50.0);
        let (expected, _) = brute_force(&scene);
        let found = scene.detections().update(&scene.predicted);
        for (found, (existence, mean, _)) in found.tracks.iter().zip(&expected) {
            assert!((found.existence - existence).abs() < 1e-10, "{} {existence}", found.existence);
            assert!((found.law.mean_m() - mean).amax() < 1e-9, "{} {mean}", found.law.mean_m());
            assert!(!found.doubtful_identity && found.merged_with.is_none());
        }
    }
}

/// The cross terms matter: without them the answers of the same frames differ by far more than the tolerance above.
#[test]
fn cross_terms_are_used() {
    let mut rng = seeded(6);
    let mut largest: f64 = 0.0;
    for _ in 0..20 {
        let mut scene = scene(&mut rng, 2, 2, 2, true);
        let with = scene.detections().update(&scene.predicted);
        for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))).filter(|(i, j)| i / 2 != j / 2) {
            scene.joint_m2[(i, j)] = 0.0;
        }
        let without = scene.detections().update(&scene.predicted);
        for (a, b) in with.tracks.iter().zip(&without.tracks) {
            largest = largest.max((a.law.mean_m() - b.law.mean_m()).amax());
        }
    }
    assert!(largest > 1e-3, "{largest}");
}

/// 60 frames with up to 6 tracks and 6 detections: another order of tracks or detections gives the same answers.
#[test]
fn the_order_of_tracks_and_detections_does_not_matter() {
    let mut rng = seeded(7);
    for trial in 0..60 {
        let (n, m) = (1 + trial % 6, 1 + trial / 6 % 6);
        let scene = scene(&mut rng, 2, n, m, trial % 2 == 0 && n < 4);
        let found = scene.detections().update(&scene.predicted);
        let shuffled = |rng: &mut ChaCha8Rng, count: usize| {
            let mut order: Vec<usize> = (0..count).collect();
            (1..count).rev().for_each(|i| order.swap(i, rng.random_range(0..=i)));
            order
        };
        let (tracks, detections) = (shuffled(&mut rng, n), shuffled(&mut rng, m));
        let other = Scene {
            predicted: tracks.iter().map(|&track| scene.predicted[track].clone()).collect(),
            means_m: detections.iter().map(|&j| scene.means_m[j].clone()).collect(),
            joint_m2: DMatrix::from_fn(2 * m, 2 * m, |a, b| {
                scene.joint_m2[(2 * detections[a / 2] + a % 2, 2 * detections[b / 2] + b % 2)]
            }),
            model: scene.model,
        };
        let again = other.detections().update(&other.predicted);
        for (track, again) in tracks.iter().zip(&again.tracks) {
            let found = &found.tracks[*track];
            assert!((found.existence - again.existence).abs() < 1e-11);
            assert!((found.law.mean_m() - again.law.mean_m()).amax() < 1e-11);
            assert_eq!(found.doubtful_identity, again.doubtful_identity);
            assert_eq!(found.merged_with, again.merged_with.map(|partner| tracks[partner]), "{trial}");
        }
        for (j, again) in detections.iter().zip(&again.births) {
            assert!((found.births[*j].existence - again.existence).abs() < 1e-11);
        }
    }
}

/// Ten tracks that all share ten detections have more than 2e8 events; belief propagation takes over, and the sums of
/// probabilities still hold: no detection is explained more than once.
#[test]
fn clusters_beyond_the_limit_are_approximated() {
    let mut rng = seeded(8);
    for correlated in [false, true] {
        let scene = scene(&mut rng, 2, 10, 10, correlated);
        let found = scene.detections().update(&scene.predicted);
        let model = scene.model;
        let new = model.detection_probability * model.birth_density
            / (model.clutter_density + model.detection_probability * model.birth_density);
        for birth in &found.births {
            assert!((0.0..=new).contains(&birth.existence));
        }
        for (found, predicted) in found.tracks.iter().zip(&scene.predicted) {
            assert!((0.0..=1.0).contains(&found.existence));
            assert!(found.law.covariance_m2().trace() < predicted.law.covariance_m2().trace() * 2.0);
        }
    }
}

#[test]
fn two_tracks_at_one_detection_are_merged_and_two_at_two_are_not() {
    let track = |x: f64| Predicted::new(PositionLaw::isotropic(&[x, 0.0], 0.1).unwrap(), 0.99).unwrap();
    let detection = |x: f64| PositionLaw::isotropic(&[x, 0.0], 0.1).unwrap();
    let model = DetectionModel::default();
    let near = [track(0.0), track(0.05)];
    let one = Detections::new(vec![detection(0.0)], model).unwrap().update(&near);
    assert_eq!([one.tracks[0].merged_with, one.tracks[1].merged_with], [Some(1), Some(0)]);
    assert!(one.tracks.iter().all(|track| track.doubtful_identity));
    // Two detections between which the tracks cannot choose: the identities are doubtful, but there are two targets.
    let two = Detections::new(vec![detection(0.0), detection(0.05)], model).unwrap().update(&near);
    assert!(two.tracks.iter().all(|track| track.merged_with.is_none() && track.doubtful_identity));
    // At a distance nothing is doubtful.
    let far = [track(0.0), track(1.0)];
    let two = Detections::new(vec![detection(0.0), detection(1.0)], model).unwrap().update(&far);
    assert!(two.tracks.iter().all(|track| track.merged_with.is_none() && !track.doubtful_identity));
    assert!(two.tracks.iter().all(|track| track.detected && track.existence > 0.9999));
}
