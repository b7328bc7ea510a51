//! The child processes of a demo: this executable in other roles.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use model::Scenario;
use serde_json::Value;
use telemetry::exit::{self, Failure};
use telemetry::{PARENT_VARIABLE, Started};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::{ChildStdin, Command};
use trust::{ClientTls, Identity, Paths, Role};

use super::DemoFlags;
use crate::commands::certs::CertificateStore;
use crate::commands::{note, write_file};

/// Lifetime of the certificates of a demo.
const DAYS: u32 = 30;

/// Frames that may wait for a solver; at the default rate a stall of one second loses no frame.
const QUEUE: &str = "64";

const FUSION: &str = "fusion center";

/// Starts child processes, which share the scenario file in a temporary directory.
pub struct Children<'a> {
    flags: &'a DemoFlags,
    controls: Option<Controls>,
    executable: PathBuf,
    scenario: PathBuf,
    max_targets: Option<usize>,
    /// The authority and its certificates, with `--tls`.
    certificates: Option<CertificateStore>,
    _directory: TempDir,
}

/// Standard output of a child; standard error if fixes take standard output.
type ChildOutput = Box<dyn AsyncRead + Send + Unpin>;

/// A child process. It is killed if it is dropped while it runs.
pub struct Child {
    role: String,
    process: tokio::process::Child,
    lines: Lines<BufReader<ChildOutput>>,
    /// Closed when this process ends in any way, which makes the child stop.
    _lifeline: Option<ChildStdin>,
    last: Option<Value>,
}

/// Control addresses of simulator and relay, and the port of the control of the nodes.
#[derive(Debug)]
struct Controls {
    simulator: SocketAddr,
    backhaul: SocketAddr,
    nodes: TcpListener,
}

impl Controls {
    /// Currently free ports; the fusion center must know them before simulator and relay start.
    fn free() -> anyhow::Result<Self> {
        let free = || TcpListener::bind("127.0.0.1:0");
        let (a, b, nodes) = (free()?, free()?, free()?);
        Ok(Self { simulator: a.local_addr()?, backhaul: b.local_addr()?, nodes })
    }
}

/// How a node gets its echoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EchoWay {
    /// It subscribes at the simulator.
    Subscribe(SocketAddr),
    /// They are pushed into it at this address.
    Listen(SocketAddr),
}

impl<'a> Children<'a> {
    pub fn new(flags: &'a DemoFlags, scenario: &Scenario) -> anyhow::Result<Self> {
        let executable = std::env::current_exe().context("the path of this executable is unknown")?;
        let directory = tempfile::Builder::new().prefix("hyloc-demo-").tempdir()?;
        let file = directory.path().join("scenario.toml");
        write_file(&file, toml::to_string(scenario)?.as_bytes())?;
        let controls = flags.allow_control.then(Controls::free).transpose()?;
        let certificates = || {
            let store = CertificateStore::init(&directory.path().join("certs"), "demo.internal", DAYS)?;
            let nodes = (0..scenario.irs.len() as u32).map(Role::Node);
            let processes = [Role::FusionCenter, Role::Simulator, Role::Backhaul, Role::Watcher];
            for role in processes.into_iter().chain(nodes) {
                store.issue(role, &[], DAYS)?;
            }
            anyhow::Ok(store)
        };
        let certificates = flags.tls.then(certificates).transpose()?;
        let max_targets = flags.max_targets(scenario);
        Ok(Self {
            flags,
            controls,
            executable,
            scenario: file,
            max_targets,
            certificates,
            _directory: directory,
        })
    }

    /// The TLS side of a watcher of fixes.
    pub fn watcher(&self) -> anyhow::Result<Option<ClientTls>> {
        let Some(store) = &self.certificates else { return Ok(None) };
        let identity = Identity::load(store.paths(Role::Watcher))?;
        Ok(Some(identity.client(Some(Role::FusionCenter))))
    }

