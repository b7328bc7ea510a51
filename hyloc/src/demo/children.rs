//! The processes of a demo: this executable again, in other roles.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use telemetry::{PARENT_VARIABLE, Started};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::DemoFlags;

/// Frames that may wait for a solver: a pause of the machine of a second costs none at the default rate.
const QUEUE: &str = "64";

/// Starts children; holds their common directory.
pub struct Children {
    executable: PathBuf,
    directory: TempDir,
}

/// One process. It is killed if it is dropped while it runs.
pub struct Child {
    role: String,
    process: tokio::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Closed when this process ends, however it ends: the child then stops by itself.
    _lifeline: Option<ChildStdin>,
    last: Option<Value>,
}

/// Where simulator and relay are controlled.
#[derive(Debug, Clone, Copy)]
pub struct Controls {
    simulator: SocketAddr,
    backhaul: SocketAddr,
}

impl Controls {
    /// Ports that are free now: the fusion center must know them before those who listen there start.
    pub fn free() -> anyhow::Result<Self> {
        let (a, b) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        Ok(Self { simulator: a.local_addr()?, backhaul: b.local_addr()? })
    }
}

impl Children {
    /// With a directory that goes when they go.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            executable: std::env::current_exe().context("this program cannot find itself")?,
            directory: tempfile::Builder::new().prefix("hyloc-demo-").tempdir()?,
        })
    }

    /// The common directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The fusion center.
    pub fn fusion(
        &mut self,
        flags: &DemoFlags,
        scenario: &Path,
        controls: Option<Controls>,
    ) -> anyhow::Result<Child> {
        let mut arguments = Arguments::new("fusion");
        arguments
            .add("--listen", "127.0.0.1:0")
            .add("--http-listen", "127.0.0.1:0")
            .add("--queue", QUEUE)
            .add("--scenario", scenario);
        arguments.add_some("--fixes", flags.fixes.as_ref());
        arguments.add_some("--record", flags.record.as_ref());
        arguments.add_some("--deadline-ms", flags.deadline_ms.map(|ms| ms.to_string()).as_ref());
        arguments.add_some("--method", flags.choices.method.as_ref());
        let batch_frames = flags.choices.batch_frames.map(|frames| frames.to_string());
        arguments.add_some("--batch-frames", batch_frames.as_ref());
        if let Some(controls) = controls {
            arguments.add_flag("--allow-control");
            arguments.add("--control-simulator", controls.simulator.to_string());
            arguments.add("--control-backhaul", controls.backhaul.to_string());
        }
        self.start("fusion center", arguments)
    }

    /// The simulator.
    pub fn simulator(
        &mut self,
        flags: &DemoFlags,
        scenario: &Path,
        grpc: SocketAddr,
        controls: Option<Controls>,
    ) -> anyhow::Result<Child> {
        let mut arguments = Arguments::new("simulate");
        let frames = flags.frames * flags.frames_per_fix;
        arguments
            .add("--echo-listen", "127.0.0.1:0")
            .add("--http-listen", "127.0.0.1:0")
            .add("--scenario", scenario)
            .add("--fusion", grpc.to_string())
            .add("--frames", frames.to_string())
            .add("--rate", flags.rate.to_string());
        if let Some(controls) = controls {
            arguments.add_flag("--allow-control").add("--control-listen", controls.simulator.to_string());
        }
        self.start("simulator", arguments)
    }

    /// The relay, with a link for each of `count` nodes.
    pub fn relay(
        &mut self,
        profile: &str,
        count: usize,
        grpc: SocketAddr,
        controls: Option<Controls>,
    ) -> anyhow::Result<Child> {
        let control = controls.map_or("127.0.0.1:0".into(), |controls| controls.backhaul.to_string());
        let mut arguments = Arguments::new("backhaul");
        arguments
            .add("--listen", "none")
            .add("--fusion", grpc.to_string())
            .add("--profile", profile)
            .add("--control-listen", control);
        for index in 0..count {
            arguments.add("--link", format!("node-{index}=127.0.0.1:0"));
        }
        self.start("backhaul", arguments)
    }

    /// Node `index`.
    pub fn node(
        &mut self,
        flags: &DemoFlags,
        index: usize,
        grpc: SocketAddr,
        echo: SocketAddr,
    ) -> anyhow::Result<Child> {
        let mut arguments = Arguments::new("node");
        arguments
            .add("--http-listen", "127.0.0.1:0")
            .add("--fusion", grpc.to_string())
            .add("--simulator", echo.to_string())
            .add("--identity", format!("node-{index}"))
            .add("--index", index.to_string())
            .add("--frames-per-fix", flags.frames_per_fix.to_string());
        arguments.add_some("--payload", flags.choices.payload.as_ref());
        arguments.add_some("--precision", flags.choices.precision.as_ref());
        self.start(&format!("node {index}"), arguments)
    }

    fn start(&self, role: &str, arguments: Arguments) -> anyhow::Result<Child> {
        let mut command = Command::new(&self.executable);
        if std::env::var_os("HYLOC_LOG").is_none() {
            command.env("HYLOC_LOG", "error");
        }
        let mut process = command
            .args(arguments.0)
            .env(PARENT_VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C reaches the demo alone, which then stops its children in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("the {role} cannot be started"))?;
        let stdout = process.stdout.take().context("no standard output")?;
        let lifeline = process.stdin.take();
        Ok(Child {
            role: role.to_owned(),
            process,
            lines: BufReader::new(stdout).lines(),
            _lifeline: lifeline,
            last: None,
        })
    }
}

