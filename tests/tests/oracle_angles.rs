//! The joint problem against anm.json: the objective is as accurate as asked for, whatever the tolerance.

use hyloc::solve::{Cases, angles, solve_all};
use hyloc_tests::{numbers, relative_error, vectors};

fn answers(tolerance: Option<f64>) -> (serde_json::Value, serde_json::Value) {
    let file = vectors("anm.json");
    let input: Cases<angles::AngleCase> = serde_json::from_value(file.clone()).unwrap();
    let settings = angles::AngleSolveFlags { tolerance, max_iterations: Some(20_000), ..Default::default() };
    (file, serde_json::to_value(solve_all(&settings, &input).unwrap()).unwrap())
}

#[test]
fn oracle_joint_objective() {
    for (tolerance, bar) in
        [(Some(1e-2), 1e-2), (Some(1e-3), 1e-3), (None, 1e-4), (Some(1e-5), 1e-5), (Some(1e-6), 1e-6)]
    {
        let (file, output) = answers(tolerance);
        for (i, case) in file["cases"].as_array().unwrap().iter().enumerate() {
            let answer = &output["cases"][i];
            let expected = case["expected"]["objective"].as_f64().unwrap();
            let error = answer["objective"].as_f64().unwrap() / expected - 1.0;
            println!(
                "case {i}, stop {tolerance:?}: objective off by {error:+.1e} in {} iterations",
                answer["iterations"]
            );
            assert_eq!(answer["converged"], true);
            let estimated = answer["objective_error"].as_f64().unwrap();
            assert!(
                error.abs() < estimated && estimated < bar,
                "case {i}: {error:e}, estimated {estimated:e}"
            );
        }
    }
}

#[test]
fn oracle_joint_solution() {
    let (file, output) = answers(Some(1e-7));
    for (i, case) in file["cases"].as_array().unwrap().iter().enumerate() {
        let answer = &output["cases"][i];
        let error = relative_error(
            &answer["arrival_toeplitz_first_row"],
            &case["expected"]["arrival_toeplitz_first_row"],
        );
        println!("case {i}: T(v) off by {error:.1e}");
        assert!(error < 1e-3, "case {i}: {error:e}");
        let truth = numbers(&case["true_angles_rad"]);
        for (l, truth) in truth.iter().enumerate() {
            let arrival = answer["arrival_rad"][l].as_f64().unwrap();
            assert!((arrival - truth).abs() < 0.1, "case {i}, IRS {l}: {arrival} for {truth}");
        }
        let one_direction = case["reflected_signal"][0]["re"][0].as_array().unwrap().len() == 1;
        for departure in answer["departure_rad"].as_array().unwrap() {
            assert_eq!(departure.is_null(), one_direction, "case {i}: {departure}");
        }
    }
}
