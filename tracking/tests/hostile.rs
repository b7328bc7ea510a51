//! Bad input is refused or bounded; nothing panics.

mod support;

use hyloc_tracking::*;
use nalgebra::{DMatrix, DVector};
use proptest::prelude::*;

/// Numbers that break arithmetic.
fn wild() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -10.0_f64..10.0,
        1 => proptest::sample::select(&[
            0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE, 1e-300, 1e300,
            1e-12, 1e12, -1.0, 1.0, 1e-6, 1e6, 1e8, 1e-9,
        ][..]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn laws_are_checked(values in proptest::collection::vec(wild(), 0..12), size in 0_usize..5, order in 0_usize..5) {
        let value = |index: usize| values.get(index).copied().unwrap_or(0.5);
        let mean = DVector::from_fn(size, |row, _| value(row));
        let spread = DMatrix::from_fn(order, order, |i, j| value(size + i * order + j));
        if let Ok(law) = PositionLaw::new(mean.clone(), spread.clone()) {
            assert!(law.covariance_m2().clone().cholesky().is_some());
            assert!(law.mean_m().iter().all(|value| value.is_finite()));
            let _ = Detections::new(vec![law], DetectionModel::default());
        }
        let _ = StateLaw::new(mean.clone(), spread.clone());
        let _ = Detections::with_joint_covariance(vec![mean.clone(); 2], spread.clone(), DetectionModel::default());
        let _ = nees(&mean, &spread);
        let _ = PosteriorBound::new(MotionModel::default(), spread.clone()).map(|mut bound| {
            let _ = bound.step(value(0), &spread);
        });
        let _ = gospa(std::slice::from_ref(&mean), &[DVector::zeros(2)], &GospaSettings { order: value(1), cutoff_m: value(2) });
        let _ = nees_band(size, order, value(3));
    }

    #[test]
    fn settings_are_checked(values in proptest::collection::vec(wild(), 12), count in 0_usize..20_000) {
        let motion = MotionModel {
            acceleration_m2_s3: values[0],
            survival_per_s: values[1],
            birth_speed_m_s: values[2],
        };
        let settings = TrackerSettings {
            motion,
            confirm_existence: values[3],
            demote_existence: values[4],
            delete_existence: values[5],
            coast_limit_s: values[6],
            merge_after_s: values[7],
            max_tracks: count,
        };
        let model = DetectionModel {
            detection_probability: values[8],
            clutter_density: values[9],
            birth_density: values[10],
            gate_probability: values[11],
        };
        let _ = Tracker::new(count % 5, settings);
        let _ = Detections::new(Vec::new(), model);
    }

    /// Frames of any detections that are accepted at any time: existences stay probabilities, states stay finite.
    #[test]
    fn any_accepted_run_stays_finite(
        frames in proptest::collection::vec((wild(), proptest::collection::vec((wild(), wild(), 1e-6_f64..1e6), 0..6)), 1..12),
        certain in any::<bool>(),
        clutter in proptest::sample::select(&[0.0, 1e-9, 1e-3, 1e9][..]),
        birth in proptest::sample::select(&[1e-30, 1e-6, 1e9][..]),
    ) {
        let settings = TrackerSettings { max_tracks: 10, ..Default::default() };
        let mut tracker = Tracker::new(2, settings).unwrap();
        let model = DetectionModel {
            detection_probability: if certain { 1.0 } else { 1e-9 },
            clutter_density: clutter,
            birth_density: birth,
            gate_probability: 0.9999,
        };
        for (index, (step_s, detections)) in frames.iter().enumerate() {
            let laws = detections.iter().filter_map(|&(x, y, scale)| PositionLaw::isotropic(&[x, y], scale).ok());
            let Ok(frame) = Detections::new(laws.collect(), model) else { continue };
            let time_s = tracker.time_s().unwrap_or(0.0) + if index % 2 == 0 { 0.05 } else { step_s.abs() };
            let _ = tracker.step(time_s, &frame);
            assert!(tracker.tracks().count() <= 10);
            for track in tracker.tracks() {
                assert!((0.0..=1.0).contains(&track.existence), "{}", track.existence);
                assert!(track.state.iter().chain(track.covariance.iter()).all(|value| value.is_finite()));
                assert!(track.covariance.clone().cholesky().is_some());
            }
        }
    }
}

