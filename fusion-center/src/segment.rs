//! The files of a recording: `blocks.mcap`, and further segments `blocks-2.mcap` and so on.
//!
//! Entries are collected and written as one chunk with its checksum, at the latest after [`COMMIT`]; a process that is
//! killed loses no more than that. The file is synchronised to the disk once per second and at its end. If a chunk
//! cannot be written (full disk, removed directory), the segment is cut behind its last complete chunk, and the entries
//! are kept and tried again in a new segment. If too many wait, the oldest are lost, counted, and named in `/holes`. A
//! segment that has become large is closed, and the next one begun.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, Metadata};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mcap::records::MessageHeader;
use mcap::{WriteOptions, Writer};
use prost::Message;
use proto::convert::FrameId;
use sha2::{Digest, Sha256};
use telemetry::{Failures, Part};

use crate::channels::RecordingChannel;
use crate::recorded::{HoleEntry, add_to_holes};
use crate::recording::{BLOCKS_FILE, METHOD_FILE, RecordingError, SITE_FILE};
use crate::scene::said;

/// Longest time that an entry waits to be written.
pub const COMMIT: Duration = Duration::from_millis(500);

/// Entries of this size are written at once.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Entries that wait for a disk that is full.
const MOST_PENDING_BYTES: usize = 32 << 20;

/// A segment of this size is closed.
const SEGMENT_BYTES: u64 = 1 << 30;

/// How often the file is synchronised, and compared with its path.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Name of the metadata record, and its keys.
pub const METADATA: &str = "hyloc";
pub const SITE_HASH: &str = "site_sha256";
pub const VERSION: &str = "protocol_version";
pub const SITE_FILE_HASH: &str = "site_file_sha256";
pub const METHOD_FILE_HASH: &str = "method_file_sha256";

/// An encoded entry that is not in the file yet.
#[derive(Debug, Clone)]
pub struct Pending {
    pub channel: RecordingChannel,
    pub frame: FrameId,
    /// Other entries are numbered when they are written.
    pub sequence: Option<u32>,
    pub time_ns: u64,
    pub data: Vec<u8>,
}

impl Pending {
    pub fn new(channel: RecordingChannel, frame: FrameId, time_ns: u64, data: Vec<u8>) -> Self {
        Self { channel, frame, sequence: None, time_ns, data }
    }
}

/// What the files beside the segments contain.
pub struct Content {
    pub site: Vec<u8>,
    pub method: Vec<u8>,
    /// First digits of the hash by which nodes know the site.
    pub site_sha256: String,
    /// The first entry of every segment, on the channel of the site.
    pub scene: Vec<u8>,
}

