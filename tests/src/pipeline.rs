//! A pipeline under test: fusion center, simulator and nodes as separate processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Process, eventually, free_address, http_get};

/// A room with a height and four panels on its walls, the same for every test in space.
pub const ROOM: &str = r#"
[base_station]
position_m = [-20.0, 5.0, 6.0]
antennas = 32

[signal]
wavelength_m = 0.1
spacing_wavelengths = 0.5
bandwidth_hz = 100e6
subcarriers = 64

[surface]
elements = [4, 4]
sensors = [4, 4]

[channel]
paths = 8

[coverage]
min_m = [2.0, 2.0, 0.5]
max_m = [8.0, 8.0, 2.5]

[[irs]]
position_m = [0.0, 5.0, 3.0]

[[irs]]
position_m = [10.0, 5.0, 3.0]

[[irs]]
position_m = [5.0, 0.0, 1.0]

[[irs]]
position_m = [5.0, 10.0, 4.0]
"#;

/// Addresses that do not change when processes restart, and a temporary directory.
#[derive(Debug)]
pub struct Site {
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub echo: SocketAddr,
    /// By how much the clocks of processes that are started from now on are wrong.
    pub clock_offset_s: i64,
    directory: TempDir,
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Site {
    pub fn new() -> Self {
        Self {
            grpc: free_address(),
            http: free_address(),
            echo: free_address(),
            clock_offset_s: 0,
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Process {
        match self.clock_offset_s {
            0 => Process::start(name, arguments),
            offset_s => Process::start_at_another_time(name, arguments, offset_s),
        }
    }

    /// Starts the fusion center with further arguments. The default queue is so long that a stall loses no frame.
    pub fn fusion(&self, more: &[&str]) -> Process {
        let arguments = self.fusion_arguments(more);
        self.start("fusion-center", &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The same with a limit of file descriptors.
    pub fn fusion_limited(&self, more: &[&str], descriptors: u32) -> Process {
        let arguments = self.fusion_arguments(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Process::start_limited("fusion-center", &arguments, descriptors)
    }

    fn fusion_arguments(&self, more: &[&str]) -> Vec<String> {
        let (grpc, http) = (self.grpc.to_string(), self.http.to_string());
        let mut arguments = vec!["--listen", &grpc, "--http-listen", &http, "--power-dbm", "60"];
        if !more.contains(&"--queue") {
            arguments.extend(["--queue", "256"]);
        }
        arguments.extend(more);
        arguments.into_iter().map(str::to_owned).collect()
    }

    pub fn simulator(&self, more: &[&str]) -> Process {
        let (grpc, echo) = (self.grpc.to_string(), self.echo.to_string());
        let mut arguments = vec!["--echo-listen", &echo, "--fusion", &grpc, "--power-dbm", "60"];
        arguments.extend(["--http-listen", "127.0.0.1:0"]);
        arguments.extend(more);
        self.start("simulator", &arguments)
    }

    pub fn node(&self, index: usize, more: &[&str]) -> Process {
        self.node_as(&format!("node-{index}"), index, more)
    }

    /// Starts a node of this name that claims `index`.
    pub fn node_as(&self, identity: &str, index: usize, more: &[&str]) -> Process {
        self.node_over(self.grpc, identity, index, more)
    }

    /// Starts a node that reaches the fusion center at `way`.
    pub fn node_over(&self, way: SocketAddr, identity: &str, index: usize, more: &[&str]) -> Process {
        let (grpc, echo, index) = (way.to_string(), self.echo.to_string(), index.to_string());
        let mut arguments = vec!["--fusion", &grpc, "--simulator", &echo, "--identity", identity];
        arguments.extend(["--index", &index, "--http-listen", "127.0.0.1:0"]);
        arguments.extend(more);
        self.start("irs-node", &arguments)
    }

    pub fn nodes(&self, count: usize) -> Vec<Process> {
        (0..count).map(|index| self.node(index, &[])).collect()
    }

    /// The summary of the fusion center; none while it does not answer.
    pub fn summary(&self) -> Option<Value> {
        serde_json::from_str(&http_get(self.http, "/api/summary")?).ok()
    }

    /// Waits until the summary satisfies `condition`; returns it and the elapsed seconds.
    pub fn until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> (Value, f64) {
        let (summary, time) = eventually(what, || self.summary().filter(&condition));
        (summary, time.as_secs_f64())
    }

    /// Waits for `more` further fixes.
    pub fn until_more_fixes(&self, more: u64) -> (Value, f64) {
        let (now, _) = self.until("a summary", |_| true);
        let fixes = count(&now, "fixes") + more;
        self.until("more fixes", |summary| count(summary, "fixes") >= fixes)
    }
}

pub fn count(summary: &Value, key: &str) -> u64 {
    summary[key].as_u64().unwrap_or_else(|| panic!("no count '{key}' in {summary}"))
}

pub fn of_node(summary: &Value, node: usize, key: &str) -> u64 {
    count(&summary["ledger"][node], key)
}

/// The fixes of a log.
pub fn fixes(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("a fix log");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The lines of a fix log without their timings, which are the last field.
pub fn lines_without_timing(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("a fix log");
    text.lines().map(|line| line.split_once(r#","timing":"#).expect("timings").0.to_owned()).collect()
}

/// A replay of the recording gives the fixes of the log, to the byte. On a busy machine the truth of a fix may have come too late for
/// the log; it is not compared then.
pub fn assert_replayed(recording: &Path, log: &Path, again: &Path) {
    let replay = ["replay", recording.to_str().unwrap(), "--json", "--fixes", again.to_str().unwrap()];
    Process::start("hyloc", &replay).finish();
    let (replayed, live) = (lines_without_timing(again), lines_without_timing(log));
    assert_eq!(replayed.len(), live.len());
    for (replayed, live) in replayed.iter().zip(&live) {
        let replayed = replayed.replace(r#""source":"replayed""#, r#""source":"simulated""#);
        let fix = |line: &str| line.split_once(r#","truth":"#).expect("a truth").0.to_owned();
        match live.ends_with(r#","truth":null"#) {
            true => assert_eq!(fix(&replayed), fix(live)),
            false => assert_eq!(&replayed, live),
        }
    }
}
