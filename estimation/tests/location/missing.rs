//! Any subset of the data: what is observable gives a fix, what is not says why.

use crate::scene::*;
use hyloc_estimation::location::*;
use model::geometry::PlanePoint;
use model::geometry::at_height;
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn draw(count: usize, target_m: PlanePoint) -> Draw {
    Draw::new(&irs(count), target_m, 60.0, &mut ChaCha8Rng::seed_from_u64(97))
}

/// Paths and bearings that are kept.
type Subset = (&'static [(usize, usize)], &'static [usize]);

fn only(draw: &mut Draw, paths: &[(usize, usize)], bearings: &[usize]) {
    let count = draw.irs.len();
    for path in 0..count * count {
        if !paths.contains(&(path / count, path % count)) {
            draw.delay_s[path] = None;
        }
    }
    for node in 0..count {
        if !bearings.contains(&node) {
            draw.bearing_rad[node] = None;
        }
    }
}

const COVERAGE: CoverageArea =
    CoverageArea { min_m: PlanePoint::new(0.0, 0.0), max_m: PlanePoint::new(10.0, 10.0) };

fn covered() -> LocateSettings {
    LocateSettings { coverage: Some(COVERAGE), ..LocateSettings::default() }
}

#[test]
fn one_irs_with_its_own_delay_and_bearing_is_enough() {
    let target_m = PlanePoint::new(6.0, 4.0);
    for node in 0..3 {
        let mut draw = draw(3, target_m);
        only(&mut draw, &[(node, node)], &[node]);
        let fix = locate(&draw.measurements(), &covered()).expect("observable");
        assert!((fix.position_m() - target_m).norm() < 4.0 * draw.bound_m2().trace().sqrt());
        assert!((fix.covariance_m2().trace() / draw.bound_m2().trace() - 1.0).abs() < 0.05);
        // A fault could not be seen: no level, and the status says so.
        assert_eq!(fix.protection_level_m, None);
        assert_eq!(fix.cautions, [Caution::NotCheckable, Caution::Unprotected]);
    }
}

#[test]
fn every_minimal_set_gives_the_position() {
    let target_m = PlanePoint::new(6.0, 4.0);
    let sets: [Subset; 6] = [
        (&[], &[0, 2]),
        (&[(0, 1)], &[0]),
        (&[(2, 0)], &[1]),
        (&[(0, 1), (1, 2), (2, 0)], &[]),
        (&[(0, 1), (1, 2)], &[]),
        (&[(0, 1), (0, 2), (2, 0)], &[1]),
    ];
    for (paths, bearings) in sets {
        let mut draw = draw(3, target_m);
        only(&mut draw, paths, bearings);
        let fix = locate(&draw.measurements(), &covered()).expect("observable");
        let error_m = (fix.position_m() - target_m).norm();
        assert!(error_m < 4.0 * draw.bound_m2().trace().sqrt(), "{paths:?} {bearings:?}: {error_m} m");
    }
}

#[test]
fn too_little_is_said_not_guessed() {
    let sets: [Subset; 4] = [(&[], &[]), (&[], &[1]), (&[(0, 1), (1, 0)], &[]), (&[(2, 2)], &[])];
    for (paths, bearings) in sets {
        let mut draw = draw(3, PlanePoint::new(6.0, 4.0));
        only(&mut draw, paths, bearings);
        let outcome = locate(&draw.measurements(), &covered());
        assert_eq!(Status::of(&outcome), Status::Unobservable);
        match outcome.unwrap_err() {
            Unobservable::NoMeasurements => assert!(paths.is_empty() && bearings.is_empty()),
            Unobservable::TooFewConstraints { delays, bearings: found } => {
                assert_eq!((delays, found), (paths.len(), bearings.len()));
            }
            other => panic!("{other}"),
        }
    }
}

