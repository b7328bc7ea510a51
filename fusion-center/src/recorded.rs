//! Reads recordings: the site, the method, and the entries in their order.
//!
//! Files may be damaged, truncated or hostile: faults are returned with their place, and what is behind them is read
//! (see [`container`](crate::container)). Memory does not grow with the length of a recording.
//!
//! ```no_run
//! use hyloc_fusion_center::recorded::{RecordedEntry, Recording};
//!
//! let recording = Recording::open("recording".as_ref())?;
//! for entry in recording.entries()? {
//!     if let (_, RecordedEntry::Fix(fix)) = entry? {
//!         let _ = (fix.frame, fix.position, fix.covariance_m2);
//!     }
//! }
//! # Ok::<(), hyloc_fusion_center::recorded::RecordingError>(())
//! ```

mod entries;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use model::System;
use prost::Message;
use proto::convert::{FrameId, Report, max_report_bytes, report_from_wire};
use proto::site::{MAX_SITE_BYTES, SharedSite};
use proto::v1;

pub use self::entries::{ClockEntry, FrameEntry, HoleEntry};
pub(crate) use self::entries::{add_to_holes, decode_fix, decode_truth};
use crate::channels::{Channels, RecordingChannel};
use crate::container::{Container, ContainerEvent, Entry};
use crate::method::MethodSettings;
use crate::recording::{BLOCKS_FILE, METHOD_FILE, SITE_FILE};
use crate::segment::{METHOD_FILE_HASH, SITE_FILE_HASH, SITE_HASH, VERSION, file_hash, segment_path};

pub use crate::recording::RecordingError;
pub use crate::told::{ToldTarget, TrueFrame};

/// In older recordings, which have no site.
const SCENARIO_FILE: &str = "scenario.toml";

/// Largest settings file of a recording.
const MOST_METHOD_BYTES: u64 = 1 << 20;

/// A report of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedReport {
    /// By which frames name it.
    pub sequence: u32,
    /// Index of the node that sent it.
    pub node: usize,
    /// Its paths with their payloads, decoded and checked.
    pub report: Report,
}

/// What a recording contains, in the order in which it was written.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedEntry {
    Report(Box<RecordedReport>),
    /// A frame that was solved, with its reports.
    Frame(FrameEntry),
    /// The targets and the clocks of a frame as a simulator has told them.
    Truth(FrameId, TrueFrame),
    /// A fix with its targets and tracks, as watchers received it; older recordings contain none.
    Fix(Box<v1::Fix>),
    /// Entries that were not recorded.
    Hole(HoleEntry),
    /// What cannot be read, in words with its place.
    Fault(String),
}

/// A recording in its directory.
#[derive(Debug)]
pub struct Recording {
    directory: PathBuf,
    system: System,
    method: MethodSettings,
    damage: Vec<String>,
}

impl Recording {
    /// Opens the recording in a directory: reads and verifies the files beside the entries.
    pub fn open(directory: &Path) -> Result<Self, RecordingError> {
        let files = RecordingFiles(directory.to_path_buf());
        let (system, damage) = files.site()?;
        let method = files.method()?;
        Ok(Self { directory: files.0, system, method, damage })
    }

    /// The site.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// How the frames were solved.
    pub fn method(&self) -> &MethodSettings {
        &self.method
    }

    /// Faults that were found when the recording was opened.
    pub fn damage(&self) -> &[String] {
        &self.damage
    }

