//! The command line with real processes and files.

use std::process::{Command, Output};

fn hyloc(arguments: &[&str]) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    Command::new(env!("CARGO_BIN_EXE_hyloc")).args(arguments).current_dir(root).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_shipped_scenario_checks_out_with_its_rank_case() {
    for (name, case) in [
        ("paper", None),
        ("rank-full", Some(1)),
        ("rank-partial", Some(2)),
        ("rank-one", Some(3)),
        ("near-field", None),
        ("hall", None),
    ] {
        let file = format!("deploy/scenarios/{name}.toml");
        let output = hyloc(&["scenario", "check", &file, "--json"]);
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let irs_count = summary["irs"].as_array().unwrap().len();
        assert_eq!(summary["path_snr_db"].as_array().unwrap().len(), irs_count);
        assert_eq!(summary["verdict"]["outcome"], "works", "{name}: {}", summary["verdict"]["sentence"]);
        for budget in summary["verdict"]["link_budgets"].as_array().unwrap() {
            let lines = budget["lines"].as_array().unwrap();
            let sum: f64 = lines.iter().map(|line| line["db"].as_f64().unwrap()).sum();
            let (sensor, reflector) = (&budget["sensor"], &budget["reflector"]);
            let at = |index: &serde_json::Value| index.as_u64().unwrap() as usize;
            let snr_db = summary["path_snr_db"][at(sensor)][at(reflector)].as_f64().unwrap();
            assert!((sum - snr_db).abs() < 1e-9, "{name}: {budget}");
        }
        assert!(
            summary["bound_rms_m"][0]["exact"].as_f64().unwrap()
                > summary["bound_rms_m"][0]["paper"].as_f64().unwrap()
        );
        for irs in summary["irs"].as_array().unwrap() {
            if let Some(case) = case {
                assert_eq!(irs["rank_case"], case, "{name}");
            }
        }
    }
}

/// Three coordinates are taken, and shown again; four are refused by name.
#[test]
fn coordinates_are_never_dropped() {
    let check = |value: &str| hyloc(&["scenario", "check", "--set", value]);
    assert!(check("irs[0].position_m=[10, 60, 0]").status.success());
    for (value, shown) in [
        ("irs[0].position_m=[10, 60, 10]", "(10.0, 60.0, 10.0)"),
        ("irs[1].facing_m=[0, 0, 1.5]", "elevation"),
        ("coverage.max_m=[10, 10, 3]", "(5, 5, 1.5) m"),
        ("coverage.max_m=[10, 10, 3]", "vertical"),
    ] {
        let output = check(value);
        assert!(output.status.success(), "{value}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains(shown), "{value}: {}", text(&output.stdout));
    }
    let output = check("irs[0].position_m=[0, 60, 10, 1]");
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("4 coordinates"), "{}", text(&output.stderr));
}

#[test]
fn impossible_panels_are_refused_by_name() {
    for (value, reason) in [
        ("irs=[{position_m=[10, 50], azimuth_deg=-90, elevation_deg=120}]", "irs[0].elevation_deg = 120"),
        ("irs=[{position_m=[10, 50], azimuth_deg=90}]", "faces away"),
        ("irs=[{position_m=[10, 50], facing_m=[10, 50]}]", "irs[0].facing_m = [10, 50]: must differ"),
        ("irs[0].azimuth_deg=-90", "not both"),
        ("surface.elements=[0, 4]", "surface.elements = [0, 4]"),
        ("surface.sensors=[4, 4, 4]", "[columns, rows]"),
        ("irs[0].position_m=[5, 5]", "inside the coverage area"),
        ("coverage.max_m=[10, 10, -3]", "coverage.max_m[2] = -3"),
    ] {
        let output = hyloc(&["scenario", "check", "--set", value]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{value}: {said}");
        assert!(said.contains(reason), "{value}: {said}");
    }
    // The same in a file is an error of its data.
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), "[surface]\nelements = [0, 4]\n").unwrap();
    let output = hyloc(&["scenario", "check", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(65), "{}", text(&output.stderr));
}

#[test]
fn spherical_waves_have_a_bound_and_plane_ones_a_warning() {
    let file = "deploy/scenarios/near-field.toml";
    let summary = |arguments: &[&str]| -> serde_json::Value {
        let fixed = ["scenario", "check", file, "--json"];
        serde_json::from_slice(&hyloc(&[&fixed, arguments].concat()).stdout).unwrap()
    };
    let spherical = summary(&[]);
    assert!(spherical["irs"][0]["near_field_ratio"].as_f64().unwrap() > 10.0);
    assert!(!spherical["warnings"].to_string().contains("near field"));
    assert!(spherical["bound_rms_m"][0]["exact"].as_f64().unwrap() < 0.02);
    let plane = summary(&["--set", "prior.wavefront=plane"]);
    assert!(plane["warnings"].to_string().contains("near field"));
}

