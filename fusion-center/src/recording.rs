//! The block stream on disk, as MCAP: a container of timestamped messages that robotics and sensing tools
//! read, with the schema of every channel inside the file.
//!
//! | channel | encoding | what |
//! | --- | --- | --- |
//! | `/reports` | protobuf, `hyloc.v1.FrameReport` | every checked report, as it came, with the node that sent it |
//! | `/frames` | JSON | the frames that were solved, in order, with the reports that each was made of |
//! | `/truth` | JSON | the simulator's truth, for error figures |
//!
//! A directory holds `blocks.mcap`, the site as `site.pb` and, in `method.toml`, how the frames were solved. Writing is done by a thread of its own behind a bounded
//! queue; if the disk cannot keep up, the recording says how much it lost and is marked incomplete.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use mcap::records::{MessageHeader, Metadata};
use mcap::{WriteOptions, Writer};
use prost::Message;
use proto::convert::FrameId;
use proto::site::SharedSite;
use proto::v1;
use serde::{Deserialize, Serialize};

use crate::method::MethodSettings;

/// Name of the recording within its directory.
pub const BLOCKS_FILE: &str = "blocks.mcap";

/// Name of the site within the directory: protobuf, `hyloc.v1.Site`.
pub const SITE_FILE: &str = "site.pb";

/// Name of the scenario within the directory of an older recording, which has no site.
pub const SCENARIO_FILE: &str = "scenario.toml";

/// Name of the method's settings within the directory.
pub const METHOD_FILE: &str = "method.toml";

/// Channel of the reports.
pub const REPORTS: &str = "/reports";

/// Channel of the frames.
pub const FRAMES: &str = "/frames";

/// Channel of the truth.
pub const TRUTH: &str = "/truth";

/// Entries that may wait for the disk.
const QUEUE: usize = 1024;

/// Why a recording cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The directory holds a recording already.
    #[error("{0} holds a recording already: choose another directory")]
    Exists(PathBuf),
    /// The file system refused.
    #[error("{path}: {source}")]
    File {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// The container is broken.
    #[error("{path}: {source}")]
    Container {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        source: mcap::McapError,
    },
    /// A message does not say what it must.
    #[error("{path}: {problem}")]
    Content {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// A frame of the recording: reports by sequence number, in the order in which they were assembled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameEntry {
    /// Run of the simulator.
    pub run: u64,
    /// Frame number.
    pub frame: u64,
    /// Reports as (sequence number on `/reports`).
    pub reports: Vec<u32>,
    /// Numbers of the earlier frames that it was solved with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<u64>,
}

/// The truth of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TruthEntry {
    /// Run of the simulator.
    pub run: u64,
    /// Frame number.
    pub frame: u64,
    /// Where the target was.
    pub position_m: [f64; 2],
    /// Its radar cross-section, 1 m^2 in recordings of protocol version 2, which did not record it.
    #[serde(default = "unit_cross_section_m2")]
    pub rcs_m2: f64,
}

fn unit_cross_section_m2() -> f64 {
    1.0
}

enum Entry {
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
    /// Nothing follows that counts: handles for truth may outlive the recorder.
    End,
}

/// Writes a recording.
#[derive(Debug)]
pub struct Recorder {
    queue: SyncSender<Entry>,
    thread: JoinHandle<Result<(), RecordingError>>,
    next_sequence: u32,
    lost: u64,
}

/// Adds truth to a recording.
#[derive(Debug, Clone)]
pub struct TruthRecorder(SyncSender<Entry>);

impl TruthRecorder {
    /// Adds the truth of a frame.
    pub fn truth(&self, entry: TruthEntry, time_ns: u64) {
        // Only figures depend on it.
        let _ = self.0.try_send(Entry::Truth { time_ns, entry });
    }
}

impl Recorder {
    /// Starts a recording in `directory`, which is made if need be.
    pub fn start(
        directory: &Path,
        site: &SharedSite,
        method: &MethodSettings,
    ) -> Result<Self, RecordingError> {
        let refuse = |path: &Path| {
            let path = path.to_path_buf();
            move |source| RecordingError::File { path, source }
        };
        std::fs::create_dir_all(directory).map_err(refuse(directory))?;
        let path = directory.join(BLOCKS_FILE);
        if path.exists() {
            return Err(RecordingError::Exists(directory.to_path_buf()));
        }
        let site_path = directory.join(SITE_FILE);
        std::fs::write(&site_path, site.encode()).map_err(refuse(&site_path))?;
        let method_path = directory.join(METHOD_FILE);
        let method = toml::to_string(method).expect("numbers and names only");
        std::fs::write(&method_path, method).map_err(refuse(&method_path))?;
        let file = File::create_new(&path).map_err(refuse(&path))?;
        let (queue, entries) = sync_channel(QUEUE);
        let sha256 = site.short_hash();
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || {
                write(file, &sha256, &entries).map_err(|source| RecordingError::Container { path, source })
            })
            .map_err(refuse(directory))?;
        Ok(Self { queue, thread, next_sequence: 0, lost: 0 })
    }

    /// A handle for truth.
    pub fn truth_recorder(&self) -> TruthRecorder {
        TruthRecorder(self.queue.clone())
    }

    /// Adds a report of `node`, whatever the report itself says; gives its sequence number.
    pub fn report(&mut self, time_ns: u64, node: usize, mut message: v1::FrameReport) -> u32 {
        message.recorded_node = Some(node as u32);
        let sequence = self.next_sequence;
        self.next_sequence = self.next_sequence.wrapping_add(1);
        self.add(Entry::Report { sequence, time_ns, message });
        sequence
    }

    /// Adds a solved frame.
    pub fn frame(&mut self, frame: FrameId, time_ns: u64, reports: Vec<u32>, earlier: Vec<u64>) {
        let entry = FrameEntry { run: frame.run, frame: frame.frame, reports, earlier };
        self.add(Entry::Frame { time_ns, entry });
    }

    fn add(&mut self, entry: Entry) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.queue.try_send(entry) {
            self.lost += 1;
        }
    }

    /// Writes what is queued and closes the file.
    pub fn finish(self) {
        let Self { queue, thread, lost, .. } = self;
        // Waits for room; if the thread is gone, joining it tells why.
        let _ = queue.send(Entry::End);
        match thread.join() {
            Ok(Ok(())) if lost == 0 => {}
            Ok(Ok(())) => tracing::error!(lost, "the disk was too slow: the recording is incomplete"),
            Ok(Err(error)) => tracing::error!(%error, "the recording failed"),
            Err(_) => tracing::error!("the recorder panicked"),
        }
    }
}

fn write(file: File, site_sha256: &str, entries: &Receiver<Entry>) -> mcap::McapResult<()> {
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
            Entry::Report { sequence, time_ns, message } => {
                (reports, sequence, time_ns, message.encode_to_vec())
            }
            Entry::Frame { time_ns, entry } => (frames, count, time_ns, json(&entry)),
            Entry::Truth { time_ns, entry } => (truth, count, time_ns, json(&entry)),
            Entry::End => break,
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
