//! `hyloc score` gives the summary of a demo from its fix log, to the digit, and takes the fixes of others.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use hyloc_tests::pipeline::fixes;
use hyloc_tests::process::{Process, alone};
use serde_json::{Value, json};

/// What a score says of single fixes, of several targets, and of times.
const FIGURES: [&str; 18] = [
    "fixes",
    "nominal",
    "degraded",
    "doubtful",
    "without_fix",
    "availability",
    "judged",
    "gross_errors",
    "rms_error_m",
    "bound_rms_m",
    "gap_db",
    "gap_db_interval",
    "nees",
    "nees_expected",
    "nees_interval",
    "axes",
    "targets",
    "latency_ms",
];

/// A demo with its fix log.
fn demo(directory: &Path, name: &str, flags: &[&str]) -> (Value, PathBuf) {
    let log = directory.join(name);
    let fixes = ["demo", "--rate", "20", "--json", "--fixes", log.to_str().unwrap()];
    (Process::start("hyloc", &[&fixes, flags].concat()).finish(), log)
}

fn score(truth: &Path, fixes: &Path, flags: &[&str]) -> Value {
    let files = ["score", "--truth", truth.to_str().unwrap(), "--fixes", fixes.to_str().unwrap(), "--json"];
    Process::start("hyloc", &[&files, flags].concat()).finish()
}

fn assert_same(score: &Value, expected: &Value, figures: &[&str]) {
    for key in figures {
        assert_eq!(score[key], expected[key], "{key}");
    }
}

#[test]
fn the_score_of_a_demo_is_its_summary() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let (summary, log) = demo(directory.path(), "one.jsonl", &["--frames", "40"]);
    let own = score(&log, &log, &[]);
    assert!(own["judged"].as_u64() >= Some(20) && own["gap_db_interval"].is_array(), "{own}");
    assert_same(&own, &summary, &FIGURES);

    // Frames that share their data, and targets with tracks.
    let (summary, log) = demo(
        directory.path(),
        "batches.jsonl",
        &["--frames", "20", "--batch-frames", "4", "--method", "direct", "--set", "target.motion=fixed"],
    );
    assert_same(&score(&log, &log, &[]), &summary, &FIGURES);
    assert_eq!(fixes(&log).last().unwrap()["frames"], 4);
    let (summary, log) = demo(directory.path(), "two.jsonl", &["--frames", "20", "--targets", "2"]);
    let own = score(&log, &log, &[]);
    assert!(own["targets"]["gospa_m"].is_number(), "{own}");
    assert_same(&own, &summary, &FIGURES);
}

/// The same fixes as CSV without status and run, and a truth that states targets alone with the bound of a scenario.
#[test]
fn others_need_two_files_and_a_scenario() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (summary, log) = demo(directory.path(), "log.jsonl", &["--frames", "20"]);
    let (mut csv, mut truth) = ("frame,x_m,y_m,xx_m2,xy_m2,yy_m2\n".to_owned(), String::new());
    // No fix waits for the truth, which may come too late for the first ones: they are left out.
    let judged: Vec<Value> = fixes(&log).into_iter().filter(|fix| fix["truth"].is_object()).collect();
    assert!(judged.len() >= 10, "{} of 20 have their truth", judged.len());
    for fix in &judged {
        let number =
            |key: &str, i: usize| fix[key][i].as_f64().map_or(String::new(), |value| value.to_string());
        let cells: Vec<String> = (0..2)
            .map(|i| number("position_m", i))
            .chain((0..3).map(|i| number("covariance_m2", i)))
            .collect();
        writeln!(csv, "{},{}", fix["frame"], cells.join(",")).unwrap();
        // The cross-section of the default scenario.
        let target =
            json!({ "identity": 0, "position_m": fix["truth"]["position_m"], "rcs_m2": 10f64.powf(0.7) });
        writeln!(truth, "{}", json!({ "run": 5, "frame": fix["frame"], "targets": [target] })).unwrap();
    }
    std::fs::write(at("fixes.csv"), csv).unwrap();
    std::fs::write(at("truth.jsonl"), truth).unwrap();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/scenarios/paper.toml");
    let others = score(&at("truth.jsonl"), &at("fixes.csv"), &["--scenario", scenario]);
    assert_same(&others, &summary, &["judged", "rms_error_m", "nees", "nees_interval"]);
    let placed = judged.iter().filter(|fix| fix["position_m"].is_array()).count();
    assert_eq!((&others["fixes"], &others["without_fix"]), (&json!(placed), &json!(judged.len() - placed)));
    let close = |key: &str| (others[key].as_f64().unwrap() - summary[key].as_f64().unwrap()).abs() < 1e-6;
    assert!(close("bound_rms_m") && close("gap_db"), "{others}\n{summary}");

    // Without a bound there is an error and no gap; half of the frames is half of the availability.
    let (all, kept) = (std::fs::read_to_string(at("fixes.csv")).unwrap(), judged.len() / 2);
    let half: Vec<&str> = all.lines().take(1 + kept).collect();
    std::fs::write(at("half.csv"), half.join("\n")).unwrap();
    let unbounded = score(&at("truth.jsonl"), &at("half.csv"), &[]);
    assert!(unbounded["rms_error_m"].is_number() && unbounded["gap_db"].is_null(), "{unbounded}");
    assert_eq!(unbounded["frames"], judged.len());
    assert!(unbounded["without_fix"].as_u64() >= Some((judged.len() - kept) as u64), "{unbounded}");

    std::fs::write(at("wrong.csv"), "frame,x_m,y_m\n1,2,three\n").unwrap();
    let files = ["score", "--truth", log.to_str().unwrap(), "--fixes"];
    let wrong = at("wrong.csv");
    let (code, said) = Process::start("hyloc", &[&files[..], &[wrong.to_str().unwrap()]].concat()).outcome();
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("wrong.csv, line 2: y_m: 'three' is no number"), "{said}");
    let missing = Process::start("hyloc", &[&files[..], &["nowhere.csv"]].concat()).outcome();
    assert_eq!(missing.0, Some(74), "{}", missing.1);
}
