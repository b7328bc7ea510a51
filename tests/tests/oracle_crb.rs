//! Bounds against crb.json: 1e-8 relative, through the same code as `hyloc solve crb`.

use hyloc::solve::{Cases, crb, solve_all};
use hyloc_tests::{numbers, relative_error, vectors};
use serde_json::Value;

const TOLERANCE: f64 = 1e-8;

#[test]
fn oracle_crb() {
    let file = vectors("crb.json");
    let input: Cases<crb::CrbCase> = serde_json::from_value(file.clone()).unwrap();
    let output = serde_json::to_value(solve_all(&(), &input).unwrap()).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(output["cases"].as_array().unwrap().len(), cases.len());
    for (case, actual) in cases.iter().zip(output["cases"].as_array().unwrap()) {
        for gain in ["unknown_gain", "known_gain"] {
            let (actual, expected) = (&actual[gain], &case["expected"][gain]);
            for key in ["angle_crb_rad2", "delay_crb_s2"] {
                elementwise(&actual[key], &expected[key]);
            }
            for scheme in ["hybrid", "angle", "delay"] {
                let key = "position_crb_m2";
                assert!(
                    relative_error(&actual[key][scheme], &expected[key][scheme]) < TOLERANCE,
                    "{gain} {scheme}"
                );
            }
            path_information(&actual["path_fim_aoa_aod_delay"], &expected["path_fim_aoa_aod_delay"]);
        }
    }
}

fn elementwise(actual: &Value, expected: &Value) {
    for (a, e) in numbers(actual).iter().zip(numbers(expected)) {
        assert!((a / e - 1.0).abs() < TOLERANCE, "{a} for {e}");
    }
}

/// The three parameters have different units: each entry is compared on the scale of its two diagonals.
fn path_information(actual: &Value, expected: &Value) {
    for (a, e) in numbers(actual).chunks_exact(9).zip(numbers(expected).chunks_exact(9)) {
        for (i, j) in (0..3).flat_map(|i| (0..3).map(move |j| (i, j))) {
            let scale = (e[4 * i] * e[4 * j]).abs().sqrt();
            assert!((a[3 * i + j] - e[3 * i + j]).abs() < TOLERANCE * scale, "({i}, {j}): {a:?} for {e:?}");
        }
    }
}