    /// The port of the control of the nodes, if there is one.
    pub fn node_control(&self) -> anyhow::Result<Option<TcpListener>> {
        Ok(self.controls.as_ref().map(|controls| controls.nodes.try_clone()).transpose()?)
    }

    /// Starts the fusion center with its page at `page`.
    pub fn fusion(&self, page: SocketAddr) -> anyhow::Result<Child> {
        let Self { flags, controls, .. } = self;
        let mut arguments = ChildArguments::new("fusion");
        arguments
            .add("--listen", "127.0.0.1:0")
            .add("--http-listen", page.to_string())
            .add("--queue", QUEUE)
            .add("--scenario", &self.scenario)
            .add_some("--fixes", flags.fixes.as_ref())
            .add_some("--record", flags.record.as_ref())
            .add_some("--deadline-ms", flags.deadline_ms.map(|ms| ms.to_string()))
            .add_some("--method", flags.choices.method.as_ref())
            .add_some("--batch-frames", flags.choices.batch_frames.map(|frames| frames.to_string()))
            .add_some("--max-targets", self.max_targets.map(|targets| targets.to_string()));
        if let Some(controls) = controls {
            arguments
                .add_flag("--allow-control")
                .add("--control-simulator", controls.simulator.to_string())
                .add("--control-backhaul", controls.backhaul.to_string())
                .add("--control-nodes", controls.nodes.local_addr()?.to_string());
        }
        self.start(FUSION, Role::FusionCenter, arguments)
    }

    /// Starts the simulator, which pushes into the nodes at `pushes`; without any, nodes subscribe over ZeroMQ.
    pub fn simulator(&self, grpc: SocketAddr, pushes: &[SocketAddr]) -> anyhow::Result<Child> {
        let Self { flags, controls, .. } = self;
        let mut arguments = ChildArguments::new("simulate");
        let frames = flags.frames * flags.frames_per_fix;
        arguments
            .add("--echo-listen", "127.0.0.1:0")
            .add("--http-listen", "127.0.0.1:0")
            .add("--scenario", &self.scenario)
            .add("--fusion", grpc.to_string())
            .add("--frames", frames.to_string())
            .add("--rate", flags.rate.to_string());
        for push in pushes {
            arguments.add("--push", push.to_string());
        }
        if let Some(controls) = controls {
            arguments.add_flag("--allow-control").add("--control-listen", controls.simulator.to_string());
        }
        self.start("simulator", Role::Simulator, arguments)
    }

    /// Starts the relay with a link for each of `count` nodes.
    pub fn relay(&self, profile: &str, count: usize, grpc: SocketAddr) -> anyhow::Result<Child> {
        let mut arguments = ChildArguments::new("backhaul");
        arguments.add("--listen", "none").add("--fusion", grpc.to_string()).add("--profile", profile);
        if let Some(controls) = &self.controls {
            arguments.add_flag("--allow-control").add("--control-listen", controls.backhaul.to_string());
        }
        for index in 0..count {
            arguments.add("--link", format!("node-{index}=127.0.0.1:0"));
        }
        self.start("backhaul", Role::Backhaul, arguments)
    }

    /// Starts a node.
    pub fn node(&self, index: usize, grpc: SocketAddr, echo: EchoWay) -> anyhow::Result<Child> {
        let flags = self.flags;
        let (flag, address) = match echo {
            EchoWay::Subscribe(address) => ("--simulator", address),
            EchoWay::Listen(address) => ("--echo-listen", address),
        };
        let mut arguments = ChildArguments::new("node");
        arguments
            .add("--http-listen", "127.0.0.1:0")
            .add("--fusion", grpc.to_string())
            .add(flag, address.to_string())
            .add("--identity", format!("node-{index}"))
            .add("--index", index.to_string())
            .add("--frames-per-fix", flags.frames_per_fix.to_string())
            .add_some("--payload", flags.choices.payload.as_ref())
            .add_some("--precision", flags.choices.precision.as_ref());
        self.start(&format!("node {index}"), Role::Node(index as u32), arguments)
    }

