//! Location against locator.json: positions to 1e-6 m, covariances to 1e-6 relative.

use hyloc::solve::{Cases, locate, solve_all};
use hyloc_tests::{numbers, relative_error, vectors};

#[test]
fn oracle_locate() {
    let file = vectors("locator.json");
    let input: Cases<locate::LocateCase> = serde_json::from_value(file.clone()).unwrap();
    let output = serde_json::to_value(solve_all(&(), &input).unwrap()).unwrap();
    for (i, case) in file["cases"].as_array().unwrap().iter().enumerate() {
        let (answer, expected) = (&output["cases"][i], &case["expected"]);
        for key in ["two_stage_m", "three_stage_m", "maximum_likelihood_m"] {
            for (a, e) in numbers(&answer[key]).iter().zip(numbers(&expected[key])) {
                assert!((a - e).abs() < 1e-6, "case {i}, {key}: {a} for {e}");
            }
        }
        for key in ["segment_delay_s", "segment_delay_covariance_s2", "maximum_likelihood_covariance_m2"] {
            assert!(relative_error(&answer[key], &expected[key]) < 1e-6, "case {i}, {key}");
        }
        assert_eq!(answer["status"], "nominal", "case {i}");
        assert_eq!(answer["excluded"].as_array().unwrap().len(), 0);
    }
}

#[test]
fn an_unobservable_position_is_reported() {
    let mut file = vectors("locator.json");
    let case = &mut file["cases"][0];
    for row in case["cascade_delay_s"].as_array_mut().unwrap() {
        row.as_array_mut().unwrap().fill(serde_json::Value::Null);
    }
    case["bearing_rad"][0] = serde_json::Value::Null;
    case["bearing_rad"][1] = serde_json::Value::Null;
    let input: Cases<locate::LocateCase> = serde_json::from_value(file).unwrap();
    let output = serde_json::to_value(solve_all(&(), &input).unwrap()).unwrap();
    let answer = &output["cases"][0];
    assert_eq!(answer["status"], "unobservable");
    assert!(answer["maximum_likelihood_m"].is_null());
    assert_eq!(answer["reasons"].as_array().unwrap().len(), 1);
}
