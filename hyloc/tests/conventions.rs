//! What users expect of any command line: completions, manual pages, exit codes, output that can be piped.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hyloc"));
    command.args(arguments).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    command
}

fn hyloc(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_shell_has_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = hyloc(&["completions", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}");
        assert!(
            ["demo", "healthcheck", "frames-per-fix"].iter().all(|word| script.contains(word)),
            "{shell}"
        );
    }
    assert_eq!(hyloc(&["completions", "tcsh"]).status.code(), Some(64));
}

#[test]
fn every_command_has_a_manual_page_with_readable_examples() {
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("new/man1");
    let output = hyloc(&["man", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for page in ["hyloc.1", "hyloc-demo.1", "hyloc-scenario-check.1", "hyloc-backhaul-cut.1", "hyloc-man.1"] {
        assert!(printed.lines().any(|line| Path::new(line) == directory.join(page)), "{page}: {printed}");
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), printed.lines().count());
    let demo = std::fs::read_to_string(directory.join("hyloc-demo.1")).unwrap();
    // A line that begins with a space begins a new line in print.
    let example = r"  hyloc demo \-\-kill\-node\-after 100 \-\-json";
    assert!(demo.lines().any(|line| line == example), "{demo}");
}

/// Every case: arguments, and a part of the message. `DIR` stands for the directory with the files below, `PORT` for an
/// address that is taken, `NOBODY` for one where nobody listens.
type Cases = &'static [(&'static [&'static str], &'static str)];

const NEAR_FIELD: &str = "deploy/scenarios/near-field.toml";

const USAGE: Cases = &[
    (&["demo", "--fixes", "-", "--json"], "standard output"),
    (&["demo", "--set", "seed"], "key=value"),
    (&["replay", "DIR", "--fixes", "-", "--json"], "standard output"),
    (&["latency", "--frames", "1"], "between 60 and"),
    (&["latency", "--set", "signal.colour=7"], "colour"),
    (&["figures", "--trials", "0"], "--trials 0"),
    (&["figures", "--redraw", "--seed", "2"], "--seed"),
    (&["scenario", "check", "deploy/scenarios/paper.toml", "--set", "signal.subcarriers=7"], "subcarriers"),
    (&["scenario", "generate", "--nodes", "40"], "between 2 and 32"),
    (&["solve", "angles", "--input", "-", "--repeat", "0"], "between 1 and"),
    (&["solve", "angles", "--input", "-", "--repeat", "1000000000000000000"], "between 1 and"),
    (&["fusion", "--method", "three-stage", "--batch-frames", "4"], "batch_frames"),
    (&["fusion", "--method", "three-stage", "--scenario", NEAR_FIELD], "holds for plane waves"),
    (&["demo", "--method", "three-stage", "--scenario", NEAR_FIELD], "holds for plane waves"),
    (&["fusion", "--config", "DIR/bad.toml"], "DIR/bad.toml"),
    (&["simulate", "--nodes", "40"], "between 2 and 32"),
    (&["node", "--set", "base_station.power_dbm=900"], "power_dbm"),
    (&["backhaul", "--profile", "pigeon"], "no profile 'pigeon'"),
    (&["backhaul", "--plan", "DIR/empty", "--profile", "pigeon"], "no profile 'pigeon'"),
    (&["backhaul", "profile", "pigeon"], "no profile 'pigeon'"),
    (&["backhaul", "measure", "pigeon"], "no profile 'pigeon'"),
];