/// Bearings from both ends of the line through the target leave the line open.
#[test]
fn a_target_on_the_baseline_is_not_located_by_bearings() {
    let mut bearings_only = draw(2, PlanePoint::new(10.0, 3.0));
    only(&mut bearings_only, &[], &[0, 1]);
    let outcome = locate(&bearings_only.measurements(), &covered());
    let Err(Unobservable::Geometry { direction_rad, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(direction_rad.cos().abs() < 0.1, "open along {direction_rad} rad");
    // The delay to one of them closes it.
    let mut draw = draw(2, PlanePoint::new(10.0, 3.0));
    only(&mut draw, &[(0, 0)], &[0, 1]);
    let fix = locate(&draw.measurements(), &covered()).expect("observable");
    assert!((fix.position_m() - draw.target_m).norm() < 0.5);
}

/// Delays from two IRSs have a mirror image about the line x = 10.
#[test]
fn the_coverage_area_decides_between_mirror_images() {
    let target_m = PlanePoint::new(4.0, 7.0);
    let mut draw = draw(2, target_m);
    only(&mut draw, &[(0, 0), (0, 1), (1, 0), (1, 1)], &[]);
    let image_m = PlanePoint::new(16.0, 7.0);

    let fix = locate(&draw.measurements(), &covered()).expect("observable");
    assert!((fix.position_m() - target_m).norm() < 1.0);
    let ambiguity = fix.ambiguity.expect("two places");
    assert!(ambiguity.resolved_by_coverage && (ambiguity.alternative_m - image_m).norm() < 1.0);
    assert!(fix.cautions.contains(&Caution::ResolvedByCoverage));

    // Without an area, or with one that holds both, nothing decides.
    let wide = CoverageArea { min_m: PlanePoint::zeros(), max_m: PlanePoint::new(20.0, 10.0) };
    for coverage in [None, Some(wide)] {
        let settings = LocateSettings { coverage, ..LocateSettings::default() };
        let fix = locate(&draw.measurements(), &settings).expect("observable");
        let ambiguity = fix.ambiguity.expect("two places");
        assert!(!ambiguity.resolved_by_coverage);
        assert!(fix.cautions.contains(&Caution::Ambiguous));
        let places = [fix.position_m(), ambiguity.alternative_m];
        assert!(places.iter().any(|p| (p - target_m).norm() < 1.0));
        assert!(places.iter().any(|p| (p - image_m).norm() < 1.0));
        if let Some(level_m) = fix.protection_level_m {
            assert!(level_m > (places[0] - places[1]).norm());
        }
    }
}

/// Coordinates far from the origin, as in a national grid, cost no accuracy.
#[test]
fn regress_far_origin() {
    let near = draw(3, PlanePoint::new(6.0, 4.0));
    let shift_m = PlanePoint::new(500_000.0, 4_600_000.0);
    let mut far = near.clone();
    far.irs.iter_mut().for_each(|pose| pose.position_m += at_height(shift_m, 0.0));
    let a = locate(&near.measurements(), &LocateSettings::default()).expect("observable");
    let b = locate(&far.measurements(), &LocateSettings::default()).expect("observable");
    assert!((a.position_m() + shift_m - b.position_m()).norm() < 1e-6);
    let three_stage = |fix: &Fix| fix.stages.three_stage.expect("stage 3").position_m;
    assert!((three_stage(&a) + shift_m - three_stage(&b)).norm() < 1e-6);
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e-6..1e-6f64,
        4 => -100.0..100.0f64,
        1 => prop::num::f64::ANY,
        1 => Just(0.0),
    ]
}

fn any_variance() -> impl Strategy<Value = f64> {
    prop_oneof![6 => 1e-20..1e-5f64, 2 => 0.0..1e3f64, 1 => prop::num::f64::ANY]
}

type Raw = (Vec<(f64, f64)>, Vec<Option<(f64, f64)>>, Vec<Option<(f64, f64)>>);

fn any_raw() -> impl Strategy<Value = Raw> {
    (1usize..6).prop_flat_map(|count| {
        (
            prop::collection::vec((any_value(), any_value()), count),
            prop::collection::vec(prop::option::of((any_value(), any_variance())), count * count),
            prop::collection::vec(prop::option::of((any_value(), any_variance())), count),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Whatever the values: no panic, and a fix is finite.
    #[test]
    fn nothing_panics((nodes, delays, bearings) in any_raw(), area in prop::option::of((0.0..50.0f64, 0.0..50.0f64))) {
        let measurements = Measurements::new(
            nodes.into_iter().map(|(x, y)| PlanePoint::new(x, y)).collect(),
            delays.into_iter().map(|d| d.map(|(delay_s, variance_s2)| CascadeDelay { delay_s, variance_s2 })).collect(),
            bearings.into_iter().map(|b| b.map(|(bearing_rad, variance_rad2)| Bearing { bearing_rad, variance_rad2 })).collect(),
        );
        if let Ok(measurements) = measurements {
            let coverage = area.map(|(x, y)| CoverageArea { min_m: PlanePoint::zeros(), max_m: PlanePoint::new(x, y) });
            let settings = LocateSettings { coverage, ..LocateSettings::default() };
            if let Ok(fix) = locate(&measurements, &settings) {
                prop_assert!(fix.position_m().iter().all(|v| v.is_finite()));
                prop_assert!(fix.covariance_m2().iter().all(|v| v.is_finite()));
                prop_assert!(fix.protection_level_m.is_none_or(|v| v.is_finite() && v > 0.0));
            }
            for scheme in LocatorScheme::ALL {
                if let Some(position_m) = estimate_by_scheme(scheme, &measurements) {
                    prop_assert!(position_m.iter().all(|v| v.is_finite()));
                }
            }
        }
    }

    /// Any subset of a real scene's data: a fix within its own covariance, or a reason.
    #[test]
    fn any_subset_is_located_or_refused(seed in 0u64..1000, keep in prop::collection::vec(any::<bool>(), 20), x in 0.5..9.5f64, y in 0.5..9.5f64) {
        let target_m = PlanePoint::new(x, y);
        let mut draw = Draw::new(&irs(4), target_m, 60.0, &mut ChaCha8Rng::seed_from_u64(seed));
        (0..16).filter(|i| !keep[*i]).for_each(|i| draw.delay_s[i] = None);
        (0..4).filter(|i| !keep[16 + i]).for_each(|i| draw.bearing_rad[i] = None);
        if let Ok(fix) = locate(&draw.measurements(), &covered()) {
            let error = fix.position_m() - target_m;
            let normalised = error.dot(&fix.covariance_m2().cholesky().unwrap().solve(&error));
            let unresolved = fix.ambiguity.is_some_and(|ambiguity| !ambiguity.resolved_by_coverage);
            prop_assert!(normalised < 40.0 || unresolved || fix.cautions.contains(&Caution::FaultExcluded),
                "{normalised} {:?}", fix.cautions);
        }
    }
}