/// The SHA-256 of a file's content in hexadecimal digits.
pub fn file_hash(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Path of a segment: `blocks.mcap`, `blocks-2.mcap` and so on.
pub fn segment_path(directory: &Path, number: usize) -> PathBuf {
    match number {
        1 => directory.join(BLOCKS_FILE),
        _ => directory.join(BLOCKS_FILE.replace(".mcap", &format!("-{number}.mcap"))),
    }
}

struct Segment {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    file: File,
    /// Length up to the last complete chunk; 0 without any.
    complete: u64,
    /// Whether no entry has been committed.
    empty: bool,
    count: u32,
}

pub struct Segments {
    directory: PathBuf,
    content: Content,
    current: Option<Segment>,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
    /// Entries before the pending ones that are lost, not yet named in the file.
    holes: Vec<HoleEntry>,
    failures: Failures,
    part: Part,
    synchronised: Instant,
}

impl Segments {
    /// Begins the first segment; that the disk is full is tried again later, any other error is returned.
    pub fn start(directory: &Path, content: Content, part: Part) -> Result<Self, RecordingError> {
        let mut segments = Self {
            directory: directory.to_path_buf(),
            content,
            current: None,
            pending: VecDeque::new(),
            pending_bytes: 0,
            holes: Vec::new(),
            failures: Failures::default(),
            part,
            synchronised: Instant::now(),
        };
        match segments.open() {
            Ok(segment) => segments.current = Some(segment),
            Err(error) if error.is_full_disk() => segments.failed(&error, Instant::now()),
            Err(error) => return Err(error),
        }
        Ok(segments)
    }

    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    pub fn failing(&self) -> bool {
        self.failures.failing()
    }

    pub fn add(&mut self, entry: Pending) {
        self.pending_bytes += entry.data.len();
        self.pending.push_back(entry);
        while self.pending_bytes > MOST_PENDING_BYTES {
            let Some(lost) = self.pending.pop_front() else { break };
            self.pending_bytes -= lost.data.len();
            add_to_holes(&mut self.holes, lost.frame);
            self.part.lost(1, "too many entries wait for the disk");
        }
    }

    /// Adds holes that were counted elsewhere.
    pub fn add_holes(&mut self, holes: Vec<HoleEntry>) {
        for hole in holes {
            for frame in [hole.first, hole.last] {
                add_to_holes(&mut self.holes, FrameId { run: hole.run, frame });
            }
            if let Some(last) = self.holes.last_mut() {
                last.entries = (last.entries + hole.entries).saturating_sub(2);
            }
        }
    }

    /// Writes what is pending; it stays pending if it cannot be written.
    pub fn commit(&mut self, now: Instant) {
        if self.pending.is_empty() && self.holes.is_empty() {
            return;
        }
        match self.try_commit(now) {
            Ok(()) => {
                self.pending.clear();
                (self.pending_bytes, self.holes) = (0, Vec::new());
                if let Some(notice) = self.failures.succeeded(now) {
                    self.part.recovered();
                    tracing::warn!(seconds = notice.failing_for_s(), "the recording is written again");
                }
                if self.current.as_ref().is_some_and(|segment| segment.complete >= SEGMENT_BYTES) {
                    self.close(now);
                }
            }
            Err(error) => {
                if let Some(segment) = self.current.take() {
                    segment.abandon();
                }
                self.failed(&error, now);
            }
        }
    }

    /// Writes what is pending and closes the segment; what cannot be written is lost.
    pub fn finish(mut self, now: Instant) {
        self.commit(now);
        self.close(now);
        let lost = self.pending.len() as u64;
        if lost > 0 {
            self.part.lost(lost, "it cannot be written");
        }
        let lost = self.part.total_lost();
        if lost > 0 {
            tracing::error!(lost, "the recording is incomplete");
        }
    }

    fn failed(&mut self, error: &RecordingError, now: Instant) {
        let reason = error.to_string();
        self.part.failing(&reason);
        if let Some(notice) = self.failures.failed(now, &reason) {
            let (attempts, waiting) = (notice.attempts, self.pending.len());
            tracing::error!(attempts, waiting, reason, "the recording cannot be written");
        }
    }

    fn try_commit(&mut self, now: Instant) -> Result<(), RecordingError> {
        let due = now.saturating_duration_since(self.synchronised) >= SYNC_INTERVAL;
        if due || self.failing() {
            // A file that was removed cannot be read: a new one is begun.
            self.current.take_if(|segment| segment.is_gone());
        }
        let mut segment = match self.current.take() {
            Some(segment) => segment,
            None => self.open()?,
        };
        let written = segment.write(&self.content.scene, &self.holes, &self.pending);
        let path = segment.path.clone();
        let mut result = written.map_err(|error| RecordingError::container(&path, error));
        if due && result.is_ok() {
            self.synchronised = now;
            result = segment.file.sync_data().map_err(RecordingError::file(&path));
        }
        self.current = Some(segment);
        result
    }

    fn close(&mut self, now: Instant) {
        let Some(mut segment) = self.current.take() else { return };
        let path = segment.path.clone();
        let finished = segment.writer.finish().map_err(|error| RecordingError::container(&path, error));
        let synced = finished.and_then(|_| segment.file.sync_all().map_err(RecordingError::file(&path)));
        if let Err(error) = synced {
            // Every chunk is complete: only the index at the end of the file is missing.
            segment.abandon();
            self.failed(&error, now);
        }
    }

    /// Opens the next segment, with the files beside it if they are missing.
    fn open(&self) -> Result<Segment, RecordingError> {
        let Self { directory, content, .. } = self;
        std::fs::create_dir_all(directory).map_err(RecordingError::file(directory))?;
        for (name, content) in [(SITE_FILE, &content.site), (METHOD_FILE, &content.method)] {
            write_whole(&directory.join(name), content)?;
        }
        for number in 1.. {
            let path = segment_path(directory, number);
            match File::create_new(&path) {
                Ok(file) => {
                    let opened = Segment::new(path.clone(), file, content);
                    return opened.map_err(|error| {
                        let _ = std::fs::remove_file(&path);
                        RecordingError::container(&path, error)
                    });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(RecordingError::file(&path)(error)),
            }
        }
        unreachable!("a directory has fewer files")
    }
}

impl Segment {
    fn new(path: PathBuf, file: File, content: &Content) -> mcap::McapResult<Self> {
        let options = WriteOptions::new()
            .compression(None)
            .chunk_size(None)
            .profile("hyloc")
            .library(env!("CARGO_PKG_NAME"));
        let mut writer = Writer::with_options(BufWriter::new(file.try_clone()?), options)?;
        let metadata = [
            (SITE_HASH, content.site_sha256.clone()),
            (VERSION, proto::PROTOCOL_VERSION.to_string()),
            (SITE_FILE_HASH, file_hash(&content.site)),
            (METHOD_FILE_HASH, file_hash(&content.method)),
        ];
        writer.write_metadata(&mcap::records::Metadata {
            name: METADATA.into(),
            metadata: metadata.map(|(key, value)| (key.to_owned(), value)).into(),
        })?;
        for channel in RecordingChannel::ALL {
            let schema = writer.add_schema(channel.message(), "protobuf", &channel.schema())?;
            let number = writer.add_channel(schema, channel.topic(), "protobuf", &BTreeMap::new())?;
            debug_assert_eq!(number, channel.number());
        }
        // A full disk is found here.
        writer.flush()?;
        let complete = file.metadata()?.len();
        Ok(Self { path, writer, file, complete, empty: true, count: 0 })
    }

    /// Writes one chunk.
    fn write(
        &mut self,
        scene: &[u8],
        holes: &[HoleEntry],
        pending: &VecDeque<Pending>,
    ) -> mcap::McapResult<()> {
        let time_ns = pending.front().map_or(0, |entry| entry.time_ns);
        let own = |channel, data| Pending::new(channel, FrameId::default(), time_ns, data);
        let mut first = Vec::new();
        if self.empty {
            first.push(own(RecordingChannel::Site, scene.to_vec()));
        }
        for hole in holes {
            first.push(own(RecordingChannel::Holes, hole.encode()));
            let line = said(time_ns, false, hole.to_string());
            first.push(own(RecordingChannel::Log, line.encode_to_vec()));
        }
        for entry in first.iter().chain(pending) {
            let header = MessageHeader {
                channel_id: entry.channel.number(),
                sequence: entry.sequence.unwrap_or(self.count),
                log_time: entry.time_ns,
                publish_time: entry.time_ns,
            };
            self.count = self.count.wrapping_add(1);
            self.writer.write_to_known_channel(&header, &entry.data)?;
        }
        self.writer.flush()?;
        self.complete = self.file.metadata()?.len();
        self.empty = false;
        Ok(())
    }

    /// Whether the file was removed or replaced.
    fn is_gone(&self) -> bool {
        let same = |a: Metadata, b: Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let here = self.file.metadata().and_then(|ours| Ok(same(ours, std::fs::metadata(&self.path)?)));
        !here.unwrap_or(false)
    }

    /// Cuts the file behind its last complete chunk, and removes it if it has no entry: on a full disk it takes space.
    fn abandon(self) {
        // Dropping the writer may write more.
        drop(self.writer);
        let _ = match self.empty {
            true => std::fs::remove_file(&self.path),
            false => self.file.set_len(self.complete),
        };
    }
}

/// Writes a file unless it is there; a file that cannot be written completely does not stay.
fn write_whole(path: &Path, content: &[u8]) -> Result<(), RecordingError> {
    if std::fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    let part = path.with_extension("part");
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    let written = written.and_then(|()| std::fs::rename(&part, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        RecordingError::file(path)(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::{Container, ContainerEvent};
    use telemetry::{Degradations, Metrics};

    fn entry(frame: u64, bytes: usize) -> Pending {
        let frame = FrameId { run: 7, frame };
        let sequence = Some(frame.frame as u32);
        Pending { sequence, ..Pending::new(RecordingChannel::Reports, frame, 1, vec![0; bytes]) }
    }

    fn read(path: &Path) -> (Vec<u32>, Vec<HoleEntry>) {
        let (mut reports, mut holes) = (Vec::new(), Vec::new());
        for event in Container::new(File::open(path).unwrap()).unwrap().map(Result::unwrap) {
            match event {
                ContainerEvent::Entry(entry) if entry.channel == RecordingChannel::Holes.number() => {
                    holes.push(HoleEntry::decode(&entry.data).unwrap());
                }
                ContainerEvent::Entry(entry) if entry.channel == RecordingChannel::Reports.number() => {
                    reports.push(entry.sequence);
                }
                ContainerEvent::Damage(damage) => panic!("{damage}"),
                _ => {}
            }
        }
        (reports, holes)
    }

    #[test]
    fn a_disk_that_fails_costs_what_cannot_wait_and_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("recording");
        let all = Degradations::default();
        let content = Content { site: vec![1], method: vec![2], site_sha256: "3".into(), scene: vec![4] };
        let part = all.part("recording", &Metrics::new());
        let mut segments = Segments::start(&directory, content, part).unwrap();
        let now = Instant::now();
        segments.add(entry(0, 10));
        segments.commit(now);
        assert!(all.current().is_empty());

        let aside = folder.path().join("aside");
        std::fs::rename(&directory, &aside).unwrap();
        std::fs::write(&directory, "in the way").unwrap();
        (1..=40).for_each(|frame| segments.add(entry(frame, 1 << 20)));
        let later = now + 2 * SYNC_INTERVAL;
        segments.commit(later);
        assert_eq!(all.current().len(), 1);
        assert_eq!(segments.pending.len(), 32, "as many as may wait");
        std::fs::remove_file(&directory).unwrap();
        std::fs::rename(&aside, &directory).unwrap();
        segments.commit(later + COMMIT);
        assert!(all.current().is_empty());
        segments.add(entry(41, 10));
        segments.finish(later + 2 * COMMIT);
        assert_eq!(all.losses()[0].lost, 8);

        assert_eq!(read(&segment_path(&directory, 1)), (vec![0], vec![]));
        let hole = HoleEntry { run: 7, first: 1, last: 8, entries: 8 };
        assert_eq!(read(&segment_path(&directory, 2)), ((9..=41).collect(), vec![hole]));
    }
}
