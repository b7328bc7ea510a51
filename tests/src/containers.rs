//! A pipeline in containers for tests: a separate compose project that is always removed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;
use trust::{ClientTls, Identity, Paths, Role};

use crate::process::{eventually, free_address};

/// Prefix of the project names, which continue with process id and K.
const PREFIX: &str = "hyloc-test-";

/// The image of tests.
const IMAGE: &str = "hyloc:test";

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

/// Runs docker and returns its output.
pub fn docker(arguments: &[&str]) -> String {
    let mut command = Command::new("docker");
    command.args(arguments);
    succeed(command)
}

/// Builds the image once, with `deploy/build` from the executables of the tests; returns the output of the script.
/// `HYLOC_IMAGE_PROFILE=release` builds the released image.
pub fn build_image() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        sweep();
        let mut command = Command::new(root().join("deploy/build"));
        command.arg("test");
        command.env("HYLOC_IMAGE_PROFILE", std::env::var("HYLOC_IMAGE_PROFILE").as_deref().unwrap_or("dev"));
        succeed(command)
    })
}

/// Kinds of objects of a compose project: the command that lists them and the one that removes them.
const KINDS: [(&[&str], &[&str]); 3] = [
    (&["ps", "--all"], &["rm", "--force", "--volumes"]),
    (&["network", "ls"], &["network", "rm"]),
    (&["volume", "ls"], &["volume", "rm"]),
];

/// Containers, networks or volumes of a project.
fn parts(list: &[&str], project: &str) -> Vec<String> {
    let filter = format!("label=com.docker.compose.project={project}");
    docker(&[list, &["--quiet", "--filter", &filter]].concat()).lines().map(str::to_owned).collect()
}

/// Removes the projects of aborted tests: those whose process has ended, or had the same id as this one.
fn sweep() {
    let label = "com.docker.compose.project";
    let format = format!("{{{{.Label \"{label}\"}}}}");
    for (list, remove) in KINDS {
        let filter = format!("label={label}");
        let named = docker(&[list, &["--filter", &filter, "--format", &format]].concat());
        let stale = |project: &&str| {
            let owner = project.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
            owner.and_then(|owner| owner.parse::<u32>().ok()).is_some_and(|owner| {
                owner == std::process::id() || !Path::new(&format!("/proc/{owner}")).exists()
            })
        };
        for project in named.lines().filter(stale) {
            for part in parts(list, project) {
                docker(&[remove, &[&part]].concat());
            }
        }
    }
}

/// Compose, as a plugin or as a separate program.
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

