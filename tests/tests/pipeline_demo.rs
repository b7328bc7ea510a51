//! `hyloc demo`, the main job, as a person runs it.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;
use rustix::process::Signal;
use serde_json::Value;

fn demo(arguments: &[&str]) -> Value {
    let arguments: Vec<&str> = ["demo", "--json"].iter().chain(arguments).copied().collect();
    Process::start("hyloc", &arguments).finish()
}

fn number(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or_else(|| panic!("no number '{key}' in {report}"))
}

#[test]
fn two_hundred_fixes_with_every_block_accounted_for() {
    let _alone = alone();
    let report = demo(&["--frames", "200"]);
    assert_eq!((count(&report, "fixes"), count(&report, "nodes")), (200, 3));
    assert_eq!(report["unaccounted"], 0);
    for key in ["rms_error_m", "bound_rms_m", "gap_db"] {
        assert!(number(&report, key).is_finite());
    }
    for stage in ["emit", "filter", "wire", "assemble", "angles", "locate", "fusion", "total"] {
        let row = &report["latency_ms"][stage];
        assert!(number(row, "n") >= 200.0, "{stage}: {row}");
        let quantiles: Vec<f64> =
            ["p50", "p90", "p99", "p999", "max"].iter().map(|key| number(row, key)).collect();
        assert!(quantiles.is_sorted(), "{stage}: {row}");
    }
    println!(
        "first fix after {:.2} s, latency {}",
        number(&report, "first_fix_s"),
        report["latency_ms"]["total"]
    );
    assert!(number(&report, "first_fix_s") < 2.0);
}

/// Raw echoes to position through real processes: 500 fixes, fixed seed.
#[test]
fn sixty_dbm_reaches_the_exact_bound() {
    let _alone = alone();
    let report = demo(&["--frames", "500", "--rate", "100", "--power-dbm", "60"]);
    println!(
        "60 dBm: {} fixes, rms {:.4} m, bound {:.4} m, gap {:.2} dB, NEES {:.2}",
        count(&report, "fixes"),
        number(&report, "rms_error_m"),
        number(&report, "bound_rms_m"),
        number(&report, "gap_db"),
        number(&report, "nees"),
    );
    assert_eq!(count(&report, "fixes"), 500);
    assert!(number(&report, "gap_db") <= 1.5);
}

#[test]
fn fifty_dbm_is_within_three_bounds_or_says_so() {
    let _alone = alone();
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let report = demo(&["--frames", "500", "--rate", "100", "--fixes", log.to_str().unwrap()]);
    let fixes = fixes(&log);
    let sound = |fix: &&Value| {
        let truth = &fix["truth"];
        number(truth, "error_m") <= 3.0 * number(truth, "bound_rms_m") || fix["status"] == "degraded"
    };
    let share = fixes.iter().filter(sound).count() as f64 / fixes.len() as f64;
    println!("50 dBm: {:.1} % sound, gap {:.2} dB", 100.0 * share, number(&report, "gap_db"));
    assert_eq!(fixes.len(), 500);
    assert!(share >= 0.97 && number(&report, "gap_db") <= 0.7);
}

#[test]
fn same_seed_same_bytes_and_a_replay_agrees() {
    let _alone = alone();
    let site = Site::new();
    let (a, b, c, recording) = (site.path("a"), site.path("b"), site.path("c"), site.path("recording"));
    // However long a node is held up, no frame is closed without it.
    let patient = ["--frames", "60", "--deadline-ms", "60000"];
    demo(
        &[&patient[..], &["--fixes", a.to_str().unwrap(), "--record", recording.to_str().unwrap()]].concat(),
    );
    demo(&[&patient[..], &["--fixes", b.to_str().unwrap(), "--rate", "100"]].concat());
    let expected = lines_without_timing(&a);
    assert_eq!(expected.len(), 60);
    assert_eq!(lines_without_timing(&b), expected);

    let (recording, log) = (recording.to_str().unwrap(), c.to_str().unwrap());
    let figures = Process::start("hyloc", &["replay", recording, "--fixes", log, "--json"]).finish();
    assert_eq!(count(&figures, "fixes"), 60);
    let replayed: Vec<String> = lines_without_timing(&c)
        .into_iter()
        .map(|line| line.replace(r#""source":"replayed""#, r#""source":"simulated""#))
        .collect();
    assert_eq!(replayed, expected);
}

#[test]
fn frames_are_averaged_and_a_lost_node_is_survived() {
    let _alone = alone();
    let one = demo(&["--frames", "60", "--power-dbm", "45", "--rate", "100"]);
    let four = demo(&["--frames", "60", "--power-dbm", "45", "--rate", "200", "--frames-per-fix", "4"]);
    assert_eq!((count(&one, "fixes"), count(&four, "fixes")), (60, 60));
    let (one_m, four_m) = (number(&one, "rms_error_m"), number(&four, "rms_error_m"));
    println!("45 dBm: rms {one_m:.3} m of one frame, {four_m:.3} m of four");
    assert!(four_m < 0.8 * one_m);
    assert_eq!(four["unaccounted"], 0);

    let report = demo(&["--frames", "100", "--kill-node-after", "40"]);
    println!("after a kill: {} fixes, {} degraded", count(&report, "fixes"), count(&report, "degraded"));
    assert!(count(&report, "fixes") >= 98 && count(&report, "degraded") >= 50);
    assert_eq!(report["unaccounted"], 0);
}

#[test]
fn sixteen_irss_run_on_two_cores() {
    let _alone = alone();
    let report = demo(&["--nodes", "16", "--frames", "10", "--rate", "1"]);
    println!(
        "K = 16: first fix after {:.1} s, fusion p50 {:.0} ms",
        number(&report, "first_fix_s"),
        number(&report["latency_ms"]["fusion"], "p50")
    );
    assert_eq!((count(&report, "fixes"), count(&report, "nodes")), (10, 16));
    assert_eq!(report["unaccounted"], 0);
}

/// Processes of demos that still run, of this build alone.
fn left_behind() -> Vec<String> {
    let own = executable("hyloc");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(command) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let roles = ["--identity node-", "hyloc-demo-", "--link node-"];
        if command.starts_with(own.to_str().unwrap()) && roles.iter().any(|role| command.contains(role)) {
            found.push(command);
        }
    }
    found
}

#[test]
fn no_process_is_left_behind_however_it_ends() {
    let _alone = alone();
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let demo = Process::start("hyloc", &["demo", "--json", "--frames", "0"]);
        eventually("all processes run", || (left_behind().len() >= 5).then_some(()));
        demo.signal(signal);
        if signal == Signal::KILL {
            demo.kill();
        } else {
            let report = demo.finish();
            assert_eq!(report["unaccounted"], 0, "{report}");
        }
        let (_, time) = eventually("no process is left", || left_behind().is_empty().then_some(()));
        assert!(time < Duration::from_secs(15), "{signal:?}: {time:?}");
    }
}

/// Whoever reads the log may end first: a line that cannot be written must not keep a process from ending.
#[test]
fn no_process_is_left_behind_when_nobody_reads_the_log() {
    let _alone = alone();
    let mut demo = std::process::Command::new(executable("hyloc"))
        .args(["demo", "--json", "--frames", "0", "--backhaul", "clear"])
        .env("HYLOC_LOG", "info")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    eventually("all processes run", || (left_behind().len() >= 6).then_some(()));
    drop(demo.stderr.take());
    demo.kill().unwrap();
    demo.wait().unwrap();
    eventually("no process is left", || left_behind().is_empty().then_some(()));
}