/// A scenario that cannot work says so and what would help, and that helps.
#[test]
fn a_hopeless_scenario_says_what_would_help() {
    let check = |arguments: &[&str]| {
        let fixed = ["scenario", "check", "deploy/scenarios/hall.toml", "--set", "base_station.power_dbm=0"];
        text(&hyloc(&[&fixed, arguments].concat()).stdout)
    };
    let said = check(&[]);
    let verdict = said.lines().find(|line| line.starts_with("Verdict: ")).unwrap();
    assert!(verdict.contains("cannot give a fix") && verdict.contains("--power-dbm"), "{verdict}");
    let frames = verdict.rsplit("--frames-per-fix ").next().unwrap();
    assert!(check(&["--frames-per-fix", frames]).contains("Verdict: this scenario works"), "{verdict}");
}

#[test]
fn the_paper_file_is_the_default() {
    let of = |arguments: &[&str]| text(&hyloc(arguments).stdout);
    assert_eq!(of(&["scenario", "check", "deploy/scenarios/paper.toml"]), of(&["scenario", "check"]));
    assert!(of(&["scenario", "check"]).contains("no collaboration"));
}

#[test]
fn a_generated_scenario_is_accepted_again() {
    let toml = hyloc(&["scenario", "generate", "--nodes", "5"]);
    assert!(toml.status.success());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &toml.stdout).unwrap();
    let output = hyloc(&["scenario", "check", file.path().to_str().unwrap(), "--json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["irs"].as_array().unwrap().len(), 5);
}

/// The blocks of Table I go straight into the solver: S_k is the scenario's own.
#[test]
fn blocks_of_a_scenario_are_what_the_solver_takes() {
    let blocks = hyloc(&["scenario", "blocks", "--scenes", "2"]);
    assert!(blocks.status.success(), "{}", text(&blocks.stderr));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &blocks.stdout).unwrap();
    let cases: serde_json::Value = serde_json::from_slice(&blocks.stdout).unwrap();
    assert_eq!(cases["cases"][0]["reflected_signal"][0]["re"].as_array().unwrap().len(), 10);
    assert_ne!(cases["cases"][0]["blocks"], cases["cases"][1]["blocks"]);
    let solved = hyloc(&["solve", "angles", "--input", file.path().to_str().unwrap()]);
    assert!(solved.status.success(), "{}", text(&solved.stderr));
    let answers: serde_json::Value = serde_json::from_slice(&solved.stdout).unwrap();
    for answer in answers["cases"].as_array().unwrap() {
        assert_eq!(answer["converged"], true);
        assert_eq!(answer["arrival_rad"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn bad_input_ends_with_a_sentence_and_the_code_of_its_kind() {
    let cases: [(i32, &[&str], &str); 5] = [
        (74, &["scenario", "check", "missing.toml"], "missing.toml"),
        (64, &["scenario", "check", "--set", "signal.subcarriers=7"], "signal.subcarriers = 7"),
        (64, &["scenario", "check", "--set", "signal.colour=7"], "colour"),
        (64, &["scenario", "generate", "--nodes", "40"], "between 2 and 32"),
        (65, &["solve", "crb", "--input", "README.md"], "README.md"),
    ];
    for (code, arguments, part) in cases {
        let output = hyloc(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let message = text(&output.stderr);
        assert!(message.contains(part) && message.lines().count() == 1, "{message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn solve_crb_answers_every_case() {
    let output = hyloc(&["solve", "crb", "--input", "tests/vectors/crb.json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["cases"].as_array().unwrap().len(), 2);
    assert!(answer["cases"][0]["known_gain"]["position_crb_m2"]["hybrid"][0][0].is_number());
}

#[test]
fn a_bad_option_of_the_demo_is_refused_once_before_anything_starts() {
    for bad in ["--precision=f16", "--payload=all", "--method=magic", "--backhaul=pigeon", "--rate=0"] {
        let output = hyloc(&["demo", bad]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{bad}: {said}");
        assert_eq!(said.matches("invalid value").count(), 1, "{bad}: {said}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    use std::process::Stdio;
    let mut child = Command::new(env!("CARGO_BIN_EXE_hyloc"))
        .args(["scenario", "generate", "--nodes", "32"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}
