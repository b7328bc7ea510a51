//! `hyloc demo` with real processes.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::Duration;

use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;
use rustix::process::{Pid, Signal, kill_process};
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
        number(truth, "error_m") <= 3.0 * number(truth, "bound_rms_m") || fix["status"] != "nominal"
    };
    // The log waits a little for the truth, which may come too late on a busy machine.
    let judged: Vec<&Value> = fixes.iter().filter(|fix| fix["truth"]["bound_rms_m"].is_number()).collect();
    assert!(judged.len() >= 250, "{} of 500 have their truth", judged.len());
    let share = judged.iter().copied().filter(sound).count() as f64 / judged.len() as f64;
    println!("50 dBm: {:.1} % sound, gap {:.2} dB", 100.0 * share, number(&report, "gap_db"));
    assert_eq!(fixes.len(), 500);
    assert!(share >= 0.97 && number(&report, "gap_db") <= 0.7);
}

/// An interval of the report, which must contain its value.
fn interval(report: &Value, key: &str) -> [f64; 2] {
    let ends =
        [0, 1].map(|i| report[key][i].as_f64().unwrap_or_else(|| panic!("no interval '{key}' in {report}")));
    let figure = number(report, key.strip_suffix("_interval").unwrap());
    assert!(ends[0] < figure && figure < ends[1], "{key}: {figure} in {ends:?}");
    ends
}

/// The example of the help, 300 fixes of ten frames each, fixed seed. With the bound of one frame the gap would be 10 dB
/// lower; its interval is about +-0.6 dB wide.
#[test]
fn the_bound_is_that_of_all_frames_of_a_fix() {
    let _alone = alone();
    let report = demo(&["--frames", "300", "--rate", "400", "--power-dbm", "40", "--frames-per-fix", "10"]);
    let (gap_db, ends) = (number(&report, "gap_db"), interval(&report, "gap_db_interval"));
    println!(
        "40 dBm, ten frames a fix: gap {gap_db:.2} dB in {ends:.2?}, NEES {:.2}",
        number(&report, "nees")
    );
    // A busy machine may drop frames, and the truth of the first ones may come too late.
    let (fixes, judged) = (count(&report, "fixes"), count(&report, "judged"));
    assert!(judged >= 150 && 10 * judged >= 8 * fixes, "{judged} of {fixes}");
    assert!((-1.0..=1.0).contains(&gap_db) && ends[1] - ends[0] < 2.0);
    interval(&report, "nees_interval");
}

/// Four frames of a target on a straight line, 300 fixes, fixed seed: the position in the last of them has 0.7 of the
/// bound of one frame (1.5 dB), so that with the bound of one frame the gap would be near -1.5 dB.
#[test]
fn the_bound_of_a_batch_is_that_of_its_frames() {
    let _alone = alone();
    let site = Site::new();
    let (scenario, log) = (site.path("line.toml"), site.path("fixes.jsonl"));
    let line = "[target.motion.line]\nfrom_m = [1.0, 1.0]\nto_m = [9.0, 9.0]\nframes = 2000\n";
    std::fs::write(&scenario, line).unwrap();
    let (scenario, log_path) = (scenario.to_str().unwrap(), log.to_str().unwrap());
    let arguments = [
        "--frames",
        "300",
        "--rate",
        "25",
        "--scenario",
        scenario,
        "--fixes",
        log_path,
        "--batch-frames",
        "4",
    ];
    let report = demo(&[&arguments[..], &["--method", "direct", "--deadline-ms", "60000"]].concat());
    let fixes = fixes(&log);
    let batches = fixes.iter().filter(|fix| fix["method"] == "direct-frames").count();
    let (gap_db, ends) = (number(&report, "gap_db"), interval(&report, "gap_db_interval"));
    println!(
        "four frames: {batches} batches, gap {gap_db:.2} dB in {ends:.2?}, NEES {:.2}",
        number(&report, "nees")
    );
    // A busy machine may shed frames, which does not affect the others.
    assert!(fixes.len() >= 150 && 10 * batches >= 8 * fixes.len());
    assert!(gap_db > -1.0 && gap_db < 1.5);
    let judged = fixes.iter().filter(|fix| fix["truth"].is_object()).count();
    assert!(2 * judged >= fixes.len(), "{judged} have their truth: the log waits a little for it");
}

/// Exit code, report and standard error of a demo that fails.
fn failed(arguments: &[&str]) -> (Option<i32>, Value, String) {
    let arguments: Vec<&str> = ["demo", "--json"].iter().chain(arguments).copied().collect();
    Process::start("hyloc", &arguments).report()
}