/// The published fusion center of a pipeline in containers, with certificates of this pipeline alone.
#[derive(Debug)]
pub struct PublishedCenter {
    http: SocketAddr,
    grpc: SocketAddr,
    certificates: TempDir,
    environment: Vec<(&'static str, String)>,
}

impl PublishedCenter {
    /// Makes certificates for `count` nodes and chooses ports; `more` are further variables of the files in `deploy/`.
    fn new(count: usize, more: &[(&'static str, &str)]) -> Self {
        let (http, grpc) = (free_address(), free_address());
        let certificates = tempfile::tempdir().expect("a directory");
        let directory = certificates.path().join("certs").display().to_string();
        let mut make = Command::new(root().join("deploy/certs"));
        make.args([&directory, &count.to_string()]).env("HYLOC_IMAGE", IMAGE);
        succeed(make);
        let mut environment = vec![
            ("HYLOC_IMAGE", IMAGE.to_owned()),
            ("IRS_COUNT", count.to_string()),
            ("HTTP_PORT", http.port().to_string()),
            ("GRPC_PORT", grpc.port().to_string()),
            ("CERTS", directory),
        ];
        environment.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
        Self { http, grpc, certificates, environment }
    }

    fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.environment.iter().map(|(key, value)| (*key, value.as_str()))
    }

    pub fn grpc(&self) -> String {
        self.grpc.to_string()
    }

    /// The TLS side of a watcher.
    pub fn watcher(&self) -> ClientTls {
        let directory = self.certificates.path().join("certs/watcher");
        let path = |name: &str| directory.join(name);
        let paths = Paths { ca: path("ca.pem"), cert: path("cert.pem"), key: path("key.pem") };
        Identity::load(paths).expect("a certificate").client(Some(Role::FusionCenter))
    }

    /// The summary of the fusion center; none while it does not answer.
    pub fn summary(&self) -> Option<Value> {
        let url = format!("https://{}/api/summary", self.http);
        let answer = telemetry::client::request_with(Some(&self.watcher()), "GET", &url, "").ok()?;
        serde_json::from_str(&answer.body).ok()
    }

    /// Waits until the summary satisfies `condition`; returns it and the elapsed seconds.
    pub fn until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> (Value, f64) {
        let (summary, time) = eventually(what, || self.summary().filter(&condition));
        (summary, time.as_secs_f64())
    }
}

/// A stack on a swarm of this engine alone. Both are removed when it is dropped.
#[derive(Debug)]
pub struct Stack {
    name: String,
    pub center: PublishedCenter,
}

impl Stack {
    /// Makes a swarm and deploys the pipeline with `count` nodes; none if the engine belongs to a swarm already.
    pub fn deploy(count: usize, more: &[(&'static str, &str)]) -> Option<Self> {
        if docker(&["info", "--format", "{{.Swarm.LocalNodeState}}"]) != "inactive" {
            return None;
        }
        docker(&["swarm", "init", "--advertise-addr", "127.0.0.1"]);
        let name = format!("{PREFIX}{}-stack", std::process::id());
        let stack = Self { name, center: PublishedCenter::new(count, more) };
        let nodes = stack.center.certificates.path().join("certs/stack-nodes.yaml");
        let mut command = Command::new("docker");
        command
            .args(["stack", "deploy", "--resolve-image", "never", "-c"])
            .arg(root().join("deploy/stack.yaml"));
        command.arg("-c").arg(nodes).arg(&stack.name).envs(stack.center.variables());
        succeed(command);
        Some(stack)
    }

    /// Containers of a service that run.
    pub fn containers(&self, service: &str) -> Vec<String> {
        let filter = format!("label=com.docker.swarm.service.name={}_{service}", self.name);
        docker(&["ps", "--quiet", "--filter", &filter]).lines().map(str::to_owned).collect()
    }

    /// Kills a container of a service and waits until another one runs in its place.
    pub fn kill_and_wait(&self, service: &str) {
        let before = self.containers(service);
        docker(&["kill", &before[0]]);
        eventually("the task is replaced", || {
            let now = self.containers(service);
            (now.len() == before.len() && !now.contains(&before[0])).then_some(())
        });
    }

    /// Removes the stack and waits until nothing of it is left: containers, secrets and networks.
    pub fn remove(self) {
        docker(&["stack", "rm", &self.name]);
        let filter = format!("label=com.docker.stack.namespace={}", self.name);
        let lists = [&["ps", "--all"][..], &["secret", "ls"], &["network", "ls"]];
        eventually("nothing is left of the stack", || {
            let left = lists.map(|list| docker(&[list, &["--quiet", "--filter", &filter]].concat()));
            left.iter().all(String::is_empty).then_some(())
        });
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // Leaving a swarm removes its services with it.
        for arguments in [&["swarm", "leave", "--force"][..], &["network", "rm", "docker_gwbridge"]] {
            let _ = Command::new("docker").args(arguments).output();
        }
    }
}

/// A compose project. It is taken down when it is dropped.
#[derive(Debug)]
pub struct Project {
    name: String,
    profile: &'static str,
    pub center: PublishedCenter,
    down: bool,
}

impl Project {
    /// Starts the pipeline with `count` nodes.
    pub fn up(count: usize, profile: &'static str, more: &[(&'static str, &str)]) -> Self {
        let name = format!("{PREFIX}{}-{count}", std::process::id());
        let project = Self { name, profile, center: PublishedCenter::new(count, more), down: false };
        project.compose(&["up", "--detach", "--no-build"]);
        project
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = compose();
        command.args(["--project-name", &self.name, "--profile", self.profile]).args(arguments);
        command.envs(self.center.variables());
        command
    }

    /// Runs compose on the project and returns its output.
    pub fn compose(&self, arguments: &[&str]) -> String {
        succeed(self.command(arguments))
    }

    /// Containers of a service.
    pub fn containers(&self, service: &str) -> Vec<String> {
        self.compose(&["ps", "--quiet", service]).lines().map(str::to_owned).collect()
    }

    /// Published ports as `service address:port`, sorted.
    pub fn published(&self) -> Vec<String> {
        let mut published = Vec::new();
        for id in parts(KINDS[0].0, &self.name) {
            let told: Value = serde_json::from_str(&docker(&["inspect", &id])).expect("JSON");
            let service = &told[0]["Config"]["Labels"]["com.docker.compose.service"];
            let bindings = told[0]["HostConfig"]["PortBindings"].as_object().into_iter().flatten();
            for host in bindings.flat_map(|(_, hosts)| hosts.as_array().into_iter().flatten()) {
                let part = |value: &Value| value.as_str().unwrap_or("?").to_owned();
                let (address, port) = (part(&host["HostIp"]), part(&host["HostPort"]));
                published.push(format!("{} {address}:{port}", part(service)));
            }
        }
        published.sort();
        published
    }

    /// The full name of one of its networks.
    pub fn network(&self, name: &str) -> String {
        format!("{}_{name}", self.name)
    }

    /// The only ports that should be published: those of the fusion center, on loopback.
    pub fn expected_ports(&self) -> Vec<String> {
        let mut ports =
            [self.center.http, self.center.grpc].map(|address| format!("fusion-center {address}")).to_vec();
        ports.sort();
        ports
    }

    /// Takes the project down and returns its remaining containers, networks and volumes.
    pub fn take_down(mut self) -> Vec<String> {
        self.down = true;
        self.compose(&["down", "--volumes", "--timeout", "5"]);
        KINDS.iter().flat_map(|(list, _)| parts(list, &self.name)).collect()
    }
}

impl Drop for Project {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if !self.down {
            // A test has failed: the logs of the containers may show why.
            if let Ok(output) = self.command(&["logs", "--no-color", "--tail", "40"]).output() {
                eprint!("{}", String::from_utf8_lossy(&output.stdout));
            }
            let _ = self.command(&["down", "--volumes", "--timeout", "1"]).output();
        }
    }
}
