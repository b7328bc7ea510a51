//! Records the stream of reports as MCAP: a container of timestamped messages that robotics and sensing tools
//! read, with the schema of every [channel](crate::channels) inside the file.
//!
//! A directory contains `blocks.mcap` with its further [segments](crate::segment), the site as `site.pb` and the method and
//! its settings as `method.toml`. A separate thread writes behind a bounded queue; entries that find no room in it are
//! lost, counted and named in `/holes`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use estimation::direct::ClockPrior;
use mcap::McapError;
use prost::Message;
use proto::convert::FrameId;
use proto::site::SharedSite;
use proto::v1;
use telemetry::Part;

use crate::channels::RecordingChannel;
use crate::fix::FixRecord;
use crate::method::MethodSettings;
use crate::recorded::{ClockEntry, FrameEntry, HoleEntry, add_to_holes};
use crate::scene::{fix_pose, fix_scene, said, site_scene};
use crate::segment::{CHUNK_BYTES, COMMIT, Content, Pending, Segments};
use crate::told::TrueFrame;

pub const BLOCKS_FILE: &str = "blocks.mcap";
pub const SITE_FILE: &str = "site.pb";
pub const METHOD_FILE: &str = "method.toml";

/// Recordings of one directory: itself and the directories in it.
const MOST_RECORDINGS: usize = 10_000;

/// Entries that may wait for the disk.
const QUEUE: usize = 1024;

/// Shortest time between two fixes that are drawn.
const DRAWN_INTERVAL_NS: u64 = 200_000_000;

/// Why a recording cannot be made or read; the source is of kind [`ErrorKind::InvalidData`] if content is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct RecordingError {
    path: PathBuf,
    source: std::io::Error,
}

impl RecordingError {
    pub fn file(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self { path: path.to_path_buf(), source }
    }

    pub fn content(path: &Path, problem: impl ToString) -> Self {
        Self::file(path)(std::io::Error::new(ErrorKind::InvalidData, problem.to_string()))
    }

    pub fn container(path: &Path, error: McapError) -> Self {
        match error {
            McapError::Io(source) => Self::file(path)(source),
            broken => Self::content(path, broken),
        }
    }

