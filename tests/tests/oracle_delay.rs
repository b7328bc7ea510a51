//! Delay and block against delay.json: 1e-12 s, and 1e-4 relative.

use hyloc::solve::{Cases, delay, solve_all};
use hyloc_tests::{relative_error, vectors};

#[test]
fn oracle_delay() {
    let file = vectors("delay.json");
    let input: Cases<delay::DelayCase> = serde_json::from_value(file.clone()).unwrap();
    let output = serde_json::to_value(solve_all(&(), &input).unwrap()).unwrap();
    for (i, case) in file["cases"].as_array().unwrap().iter().enumerate() {
        let (answer, expected) = (&output["cases"][i], &case["expected"]);
        let error = answer["delay_s"].as_f64().unwrap() - expected["delay_s"].as_f64().unwrap();
        let block = relative_error(&answer["block"], &expected["block"]);
        println!("case {i}: delay off by {error:+.1e} s, block by {block:.1e}");
        assert!(error.abs() < 1e-12 && block < 1e-4, "case {i}");
    }
}
