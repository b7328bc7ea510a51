//! `hyloc kpi` on the hall: what follows from the seed, not the speed of the machine.
#![allow(clippy::print_stdout)]

use std::process::Command;

use serde_json::Value;

/// With 300 frames one miss or false alarm leaves up to 1.9 % possible, and none up to 1.3 %: that shows 2 % and not 1 %.
const FRAMES: u64 = 300;

fn kpi(arguments: &[&str]) -> Value {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hyloc"));
    let output = command.args(["kpi", "--json"]).args(arguments).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Criteria of a category with this judgement, latency and refresh apart.
fn judged(report: &Value, category: u64, judgement: &str) -> Vec<String> {
    let categories = report["categories"].as_array().unwrap();
    let score = categories.iter().find(|score| score["category"] == category).unwrap();
    let rows = score["rows"].as_array().unwrap().iter();
    let of_seed = rows.filter(|row| row["criterion"] != "latency" && row["criterion"] != "refresh");
    let found = of_seed.filter(|row| row["judgement"] == judgement);
    found.map(|row| row["criterion"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_hall_meets_categories_one_to_three() {
    let frames = FRAMES.to_string();
    let report = kpi(&["--scenario", "deploy/scenarios/hall.toml", "--frames", &frames]);
    println!("{report}");
    assert_eq!(report["noise_frames"], FRAMES);
    for category in 1..=3 {
        let passed = judged(&report, category, "pass");
        let all = ["horizontal-accuracy", "vertical-accuracy", "missed-detection", "false-alarm"];
        assert_eq!(passed, all, "category {category}");
    }
    // 1 % missed detection takes 400 frames to show, and the category says that it is not shown.
    assert_eq!(judged(&report, 4, "fail"), ["missed-detection"]);
    let fails = report["categories"][3]["fails"].as_array().unwrap();
    assert!(fails.contains(&"missed detection".into()), "{fails:?}");
    for row in report["categories"][0]["rows"].as_array().unwrap() {
        assert!(row["reached"].is_number() && row["low"].is_number() && row["high"].is_number(), "{row}");
    }
    assert_eq!(report["categories"][0]["velocity"], "not measured yet");
}

/// The same seed gives the same scorecard but for times; a flat area has no vertical accuracy; too weak echoes fail, and the exit
/// code is 0 all the same.
#[test]
fn what_is_not_time_follows_from_the_seed() {
    let of_seed = |arguments: &[&str]| {
        let mut report = kpi(arguments);
        assert!(report.as_object_mut().unwrap().remove("median_latency_s").unwrap().is_number());
        for score in report["categories"].as_array_mut().unwrap() {
            score.as_object_mut().unwrap().remove("fails");
            let timed = |row: &Value| row["criterion"] == "latency" || row["criterion"] == "refresh";
            score["rows"].as_array_mut().unwrap().retain(|row| !timed(row));
        }
        report
    };
    let first = of_seed(&["--frames", "20", "--seed", "7"]);
    assert_eq!(first, of_seed(&["--frames", "20", "--seed", "7"]));
    assert_ne!(first, of_seed(&["--frames", "20", "--seed", "8"]));
    assert_eq!(judged(&first, 7, "not-applicable"), ["vertical-accuracy"]);
    let silent = of_seed(&["--frames", "20", "--power-dbm", "0"]);
    assert_eq!(silent["fixes"], 0);
    assert_eq!(judged(&silent, 1, "fail"), ["horizontal-accuracy", "missed-detection", "false-alarm"]);
}