    /// All entries with the time at which each was recorded, nanoseconds since the Unix epoch.
    pub fn entries(
        &self,
    ) -> Result<impl Iterator<Item = Result<(u64, RecordedEntry), RecordingError>>, RecordingError> {
        let mut channels = Channels::default();
        let read = move |event: Result<(PathBuf, ContainerEvent), RecordingError>| match event {
            Ok((_, ContainerEvent::Entry(entry))) => {
                let time_ns = entry.time_ns;
                self.entry(&channels, entry)
                    .transpose()
                    .map(|read| Ok((time_ns, read.unwrap_or_else(RecordedEntry::Fault))))
            }
            Ok((_, ContainerEvent::Channel { id, topic })) => {
                channels.define(id, &topic);
                None
            }
            Ok((_, ContainerEvent::Metadata(_))) => None,
            Ok((path, ContainerEvent::Damage(damage))) => {
                Some(Ok((0, RecordedEntry::Fault(format!("{}: {damage}", path.display())))))
            }
            Ok((path, ContainerEvent::Truncated(at))) => {
                let fault = format!("{}: {}", path.display(), truncated(at));
                Some(Ok((0, RecordedEntry::Fault(fault))))
            }
            Err(error) => Some(Err(error)),
        };
        Ok(self.events(true)?.filter_map(read))
    }

    /// An entry that is not merely drawn; an error says what is wrong with it.
    fn entry(&self, channels: &Channels, entry: Entry) -> Result<Option<RecordedEntry>, String> {
        let Entry { sequence, data, .. } = &entry;
        Ok(Some(match channels.get(entry.channel) {
            Some(RecordingChannel::Reports) => {
                if data.len() > 2 * max_report_bytes(&self.system) {
                    return Err(format!("report {sequence} is larger than any of this site"));
                }
                let message = v1::FrameReport::decode(data.as_slice());
                let message = message.map_err(|error| format!("report {sequence}: {error}"))?;
                let node = sender(&message);
                let report = report_from_wire(message, node, &self.system);
                let report = report.map_err(|error| format!("report {sequence}: {error}"))?;
                RecordedEntry::Report(Box::new(RecordedReport { sequence: *sequence, node, report }))
            }
            Some(RecordingChannel::Frames) => RecordedEntry::Frame(FrameEntry::decode(data)?),
            Some(RecordingChannel::Truth) => {
                let (frame, told) = decode_truth(data, self.system.irs_count())?;
                RecordedEntry::Truth(frame, told)
            }
            Some(RecordingChannel::Fixes) => RecordedEntry::Fix(Box::new(decode_fix(data)?)),
            Some(RecordingChannel::Holes) => RecordedEntry::Hole(HoleEntry::decode(data)?),
            _ => return Ok(None),
        }))
    }

    /// All entries of a channel that can be read, by frame.
    pub(crate) fn by_frame<T>(
        &self,
        wanted: RecordingChannel,
        decode: impl Fn(&[u8]) -> Result<(FrameId, T), String>,
    ) -> Result<BTreeMap<FrameId, T>, RecordingError> {
        let mut channels = Channels::default();
        let mut entries = BTreeMap::new();
        for event in self.events(false)? {
            match event?.1 {
                ContainerEvent::Channel { id, topic } => channels.define(id, &topic),
                ContainerEvent::Entry(entry) if channels.get(entry.channel) == Some(wanted) => {
                    entries.extend(decode(&entry.data).ok());
                }
                _ => {}
            }
        }
        Ok(entries)
    }

    /// The events of all segments with their files, with the checksums of whole segments if `whole`.
    pub(crate) fn events(
        &self,
        whole: bool,
    ) -> Result<impl Iterator<Item = FileEvent> + use<>, RecordingError> {
        events(&self.directory, whole)
    }
}

/// What is wrong with a file that breaks off.
pub(crate) fn truncated(at: u64) -> String {
    format!("the file ends at byte {at} without its last records")
}

/// The node that sent a report. Older recordings do not contain it; then it is taken from the first block, which may
/// claim to be of another node.
pub(crate) fn sender(report: &v1::FrameReport) -> usize {
    let claimed = || report.blocks.first().map_or(0, |block| block.l);
    report.recorded_node.unwrap_or_else(claimed) as usize
}

/// An event of a file.
type FileEvent = Result<(PathBuf, ContainerEvent), RecordingError>;

