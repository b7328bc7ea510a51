//! Records the stream of reports as MCAP: a container of timestamped messages that robotics and sensing tools
//! read, with the schema of every channel inside the file.
//!
//! | channel | encoding | content |
//! | --- | --- | --- |
//! | `/reports` | protobuf, `hyloc.v1.FrameReport` | every checked report, as received, with the node that sent it |
//! | `/frames` | JSON | the frames that were solved, in order, with the reports that each was made from |
//! | `/truth` | JSON | the simulator's truth, for error statistics |
//! | `/holes` | JSON | the frames whose entries could not be written before this point |
//!
//! A directory contains `blocks.mcap` with its further [segments](crate::segment), the site as `site.pb` and the method and
//! its settings as `method.toml`. A separate thread writes behind a bounded queue; entries that find no room in it are
//! lost, counted and named in `/holes`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use estimation::direct::ClockPrior;
use mcap::McapError;
use nalgebra::{DMatrix, DVector};
use prost::Message;
use proto::convert::FrameId;
use proto::site::SharedSite;
use proto::v1;
use serde::{Deserialize, Serialize};
use telemetry::Part;

use crate::method::MethodSettings;
use crate::place::FixPlace;
use crate::segment::{CHUNK_BYTES, COMMIT, Content, Pending, RecordingChannel, Segments};
use crate::told::{ToldTarget, TrueFrame};

pub const BLOCKS_FILE: &str = "blocks.mcap";
pub const SITE_FILE: &str = "site.pb";
/// In older recordings, which have no site.
pub const SCENARIO_FILE: &str = "scenario.toml";
pub const METHOD_FILE: &str = "method.toml";

pub const REPORTS: &str = "/reports";
pub const FRAMES: &str = "/frames";
pub const TRUTH: &str = "/truth";
pub const HOLES: &str = "/holes";

/// Recordings of one directory: itself and the directories in it.
const MOST_RECORDINGS: usize = 10_000;

/// Entries that may wait for the disk.
const QUEUE: usize = 1024;

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

/// A solved frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameEntry {
    pub run: u64,
    pub frame: u64,
    /// Sequence numbers on `/reports`, in the order in which the reports were assembled.
    pub reports: Vec<u32>,
    /// Numbers of the earlier frames that it was solved with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<u64>,
    /// What was known about the clocks; none where they are trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<ClockEntry>,
    /// When the frame was taken, for the tracks; none where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
}

/// What was known about the clocks of all nodes before a frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockEntry {
    pub mean_s: Vec<f64>,
    /// Covariance, row by row.
    pub covariance_s2: Vec<f64>,
}

impl From<&ClockPrior> for ClockEntry {
    fn from(prior: &ClockPrior) -> Self {
        Self {
            mean_s: prior.mean_s().as_slice().to_vec(),
            covariance_s2: prior.covariance_s2().transpose().as_slice().to_vec(),
        }
    }
}

impl ClockEntry {
    /// The law that was recorded, for so many nodes; an error says what is wrong with it.
    pub fn prior(&self, nodes: usize) -> Result<ClockPrior, String> {
        if self.mean_s.len() != nodes || self.covariance_s2.len() != nodes * nodes {
            return Err("its clocks are not those of the site".into());
        }
        let covariance = DMatrix::from_row_slice(nodes, nodes, &self.covariance_s2);
        let mean = DVector::from_row_slice(&self.mean_s);
        ClockPrior::new(mean, covariance).map_err(|error| error.to_string())
    }
}

/// The truth of a frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TruthEntry {
    pub run: u64,
    pub frame: u64,
    /// None where targets are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position_m: Option<FixPlace>,
    /// 1 m^2 in recordings of protocol version 2, which did not contain it.
    #[serde(default = "unit_cross_section_m2")]
    pub rcs_m2: f64,
    /// All targets, unless there is exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<ToldTarget>>,
    /// Offset of the clock of every node; none where clocks are trusted, and in recordings that did not contain it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_offset_s: Vec<f64>,
}

impl TruthEntry {
    pub fn new(frame: FrameId, told: &TrueFrame) -> Self {
        let one = told.targets.first().filter(|_| !told.listed);
        Self {
            run: frame.run,
            frame: frame.frame,
            position_m: one.map(|target| target.position_m),
            rcs_m2: one.map_or_else(unit_cross_section_m2, |target| target.rcs_m2),
            targets: told.listed.then(|| told.targets.clone()),
            clock_offset_s: told.clock_offset_s.clone(),
        }
    }

