//! The documents agree with the project: links and anchors resolve, commands work, settings are complete. Statements about
//! the figures are tested in `hyloc/tests/claims.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::Parser;
use hyloc::cli::HylocArguments;
use hyloc_tests::process::executable;

/// Maximum number of words of the README.
const README_WORDS: usize = 900;

/// Programs whose calls in documents are commands; so are the scripts of `deploy/`.
const PROGRAMS: [&str; 7] = ["hyloc", "cargo", "curl", "openssl", "docker", "pip", "python3"];

/// Commands in documents that are not run here, one `command-prefix # reason` per line.
const NOT_RUN: &str = "tests/commands-not-run.txt";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Markdown files of the project.
fn documents() -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if path.is_file() && name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A Markdown file, split into prose and the lines of its code blocks.
struct Document {
    prose: String,
    code: Vec<String>,
}

impl Document {
    fn read(path: &Path) -> Self {
        let (mut prose, mut code, mut inside) = (String::new(), Vec::new(), false);
        for line in read(path).lines() {
            if line.trim_start().starts_with("```") {
                inside = !inside;
            } else if inside {
                code.push(line.to_owned());
            } else {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        Self { prose, code }
    }

    /// Targets of the links within the project.
    fn links(&self) -> impl Iterator<Item = &str> {
        let targets = self.prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.filter(|target| !target.contains("://"))
    }

    /// Anchors of the headings, as GitHub makes them.
    fn anchors(&self) -> BTreeSet<String> {
        let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        let headings = self.prose.lines().filter(|line| line.starts_with('#'));
        let titles = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
        titles.map(|title| title.chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
    }

    /// Commands as words: lines of code blocks, and code within the prose.
    fn commands(&self) -> Vec<Vec<String>> {
        let code = self.code.iter().map(String::as_str).chain(self.prose.split('`').skip(1).step_by(2));
        let is_program = |name: &str| PROGRAMS.contains(&name) || name.starts_with("deploy/");
        let is_command = |words: &Vec<String>| words.len() > 1 && is_program(&words[0]);
        code.map(words).filter(is_command).collect()
    }
}

/// The words of a command as a shell sees them, without variables before it and without a comment, a pipe or a
/// redirection after it. `cargo run --release --` stands for hyloc.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for c in line.replacen("cargo run --release -- ", "hyloc ", 1).chars() {
        if c == '\'' {
            quoted = !quoted;
        } else if c.is_whitespace() && !quoted {
            words.push(String::new());
        } else if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    let words = words.into_iter().filter(|word| !word.is_empty()).skip_while(|word| word.contains('='));
    words.take_while(|word| !["#", "|", ">"].contains(&word.as_str())).collect()
}

/// The commands that are not run; every line must say why.
fn not_run() -> Vec<Vec<String>> {
    let text = read(&root().join(NOT_RUN));
    let prefix = |line: &str| match line.split_once(" # ") {
        Some((prefix, reason)) if !reason.trim().is_empty() => words(prefix),
        _ => panic!("{NOT_RUN}: a command and, after ` # `, the reason: {line}"),
    };
    text.lines().map(prefix).collect()
}

/// Runs hyloc in the root of the project.
fn hyloc(arguments: &[String]) -> Output {
    Command::new(executable("hyloc")).args(arguments).current_dir(root()).output().unwrap()
}

/// The values of a flag, which may be repeated.
fn values<'a>(words: &'a [String], flag: &'a str) -> impl Iterator<Item = &'a String> {
    words.iter().zip(words.iter().skip(1)).filter(move |(word, _)| *word == flag).map(|(_, value)| value)
}

/// The package that a cargo command names exists, and so do its tests, benchmarks and examples.
fn check_cargo(words: &[String]) {
    let command = words.join(" ");
    let Some(package) = values(words, "-p").next() else { return };
    let name = format!("\nname = \"{package}\"\n");
    let folders = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let mut packages = folders.filter(|folder| folder.join("Cargo.toml").is_file());
    let folder = packages.find(|folder| read(&folder.join("Cargo.toml")).contains(&name));
    let folder = folder.unwrap_or_else(|| panic!("`{command}`: there is no package {package}"));
    for (flag, kind) in [("--test", "tests"), ("--bench", "benches"), ("--example", "examples")] {
        for target in values(words, flag) {
            let (file, module) = (format!("{kind}/{target}.rs"), format!("{kind}/{target}/main.rs"));
            let exists = folder.join(file).exists() || folder.join(module).exists();
            assert!(exists, "`{command}`: {package} has no {kind}/{target}");
        }
    }
}

#[test]
fn links_and_anchors_resolve() {
    let mut seen = 0;
    for path in documents() {
        for link in Document::read(&path).links() {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {file} does not exist", path.display());
            let found = anchor.is_empty() || Document::read(&target).anchors().contains(anchor);
            assert!(found, "{}: {link}: there is no such heading", path.display());
            seen += 1;
        }
    }
    assert!(seen > 80, "{seen} links");
}

#[test]
fn the_readme_is_short() {
    let count = read(&root().join("README.md")).split_whitespace().count();
    assert!(count < README_WORDS, "{count} words");
}

/// Every command in the README and in `docs/` is accepted by the command line and either runs or is listed with the
/// reason why it does not.
#[test]
fn commands_work() {
    let shown_in =
        |path: &PathBuf| *path == root().join("README.md") || path.starts_with(root().join("docs"));
    let paths: Vec<PathBuf> = documents().into_iter().filter(shown_in).collect();
    let commands: BTreeSet<Vec<String>> =
        paths.iter().flat_map(|path| Document::read(path).commands()).collect();
    let listed = not_run();
    for words in &commands {
        let command = words.join(" ");
        if words[0] == "cargo" {
            check_cargo(words);
        } else if words[0] == "hyloc"
            && let Err(error) = HylocArguments::try_parse_from(words)
        {
            // The parser returns help and version as errors that do not use standard error.
            assert!(!error.use_stderr(), "`{command}` is not accepted: {error}");
        }
        if listed.iter().any(|prefix| words.starts_with(prefix)) {
            continue;
        }
        assert_eq!(words[0], "hyloc", "`{command}` is not run: list it in {NOT_RUN} with the reason");
        let output = hyloc(&words[1..]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{command}` fails ({}): {said}", output.status);
    }
    for prefix in &listed {
        let used = commands.iter().any(|words| words.starts_with(prefix));
        assert!(used, "{NOT_RUN}: no document shows `{}`", prefix.join(" "));
    }
    assert!(commands.len() > 40, "{} commands", commands.len());
}

/// Every setting that a process prints has a row in its section of the reference.
#[test]
fn settings_are_documented() {
    let reference = read(&root().join("docs/reference/settings.md"));
    let roles = [
        ("fusion", "Fusion center"),
        ("node", "Node"),
        ("simulate", "Simulator"),
        ("backhaul", "Backhaul emulator"),
    ];
    for (role, heading) in roles {
        let section = reference.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
        let output = hyloc(&[role, "--print-config"].map(String::from));
        let printed = String::from_utf8(output.stdout).unwrap();
        let keys: Vec<&str> =
            printed.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key).collect();
        assert!(keys.len() > 5, "{role}: {printed}");
        for key in keys {
            assert!(section.contains(&format!("| `{key}` |")), "{heading}: no row for `{key}`");
        }
    }
}

/// The README has the median fusion times of the first table of the benchmarks.
#[test]
fn the_readme_has_the_speed_of_the_benchmarks() {
    let (readme, benchmarks) = (read(&root().join("README.md")), read(&root().join("benchmarks/README.md")));
    for count in [3, 8] {
        let is_row = |line: &&str| line.starts_with(&format!("| {count} |")) && line.contains("| fusion |");
        let row = benchmarks.lines().find(is_row).unwrap();
        let median_ms: f64 = row.split('|').nth(4).unwrap().trim().parse().unwrap();
        let text = format!("{median_ms:.0} ms for K = {count}");
        assert!(readme.contains(&text), "the README should say: {text}");
    }
}

/// Every test that SECURITY.md names as `path::name` exists.
#[test]
fn promises_are_tested() {
    let text = read(&root().join("SECURITY.md"));
    let named: Vec<(&str, &str)> =
        text.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs::")).collect();
    for (path, name) in &named {
        let source = read(&root().join(format!("{path}.rs")));
        let (test, of_tokio) = (format!("fn {name}("), ["#[test]", "#[tokio::test"]);
        let place = source.find(&test).unwrap_or_else(|| panic!("SECURITY.md: {path}.rs has no test {name}"));
        let before = source[..place].rsplit("\n\n").next().unwrap_or_default();
        assert!(of_tokio.iter().any(|mark| before.contains(mark)), "{path}.rs: {name} is no test");
    }
    let promises = text.lines().filter(|line| line.contains(".rs::")).count();
    assert!(named.len() >= promises && promises >= 10, "{promises} promises");
}

/// The page of limits has the values of the code.
#[test]
fn limits_are_those_of_the_code() {
    use telemetry::listener::limits::*;
    use telemetry::log_limit::{BURST, REPORT_INTERVAL};
    let page = read(&root().join("docs/reference/limits.md"));
    let row = |name: &str, value: &dyn std::fmt::Display| {
        let begin = format!("| {name} | {value} |");
        assert!(page.contains(&begin), "docs/reference/limits.md should have: {begin}");
    };
    let seconds = |time: std::time::Duration| format!("{} s", time.as_secs());
    row("connections to gRPC of the fusion center", &GRPC.connections);
    row("connections to HTTP of a process", &HTTP.connections);
    row("connections to a control interface", &CONTROL.connections);
    row("connections to gRPC health of a node or simulator", &HEALTH.connections);
    row("connections of nodes to the relay", &RELAY.connections);
    assert_eq!(4 * GRPC.per_peer(), 3 * GRPC.connections, "the share of one peer");
    row("descriptors kept for everything else", &RESERVED_DESCRIPTORS);
    row("connections that are still being closed", &CLOSING);
    row("time to establish a connection", &seconds(ESTABLISH_TIMEOUT));
    row("time without a byte in either direction", &seconds(IDLE_TIMEOUT));
    row("silence after which a connection counts as unused", &seconds(QUIET));
    let (grpc, http) = (GRPC.within(1024), HTTP.within(1024));
    let example = [grpc.connections, grpc.per_peer(), http.connections, http.per_peer()];
    let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = format!(
        "{} connections to gRPC ({} of one peer) and {} to HTTP ({})",
        example[0], example[1], example[2], example[3]
    );
    assert!(text.contains(&expected), "docs/reference/limits.md should say: {expected}");
    row("time for the head of a request, and between two requests", &seconds(HEADER_TIMEOUT));
    row("time until the response begins", &seconds(REQUEST_TIMEOUT));
    row("header lines", &MAX_HEADERS);
    row("bytes of the head", &MAX_HEAD_BYTES);
    row("bytes of a body", &MAX_BODY_BYTES);
    row("streams of a connection", &HTTP2.concurrent_streams);
    row("bytes of a header list", &HTTP2.header_list_bytes);
    row("bytes of a frame", &HTTP2.frame_bytes);
    row("streams that the peer reset before they were served", &HTTP2.pending_resets);
    row("streams reset because of an error of the peer", &HTTP2.error_resets);
    let ping = format!("{}, {}", seconds(HTTP2.keepalive_interval), seconds(HTTP2.keepalive_timeout));
    row("ping interval, time for its answer", &ping);
    row(
        "lines that a peer can provoke, per place in the code",
        &format!("{BURST} at once, then 1 per second"),
    );
    assert_eq!(REPORT_INTERVAL.as_secs(), 10, "when suppressed lines are reported");
    // Constants that are private to their crates, found in the source.
    for (name, value, file, constant) in [
        (
            "bytes of a body to the control of the page",
            "1024",
            "fusion-center/src/dashboard/control.rs",
            "LARGEST_BODY: usize",
        ),
        ("viewers of live events", "64", "fusion-center/src/viewers.rs", "MOST_VIEWERS: usize"),
        ("fixes waiting for a watcher", "64", "fusion-center/src/service.rs", "WATCH_QUEUE: usize"),
        ("events waiting for the engine", "256", "fusion-center/src/run.rs", "EVENT_QUEUE: usize"),
        ("frames ahead of the other nodes", "256", "fusion-center/src/progress.rs", "MOST_AHEAD: u64"),
        ("links of the relay", "64", "backhaul/src/plan.rs", "MOST_LINKS: usize"),
        ("gRPC handshakes under way at once", "256", "trust/src/accept.rs", "HANDSHAKES: usize"),
        ("connections of one link", "16", "backhaul/src/relay.rs", "MOST_CONNECTIONS: usize"),
        ("bytes of an identity", "128", "proto/src/identity.rs", "MOST_BYTES: usize"),
        ("streams of truth that are open", "4", "fusion-center/src/truth.rs", "MOST_OPEN: usize"),
        ("streams of truth that are remembered", "8", "fusion-center/src/truth.rs", "MOST_SOURCES: usize"),
        ("records of one stream of truth", "8192", "fusion-center/src/truth.rs", "REMEMBERED_FRAMES: usize"),
        ("fixes waiting for the disk", "1024", "fusion-center/src/fix_log.rs", "MOST_WAITING: usize"),
        ("entries waiting for the recorder", "1024", "fusion-center/src/recording.rs", "QUEUE: usize"),
        (
            "complex operations of the beams of a scenario",
            "5e8",
            "model/src/scenario/validate.rs",
            "MOST_BEAM_WORK: f64",
        ),
        (
            "steps of the joint solver in `solve angles`",
            "1e11",
            "hyloc/src/solve/limits.rs",
            "MOST_ADMM_WORK: f64",
        ),
        (
            "characters of a peer's text in a line",
            "200",
            "telemetry/src/log_limit.rs",
            "MAX_CHARACTERS: usize",
        ),
    ] {
        let definition = format!("const {constant} = {value};");
        assert!(read(&root().join(file)).contains(&definition), "{file}: no {definition}");
        row(name, &value);
    }
    // The same in other units.
    for (name, value, file, definition) in [
        (
            "bytes of a recording waiting for the disk",
            "32 MiB",
            "fusion-center/src/segment.rs",
            "MOST_PENDING_BYTES: usize = 32 << 20;",
        ),
        (
            "bytes of a segment of a recording",
            "1 GiB",
            "fusion-center/src/segment.rs",
            "SEGMENT_BYTES: u64 = 1 << 30;",
        ),
        (
            "bytes of a settings or scenario file",
            "1 MiB",
            "settings/src/lib.rs",
            "MOST_SETTINGS_BYTES: u64 = 1 << 20;",
        ),
        (
            "bytes of the metadata of a SigMF file of echoes",
            "4 MiB",
            "proto/src/echo/file/sigmf.rs",
            "MOST_METADATA_BYTES: u64 = 4 << 20;",
        ),
        (
            "frames of a numpy archive of echoes",
            "2 097 152",
            "proto/src/echo/file/npz.rs",
            "MOST_FRAMES: usize = 1 << 21;",
        ),
        (
            "bytes of a file of problems",
            "64 MiB",
            "hyloc/src/solve/limits.rs",
            "MOST_INPUT_BYTES: u64 = 64 << 20;",
        ),
        (
            "bytes of a certificate or key file",
            "4 MiB",
            "trust/src/material.rs",
            "LARGEST_FILE: u64 = 4 << 20;",
        ),
        (
            "time from a registration to its stream, and to come back after a broken one",
            "2 s",
            "fusion-center/src/registry.rs",
            "LEASE_NS: u64 = 2_000_000_000;",
        ),
    ] {
        let source = read(&root().join(file));
        assert!(source.contains(&format!("const {definition}")), "{file}: no {definition}");
        row(name, &value);
    }
}