const DATA: Cases = &[
    (&["demo", "--scenario", "DIR/bad.toml"], "DIR/bad.toml"),
    (&["latency", "--scenario", "DIR/bad.toml"], "DIR/bad.toml"),
    (&["scenario", "check", "DIR/bad.toml"], "DIR/bad.toml"),
    (&["scenario", "check", "DIR/impossible.toml"], "DIR/impossible.toml: signal.subcarriers = 7"),
    (&["scenario", "check", "DIR/text.json"], "DIR/text.json: no valid TOML"),
    (&["scenario", "blocks", "DIR/bad.toml", "--set", "seed=4"], "DIR/bad.toml"),
    (&["scenario", "generate", "--nodes", "4", "--scenario", "DIR/bad.toml"], "DIR/bad.toml"),
    (&["solve", "crb", "--input", "DIR/text.json"], "DIR/text.json"),
    (&["solve", "delay", "--input", "DIR/bytes"], "DIR/bytes"),
    (&["solve", "locate", "--input", "tests/vectors/delay.json"], "tests/vectors/delay.json"),
    (&["solve", "angles", "--input", "DIR/angles.json"], "case 0"),
    (&["replay", "DIR/recording"], "DIR/recording/site.pb"),
    (&["fusion", "--scenario", "DIR/bad.toml"], "DIR/bad.toml"),
    (&["simulate", "--scenario", "DIR/bad.toml"], "DIR/bad.toml"),
    (&["node", "--scenario", "DIR/bad.toml"], "DIR/bad.toml"),
    (&["backhaul", "--plan", "DIR/bad.toml"], "DIR/bad.toml"),
];

const IO: Cases = &[
    (&["demo", "--scenario", "DIR/none.toml"], "DIR/none.toml"),
    (&["demo", "--fixes", "DIR/none/fixes.jsonl"], "DIR/none/fixes.jsonl"),
    (&["demo", "--record", "DIR/empty/recording"], "DIR/empty/recording"),
    (&["latency", "--scenario", "DIR/none.toml"], "DIR/none.toml"),
    (&["figures", "--out", "DIR/empty"], "DIR/empty: it is a file"),
    (&["figures", "--out", "DIR/empty/out"], "DIR/empty/out"),
    (&["scenario", "check", "DIR/none.toml"], "DIR/none.toml"),
    (&["solve", "crb", "--input", "DIR/none.json"], "DIR/none.json"),
    (&["solve", "crb", "--input", "tests/vectors/crb.json", "--output", "DIR/none/a"], "DIR/none/a"),
    (&["solve", "crb", "--input", "tests/vectors/crb.json", "--output", "/dev/full"], "/dev/full"),
    (&["replay", "DIR/none"], "DIR/none/site.pb"),
    (&["fusion", "--config", "DIR/none.toml"], "DIR/none.toml"),
    (&["fusion", "--listen", "PORT"], "cannot listen on PORT"),
    (&["node", "--http-listen", "PORT"], "cannot listen on PORT"),
    (&["simulate", "--echo-listen", "PORT"], "cannot listen on PORT"),
    (&["backhaul", "--listen", "PORT"], "cannot listen on PORT"),
    (&["backhaul", "--plan", "DIR/none.toml"], "DIR/none.toml"),
    (&["man", "DIR/empty/man1"], "DIR/empty/man1"),
];

/// Nobody listens here, and the system assigns this port to nobody either.
const NOBODY: &str = "127.0.0.1:1";

const UNAVAILABLE: Cases = &[
    (&["backhaul", "cut", "--control-listen", "NOBODY"], "NOBODY"),
    (&["backhaul", "links", "--control", "NOBODY"], "NOBODY"),
];

const NO_HOST: Cases = &[
    (&["backhaul", "cut", "--control", "no..where:7411"], "no..where:7411 has no address"),
    (&["backhaul", "profile", "--control", "no..where:7411"], "no..where:7411 has no address"),
];

const FAILED: Cases = &[
    (&["healthcheck", "http://NOBODY/health"], "NOBODY"),
    (&["healthcheck", "http://no..where/health"], "no..where"),
];

/// A directory with invalid input files.
fn bad_files() -> TempDir {
    let folder = TempDir::new().unwrap();
    let angles = r#"{"cases": [{"structured_departure": true, "lambda": 1, "spacing_wavelengths": 0.5,
                     "weights": [[1]], "blocks": [], "reflected_signal": [{"re": [[1]], "im": [[0]]}]}]}"#;
    std::fs::create_dir(folder.path().join("recording")).unwrap();
    let files: [(&str, &[u8]); 7] = [
        ("bad.toml", b"[signal]\ncolour = 7\n"),
        ("impossible.toml", b"[signal]\nsubcarriers = 7\n"),
        ("text.json", b"no problem"),
        ("angles.json", angles.as_bytes()),
        ("bytes", &[0xff, 0xfe]),
        ("empty", b""),
        ("recording/site.pb", b"no site"),
    ];
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

