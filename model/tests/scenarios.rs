//! Impossible scenarios are refused with a sentence that names key, value and range.

use hyloc_model::scenario::{IrsPlacement, Motion, Scenario, ring};
use hyloc_model::{MOST_IRS, RankCase, System};
use proptest::prelude::*;

fn refusal(edit: impl Fn(&mut Scenario)) -> String {
    let mut scenario = Scenario::default();
    edit(&mut scenario);
    scenario.validate().expect_err("must be refused").to_string()
}

/// Table I with `count` IRSs in a row, and antennas and subcarriers enough for all of them.
fn crowd(count: usize) -> Scenario {
    let mut scenario = Scenario::default();
    scenario.base_station.antennas = 10 * count;
    scenario.signal.subcarriers = 34 * count;
    scenario.irs = (0..count).map(|k| IrsPlacement::at([20.0 + k as f64, 40.0, 0.0])).collect();
    scenario
}

/// The limit on K is one number: what a scenario may list, everything after it can hold.
#[test]
fn the_most_irss_are_allowed_and_one_more_is_not() {
    assert_eq!(crowd(MOST_IRS).validate(), Ok(()));
    assert_eq!(crowd(MOST_IRS + 1).validate().unwrap_err().key, "irs");
    assert!(ring(&Scenario::default(), MOST_IRS + 1).is_err());
}

#[test]
fn impossible_values_are_named() {
    let cases: [(String, &[&str]); 10] = [
        (
            refusal(|s| s.base_station.power_dbm = -3.0),
            &["base_station.power_dbm", "-3", "between 0 and 100"],
        ),
        (refusal(|s| s.signal.bandwidth_hz = f64::NAN), &["signal.bandwidth_hz", "NaN"]),
        (refusal(|s| s.signal.subcarriers = 29), &["signal.subcarriers", "29", "at least 30"]),
        (refusal(|s| s.base_station.antennas = 29), &["base_station.antennas", "29", "at least 30"]),
        (refusal(|s| s.irs[1].position_m = [5.0, 5.0, 0.0]), &["irs[1].position_m", "[5, 5]", "coverage"]),
        (refusal(|s| s.irs[2].position_m = [10.0, 50.0, 0.0]), &["irs[2].position_m", "irs[0]"]),
        (
            refusal(|s| s.targets[0].motion = Motion::Fixed { position_m: [10.0, 50.0, 0.0] }),
            &["target.motion.fixed.position_m", "[10, 50]", "irs[0]"],
        ),
        (refusal(|s| s.irs.clear()), &["irs", "0", "between 1 and 32"]),
        (refusal(|s| *s = crowd(33)), &["irs", "33", "between 1 and 32"]),
        (refusal(|s| s.surface.elements = 0.into()), &["surface.elements", "0", "between 1 and"]),
    ];
    for (message, parts) in &cases {
        for part in *parts {
            assert!(message.contains(part), "{message:?} does not name {part:?}");
        }
    }
}

#[test]
fn rings_of_every_size_are_feasible() {
    for count in 2..=MOST_IRS {
        let scenario = ring(&Scenario::default(), count).unwrap();
        assert!(scenario.signal.subcarriers / count >= 33);
        assert!(scenario.base_station.antennas >= 10 * count);
    }
    for count in [2, 5, 16] {
        let system = System::new(&ring(&Scenario::default(), count).unwrap()).unwrap();
        assert_eq!(system.irs_count(), count);
        assert!(system.warnings().is_empty(), "{:?}", system.warnings());
    }
    assert!(ring(&Scenario::default(), 33).unwrap_err().to_string().contains("between 2 and 32"));
    assert_eq!(ring(&Scenario::default(), 3).unwrap().signal, Scenario::default().signal);
}

#[test]
fn rank_follows_the_channel() {
    let mut scenario = Scenario::default();
    scenario.channel.angles = hyloc_model::scenario::PathAngles::DftGrid;
    let system = System::new(&scenario).unwrap();
    let singular = system.irs[0].reflected_signal.clone().svd(false, false).singular_values;
    assert!(singular.max() / singular.min() < 3.0, "{singular}");
    assert_eq!(system.rank_case(0, scenario.rcs_m2()), Some(RankCase::Full));
    scenario.channel.paths = 1;
    assert_eq!(System::new(&scenario).unwrap().rank_case(0, scenario.rcs_m2()), Some(RankCase::One));
    scenario.irs[1].paths = Some(4);
    let mixed = System::new(&scenario).unwrap();
    assert_eq!(
        (mixed.rank_case(0, scenario.rcs_m2()), mixed.rank_case(1, scenario.rcs_m2())),
        (Some(RankCase::One), Some(RankCase::Partial))
    );
}

#[test]
fn a_wide_view_is_warned_about_with_its_sector() {
    let mut scenario = Scenario::default();
    scenario.coverage.max_m = [10.0, 45.0, 0.0];
    let warnings = System::new(&scenario).unwrap().warnings();
    assert!(warnings.iter().any(|w| w.contains("+-30.0 degrees")), "{warnings:?}");
}

proptest! {
    /// Whatever the numbers, a scenario is refused or built: never a panic.
    #[test]
    fn arbitrary_numbers_never_panic(
        elements in 0usize..6, sensors in 0usize..6, paths in 0usize..6, antennas in 0usize..40,
        subcarriers in 0usize..40, wavelength in prop::num::f64::ANY, spacing in -1.0..12.0f64,
        x in prop::num::f64::ANY, seed in any::<u64>(),
    ) {
        let mut scenario = Scenario::default().with_seed(seed);
        scenario.surface.elements = elements.into();
        scenario.surface.sensors = sensors.into();
        scenario.channel.paths = paths;
        scenario.base_station.antennas = antennas;
        scenario.signal.subcarriers = subcarriers;
        scenario.signal.spacing_wavelengths = spacing;
        let _ = System::new(&scenario);
        scenario.signal.wavelength_m = wavelength;
        scenario.irs[0].position_m[0] = x;
        let _ = System::new(&scenario);
    }
}