    /// The truth that was recorded, for so many nodes; none without a position or a list.
    pub fn told(self, nodes: usize) -> Option<(FrameId, TrueFrame)> {
        let Self { run, frame, position_m, rcs_m2, targets, mut clock_offset_s } = self;
        if clock_offset_s.len() != nodes {
            clock_offset_s.clear();
        }
        let told = match (targets, position_m) {
            (Some(targets), _) => TrueFrame { targets, listed: true, clock_offset_s },
            (None, Some(position_m)) => TrueFrame::one(position_m.point(), rcs_m2, clock_offset_s),
            (None, None) => return None,
        };
        Some((FrameId { run, frame }, told))
    }
}

fn unit_cross_section_m2() -> f64 {
    1.0
}

/// Frames of a run of which at least one entry is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoleEntry {
    pub run: u64,
    /// First and last frame.
    pub first: u64,
    pub last: u64,
    /// Number of entries.
    pub entries: u64,
}

/// Runs that a list of holes tells apart; the last one takes what exceeds it.
const MOST_HOLES: usize = 16;

/// Adds a missing entry of a frame to a list of holes.
pub fn add_to_holes(holes: &mut Vec<HoleEntry>, frame: FrameId) {
    let full = holes.len() == MOST_HOLES;
    match holes.last_mut() {
        Some(hole) if hole.run == frame.run || full => {
            hole.first = hole.first.min(frame.frame);
            hole.last = hole.last.max(frame.frame);
            hole.entries += 1;
        }
        _ => holes.push(HoleEntry { run: frame.run, first: frame.frame, last: frame.frame, entries: 1 }),
    }
}

enum RecordingEntry {
    Entry(Pending),
    /// Entries that were lost before this point.
    Holes(Vec<HoleEntry>),
    /// The end of the recording: a [`TruthRecorder`] may outlive the recorder.
    End,
}

#[derive(Debug)]
pub struct Recorder {
    queue: SyncSender<RecordingEntry>,
    thread: JoinHandle<()>,
    next_sequence: u32,
    /// Entries that found no room in the queue.
    holes: Vec<HoleEntry>,
    part: Part,
}

/// Adds truth to a recording.
#[derive(Debug, Clone)]
pub struct TruthRecorder(SyncSender<RecordingEntry>);

impl TruthRecorder {
    pub fn truth(&self, entry: TruthEntry, time_ns: u64) {
        let frame = FrameId { run: entry.run, frame: entry.frame };
        // Only statistics depend on it.
        let _ = self.0.try_send(RecordingEntry::Entry(Pending::json(
            RecordingChannel::Truth,
            frame,
            time_ns,
            &entry,
        )));
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
        let content = Content { site: site.encode(), method, site_sha256: site.short_hash() };
        let segments = Segments::start(&directory, content, part.clone())?;
        tracing::info!(directory = %directory.display(), "recording");
        let (queue, entries) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || write(segments, &entries))
            .map_err(RecordingError::file(&directory))?;
        Ok(Self { queue, thread, next_sequence: 0, holes: Vec::new(), part })
    }

    pub fn truth_recorder(&self) -> TruthRecorder {
        TruthRecorder(self.queue.clone())
    }

    /// Adds a report that was received from `node`; returns its sequence number.
    pub fn report(&mut self, time_ns: u64, node: usize, mut message: v1::FrameReport) -> u32 {
        message.recorded_node = Some(node as u32);
        let sequence = self.next_sequence;
        self.next_sequence = self.next_sequence.wrapping_add(1);
        let frame = FrameId { run: message.run, frame: message.frame };
        let data = message.encode_to_vec();
        self.add(Pending {
            channel: RecordingChannel::Reports,
            frame,
            sequence: Some(sequence),
            time_ns,
            data,
        });
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
        self.add(Pending::json(RecordingChannel::Frames, frame, time_ns, &entry));
    }

    fn add(&mut self, entry: Pending) {
        if !self.holes.is_empty() {
            let holes = RecordingEntry::Holes(self.holes.clone());
            if self.queue.try_send(holes).is_ok() {
                self.holes.clear();
            }
        }
        let frame = entry.frame;
        if !self.holes.is_empty() || self.queue.try_send(RecordingEntry::Entry(entry)).is_err() {
            add_to_holes(&mut self.holes, frame);
            self.part.lost(1, "the disk is too slow");
        }
    }

    /// Writes what is queued and closes the file. What was lost is known to its part of the degradations.
    pub fn finish(self) {
        let Self { queue, thread, holes, part, .. } = self;
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::Point;

    #[test]
    fn truth_without_a_cross_section_or_clocks_can_be_read() {
        let entry: TruthEntry =
            serde_json::from_str(r#"{"run": 1, "frame": 2, "position_m": [3.0, 4.0]}"#).unwrap();
        let told = TrueFrame::one(Point::new(3.0, 4.0, 0.0), 1.0, Vec::new());
        assert_eq!(entry.told(3), Some((FrameId { run: 1, frame: 2 }, told)));
    }
}
