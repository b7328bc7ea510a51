//! The process: its settings from the environment, and how it ends when they cannot be used.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn node(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_irs-node"));
    command.args(arguments).envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn every_flag_is_a_variable_and_flags_are_stronger() {
    let variables = [
        ("HYLOC_NODE_INDEX", "2"),
        ("HYLOC_NODE_SCENARIO", ""),
        ("HYLOC_NODE_IDENTITY", "17"),
        ("HYLOC_NODE_POWER_DBM", "45"),
        ("HYLOC_NODE_DRAIN_TIMEOUT_S", "1.5"),
        ("HYLOC_NODE_SET", "seed=3,signal.coherent_frames=4"),
    ];
    let shown = node(&variables, &["--print-config", "--index", "1"]);
    assert!(shown.status.success());
    let shown = String::from_utf8(shown.stdout).unwrap();
    let expected = [
        "index = 1 # command line",
        "identity = 17 # HYLOC_NODE_IDENTITY",
        "power_dbm = 45 # HYLOC_NODE_POWER_DBM",
        "drain_timeout_s = 1.5 # HYLOC_NODE_DRAIN_TIMEOUT_S",
        "set = [\"seed=3\", \"signal.coherent_frames=4\"] # HYLOC_NODE_SET",
    ];
    for line in expected {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
}

#[test]
fn what_cannot_be_used_ends_with_no_port() {
    for (code, variables, arguments, reason) in [
        (
            64,
            vec![("HYLOC_NODE_INDEX", "first")],
            vec![],
            "HYLOC_NODE_INDEX = first: must be auto or a number",
        ),
        (64, vec![("HYLOC_NODE_NONSENSE", "1")], vec![], "nonsense"),
        (64, vec![("HYLOC_LOG_FORMAT", "xml")], vec![], "HYLOC_LOG_FORMAT = xml"),
        (74, vec![], vec!["--config", "/nowhere.toml"], "/nowhere.toml"),
        (64, vec![], vec!["--set", "base_station.power_dbm=500"], "base_station.power_dbm = 500"),
    ] {
        let ended = node(&variables, &arguments);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains(reason), "{said}");
        // The line that names the ports comes once they are bound: it did not come.
        assert!(ended.stdout.is_empty());
    }
}

/// A parent that is gone takes the reader of the logs with it: the node still notices, and ends.
#[test]
fn a_node_ends_with_its_parent_although_nobody_reads_its_logs() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_irs-node"))
        .args(["--fusion", "127.0.0.1:1", "--simulator", "127.0.0.1:1"])
        .env("HYLOC_STOP_WITH_PARENT", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The announcement: it runs.
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(child.stderr.take());
    drop(child.stdin.take());
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(90) {
            child.kill().unwrap();
            panic!("it still runs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