#[test]
fn the_exit_code_tells_the_kind_of_failure_and_the_message_its_place() {
    let folder = bad_files();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).unwrap();
    let filled = |text: &str| {
        let text = text.replace("DIR", folder.path().to_str().unwrap());
        text.replace("PORT", &taken.1).replace("NOBODY", NOBODY)
    };
    for (code, cases) in [(64, USAGE), (65, DATA), (74, IO), (68, NO_HOST), (69, UNAVAILABLE), (1, FAILED)] {
        for (arguments, part) in cases {
            let arguments: Vec<String> = arguments.iter().map(|argument| filled(argument)).collect();
            let output = hyloc(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
            assert!(message.contains(&filled(part)), "{arguments:?}: {message}");
            for debug in ["Os {", "Error(", "Error {", "Custom {", "ParseIntError"] {
                assert!(!message.contains(debug), "{arguments:?}: {message}");
            }
            assert!(message.matches("(os error").count() <= 1, "said twice: {message}");
            assert!(output.stdout.is_empty(), "{arguments:?}");
        }
    }
}

/// The lines of standard output, each of which must be a fix.
fn fixes(output: &Output) -> Vec<Value> {
    let lines = text(&output.stdout);
    let fixes: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(fixes.iter().all(|fix| fix["frame"].is_u64() && fix["status"].is_string()), "{lines}");
    fixes
}

#[test]
fn fixes_on_standard_output_are_alone_there() {
    let folder = TempDir::new().unwrap();
    let recording = folder.path().join("recording");
    let recording = recording.to_str().unwrap();
    let run = ["demo", "--frames", "20", "--deadline-ms", "60000", "--fixes", "-", "--record", recording];
    let demo = hyloc(&run);
    let said = text(&demo.stderr);
    assert!(demo.status.success() && said.contains("20 fixes of 3 IRSs"), "{said}");
    let made = fixes(&demo);
    assert_eq!(made.len(), 20);

    let replay = hyloc(&["replay", recording, "--fixes", "-"]);
    let said = text(&replay.stderr);
    assert!(replay.status.success() && said.contains("20 fixes replayed"), "{said}");
    let positions = |fixes: &[Value]| fixes.iter().map(|fix| fix["position_m"].clone()).collect::<Vec<_>>();
    assert_eq!(positions(&fixes(&replay)), positions(&made));
}

#[test]
fn a_full_disk_ends_a_demo_with_the_code_of_its_cause() {
    let output = hyloc(&["demo", "--frames", "3", "--fixes", "/dev/full"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{said}");
    assert!(said.contains("fixes log: /dev/full cannot be written: No space left on device"), "{said}");
    assert!(text(&output.stdout).contains("fixes of 3 IRSs"), "the summary is there");
}

/// A result that could not be written is no success.
#[test]
fn a_full_disk_under_standard_output_is_an_error() {
    for arguments in [&["scenario", "check"][..], &["completions", "bash"], &["--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(74), "{arguments:?}: {}", text(&output.stderr));
    }
}

/// Valid counts whose product would take hours are refused at once, with the key to lower.
#[test]
fn a_scenario_that_would_take_too_long_is_refused() {
    let all = [
        "surface.elements",
        "surface.sensors",
        "channel.paths",
        "base_station.antennas",
        "signal.subcarriers",
    ];
    let overrides: Vec<String> = all.iter().map(|key| format!("{key}=1365")).collect();
    let mut arguments =
        vec!["scenario", "check", "--set", "base_station.antennas=4096", "--set", "signal.subcarriers=4096"];
    overrides[..3].iter().for_each(|value| arguments.extend(["--set", value.as_str()]));
    let output = hyloc(&arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("base_station.antennas = 4096: takes too long"), "{said}");
}

#[test]
fn a_reader_that_leaves_ends_a_demo_in_order() {
    let mut demo = command(&["demo", "--frames", "0", "--fixes", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    lines.by_ref().take(3).for_each(|line| assert!(line.unwrap().starts_with('{')));
    drop(lines);
    let output = demo.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("fixes of 3 IRSs"), "{said}");
    for complaint in ["hyloc:", "died", "ERROR", "Broken pipe"] {
        assert!(!said.contains(complaint), "{said}");
    }
}
