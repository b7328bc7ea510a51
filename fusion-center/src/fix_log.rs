//! The fix log: one JSON line per fix, in a file that is appended to and never truncated.
//!
//! A log of an earlier run is continued. A file that is not a log, or whose last line is incomplete, is moved aside to
//! the first free name of `NAME.1`, `NAME.2` and so on. Every line is handed to the operating system at once, and the file
//! is synchronised to the disk once per second and at the end.
//!
//! If a line cannot be written (full disk, removed directory), it waits with the lines after it and is tried again with
//! every further fix. At most `MOST_WAITING` lines wait; the oldest are lost then, and counted. A log that was moved or
//! removed by others is created again.

use std::collections::VecDeque;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Stdout, Write, stdout};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use telemetry::{Failures, Part};
use tokio_util::sync::CancellationToken;

use crate::fix::FixRecord;
use crate::publish::Unwritten;

/// Lines that may wait for the disk.
const MOST_WAITING: usize = 1024;

/// How often the file is synchronised, and compared with its path.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Longest first line that is read to recognise a log.
const MOST_FIRST_LINE: u64 = 1 << 20;

/// Files `NAME.1` to this one are tried as names for a file that is in the way.
const MOST_ASIDE: usize = 10_000;

/// What happens to a log that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is continued: a fusion center that is started again goes on with its log.
    Append,
    /// It is moved aside: a command that runs once writes a log of its own.
    MoveAside,
}

/// Whether the reader of a log on standard output or of a pipe is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogReader {
    Present,
    Left,
}

enum LogOutput {
    Stdout(Stdout),
    /// A regular file and its length up to the last complete line.
    File(File, u64),
    /// A device or a pipe, which has no length.
    Device(File),
    /// To be opened again.
    Closed,
}

/// Writes the log; see [`LogQueue`] for its thread.
pub struct FixLog {
    path: PathBuf,
    output: LogOutput,
    waiting: VecDeque<Vec<u8>>,
    failures: Failures,
    part: Part,
    synchronised: Instant,
    reader: LogReader,
}

/// The queue of a thread that writes a log, so that a disk that hangs holds up nothing else.
pub struct LogQueue {
    queue: SyncSender<(Arc<FixRecord>, Option<Unwritten>)>,
    /// Whether a full queue blocks the caller. If not, fixes that find it full are lost.
    blocking: bool,
    part: Part,
}

impl LogQueue {
    /// Starts the thread. `stop` is cancelled when the reader of the log has left; `blocking` makes callers wait
    /// for a slow log.
    pub fn start(log: FixLog, stop: CancellationToken, blocking: bool) -> io::Result<(Self, JoinHandle<()>)> {
        let (queue, fixes) = sync_channel::<(Arc<FixRecord>, Option<Unwritten>)>(MOST_WAITING);
        let blocking = blocking || matches!(log.output, LogOutput::Stdout(_));
        let part = log.part.clone();
        let thread = std::thread::Builder::new().name("fix-log".into()).spawn(move || {
            let mut log = log;
            for (record, unwritten) in fixes {
                if log.write(&record, Instant::now()) == LogReader::Left {
                    stop.cancel();
                }
                drop(unwritten);
            }
            log.finish();
        })?;
        Ok((Self { queue, blocking, part }, thread))
    }

    pub fn part(&self) -> &Part {
        &self.part
    }

    pub fn write(&self, record: Arc<FixRecord>, unwritten: Option<Unwritten>) {
        let sent = match self.blocking {
            true => self.queue.send((record, unwritten)).is_ok(),
            false => self.queue.try_send((record, unwritten)).is_ok(),
        };
        if !sent {
            self.part.lost(1, "the disk is too slow");
        }
    }
}

/// Whether a fix log is standard output.
pub fn is_stdout(log: &Path) -> bool {
    log == Path::new("-")
}

impl FixLog {
    /// Opens the log. Nothing is written and no content is changed.
    pub fn open(path: &Path, existing: Existing, part: Part) -> anyhow::Result<Self> {
        let output = if is_stdout(path) {
            LogOutput::Stdout(stdout())
        } else {
            let opened = make_way(path, existing).and_then(|_| open(path));
            opened.with_context(|| format!("the fix log {} cannot be opened", path.display()))?
        };
        Ok(Self {
            path: path.to_path_buf(),
            output,
            waiting: VecDeque::new(),
            failures: Failures::default(),
            part,
            synchronised: Instant::now(),
            reader: LogReader::Present,
        })
    }

    /// Adds a fix and writes what waits.
    pub fn write(&mut self, record: &FixRecord, now: Instant) -> LogReader {
        if self.reader == LogReader::Left {
            return LogReader::Left;
        }
        match serde_json::to_vec(record) {
            Ok(mut line) => {
                line.push(b'\n');
                self.waiting.push_back(line);
            }
            Err(error) => self.part.lost(1, &error.to_string()),
        }
        let written = self.write_waiting(now).and_then(|()| self.synchronise(now));
        self.account(written, now);
        self.reader
    }

