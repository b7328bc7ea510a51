//! No public function panics on bad input: each gives an error, nothing, or a documented neutral value.

use hyloc_model::beamforming::zero_forcing;
use hyloc_model::channel::base_station_channels;
use hyloc_model::scenario::{Motion, ring};
use hyloc_model::{
    CMatrix, CrossSectionPrior, EchoSource, Gain, Information, Point, Scenario, Scheme, Score, System,
    SystemParts, constant_velocity_crb_m2,
};
use nalgebra::DMatrix;
use num_complex::Complex64;

const NAN: Point = Point::new(f64::NAN, f64::NAN, f64::NAN);

#[test]
fn an_irs_that_does_not_exist_has_no_values() {
    let source = EchoSource::new(&Scenario::default()).unwrap();
    let (system, target_m) = (source.system(), source.target_m(0));
    for missing in [3, usize::MAX] {
        assert_eq!(system.echo_gain(0, missing, target_m, 1.0), None);
        assert_eq!(system.path_snr(missing, 0, target_m, 1.0), None);
        assert_eq!(system.illumination(missing, target_m), None);
        assert_eq!(system.effective_rank(missing, 1.0), None);
        assert_eq!(system.rank_case(missing, 1.0), None);
        assert_eq!(system.widest_view_rad(missing), None);
        assert_eq!(system.delay_phasors(missing, 1e-7), None);
        assert_eq!(source.frame(missing, 0, target_m), source.noise(missing, 0));
        let information = Information::new(system, target_m, 1.0, Gain::Unknown);
        let same = information.clone().averaged(missing, 2.0).without(missing, 0).without(0, missing);
        assert_eq!(same, information);
    }
}

#[test]
fn targets_that_are_nowhere_are_not_observable() {
    let source = EchoSource::new(&Scenario::default()).unwrap();
    let system = source.system();
    for target_m in [NAN, Point::repeat(f64::INFINITY), system.irs[0].pose.position_m] {
        source.frame(0, u64::MAX, target_m);
        let information = Information::new(system, target_m, f64::NAN, Gain::Unknown);
        assert!(information.position_crb_m2(Scheme::Hybrid).is_err());
        assert!(information.angle_crb_rad2().is_err() && information.delay_crb_s2().is_err());
    }
    assert!(constant_velocity_crb_m2(&[]).is_err());
    assert!(
        constant_velocity_crb_m2(&[(f64::NAN, DMatrix::identity(2, 2)), (1.0, DMatrix::identity(2, 2))])
            .is_err()
    );
    assert_eq!(Score::new(NAN, &DMatrix::zeros(2, 2), NAN).nees, None);
}

#[test]
fn scenarios_are_refused_whatever_they_contain() {
    let mut empty = Scenario::default();
    empty.irs.clear();
    let mut pathless = Scenario::default();
    pathless.irs[0].paths = Some(0);
    let mut huge = Scenario::default();
    (huge.signal.subcarriers, huge.surface.elements) = (usize::MAX, usize::MAX.into());
    let mut nowhere = Scenario::default();
    nowhere.irs[2].position_m = [f64::NAN, 0.0, 0.0];
    for scenario in [empty, pathless, huge, nowhere] {
        assert!(scenario.validate().is_err() && System::new(&scenario).is_err());
        assert!(EchoSource::new(&scenario).is_err() && base_station_channels(&scenario).is_err());
        let _ = scenario.clone().single_irs().validate();
    }
    for count in [0, 1, 33, usize::MAX] {
        assert!(ring(&Scenario::default(), count).is_err());
    }
    let motion = Motion::Waypoints { points_m: Vec::new(), frames_per_leg: 0 };
    assert_eq!(motion.position_m(u64::MAX), Some(Point::zeros()));
    for deviation_db in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(!CrossSectionPrior { median_m2: 1.0, deviation_db }.grid().is_empty());
    }
}

#[test]
fn inconsistent_parts_make_no_system() {
    let system = System::new(&Scenario::default()).unwrap();
    let refused = |change: &dyn Fn(&mut SystemParts)| {
        let mut parts = SystemParts::clone(&system);
        change(&mut parts);
        System::checked(parts).unwrap_err().key
    };
    assert_eq!(refused(&|parts| parts.irs.clear()), "irs");
    assert_eq!(refused(&|parts| parts.sensor_grid.columns = 0), "sensors");
    assert_eq!(refused(&|parts| parts.noise_power_w = f64::NAN), "noise_power_w");
    assert_eq!(refused(&|parts| parts.element_grid = 9.into()), "irs[0].reflected_signal");
    assert_eq!(refused(&|parts| parts.irs[1].reflected_signal = CMatrix::zeros(10, 3)), "irs[1].codes");
    assert_eq!(refused(&|parts| parts.irs[2].waveform.subcarriers[0] = 100), "irs[2].subcarriers[0]");
    assert_eq!(refused(&|parts| parts.irs[2].pose.orientation.azimuth_rad = f64::NAN), "irs[2].azimuth_rad");
    assert_eq!(System::checked(SystemParts::clone(&system)), Ok(system));
}

#[test]
fn channels_that_do_not_fit_have_no_beam() {
    assert_eq!(zero_forcing(&[], 1.0), Ok(Vec::new()));
    let channel = CMatrix::from_fn(3, 8, |i, j| Complex64::new((i * j) as f64, i as f64 - j as f64));
    for other in [CMatrix::zeros(3, 7), CMatrix::zeros(0, 8), CMatrix::repeat(3, 8, f64::NAN.into())] {
        assert!(zero_forcing(&[channel.clone(), other], 1.0).is_err());
    }
    assert!(zero_forcing(&[channel.clone(), channel], 1.0).is_err());
}
