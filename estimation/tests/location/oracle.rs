//! `tests/vectors/locator.json`: answers of an independent implementation.

use hyloc_estimation::location::*;
use model::geometry::PlanePoint;
use model::units::SPEED_OF_LIGHT_M_S;
use serde_json::Value;

fn cases() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/locator.json");
    let text = std::fs::read_to_string(path).expect("locator.json is there");
    let file: Value = serde_json::from_str(&text).expect("locator.json is JSON");
    file["cases"].as_array().expect("cases").clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("array").iter().map(|v| v.as_f64().expect("number")).collect()
}

fn matrix(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().expect("array").iter().map(numbers).collect()
}

fn point(value: &Value) -> PlanePoint {
    PlanePoint::from_row_slice(&numbers(value))
}

fn measurements(case: &Value) -> Measurements {
    assert_eq!(case["speed_of_light_m_s"].as_f64(), Some(SPEED_OF_LIGHT_M_S));
    let delays = matrix(&case["cascade_delay_s"]).concat();
    let delay_variances = matrix(&case["cascade_delay_variance_s2"]).concat();
    let bearings = numbers(&case["bearing_rad"]);
    let bearing_variances = numbers(&case["bearing_variance_rad2"]);
    Measurements::new(
        case["irs_position_m"].as_array().expect("positions").iter().map(point).collect(),
        delays
            .into_iter()
            .zip(delay_variances)
            .map(|(delay_s, variance_s2)| Some(CascadeDelay { delay_s, variance_s2 }))
            .collect(),
        bearings
            .into_iter()
            .zip(bearing_variances)
            .map(|(bearing_rad, variance_rad2)| Some(Bearing { bearing_rad, variance_rad2 }))
            .collect(),
    )
    .expect("valid")
}

fn assert_point(what: &str, found: PlanePoint, expected: &Value) {
    let gap_m = (found - point(expected)).norm();
    assert!(gap_m < 1e-6, "{what}: off by {gap_m} m");
}

#[test]
fn oracle_locator_cases() {
    let cases = cases();
    assert_eq!(cases.len(), 3);
    for (index, case) in cases.iter().enumerate() {
        let expected = &case["expected"];
        let measurements = measurements(case);
        let fix = locate(&measurements, &LocateSettings::default()).expect("observable");
        assert!(fix.excluded.is_empty(), "case {index}: {:?}", fix.excluded);
        assert_eq!(fix.status(), Status::Nominal, "case {index}: {:?}", fix.cautions);

        let segments = &fix.stages.segments;
        for (found, expected) in segments.delay_s.iter().zip(numbers(&expected["segment_delay_s"])) {
            assert!((found / expected - 1.0).abs() < 1e-10, "case {index}: segment {found} s");
        }
        let covariance = matrix(&expected["segment_delay_covariance_s2"]);
        for (i, row) in covariance.iter().enumerate() {
            for (j, expected) in row.iter().enumerate() {
                assert!(
                    (segments.covariance_s2[(i, j)] / expected - 1.0).abs() < 1e-6,
                    "case {index}: ({i}, {j})"
                );
            }
        }

        let two_stage = fix.stages.two_stage.expect("stage 2");
        assert_point("two-stage", two_stage.position_m, &expected["two_stage_m"]);
        let square_m2 = expected["two_stage_square_m2"].as_f64().expect("number");
        assert!((two_stage.square_m2 - square_m2).abs() < 1e-6);
        assert_point(
            "three-stage",
            fix.stages.three_stage.expect("stage 3").position_m,
            &expected["three_stage_m"],
        );
        assert_point("maximum likelihood", fix.position_m(), &expected["maximum_likelihood_m"]);
        let covariance = matrix(&expected["maximum_likelihood_covariance_m2"]);
        for (i, row) in covariance.iter().enumerate() {
            for (j, expected) in row.iter().enumerate() {
                assert!(
                    (fix.covariance_m2()[(i, j)] / expected - 1.0).abs() < 1e-6,
                    "case {index}: ({i}, {j})"
                );
            }
        }
        let least_squares = estimate_by_scheme(LocatorScheme::LeastSquares, &measurements).expect("finite");
        assert_point("least squares", least_squares, &expected["ls_tan_m"]);
    }
}
