use super::super::clocks::ClockPrior;
use super::super::test_scene::{KINDS, Kind, TARGET_M, TestScene};
use super::*;
use crate::counting::own_allocations;

#[test]
fn noise_is_measured_on_what_the_fix_leaves() {
    assert_eq!(noise_factor(300.0, 200.0), 1.5);
    assert_eq!(noise_factor(20.0, 200.0), 0.5);
    assert_eq!(noise_factor(300.0, 99.0), 1.0);
}

#[test]
fn one_step_outside_the_grid_is_still_searched() {
    let locator = TestScene::new(50.0).locator;
    let places = &locator.grid.places;
    for (steps, searched) in [(-0.9, true), (0.9, true), (-1.1, false), (1.1, false)] {
        let corner = places.coordinates(if steps < 0.0 { 0 } else { places.points() - 1 });
        for i in 0..2 {
            let mut at = corner.clone();
            at[i] += steps * places.step[i];
            assert_eq!(locator.searched(&at), searched, "{steps}");
        }
    }
}

/// A path or node disagrees from `ln(cells terms / probability)` on; where both do, the one that loses more is blamed.
#[test]
fn disagreement_is_a_loss_beyond_the_threshold() {
    let scene = TestScene::new(50.0);
    let locator = &scene.locator;
    let mut survey = locator.survey(scene.evidence(0, TARGET_M, |_, _| Kind::Spectrum));
    let here: Vec<f64> = locator.terms(&survey.evidence, TARGET_M.into()).iter().map(Term::value).collect();
    let cells = (locator.grid.places.extent(0) / locator.resolution_m).powi(2);
    assert!(cells > 2.0 && here.len() == 9);
    let threshold = (cells * 9.0 / locator.settings.fault_probability).ln();
    let mut values = locator.searched_values(&survey).clone();
    values.highest.fill(f64::NEG_INFINITY);
    values.highest_sensor.fill(f64::NEG_INFINITY);
    values.highest[5] = here[5] + threshold - 0.01;
    survey.searched = values.clone().into();
    assert_eq!(locator.disagreeing(&survey, TARGET_M.into()), None);
    values.highest[5] += 0.02;
    survey.searched = values.clone().into();
    let found = locator.disagreeing(&survey, TARGET_M.into()).unwrap();
    assert_eq!(found.fault, Fault::Path { sensor: 1, reflector: 2 });
    assert!((found.loss - threshold - 0.01).abs() < 1e-9);
    values.highest_sensor[2] = here[6] + here[7] + here[8] + threshold + 1.0;
    survey.searched = values.into();
    let found = locator.disagreeing(&survey, TARGET_M.into()).unwrap();
    assert_eq!(found.fault, Fault::SensorDelays { node: 2 });
    assert!((found.loss - threshold - 1.0).abs() < 1e-9);
}

/// A clock of node 1 that is 20 ns late: its paths are taken out, as long as they are no more than the allowed share.
#[test]
fn paths_that_disagree_are_taken_out() {
    let scene = TestScene::new(60.0);
    let mut evidence = scene.evidence(0, TARGET_M, |_, _| Kind::Spectrum);
    evidence.nodes[1].retime(-20e-9, &scene.locator.scene.layout().phasors(-20e-9));
    let fix = scene.locator.locate(&scene.locator.survey(evidence.clone())).unwrap();
    assert_eq!(fix.excluded.iter().map(|e| e.fault).collect::<Vec<_>>(), [Fault::SensorDelays { node: 1 }]);
    assert_eq!(fix.paths, 6);
    assert!((fix.position_m - TARGET_M).norm() < 5.0 * fix.covariance_m2.trace().sqrt());
    let settings = DirectSettings { most_excluded_share: 0.2, ..DirectSettings::default() };
    let strict = DirectLocator::new(scene.locator.system(), settings).unwrap();
    let kept = strict.locate(&strict.survey(evidence));
    assert!(kept.is_err() || kept.is_ok_and(|fix| fix.excluded.is_empty() && fix.paths == 9));
}

/// Twelve frames at 40 dBm, where the posterior is integrated and other grid points count: errors agree with covariances.
#[test]
fn weak_fixes_are_where_they_say() {
    let scene = TestScene::new(40.0);
    let mut sum = 0.0;
    for frame in 0..12 {
        let survey = scene.locator.survey(scene.evidence(frame, TARGET_M, |_, _| Kind::Spectrum));
        let fix = scene.locator.locate(&survey).unwrap();
        let error = (fix.position_m - TARGET_M).xy();
        let error = DVector::from_row_slice(error.as_slice());
        sum += error.dot(&fix.covariance_m2.clone().cholesky().unwrap().solve(&error));
        assert!(fix.protection_level_m.unwrap() > 2.0 * fix.covariance_m2.trace().sqrt());
    }
    // Chi-square with 24 degrees of freedom: 99.9 % band.
    assert!((7.0..53.0).contains(&sum), "{sum}");
}

/// Doubts follow from the probabilities, and more easily where the best of many was selected.
#[test]
fn doubts_are_raised_at_their_limits() {
    let locator = TestScene::new(50.0).locator;
    assert_eq!(locator.doubts(1.9e-3, 0.9e-5, false), []);
    assert_eq!(locator.doubts(2.1e-3, 0.9e-5, false), [Caution::Ambiguous]);
    assert_eq!(locator.doubts(1.9e-3, 1.1e-5, false), [Caution::BarelyDetected]);
    assert_eq!(locator.doubts(1.9e-3, 0.9e-5, true), [Caution::BarelyDetected]);
    assert_eq!(locator.doubts(1.9e-3, 0.9e-7 * 0.5, true), []);
}

/// Ascents from every grid peak of a second frame, whatever the paths deliver, clocks trusted or not: the memory of the first
/// frame is enough.
#[test]
fn the_second_climb_allocates_nothing() {
    type Delivered = fn(usize, usize) -> Kind;
    let delivered: [Delivered; 4] =
        [|_, _| Kind::Spectrum, |_, _| Kind::Block, |_, _| Kind::Delay, |l, k| KINDS[(l + k) % 3]];
    let scene = TestScene::new(50.0);
    let locator = &scene.locator;
    let mut first = 0;
    for (kind, timed) in delivered.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let counted = [0, 1].map(|frame| {
            let evidence = scene.evidence(frame, TARGET_M, kind);
            let survey = match timed {
                true => locator.survey_with_clocks(evidence, ClockPrior::independent(3, 1e-8).unwrap()),
                false => locator.survey(evidence),
            };
            let clocks = survey.clocks.as_ref();
            let peaks = locator.grid.places.peaks(locator.searched_totals(&survey));
            let starts: Vec<_> = peaks.iter().take(4).map(|peak| locator.start(peak.0, clocks)).collect();
            let longest = DVector::repeat(starts[0].len(), locator.longest_step_m());
            let before = own_allocations();
            for mut at in starts {
                let value = locator.climb(&survey.evidence, clocks, &mut at, &longest);
                assert!(value.is_finite());
            }
            own_allocations() - before
        });
        assert!(counted[1] == 0, "{counted:?}, clocks unknown: {timed}");
        first += counted[0];
    }
    // What is counted would show.
    assert!(first > 100, "{first}");
}