    /// Writes what waits and synchronises the file; lines that cannot be written are lost.
    pub fn finish(mut self) {
        if self.reader == LogReader::Left {
            return;
        }
        let now = Instant::now();
        let written = self.write_waiting(now).and_then(|()| self.sync());
        self.account(written, now);
        let lost = std::mem::take(&mut self.waiting).len() as u64;
        if lost > 0 {
            self.part.lost(lost, "it cannot be written");
            tracing::error!(lost, log = %self.path.display(), "fixes are missing in the log");
        }
    }

    fn account(&mut self, written: io::Result<()>, now: Instant) {
        let Err(error) = written else {
            if let Some(notice) = self.failures.succeeded(now) {
                self.part.recovered();
                let seconds = notice.failing_for_s();
                tracing::warn!(log = %self.path.display(), seconds, "the fix log is written again");
            }
            return;
        };
        if error.kind() == ErrorKind::BrokenPipe {
            self.reader = LogReader::Left;
            return;
        }
        let reason = format!("{} cannot be written: {error}", self.path.display());
        self.part.failing(&reason);
        if let Some(notice) = self.failures.failed(now, &reason) {
            let (attempts, waiting) = (notice.attempts, self.waiting.len());
            tracing::error!(attempts, waiting, "the fix log {reason}");
        }
        let excess = self.waiting.len().saturating_sub(MOST_WAITING);
        if excess > 0 {
            self.waiting.drain(..excess);
            self.part.lost(excess as u64, &reason);
        }
    }

    fn write_waiting(&mut self, now: Instant) -> io::Result<()> {
        // A log that failed may have been removed with its directory.
        if self.failures.failing() || now.saturating_duration_since(self.synchronised) >= SYNC_INTERVAL {
            self.follow_path();
        }
        if matches!(self.output, LogOutput::Closed) {
            make_way(&self.path, Existing::Append)?;
            self.output = open(&self.path)?;
        }
        while let Some(line) = self.waiting.front() {
            self.output.write_line(line)?;
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Closes a file that is no longer the one of its path.
    fn follow_path(&mut self) {
        if let LogOutput::File(file, _) | LogOutput::Device(file) = &self.output {
            let same = |a: Metadata, b: Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
            let known = file.metadata().and_then(|ours| Ok(same(ours, std::fs::metadata(&self.path)?)));
            if !known.unwrap_or(false) {
                self.output = LogOutput::Closed;
            }
        }
    }

    fn synchronise(&mut self, now: Instant) -> io::Result<()> {
        if now.saturating_duration_since(self.synchronised) < SYNC_INTERVAL {
            return Ok(());
        }
        self.synchronised = now;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        match &self.output {
            LogOutput::File(file, _) => file.sync_data(),
            _ => Ok(()),
        }
    }
}

impl LogOutput {
    /// Writes a line at once; a part of a line does not stay in a file.
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.write_all(line).and_then(|()| out.flush()),
            Self::Device(file) => file.write_all(line),
            Self::Closed => Err(ErrorKind::NotFound.into()),
            Self::File(file, length) => {
                let written = file.write_all(line);
                match written.is_ok() {
                    true => *length += line.len() as u64,
                    // An incomplete line that stays is found when the log is opened again.
                    false if file.set_len(*length).is_err() => *self = Self::Closed,
                    false => {}
                }
                written
            }
        }
    }
}

fn open(path: &Path) -> io::Result<LogOutput> {
    let regular = std::fs::metadata(path).map_or(true, |metadata| metadata.is_file());
    if !regular {
        return Ok(LogOutput::Device(OpenOptions::new().write(true).open(path)?));
    }
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => {
            io::Error::new(ErrorKind::ResourceBusy, "another process writes to it")
        }
        std::fs::TryLockError::Error(error) => error,
    })?;
    let length = file.metadata()?.len();
    Ok(LogOutput::File(file, length))
}

/// Moves a file of this name aside, if there is one that is not empty; returns its new name.
pub fn move_aside(path: &Path) -> anyhow::Result<Option<PathBuf>> {
    make_way(path, Existing::MoveAside).with_context(|| format!("{} cannot be moved aside", path.display()))
}

/// Moves aside a file that cannot or must not be continued.
fn make_way(path: &Path, existing: Existing) -> io::Result<Option<PathBuf>> {
    let metadata = std::fs::metadata(path).ok().filter(|metadata| metadata.is_file() && metadata.len() > 0);
    if metadata.is_none() || existing == Existing::Append && can_be_continued(path)? {
        return Ok(None);
    }
    let aside = free_name(path)?;
    tracing::warn!(from = %path.display(), to = %aside.display(), "an existing file is moved aside");
    std::fs::rename(path, &aside)?;
    Ok(Some(aside))
}

/// Whether a file begins with a fix and ends with a complete line.
fn can_be_continued(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut first = Vec::new();
    BufReader::new((&file).take(MOST_FIRST_LINE)).read_until(b'\n', &mut first)?;
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n" && serde_json::from_slice::<FixRecord>(&first).is_ok())
}

fn free_name(path: &Path) -> io::Result<PathBuf> {
    let numbered = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let free = (1..=MOST_ASIDE).map(numbered).find(|name| name.symlink_metadata().is_err());
    free.ok_or_else(|| {
        let reason = format!("{MOST_ASIDE} files of this name were moved aside: remove some");
        io::Error::new(ErrorKind::AlreadyExists, reason)
    })
}
