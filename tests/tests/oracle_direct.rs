//! The direct method against direct.json: positions to 1e-4 m, offsets to 1e-12 s, covariances to 1e-4 relative,
//! log-likelihoods to 1e-6 relative.

use hyloc::solve::{Cases, direct, solve_all};
use hyloc_tests::{numbers, relative_error, vectors};
use serde_json::{Value, json};

fn solve(file: &Value) -> Result<Value, String> {
    let input: Cases<direct::DirectCase> =
        serde_json::from_value(file.clone()).map_err(|error| error.to_string())?;
    let answers = solve_all(&(), &input).map_err(|error| format!("{error:#}"))?;
    serde_json::to_value(answers).map_err(|error| error.to_string())
}

#[test]
fn oracle_direct() {
    let file = vectors("direct.json");
    let output = solve(&file).unwrap();
    for (i, case) in file["cases"].as_array().unwrap().iter().enumerate() {
        let (answer, expected, name) = (&output["cases"][i], &case["expected"], &case["name"]);
        let (found, wanted) = (numbers(&answer["positions_m"]), numbers(&expected["positions_m"]));
        assert_eq!(found.len(), wanted.len(), "{name}");
        for (a, e) in found.iter().zip(wanted) {
            assert!((a - e).abs() < 1e-4, "{name}: {a} m for {e} m");
        }
        let error = relative_error(&answer["covariance"], &expected["covariance"]);
        assert!(error < 1e-4, "{name}: covariance {error}");
        let error = relative_error(&answer["log_likelihood"], &expected["log_likelihood"]);
        assert!(error < 1e-6, "{name}: log-likelihood {error}");
        assert_eq!(answer["offsets_s"].is_null(), expected["offsets_s"].is_null(), "{name}");
        if !expected["offsets_s"].is_null() {
            for (a, e) in numbers(&answer["offsets_s"]).iter().zip(numbers(&expected["offsets_s"])) {
                assert!((a - e).abs() < 1e-12, "{name}: {a} s for {e} s");
            }
            assert!(relative_error(&answer["offset_std_s"], &expected["offset_std_s"]) < 1e-4, "{name}");
        }
    }
}

/// Answers do not depend on optional keys that have their default value; a path may be missing.
#[test]
fn optional_keys_have_defaults() {
    let mut file = vectors("direct.json");
    let cases = file["cases"].as_array_mut().unwrap();
    cases.truncate(1);
    let full = solve(&json!({ "cases": cases })).unwrap();
    let case = cases[0].as_object_mut().unwrap();
    for key in ["name", "wavefront", "targets", "clocks", "expected"] {
        case.remove(key);
    }
    for corner in ["min_m", "max_m"] {
        case["coverage"][corner].as_array_mut().unwrap().truncate(2);
    }
    assert_eq!(solve(&json!({ "cases": [case] })).unwrap(), full);
    case["spectra"][0][1] = Value::Null;
    let less = solve(&json!({ "cases": [case] })).unwrap();
    let moved = |i: usize| {
        let place = |answer: &Value| numbers(&answer["cases"][0]["positions_m"])[i];
        (place(&less) - place(&full)).abs()
    };
    assert!(moved(0) > 0.0 && moved(0).hypot(moved(1)) < 0.3);
}

#[test]
fn wrong_input_is_explained() {
    let file = vectors("direct.json");
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut case = file["cases"][0].clone();
        change(&mut case);
        solve(&json!({ "cases": [case] })).unwrap_err()
    };
    let message = refused(&|case| case["panels"][1]["centre_m"] = json!([1.0, 2.0, 3.0, 4.0]));
    assert!(message.contains("panels[1].centre_m: 4 coordinates, expected 2 or 3"), "{message}");
    let message = refused(&|case| case["panels"][0]["centre_m"] = json!([5.0, 5.0, 0.0]));
    assert!(message.contains("IRS 0 lies inside the searched volume"), "{message}");
    let message = refused(&|case| case["panels"][2]["sense_m"] = json!([]));
    assert!(message.contains("IRS 2: there are no sensors"), "{message}");
    let message = refused(&|case| case["noise_power_w"] = json!(0.0));
    assert!(message.contains("noise_power_w = 0: must be positive"), "{message}");
    let message = refused(&|case| case["targets"] = json!(0));
    assert!(message.contains("0 targets: at least 1"), "{message}");
    let message = refused(&|case| case["coverage"]["max_m"] = json!([0.0, 0.0, 0.0]));
    assert!(message.contains("no extent"), "{message}");
    let message = refused(&|case| case["spectra"] = json!([[null]]));
    assert!(message.contains("spectra: expected a table of 3 x 3"), "{message}");
    let message = refused(&|case| {
        case["spectra"] = json!([[null, null, null], [null, null, null], [null, null, null]])
    });
    assert!(message.contains("no path delivered a spectrum"), "{message}");
    let message = refused(&|case| case["wavefront"] = json!("cylindrical"));
    assert!(message.contains("unknown variant `cylindrical`"), "{message}");
    let message = refused(&|case| case["panels"][0]["frequencies_hz"] = json!([1.0]));
    assert!(message.contains("IRS 0: matrix of codes is 6 x 20, expected 6 x 1"), "{message}");
}
