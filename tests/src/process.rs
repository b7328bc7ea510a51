//! Processes for tests: started on free ports, read line by line, always stopped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use telemetry::Started;

/// Timeout of every wait.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Lets one pipeline run at a time, because they share two cores.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Variable with the path of a file to which every skipped test adds a line; `.ci/run` counts and prints them.
pub const SKIPPED_TESTS: &str = "HYLOC_SKIPPED_TESTS";

/// Reports a skipped test with the reason, on standard error without capture by the test runner, and in the file of
/// [`SKIPPED_TESTS`].
pub fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
    let Some(path) = std::env::var_os(SKIPPED_TESTS) else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    // A single write, so that lines of several test executables do not interleave.
    let written = file.and_then(|mut file| file.write_all(format!("{test}: {why}\n").as_bytes()));
    if let Err(error) = written {
        panic!("{SKIPPED_TESTS}={}: cannot be written: {error}", path.display());
    }
}

/// A command of cargo in the directory of the workspace, without the variables by which cargo has told this test its package. Build
/// scripts that depend on them would run again, and everything above them would be built again, here and in the next test run.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let package = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let told = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(package);
    told.for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// Path of an executable of the workspace, which is built if necessary.
pub fn executable(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let directory = BUILT.get_or_init(|| {
        let packages = ["hyloc", "hyloc-fusion-center", "hyloc-irs-node", "hyloc-simulator"];
        let status = cargo(&["build", "--quiet", "--bins"])
            .args(packages.map(|package| format!("--package={package}")))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the executables do not build");
        // target/debug/deps/this-test
        let test = std::env::current_exe().expect("a path");
        test.ancestors().nth(2).expect("target directory").to_path_buf()
    });
    directory.join(name)
}

/// A loopback port that stays free until it is bound: it is below the range from which the system assigns ports to
/// other sockets, and no other test of this executable gets it.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = std::process::id() as u16 % 20_000;
    let mut candidates =
        std::iter::repeat_with(|| 11_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .take(20_000);
    candidates.find(|address| TcpListener::bind(address).is_ok()).expect("a free port")
}

/// A process under test. It is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    last: Option<Value>,
}

impl Process {
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        Self::spawn(Command::new(executable(name)), name, arguments)
    }

    /// A process that may have at most this many file descriptors.
    pub fn start_limited(name: &str, arguments: &[&str], descriptors: u32) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")]).arg(executable(name));
        Self::spawn(shell, name, arguments)
    }

    /// A process whose clock is wrong by this many seconds.
    pub fn start_at_another_time(name: &str, arguments: &[&str], offset_s: i64) -> Self {
        let mut command = Command::new(executable(name));
        command.env(proto::clock::TEST_OFFSET, offset_s.to_string());
        Self::spawn(command, name, arguments)
    }

    fn spawn(mut command: Command, name: &str, arguments: &[&str]) -> Self {
        let mut child = command
            .args(arguments)
            .env("HYLOC_LOG", "info")
            // Otherwise a backhaul may refuse its plan on a busy machine and fail unrelated tests.
            .env("HYLOC_BACKHAUL_UNMEASURED", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let lines = reader(child.stdout.take().expect("piped"));
        let errors = reader(child.stderr.take().expect("piped"));
        Self { name: format!("{name} {}", arguments.join(" ")), child, lines, errors, last: None }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the line with its addresses.
    pub fn started(&mut self) -> Started {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    if let Some(started) = Started::parse(&line) {
                        return started;
                    }
                }
                Err(error) => panic!("{} did not start: {error}\n{}", self.name, self.complaints()),
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(id, signal).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Waits for its end and keeps its last JSON line.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.last = serde_json::from_str(&line).ok().or(self.last.take()),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{} does not end\n{}", self.name, self.complaints()),
            }
        }
        self.child.wait().expect("ended")
    }

    /// Waits for a successful end and returns its last JSON line.
    pub fn finish(mut self) -> Value {
        let status = self.wait();
        assert!(status.success(), "{}: {status}\n{}", self.name, self.complaints());
        self.last.take().unwrap_or(Value::Null)
    }

    /// Terminates it, waits for a successful end and returns its last JSON line.
    pub fn stop(self) -> Value {
        self.signal(Signal::TERM);
        self.finish()
    }

    /// Waits for its end; returns exit code and standard error.
    pub fn outcome(mut self) -> (Option<i32>, String) {
        let code = self.wait().code();
        (code, self.complaints())
    }

    /// Waits for its end; returns exit code, last JSON line and standard error.
    pub fn report(mut self) -> (Option<i32>, Value, String) {
        let code = self.wait().code();
        (code, self.last.take().unwrap_or(Value::Null), self.complaints())
    }

    /// Resident memory.
    pub fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("a status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("resident memory");
        let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
        kib * 1024
    }

    /// Waits for a line on standard error that contains `what`.
    pub fn said(&self, what: &str) -> String {
        loop {
            match self.errors.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(what) => return line,
                Ok(_) => {}
                Err(error) => panic!("{} never said '{what}': {error}", self.name),
            }
        }
    }

    fn complaints(&self) -> String {
        let mut text = String::new();
        while let Ok(line) = self.errors.recv_timeout(Duration::from_millis(100)) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn reader(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The body of the response to a GET request; none without a response.
pub fn http_get(address: SocketAddr, path: &str) -> Option<String> {
    Some(http(address, &format!("GET {path}"), "", "")?.1)
}

/// Head and body of the response to a request such as `POST /api`, with further header lines; none without a response.
pub fn http(address: SocketAddr, request: &str, headers: &str, body: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

/// The next server-sent event of this name, as JSON.
pub fn live_event(address: SocketAddr, name: &str) -> Value {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET /api/live HTTP/1.1\r\nhost: {address}\r\n\r\n").expect("sent");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.find(|line| *line == format!("event: {name}")).expect("an event");
    let data = lines.next().expect("its data");
    serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON")
}

/// A viewer of live events, with low priority because real viewers run on other machines.
pub fn viewer_of(http: SocketAddr, reads: bool) -> TcpStream {
    let mut stream = TcpStream::connect(http).expect("a connection");
    write!(stream, "GET /api/live HTTP/1.1\r\nhost: {http}\r\n\r\n").expect("sent");
    if reads {
        let mut stream = stream.try_clone().expect("a second handle");
        std::thread::spawn(move || {
            let _ = rustix::process::setpriority_process(None, 19);
            std::io::copy(&mut stream, &mut std::io::sink())
        });
    }
    stream
}

/// Polls until there is a value; returns it with the elapsed time.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> (T, Duration) {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return (answer, began.elapsed());
        }
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