fn events(directory: &Path, whole: bool) -> Result<impl Iterator<Item = FileEvent> + use<>, RecordingError> {
    let paths = (1..).map(|number| segment_path(directory, number));
    let mut segments = Vec::new();
    for (i, path) in paths.enumerate() {
        match File::open(&path) {
            Ok(file) => segments.push((path, file)),
            Err(error) if i > 0 && error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(RecordingError::file(&path)(error)),
        }
    }
    let events = segments.into_iter().flat_map(move |(path, file)| {
        let opened = if whole { Container::new(file) } else { Container::by_chunks(file) };
        let (events, error) = match opened {
            Ok(events) => (Some(events), None),
            Err(error) => (None, Some(Err(RecordingError::file(&path)(error)))),
        };
        let events = events
            .into_iter()
            .flatten()
            .map(move |event| event.map(|event| (path.clone(), event)).map_err(RecordingError::file(&path)));
        error.into_iter().chain(events)
    });
    Ok(events)
}

/// The files beside the entries.
struct RecordingFiles(PathBuf);

/// Reads a file of at most `most` bytes.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, RecordingError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(RecordingError::file(path))?;
    if bytes.len() as u64 > most {
        return Err(RecordingError::content(path, format!("more than {most} bytes")));
    }
    Ok(bytes)
}

impl RecordingFiles {
    /// The site, and what is wrong with it. Older recordings contain the scenario instead, and no checksum of the file.
    fn site(&self) -> Result<(System, Vec<String>), RecordingError> {
        let (path, scenario) = (self.0.join(SITE_FILE), self.0.join(SCENARIO_FILE));
        if !path.exists() && scenario.exists() {
            let loaded = settings::load_site_of_file(&scenario);
            return Ok((loaded.map_err(|error| RecordingError::content(&scenario, error))?, Vec::new()));
        }
        let bytes = read(&path, MAX_SITE_BYTES as u64)?;
        let site = SharedSite::decode(&bytes);
        let stated = self.metadata();
        self.compare(&path, &bytes, stated.get(SITE_FILE_HASH))?;
        let site = site.map_err(|error| RecordingError::content(&path, error))?;
        // The hash of the content is that of this version of the protocol.
        let same_version =
            stated.get(VERSION).is_some_and(|version| *version == proto::PROTOCOL_VERSION.to_string());
        let differs = same_version && stated.get(SITE_HASH).is_some_and(|hash| *hash != site.short_hash());
        let fault = differs.then(|| {
            let name = path.display();
            format!("{name}: the site does not match the hash in {BLOCKS_FILE}: one of them is damaged")
        });
        Ok((site.system, fault.into_iter().collect()))
    }

    /// The settings of the solver; the defaults if there are none.
    fn method(&self) -> Result<MethodSettings, RecordingError> {
        let path = self.0.join(METHOD_FILE);
        let stated = self.metadata();
        let stated = stated.get(METHOD_FILE_HASH);
        if !path.exists() && stated.is_none() {
            return Ok(MethodSettings::default());
        }
        let bytes = read(&path, MOST_METHOD_BYTES)?;
        self.compare(&path, &bytes, stated)?;
        let text = String::from_utf8(bytes).map_err(|error| RecordingError::content(&path, error))?;
        toml::from_str(&text).map_err(|error| RecordingError::content(&path, error))
    }

    /// An error if the content of a file has another hash than `stated`.
    fn compare(&self, path: &Path, content: &[u8], stated: Option<&String>) -> Result<(), RecordingError> {
        match stated.is_none_or(|stated| *stated == file_hash(content)) {
            true => Ok(()),
            false => {
                let reason = format!("does not match its checksum in {BLOCKS_FILE}: one of them is damaged");
                Err(RecordingError::content(path, reason))
            }
        }
    }

    /// The metadata of the first segment that has any.
    fn metadata(&self) -> BTreeMap<String, String> {
        // A file that cannot be read is refused when its messages are read.
        let mut events = events(&self.0, false).into_iter().flatten().map_while(Result::ok);
        let first = events.find_map(|(_, event)| match event {
            ContainerEvent::Metadata(metadata) => Some(Some(metadata)),
            ContainerEvent::Entry(_) => Some(None),
            _ => None,
        });
        first.flatten().unwrap_or_default()
    }
}