/// An observation that answers nonsense is refused, and the tracker is as before.
#[test]
fn wrong_answers_are_refused() {
    struct Says(FrameUpdate);
    impl Observation for Says {
        fn update(&self, _: &[Predicted]) -> FrameUpdate {
            self.0.clone()
        }
    }
    let law = PositionLaw::isotropic(&[0.0, 0.0], 0.1).unwrap();
    let birth = |existence| Birth { law: law.clone(), existence };
    let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
    tracker.step(0.0, &Says(FrameUpdate { tracks: vec![], births: vec![birth(0.5)] })).unwrap();
    let good = Updated {
        law: law.clone(),
        existence: 0.9,
        detected: true,
        merged_with: None,
        doubtful_identity: false,
    };
    let flat = PositionLaw::isotropic(&[0.0], 0.1).unwrap();
    let answers = [
        FrameUpdate { tracks: vec![], births: vec![] },
        FrameUpdate { tracks: vec![good.clone(); 2], births: vec![] },
        FrameUpdate { tracks: vec![Updated { existence: 1.5, ..good.clone() }], births: vec![] },
        FrameUpdate { tracks: vec![Updated { existence: f64::NAN, ..good.clone() }], births: vec![] },
        FrameUpdate { tracks: vec![Updated { law: flat.clone(), ..good.clone() }], births: vec![] },
        FrameUpdate { tracks: vec![Updated { merged_with: Some(0), ..good.clone() }], births: vec![] },
        FrameUpdate { tracks: vec![Updated { merged_with: Some(7), ..good.clone() }], births: vec![] },
        FrameUpdate { tracks: vec![good.clone()], births: vec![birth(-0.1)] },
        FrameUpdate { tracks: vec![good.clone()], births: vec![Birth { law: flat, existence: 0.1 }] },
    ];
    let before: Vec<Track> = tracker.tracks().cloned().collect();
    for answer in answers {
        assert!(tracker.step(1.0, &Says(answer.clone())).is_err(), "{answer:?}");
        assert_eq!(tracker.tracks().cloned().collect::<Vec<_>>(), before);
    }
    tracker.step(1.0, &Says(FrameUpdate { tracks: vec![good], births: vec![] })).unwrap();
}

/// 10 000 detections at one place, or at places of a few centimetres, over five frames: tracks stay bounded, and so does the
/// work; 10 001 are refused. Every track is then in the gate of every detection, 2 million pairs in a frame.
#[test]
fn ten_thousand_detections_are_bounded_work() {
    for spread_m in [0.0, 1e-5, 1e-3] {
        let mut tracker = Tracker::new(2, TrackerSettings::default()).unwrap();
        let law = |index: usize| {
            let (x, y) = ((index % 100) as f64, (index / 100) as f64);
            PositionLaw::isotropic(&[x * spread_m, y * spread_m], 0.1).unwrap()
        };
        for frame in 0..5 {
            let laws = (0..10_000).map(law).collect();
            let detections = Detections::new(laws, DetectionModel::default()).unwrap();
            let changes = tracker.step(0.05 * f64::from(frame), &detections).unwrap();
            assert!(tracker.tracks().count() <= 200);
            if frame == 0 {
                assert_eq!((changes.born.len(), changes.dropped_births), (200, 9_800));
            }
        }
        assert!(tracker.tracks().all(|track| (0.0..=1.0).contains(&track.existence)));
        let many = Detections::new((0..10_001).map(law).collect(), DetectionModel::default());
        assert!(matches!(many, Err(TrackingError::TooMany { .. })));
    }
    let many = vec![DVector::zeros(2); 257];
    let refused =
        Detections::with_joint_covariance(many, DMatrix::identity(514, 514), DetectionModel::default());
    assert!(matches!(refused, Err(TrackingError::TooMany { .. })));
    let many = vec![DVector::zeros(2); 2_001];
    assert!(gospa(&many, &[], &GospaSettings::default()).is_err());
}

#[test]
fn a_covariance_of_zero_and_numbers_that_are_none_are_refused() {
    assert!(PositionLaw::new(DVector::zeros(2), DMatrix::zeros(2, 2)).is_err());
    assert!(PositionLaw::isotropic(&[f64::NAN, 0.0], 0.1).is_err());
    assert!(PositionLaw::isotropic(&[], 0.1).is_err());
    assert!(PositionLaw::isotropic(&[0.0; 4], 0.1).is_err());
    let tiny = PositionLaw::isotropic(&[0.0, 0.0], 1e-8).unwrap();
    assert!(Detections::new(vec![tiny], DetectionModel::default()).is_err());
    let singular = DMatrix::from_element(4, 4, 1.0);
    let means = vec![DVector::zeros(2); 2];
    assert!(Detections::with_joint_covariance(means, singular, DetectionModel::default()).is_err());
}