#[test]
fn a_demo_without_a_fix_fails_and_says_why() {
    let _alone = alone();
    let (code, report, said) = failed(&["--frames", "20", "--power-dbm", "0", "--method", "direct"]);
    assert_eq!(code, Some(69), "{said}");
    assert_eq!((count(&report, "fixes"), &report["first_fix_s"]), (0, &Value::Null));
    assert!(said.contains("no fix: no target") && said.contains("--power-dbm"), "{said}");
    assert!(said.contains("this scenario cannot give a fix"), "the verdict of scenario check: {said}");
    assert_eq!(report["unaccounted"], 0);
}

/// The process of a demo whose command line contains `what`.
fn child(demo: &Process, what: &str) -> Pid {
    let find = || {
        processes().find(|(id, command)| {
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            status.contains(&format!("PPid:\t{}\n", demo.id())) && command.contains(what)
        })
    };
    let ((id, _), _) = eventually(what, find);
    Pid::from_raw(id).unwrap()
}

/// Kills a process of a demo after the first fixes; returns the result of the demo.
fn killed(what: &str, frames: &str) -> (Option<i32>, Value, String) {
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let arguments = ["demo", "--json", "--frames", frames, "--rate", "100", "--fixes", log.to_str().unwrap()];
    let demo = Process::start("hyloc", &arguments);
    eventually("fixes", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.lines().count() >= 20).then_some(())
    });
    kill_process(child(&demo, what), Signal::KILL).unwrap();
    demo.report()
}

/// Every death is detected and reported even while fixes arrive at a hundred per second.
#[test]
fn a_child_that_dies_is_named_and_the_summary_is_there() {
    let _alone = alone();
    let (code, report, said) = killed("--identity node-1", "400");
    assert_eq!(code, Some(70), "{said}");
    assert!(said.contains("node 1 died: signal: 9"), "{said}");
    println!("node 1 killed: {} fixes, {} degraded", count(&report, "fixes"), count(&report, "degraded"));
    assert!(count(&report, "fixes") >= 380 && count(&report, "degraded") >= 100, "the others go on");
    assert_eq!((&report["unaccounted"], report["deaths"].as_array().unwrap().len()), (&Value::from(0), 1));

    for (what, who) in [("simulate", "the simulator died"), ("--listen", "the fusion center died")] {
        let (code, report, said) = killed(what, "0");
        assert_eq!(code, Some(70), "{what}: {said}");
        assert!(said.contains(who) && count(&report, "fixes") >= 20, "{what}: {said}");
    }
}

#[test]
fn same_seed_same_bytes_and_a_replay_agrees() {
    let _alone = alone();
    let site = Site::new();
    let (a, b, c, recording) = (site.path("a"), site.path("b"), site.path("c"), site.path("recording"));
    // Long deadline, so that no frame is closed without a slow node.
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
    let bounds = number(&one, "bound_rms_m") / number(&four, "bound_rms_m");
    assert!((1.5..2.5).contains(&bounds), "four frames, half the bound: {bounds}");
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

/// Processes of this build with their command lines.
fn processes() -> impl Iterator<Item = (i32, String)> {
    let own = executable("hyloc");
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(move |entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        command.starts_with(own.to_str()?).then_some((id, command))
    })
}

/// Running processes of demos of this build.
fn left_behind() -> Vec<String> {
    let roles = ["--identity node-", "hyloc-demo-", "--link node-"];
    let of_demo = |command: &String| roles.iter().any(|role| command.contains(role));
    processes().map(|(_, command)| command).filter(of_demo).collect()
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
        eventually("no process is left", || left_behind().is_empty().then_some(()));
    }
}

/// A stall for longer than the keepalive of HTTP/2 waits closes the stream of fixes. The fusion center lives, and so does the demo.
#[test]
fn a_stall_of_the_demo_does_not_end_it() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("fixes.jsonl");
    let demo =
        Process::start("hyloc", &["demo", "--json", "--frames", "0", "--fixes", log.to_str().unwrap()]);
    eventually("fixes", || (log.exists() && fixes_so_far(&log) >= 50).then_some(()));
    demo.signal(Signal::STOP);
    // The fusion center pings every second and waits 2 s for the answer.
    std::thread::sleep(Duration::from_secs(10));
    demo.signal(Signal::CONT);
    println!("{}", demo.said("is open again"));
    let before = fixes_so_far(&log);
    eventually("more fixes", || (fixes_so_far(&log) >= before + 50).then_some(()));
    demo.signal(Signal::INT);
    let report = demo.finish();
    assert_eq!(report["unaccounted"], 0, "{report}");
}

/// Complete lines of a fix log that is being written.
fn fixes_so_far(log: &Path) -> usize {
    std::fs::read_to_string(log).map_or(0, |text| text.matches('\n').count())
}

/// The reader of the log may end first: a failed write must not prevent a process from ending.
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
