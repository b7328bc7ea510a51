//! Records the stream of reports as MCAP: a container of timestamped messages that robotics and sensing tools
//! read, with the schema of every channel inside the file.
//!
//! | channel | encoding | content |
//! | --- | --- | --- |
//! | `/reports` | protobuf, `hyloc.v1.FrameReport` | every checked report, as received, with the node that sent it |
//! | `/frames` | JSON | the frames that were solved, in order, with the reports that each was made from |
//! | `/truth` | JSON | the simulator's truth, for error statistics |
//!
//! A directory contains `blocks.mcap`, the site as `site.pb` and the method and its settings as `method.toml`. A separate
//! thread writes behind a bounded queue; if the disk cannot keep up, the log says how many entries were lost.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use mcap::records::{MessageHeader, Metadata};
use mcap::{McapError, WriteOptions, Writer};
use prost::Message;
use proto::convert::FrameId;
use proto::site::SharedSite;
use proto::v1;
use serde::{Deserialize, Serialize};

use crate::method::MethodSettings;

pub const BLOCKS_FILE: &str = "blocks.mcap";
pub const SITE_FILE: &str = "site.pb";
/// In older recordings, which have no site.
pub const SCENARIO_FILE: &str = "scenario.toml";
pub const METHOD_FILE: &str = "method.toml";

pub const REPORTS: &str = "/reports";
pub const FRAMES: &str = "/frames";
pub const TRUTH: &str = "/truth";

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
}

/// A solved frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameEntry {
    pub run: u64,
    pub frame: u64,
    /// Sequence numbers on `/reports`, in the order in which the reports were assembled.
    pub reports: Vec<u32>,
    /// Numbers of the earlier frames that it was solved with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<u64>,
}

/// The truth of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TruthEntry {
    pub run: u64,
    pub frame: u64,
    pub position_m: [f64; 2],
    /// 1 m^2 in recordings of protocol version 2, which did not contain it.
    #[serde(default = "unit_cross_section_m2")]
    pub rcs_m2: f64,
}

fn unit_cross_section_m2() -> f64 {
    1.0
}

enum RecordingEntry {
    Report {
        sequence: u32,
        time_ns: u64,
        message: v1::FrameReport,
    },
    Frame {
        time_ns: u64,
        entry: FrameEntry,
    },
    Truth {
        time_ns: u64,
        entry: TruthEntry,
    },
    /// The end of the recording: a [`TruthRecorder`] may outlive the recorder.
    End,
}

#[derive(Debug)]
pub struct Recorder {
    queue: SyncSender<RecordingEntry>,
    thread: JoinHandle<Result<(), RecordingError>>,
    next_sequence: u32,
    lost: u64,
}

/// Adds truth to a recording.
#[derive(Debug, Clone)]
pub struct TruthRecorder(SyncSender<RecordingEntry>);

impl TruthRecorder {
    pub fn truth(&self, entry: TruthEntry, time_ns: u64) {
        // Only statistics depend on it.
        let _ = self.0.try_send(RecordingEntry::Truth { time_ns, entry });
    }
}

