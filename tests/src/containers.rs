//! A pipeline in containers for tests: a compose project of its own, never left behind.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::process::{eventually, free_address};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Whether a Docker engine answers.
pub fn engine_answers() -> bool {
    let asked = Command::new("docker").args(["version", "--format", "{{.Server.Version}}"]).output();
    asked.is_ok_and(|output| output.status.success())
}

fn succeed(mut command: Command) -> String {
    let shown = format!("{command:?}");
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{shown}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{shown}: {status}\n{stdout}{stderr}");
    stdout.trim().to_owned()
}

/// Runs docker; gives what it prints.
pub fn docker(arguments: &[&str]) -> String {
    let mut command = Command::new("docker");
    command.args(arguments);
    succeed(command)
}

/// Makes the image; gives what the script prints.
pub fn build_image() -> String {
    succeed(Command::new(root().join("deploy/build")))
}

/// Compose, as a plugin or as a program of its own.
fn compose() -> Command {
    let plugin = Command::new("docker").args(["compose", "version"]).output();
    let mut command = if plugin.is_ok_and(|output| output.status.success()) {
        let mut command = Command::new("docker");
        command.arg("compose");
        command
    } else {
        Command::new("docker-compose")
    };
    command.arg("--file").arg(root().join("deploy/compose.yaml"));
    command
}

/// A compose project. It is taken down when it is dropped.
#[derive(Debug)]
pub struct Project {
    name: String,
    profile: &'static str,
    environment: Vec<(&'static str, String)>,
    http: String,
    /// Where fixes can be watched.
    pub grpc: String,
    down: bool,
}

impl Project {
    /// Starts the pipeline with `count` nodes.
    pub fn up(count: usize, profile: &'static str, more: &[(&'static str, &str)]) -> Self {
        let (http, grpc) = (free_address(), free_address());
        let mut environment = vec![
            ("IRS_COUNT", count.to_string()),
            ("HTTP_PORT", http.port().to_string()),
            ("GRPC_PORT", grpc.port().to_string()),
        ];
        environment.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
        let project = Self {
            name: format!("hyloc-test-{}-{count}", std::process::id()),
            profile,
            environment,
            http: format!("http://{http}"),
            grpc: format!("http://{grpc}"),
            down: false,
        };
        project.compose(&["up", "--detach", "--no-build"]);
        project
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = compose();
        command.args(["--project-name", &self.name, "--profile", self.profile]).args(arguments);
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        command
    }

    /// Runs compose on the project; gives what it prints.
    pub fn compose(&self, arguments: &[&str]) -> String {
        succeed(self.command(arguments))
    }

    /// Containers of a service.
    pub fn containers(&self, service: &str) -> Vec<String> {
        self.compose(&["ps", "--quiet", service]).lines().map(str::to_owned).collect()
    }

    /// The full name of one of its networks.
    pub fn network(&self, name: &str) -> String {
        format!("{}_{name}", self.name)
    }

    /// What the fusion center says of itself; none while it does not answer.
    pub fn summary(&self) -> Option<Value> {
        let answer = telemetry::client::request("GET", &format!("{}/api/summary", self.http), "").ok()?;
        serde_json::from_str(&answer.body).ok()
    }

    /// Waits until the summary satisfies `condition`; gives it and the seconds that it took.
    pub fn until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> (Value, f64) {
        let (summary, time) = eventually(what, || self.summary().filter(&condition));
        (summary, time.as_secs_f64())
    }

    /// Takes the project down and tells what is left of it: containers, networks, volumes.
    pub fn take_down(mut self) -> String {
        self.down = true;
        self.compose(&["down", "--volumes", "--timeout", "5"]);
        let label = format!("label=com.docker.compose.project={}", self.name);
        let left = |what: &[&str]| docker(&[what, &["--quiet", "--filter", &label]].concat());
        [left(&["ps", "--all"]), left(&["network", "ls"]), left(&["volume", "ls"])].concat()
    }
}

impl Drop for Project {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if !self.down {
            // A test has failed: what the containers said may tell why.
            if let Ok(output) = self.command(&["logs", "--no-color", "--tail", "40"]).output() {
                eprint!("{}", String::from_utf8_lossy(&output.stdout));
            }
            let _ = self.command(&["down", "--volumes", "--timeout", "1"]).output();
        }
    }
}