impl Child {
    /// Waits for the line that tells its addresses.
    pub async fn started(&mut self, patience: Duration) -> anyhow::Result<Started> {
        let role = self.role.clone();
        let wait = async {
            while let Some(line) = self.lines.next_line().await? {
                if let Some(started) = Started::parse(&line) {
                    return Ok(started);
                }
            }
            let status = self.process.wait().await?;
            bail!("the {role} ended with {status} before it was ready")
        };
        match tokio::time::timeout(patience, wait).await {
            Ok(started) => started,
            Err(_) => bail!("the {role} was not ready within {} s", patience.as_secs()),
        }
    }

    /// Waits for its end; its last line is kept.
    pub async fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        while let Some(line) = self.lines.next_line().await? {
            self.last = serde_json::from_str(&line).ok().or(self.last.take());
        }
        Ok(self.process.wait().await?)
    }

    /// Its status, if it has ended.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.process.try_wait()?)
    }

    /// Asks it to end.
    pub fn terminate(&mut self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = self.process.id().and_then(|id| rustix::process::Pid::from_raw(id as i32));
        if let Some(id) = id {
            // It may have ended meanwhile.
            let _ = rustix::process::kill_process(id, signal);
        }
    }

    /// Asks it to end, waits, and gives its last line; kills it if it does not end in time.
    pub async fn stop(mut self, patience: Duration) -> Option<Value> {
        self.terminate();
        if tokio::time::timeout(patience, self.wait()).await.is_err() {
            self.kill();
            let _ = self.wait().await;
        }
        self.last
    }
}

/// Arguments of a role.
struct Arguments(Vec<OsString>);

impl Arguments {
    fn new(role: &str) -> Self {
        Self(vec![role.into()])
    }

    fn add(&mut self, flag: &str, value: impl Into<OsString>) -> &mut Self {
        self.0.push(flag.into());
        self.0.push(value.into());
        self
    }

    fn add_flag(&mut self, flag: &str) -> &mut Self {
        self.0.push(flag.into());
        self
    }

    fn add_some<T: AsRef<std::ffi::OsStr>>(&mut self, flag: &str, value: Option<&T>) -> &mut Self {
        match value {
            Some(value) => self.add(flag, value.as_ref()),
            None => self,
        }
    }
}