impl Recorder {
    /// Starts a recording in `directory`, which is created if necessary.
    pub fn start(
        directory: &Path,
        site: &SharedSite,
        method: &MethodSettings,
    ) -> Result<Self, RecordingError> {
        std::fs::create_dir_all(directory).map_err(RecordingError::file(directory))?;
        let path = directory.join(BLOCKS_FILE);
        if path.exists() {
            let reason = "contains a recording already: choose another directory";
            let exists = std::io::Error::new(ErrorKind::AlreadyExists, reason);
            return Err(RecordingError::file(directory)(exists));
        }
        let method = toml::to_string(method).expect("numbers and names only").into_bytes();
        for (name, content) in [(SITE_FILE, site.encode()), (METHOD_FILE, method)] {
            let path = directory.join(name);
            std::fs::write(&path, content).map_err(RecordingError::file(&path))?;
        }
        let file = File::create_new(&path).map_err(RecordingError::file(&path))?;
        let (queue, entries) = sync_channel(QUEUE);
        let sha256 = site.short_hash();
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || {
                write(file, &sha256, &entries).map_err(|error| RecordingError::container(&path, error))
            })
            .map_err(RecordingError::file(directory))?;
        Ok(Self { queue, thread, next_sequence: 0, lost: 0 })
    }

    pub fn truth_recorder(&self) -> TruthRecorder {
        TruthRecorder(self.queue.clone())
    }

    /// Adds a report that was received from `node`; returns its sequence number.
    pub fn report(&mut self, time_ns: u64, node: usize, mut message: v1::FrameReport) -> u32 {
        message.recorded_node = Some(node as u32);
        let sequence = self.next_sequence;
        self.next_sequence = self.next_sequence.wrapping_add(1);
        self.add(RecordingEntry::Report { sequence, time_ns, message });
        sequence
    }

    pub fn frame(&mut self, frame: FrameId, time_ns: u64, reports: Vec<u32>, earlier: Vec<u64>) {
        let entry = FrameEntry { run: frame.run, frame: frame.frame, reports, earlier };
        self.add(RecordingEntry::Frame { time_ns, entry });
    }

    fn add(&mut self, entry: RecordingEntry) {
        self.lost += u64::from(self.queue.try_send(entry).is_err());
    }

    /// Writes what is queued and closes the file.
    pub fn finish(self) {
        let Self { queue, thread, lost, .. } = self;
        // Waits for room in the queue; if the thread has ended, joining it gives the reason.
        let _ = queue.send(RecordingEntry::End);
        match thread.join() {
            Ok(Ok(())) if lost == 0 => {}
            Ok(Ok(())) => tracing::error!(lost, "the disk was too slow: the recording is incomplete"),
            Ok(Err(error)) => tracing::error!(%error, "the recording failed"),
            Err(_) => tracing::error!("the recorder panicked"),
        }
    }
}

fn write(file: File, site_sha256: &str, entries: &Receiver<RecordingEntry>) -> mcap::McapResult<()> {
    let mut writer = Writer::with_options(
        BufWriter::new(file),
        WriteOptions::new().compression(None).profile("hyloc").library(env!("CARGO_PKG_NAME")),
    )?;
    writer.write_metadata(&Metadata {
        name: "hyloc".into(),
        metadata: BTreeMap::from([
            ("site_sha256".into(), site_sha256.into()),
            ("protocol_version".into(), proto::PROTOCOL_VERSION.to_string()),
        ]),
    })?;
    let schema = writer.add_schema("hyloc.v1.FrameReport", "protobuf", proto::DESCRIPTORS)?;
    let none = BTreeMap::new();
    let reports = writer.add_channel(schema, REPORTS, "protobuf", &none)?;
    let frames = writer.add_channel(0, FRAMES, "json", &none)?;
    let truth = writer.add_channel(0, TRUTH, "json", &none)?;
    let mut count = 0;
    for entry in entries {
        let (channel_id, sequence, time_ns, data) = match entry {
            RecordingEntry::Report { sequence, time_ns, message } => {
                (reports, sequence, time_ns, message.encode_to_vec())
            }
            RecordingEntry::Frame { time_ns, entry } => (frames, count, time_ns, json(&entry)),
            RecordingEntry::Truth { time_ns, entry } => (truth, count, time_ns, json(&entry)),
            RecordingEntry::End => break,
        };
        count = count.wrapping_add(1);
        let header = MessageHeader { channel_id, sequence, log_time: time_ns, publish_time: time_ns };
        writer.write_to_known_channel(&header, &data)?;
    }
    writer.finish()?;
    Ok(())
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_without_a_cross_section_can_be_read() {
        let entry: TruthEntry =
            serde_json::from_str(r#"{"run": 1, "frame": 2, "position_m": [3.0, 4.0]}"#).unwrap();
        assert_eq!(entry, TruthEntry { run: 1, frame: 2, position_m: [3.0, 4.0], rcs_m2: 1.0 });
    }
}