    fn start(&self, role: &str, proven: Role, mut arguments: ChildArguments) -> anyhow::Result<Child> {
        if let Some(store) = &self.certificates {
            let Paths { ca, cert, key } = store.paths(proven);
            arguments.add("--tls-ca", ca).add("--tls-cert", cert).add("--tls-key", key);
        }
        let fixes = role == FUSION && self.flags.to_stdout();
        let mut command = Command::new(&self.executable);
        if std::env::var_os("HYLOC_LOG").is_none() {
            command.env("HYLOC_LOG", "error");
        }
        let mut process = command
            .args(arguments.0)
            .env(PARENT_VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(if fixes { Stdio::inherit() } else { Stdio::piped() })
            .stderr(if fixes { Stdio::piped() } else { Stdio::inherit() })
            // Ctrl-C must reach only the demo, which then stops its children in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("the {role} cannot be started"))?;
        let stdout = process.stdout.take().map(|stdout| Box::new(stdout) as ChildOutput);
        let output = stdout.or_else(|| Some(Box::new(process.stderr.take()?)));
        let lifeline = process.stdin.take();
        Ok(Child {
            role: role.to_owned(),
            process,
            lines: BufReader::new(output.context("no output")?).lines(),
            _lifeline: lifeline,
            last: None,
        })
    }
}

impl Child {
    /// Waits for the line with its addresses.
    pub async fn started(&mut self, limit: Duration) -> anyhow::Result<Started> {
        let role = self.role.clone();
        let wait = async {
            if let Some(message) = self.next_message().await? {
                return Ok(serde_json::from_value(message)?);
            }
            let status = self.process.wait().await?;
            let reason = format!("the {role} ended with {status} before it was ready");
            bail!(Failure::new(exit::code_of_child(status), reason))
        };
        match tokio::time::timeout(limit, wait).await {
            Ok(started) => started,
            Err(_) => bail!("the {role} was not ready within {} s", limit.as_secs()),
        }
    }

    /// The next announcement or summary. Logs, which are among them on standard error, are passed on.
    async fn next_message(&mut self) -> std::io::Result<Option<Value>> {
        while let Some(line) = self.lines.next_line().await? {
            match serde_json::from_str::<Value>(&line) {
                Ok(message) if message["role"].is_string() => return Ok(Some(message)),
                _ => note(&line),
            }
        }
        Ok(None)
    }

    /// Waits for its end and keeps its last message.
    pub async fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        while let Some(message) = self.next_message().await? {
            self.last = Some(message);
        }
        Ok(self.process.wait().await?)
    }

    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.process.try_wait()?)
    }

    pub fn terminate(&mut self) {
        self.signal(rustix::process::Signal::TERM);
    }

    pub fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = self.process.id().and_then(|id| rustix::process::Pid::from_raw(id as i32));
        if let Some(id) = id {
            // Fails if it has ended meanwhile.
            let _ = rustix::process::kill_process(id, signal);
        }
    }

    /// Terminates it, waits, and returns its last line; kills it if it does not end in time.
    pub async fn stop(mut self, limit: Duration) -> Option<Value> {
        self.terminate();
        if tokio::time::timeout(limit, self.wait()).await.is_err() {
            self.kill();
            let _ = self.wait().await;
        }
        self.last
    }
}

struct ChildArguments(Vec<OsString>);

impl ChildArguments {
    fn new(role: &str) -> Self {
        Self(vec![role.into()])
    }

    fn add(&mut self, flag: &str, value: impl Into<OsString>) -> &mut Self {
        self.0.extend([flag.into(), value.into()]);
        self
    }

    fn add_flag(&mut self, flag: &str) -> &mut Self {
        self.0.push(flag.into());
        self
    }

    fn add_some(&mut self, flag: &str, value: Option<impl Into<OsString>>) -> &mut Self {
        match value {
            Some(value) => self.add(flag, value),
            None => self,
        }
    }
}
