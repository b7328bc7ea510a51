//! Properties of the bounds for arbitrary scenes.

use hyloc_model::scenario::Scenario;
use hyloc_model::{EchoSource, Gain, Information, Point, Scheme, System, constant_velocity_crb_m2};
use nalgebra::DMatrix;
use proptest::prelude::*;

/// Cross-section of Table I, 7 dBsm.
const RCS_M2: f64 = 5.011872336272722;

const SCHEMES: [Scheme; 4] = [Scheme::Hybrid, Scheme::AngleOnly, Scheme::DelayOnly, Scheme::NoCollaboration];

fn system(seed: u64, power_dbm: f64) -> (System, Point) {
    let source = EchoSource::new(&Scenario::default().with_seed(seed).with_power_dbm(power_dbm)).unwrap();
    let target = source.target_m(0);
    (source.system().clone(), target)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bounds_are_symmetric_positive_definite(seed in 0u64..1_000_000, power in 20.0..80.0f64) {
        let (system, target) = system(seed, power);
        for gain in [Gain::Unknown, Gain::Known] {
            let information = Information::new(&system, target, RCS_M2, gain);
            for scheme in SCHEMES {
                let bound = information.position_crb_m2(scheme).unwrap();
                prop_assert_eq!(bound[(0, 1)], bound[(1, 0)]);
                prop_assert!(bound.trace() > 0.0 && bound.determinant() > 0.0);
            }
        }
    }

    #[test]
    fn removing_a_path_never_helps(seed in 0u64..1_000_000, l in 0usize..3, k in 0usize..3) {
        let (system, target) = system(seed, 50.0);
        for gain in [Gain::Unknown, Gain::Known] {
            let full = Information::new(&system, target, RCS_M2, gain);
            let less = full.clone().without(l, k);
            for scheme in SCHEMES {
                let (a, b) = (full.position_crb_m2(scheme).unwrap(), less.position_crb_m2(scheme).unwrap());
                let smallest = (&b - a).symmetric_eigen().eigenvalues.min();
                prop_assert!(smallest >= -1e-12 * b.trace(), "{:?}: {}", scheme, smallest);
            }
            let (a, b) = (full.angle_crb_rad2().unwrap(), less.angle_crb_rad2().unwrap());
            prop_assert!(a.iter().zip(&b).all(|(a, b)| *b >= a * (1.0 - 1e-12)));
        }
    }

    #[test]
    fn bounds_scale_as_one_over_power(seed in 0u64..1_000_000, step_db in -20.0..20.0f64) {
        let ((low, target), (high, _)) = (system(seed, 50.0), system(seed, 50.0 + step_db));
        let ratio = 10f64.powf(step_db / 10.0);
        for gain in [Gain::Unknown, Gain::Known] {
            let (a, b) = (Information::new(&low, target, RCS_M2, gain), Information::new(&high, target, RCS_M2, gain));
            for scheme in SCHEMES {
                let (a, b) = (a.position_crb_m2(scheme).unwrap(), b.position_crb_m2(scheme).unwrap());
                prop_assert!((a.trace() / b.trace() / ratio - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn an_unknown_gain_never_helps(seed in 0u64..1_000_000) {
        let (system, target) = system(seed, 50.0);
        let (exact, paper) =
            (Information::new(&system, target, RCS_M2, Gain::Unknown), Information::new(&system, target, RCS_M2, Gain::Known));
        for scheme in SCHEMES {
            let gap = exact.position_crb_m2(scheme).unwrap() - paper.position_crb_m2(scheme).unwrap();
            prop_assert!(gap.clone().symmetric_eigen().eigenvalues.min() >= -1e-12 * gap.trace());
        }
    }

    /// The closed form against brute force: the mean differenced in (AOA, AOD, delay), nothing factored.
    #[test]
    fn path_information_matches_finite_differences(seed in 0u64..1_000_000, l in 0usize..3, k in 0usize..3) {
        let (system, target) = system(seed, 50.0);
        let (theta_l, theta_k) =
            (system.irs[l].pose.local_angle_rad(target), system.irs[k].pose.local_angle_rad(target));
        let delay = hyloc_model::geometry::cascade_delay_s(&system.irs[l].pose, &system.irs[k].pose, target);
        let gain = system.echo_gain(l, k, target, RCS_M2).unwrap();
        let mean = |aoa: f64, aod: f64, delay: f64| {
            let row = system.element_array().steering(aod).adjoint()
                * &system.irs[k].reflected_signal
                * &system.irs[k].waveform.codes;
            let phasors = hyloc_model::CVector::from_vec(system.delay_phasors(k, delay).unwrap());
            (system.sensor_array().steering(aoa) * row.transpose().component_mul(&phasors).transpose()).scale(gain)
        };
        let steps = [1e-6, 1e-6, 1e-6 / system.bandwidth_hz];
        let derivative = |axis: usize| {
            let mut step = [0.0; 3];
            step[axis] = steps[axis];
            let at = |sign: f64| mean(theta_l + sign * step[0], theta_k + sign * step[1], delay + sign * step[2]);
            (at(1.0) - at(-1.0)).unscale(2.0 * steps[axis])
        };
        let derivatives = [derivative(0), derivative(1), derivative(2)];
        let known = Information::new(&system, target, RCS_M2, Gain::Known).paths()[l][k].clone().unwrap();
        for i in 0..3 {
            for j in 0..3 {
                let brute = 2.0 / system.noise_power_w * derivatives[i].dotc(&derivatives[j]).re;
                let scale = (known[(i, i)] * known[(j, j)]).sqrt();
                prop_assert!((known[(i, j)] - brute).abs() < 1e-6 * scale, "({i}, {j}): {} {}", known[(i, j)], brute);
            }
        }
    }
}

#[test]
fn one_irs_locates_by_itself_and_a_line_of_sight_channel_hides_the_departure_angle() {
    let mut scenario = Scenario::default();
    scenario.channel.paths = 1;
    scenario.channel.angles = hyloc_model::scenario::PathAngles::LineOfSight;
    let system = System::new(&scenario).unwrap();
    let information = Information::new(&system, Point::new(3.0, 4.0, 0.0), RCS_M2, Gain::Unknown);
    assert_eq!(information.paths()[0][1].clone().unwrap()[(1, 1)], 0.0);
    assert!(information.angle_crb_rad2().unwrap().iter().all(|v| v.is_finite()));
    let single = System::new(&Scenario::default().single_irs()).unwrap();
    assert_eq!((single.irs_count(), single.elements(), single.sensors()), (1, 30, 30));
    Information::new(&single, Point::new(3.0, 4.0, 0.0), RCS_M2, Gain::Unknown)
        .position_crb_m2(Scheme::Hybrid)
        .unwrap();
}

/// F equal frames, the position asked for in the last: (4 F - 2) / (F (F + 1)) of one frame's bound, in closed form.
#[test]
fn frames_of_a_moving_target_add_up_as_a_straight_line_does() {
    let (system, target) = system(3, 50.0);
    let one = Information::new(&system, target, RCS_M2, Gain::Unknown).position_information(Scheme::Hybrid);
    let alone = one.clone().try_inverse().unwrap();
    for count in [2, 3, 4, 16, 64] {
        let frames: Vec<(f64, DMatrix<f64>)> =
            (0..count).map(|back| (-f64::from(back), one.clone())).collect();
        let f = f64::from(count);
        let expected = &alone * ((4.0 * f - 2.0) / (f * (f + 1.0)));
        let bound = constant_velocity_crb_m2(&frames).unwrap();
        assert!((&bound - &expected).norm() < 1e-9 * expected.norm(), "{count}: {bound} {expected}");
    }
    assert!(
        (constant_velocity_crb_m2(&[(0.0, one.clone())]).unwrap() - &alone).norm() < 1e-12 * alone.norm()
    );
    // The same moment twice is twice the information; another moment alone says nothing of this one.
    let twice = constant_velocity_crb_m2(&[(0.0, one.clone()), (0.0, one.clone())]).unwrap();
    assert!((twice - &alone / 2.0).norm() < 1e-12 * alone.norm());
    assert!(
        constant_velocity_crb_m2(&[(-1.0, one.clone())]).is_err() && constant_velocity_crb_m2(&[]).is_err()
    );
    // Two frames determine position and velocity, whenever they were taken: nothing is left to improve on one of them.
    let lone = constant_velocity_crb_m2(&[(0.0, one.clone()), (-1e6, one)]).unwrap();
    assert!((lone - &alone).norm() < 1e-9 * alone.norm());
}

/// Averaging F frames is F times the power; so is an F times larger cross-section.
#[test]
fn averages_and_cross_sections_scale_the_information() {
    let ((low, target), (high, _)) = (system(5, 50.0), system(5, 60.0));
    let bound = |information: Information| information.position_crb_m2(Scheme::Hybrid).unwrap();
    let expected = bound(Information::new(&high, target, RCS_M2, Gain::Unknown));
    let of = |rcs_m2: f64| Information::new(&low, target, rcs_m2, Gain::Unknown);
    let one = || of(RCS_M2);
    let averaged = (0..3).fold(one(), |all, l| all.averaged(l, 10.0));
    for found in [bound(averaged), bound(of(10.0 * RCS_M2))] {
        assert!((found - &expected).norm() < 1e-9 * expected.norm());
    }
    // One node's average lies between none and all.
    let partly = bound(one().averaged(1, 10.0)).trace();
    assert!(expected.trace() < partly && partly < bound(one()).trace());
}