    /// Whether the disk is full, which may change.
    pub fn is_full_disk(&self) -> bool {
        matches!(self.source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

enum RecordingEntry {
    Entry(Pending),
    /// Entries that were lost before this point.
    Holes(Vec<HoleEntry>),
    /// The end of the recording: those who add entries may outlive the recorder.
    End,
}

/// The way to the thread that writes; cheap to clone.
#[derive(Debug, Clone)]
struct RecordingQueue {
    queue: SyncSender<RecordingEntry>,
    /// Entries that found no room in the queue.
    holes: Arc<Mutex<Vec<HoleEntry>>>,
    part: Part,
}

impl RecordingQueue {
    fn add(&self, entry: Pending) {
        let mut holes = self.holes.lock().unwrap_or_else(PoisonError::into_inner);
        if !holes.is_empty() && self.queue.try_send(RecordingEntry::Holes(holes.clone())).is_ok() {
            holes.clear();
        }
        let frame = entry.frame;
        if !holes.is_empty() || self.queue.try_send(RecordingEntry::Entry(entry)).is_err() {
            add_to_holes(&mut holes, frame);
            self.part.lost(1, "the disk is too slow");
        }
    }
}

#[derive(Debug)]
pub struct Recorder {
    entries: RecordingQueue,
    thread: JoinHandle<()>,
    next_sequence: u32,
}

/// Adds truth to a recording.
#[derive(Debug, Clone)]
pub struct TruthRecorder(SyncSender<RecordingEntry>);

impl TruthRecorder {
    pub fn truth(&self, frame: FrameId, told: &TrueFrame, time_ns: u64) {
        let data = told.to_wire(frame).encode_to_vec();
        // Only statistics depend on it.
        let _ = self.0.try_send(RecordingEntry::Entry(Pending::new(
            RecordingChannel::Truth,
            frame,
            time_ns,
            data,
        )));
    }
}

/// Adds fixes to a recording, with what viewers draw of them and what is to be said about them.
#[derive(Debug)]
pub struct FixRecorder {
    entries: RecordingQueue,
    /// Time of the latest fix that is drawn.
    drawn_ns: Option<u64>,
    /// Run and status of the latest fix.
    before: Option<(u64, String)>,
}

impl FixRecorder {
    pub fn fix(&mut self, fix: &FixRecord) {
        let time_ns = fix.timing.time_ns;
        let add = |channel, data| self.entries.add(Pending::new(channel, fix.frame_id(), time_ns, data));
        add(RecordingChannel::Fixes, fix.to_wire().encode_to_vec());
        if self.drawn_ns.is_none_or(|drawn_ns| time_ns.saturating_sub(drawn_ns) >= DRAWN_INTERVAL_NS) {
            self.drawn_ns = Some(time_ns);
            let pose = fix_pose(fix);
            pose.iter().for_each(|pose| add(RecordingChannel::Pose, pose.encode_to_vec()));
            add(RecordingChannel::Scene, fix_scene(fix).encode_to_vec());
        }
        let (run, status) = self.before.as_ref().map_or((None, ""), |(run, status)| (Some(*run), status));
        let mut lines = Vec::new();
        if run != Some(fix.run) {
            lines.push(said(time_ns, true, format!("run {} begins with frame {}", fix.run, fix.frame)));
        }
        if run != Some(fix.run) || status != fix.status {
            let reasons = fix.cautions.join("; ");
            let colon = if reasons.is_empty() { "" } else { ": " };
            let message = format!("frame {} is {}{colon}{reasons}", fix.frame, fix.status);
            lines.push(said(time_ns, fix.status == "nominal", message));
        }
        lines.into_iter().for_each(|line| add(RecordingChannel::Log, line.encode_to_vec()));
        self.before = Some((fix.run, fix.status.clone()));
    }
}

impl Recorder {
    /// Starts a recording in `directory`, which is created if necessary. If it contains a recording already, the new one
    /// gets a directory of its own in it: `2`, `3` and so on. A full disk is no error here: writing is tried again.
    pub fn start(
        directory: &Path,
        site: &SharedSite,
        method: &MethodSettings,
        part: Part,
    ) -> Result<Self, RecordingError> {
        let directory = free_directory(directory)?;
        let method = toml::to_string(method).expect("numbers and names only").into_bytes();
        let scene = site_scene(&site.system).encode_to_vec();
        let content = Content { site: site.encode(), method, site_sha256: site.short_hash(), scene };
        let segments = Segments::start(&directory, content, part.clone())?;
        tracing::info!(directory = %directory.display(), "recording");
        let (queue, entries) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || write(segments, &entries))
            .map_err(RecordingError::file(&directory))?;
        let entries = RecordingQueue { queue, holes: Arc::default(), part };
        Ok(Self { entries, thread, next_sequence: 0 })
    }

    pub fn truth_recorder(&self) -> TruthRecorder {
        TruthRecorder(self.entries.queue.clone())
    }

    pub fn fix_recorder(&self) -> FixRecorder {
        FixRecorder { entries: self.entries.clone(), drawn_ns: None, before: None }
    }

    /// Adds a report that was received from `node`; returns its sequence number.
    pub fn report(&mut self, time_ns: u64, node: usize, mut message: v1::FrameReport) -> u32 {
        message.recorded_node = Some(node as u32);
        let sequence = self.next_sequence;
        self.next_sequence = self.next_sequence.wrapping_add(1);
        let frame = FrameId { run: message.run, frame: message.frame };
        let entry = Pending::new(RecordingChannel::Reports, frame, time_ns, message.encode_to_vec());
        self.entries.add(Pending { sequence: Some(sequence), ..entry });
        sequence
    }

    pub fn frame(
        &mut self,
        frame: FrameId,
        time_ns: u64,
        reports: Vec<u32>,
        earlier: Vec<u64>,
        clocks: Option<&ClockPrior>,
        time_s: Option<f64>,
    ) {
        let clocks = clocks.map(ClockEntry::from);
        let entry = FrameEntry { run: frame.run, frame: frame.frame, reports, earlier, clocks, time_s };
        self.entries.add(Pending::new(RecordingChannel::Frames, frame, time_ns, entry.encode()));
    }

    /// Writes what is queued and closes the file. What was lost is known to its part of the degradations.
    pub fn finish(self) {
        let Self { entries: RecordingQueue { queue, holes, part }, thread, .. } = self;
        let holes = std::mem::take(&mut *holes.lock().unwrap_or_else(PoisonError::into_inner));
        // Waits for room in the queue; the thread ends only after the end of the recording.
        let _ = queue.send(RecordingEntry::Holes(holes));
        let _ = queue.send(RecordingEntry::End);
        if thread.join().is_err() {
            part.lost(0, "the recorder panicked");
            part.failing("the recorder panicked");
        }
    }
}

/// `directory`, or the first directory in it that has no recording.
fn free_directory(directory: &Path) -> Result<PathBuf, RecordingError> {
    let free = |directory: &PathBuf| !directory.join(BLOCKS_FILE).exists();
    let numbered = (2..=MOST_RECORDINGS).map(|number| directory.join(number.to_string()));
    std::iter::once(directory.to_path_buf()).chain(numbered).find(free).ok_or_else(|| {
        let reason = format!("contains {MOST_RECORDINGS} recordings: choose another directory");
        RecordingError::file(directory)(std::io::Error::new(ErrorKind::AlreadyExists, reason))
    })
}

/// Commits what arrives in chunks of limited size and age.
fn write(mut segments: Segments, entries: &Receiver<RecordingEntry>) {
    let mut next = Instant::now() + COMMIT;
    loop {
        match entries.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(RecordingEntry::Entry(entry)) => segments.add(entry),
            Ok(RecordingEntry::Holes(holes)) => segments.add_holes(holes),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(RecordingEntry::End) | Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = Instant::now();
        if now >= next || (segments.pending_bytes() >= CHUNK_BYTES && !segments.failing()) {
            segments.commit(now);
            next = now + COMMIT;
        }
    }
    segments.finish(Instant::now());
}
