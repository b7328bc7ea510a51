//! Hostile problems for `hyloc solve`: thousands of changes to valid ones. Each is answered or refused, without a panic.

use hyloc::solve::angles::{AngleCase, AngleSolveFlags};
use hyloc::solve::crb::CrbCase;
use hyloc::solve::delay::DelayCase;
use hyloc::solve::locate::LocateCase;
use hyloc::solve::{Cases, Problem, solve_all};
use serde_json::{Value, json};

/// A multiplicative congruential generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % count.max(1) as u64) as usize
    }
}

const NUMBERS: [f64; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.25,
    1e-3,
    1e3,
    -1e3,
    1e-9,
    1e9,
    1e-15,
    1e15,
    -1e15,
    1e-30,
    1e30,
    1e-300,
    5e-324,
    1e300,
    -1e300,
    1.7976931348623157e308,
    4096.0,
    4294967296.0,
    1e18,
];

/// Changes one place below `value`: a number, a list, or what kind of value it is.
fn change(value: &mut Value, draw: &mut Draw) {
    let descend = draw.below(8) > 0;
    match value {
        Value::Object(map) if !map.is_empty() && descend => {
            let at = draw.below(map.len());
            change(map.values_mut().nth(at).unwrap(), draw);
        }
        Value::Array(list) if !list.is_empty() && descend => {
            let at = draw.below(list.len());
            change(&mut list[at], draw);
        }
        Value::Array(list) => match draw.below(5) {
            0 => list.clear(),
            1 => drop(list.pop()),
            2 => list.extend(list.last().cloned()),
            3 => list.reverse(),
            _ => {
                let length = draw.below(40);
                *list = list.iter().cycle().take(if list.is_empty() { 0 } else { length }).cloned().collect();
            }
        },
        other => {
            *other = match draw.below(16) {
                0 => Value::Null,
                1 => json!([]),
                2 => json!(u64::MAX),
                3 => json!(-1),
                4 => json!([[]]),
                _ => json!(NUMBERS[draw.below(NUMBERS.len())]),
            };
        }
    }
}

/// Solves `count` changed problems of a file; returns how many were answered and how many could be read.
fn attack<P: Problem>(file: &str, settings: &P::Settings, count: usize) -> (usize, usize) {
    let path = format!("{}/../tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut cases = vectors["cases"].as_array().unwrap().clone();
    // The small ones: most changes would be lost in the large ones.
    cases.sort_by_key(|case| case.to_string().len());
    cases.truncate(4);
    let mut draw = Draw(17);
    let (mut answered, mut read) = (0, 0);
    for _ in 0..count {
        let mut case = cases[draw.below(cases.len())].clone();
        for _ in 0..=draw.below(3) {
            change(&mut case, &mut draw);
        }
        let Ok(input) = serde_json::from_value::<Cases<P>>(json!({ "cases": [case] })) else { continue };
        read += 1;
        if let Ok(answer) = solve_all(settings, &input) {
            serde_json::to_string(&answer).unwrap();
            answered += 1;
        }
    }
    (answered, read)
}

fn assert_mixed(name: &str, (answered, read): (usize, usize)) {
    assert!(read > 1000, "{name}: only {read} could be read");
    assert!(answered > 100 && answered < read, "{name}: {answered} of {read} answered");
}

#[test]
fn hostile_scenes_are_answered_or_refused() {
    assert_mixed("crb", attack::<CrbCase>("crb.json", &(), 5000));
}

#[test]
fn hostile_spectra_are_answered_or_refused() {
    assert_mixed("delay", attack::<DelayCase>("delay.json", &(), 4000));
}

#[test]
fn hostile_measurements_are_answered_or_refused() {
    assert_mixed("locate", attack::<LocateCase>("locator.json", &(), 4000));
}

#[test]
fn hostile_blocks_are_answered_or_refused() {
    let settings = AngleSolveFlags { max_iterations: Some(40), ..AngleSolveFlags::default() };
    assert_mixed("angles", attack::<AngleCase>("anm.json", &settings, 3000));
}

/// The inputs that were known to panic or to take for ever.
#[test]
fn known_attacks_are_refused_with_the_key_to_change() {
    let path = format!("{}/../tests/vectors/anm.json", env!("CARGO_MANIFEST_DIR"));
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let refused = |key: &str, value: Value, iterations: usize| {
        let mut case = vectors["cases"][0].clone();
        case[key] = value;
        let input: Cases<AngleCase> = serde_json::from_value(json!({ "cases": [case] })).unwrap();
        let settings = AngleSolveFlags { max_iterations: Some(iterations), ..AngleSolveFlags::default() };
        format!("{:#}", solve_all(&settings, &input).unwrap_err())
    };
    for spacing in [-0.5, 0.0, 1e-300, 1e300] {
        assert!(refused("spacing_wavelengths", json!(spacing), 10).contains("spacing_wavelengths"));
    }
    let lambda = vectors["cases"][0]["lambda"].clone();
    assert!(refused("lambda", lambda, 1 << 40).contains("--max-iterations"));
}
