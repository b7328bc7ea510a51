//! Support for tests across crates: processes, containers, a browser, Prometheus, Python, and reference vectors.

pub mod browser;
pub mod containers;
pub mod pipeline;
pub mod process;
pub mod prometheus;
pub mod python;

use std::path::Path;

use serde_json::Value;

/// A file of reference vectors.
pub fn vectors(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(name);
    let text = std::fs::read_to_string(path).expect("the reference vectors are part of the project");
    serde_json::from_str(&text).expect("the reference vectors are JSON")
}

/// All numbers of a JSON value, in order.
pub fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(n) => n.as_f64().into_iter().collect(),
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        Value::Object(fields) => fields.values().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

/// Largest difference between two values, relative to the largest magnitude in `expected`.
pub fn relative_error(actual: &Value, expected: &Value) -> f64 {
    let (actual, expected) = (numbers(actual), numbers(expected));
    assert_eq!(actual.len(), expected.len(), "different shapes");
    let scale = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    actual.iter().zip(&expected).fold(0.0f64, |m, (a, e)| m.max((a - e).abs())) / scale
}
