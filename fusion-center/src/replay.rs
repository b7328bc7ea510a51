//! Replays a recording: solves the same paths in the same frames and gives the same fixes, bit for bit.
//!
//! The file is read as a stream, once for the truth (which may have been written shortly after its frame) and once
//! for the reports: memory does not grow with it, except for the truth's 72 bytes per frame, and 8 per node where clocks are
//! not trusted. Every checksum is verified (see [`container`](crate::container)). A frame is solved from all of its reports or not at all: what a fault of the
//! recording makes impossible is named in [`Replayed`], and the rest is replayed.

mod solver;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::System;
use proto::convert::FrameId;
use proto::site::{MAX_SITE_BYTES, SharedSite};
use serde::de::DeserializeOwned;
use telemetry::Part;
use tokio_util::sync::CancellationToken;

use self::solver::ReplaySolver;
use crate::container::{Container, ContainerEvent, Entry};
use crate::fix_log::{Existing, FixLog, LogQueue};
use crate::method::MethodSettings;
use crate::publish::Publisher;
use crate::recording::{BLOCKS_FILE, METHOD_FILE, RecordingError, SCENARIO_FILE, SITE_FILE};
use crate::segment::{
    METHOD_FILE_HASH, RecordingChannel, SITE_FILE_HASH, SITE_HASH, VERSION, file_hash, segment_path,
};
use crate::solve::Solver;
use crate::statistics::Figures;
use crate::truth::TruthStore;

/// Largest entry of a channel other than that of the reports.
const MOST_ENTRY_BYTES: usize = 1 << 20;

/// Largest settings file of a recording.
const MOST_METHOD_BYTES: u64 = 1 << 20;

/// Faults that are described one by one.
const MOST_FAULTS: usize = 1000;

#[derive(Debug)]
pub struct Replayed {
    pub figures: Figures,
    /// The recording breaks off here; everything before is replayed.
    pub broken: Option<RecordingError>,
    /// Faults of the files, each with file and place.
    pub damage: Vec<String>,
    /// Frames that were recorded or could have been, and are not replayed, with the reason.
    pub missing: Vec<String>,
}

/// Replays the recording in `directory`; writes one JSON line per fix to `log`, until its reader leaves. A log that exists
/// is moved aside. `progress` is called with the number of frames so far.
pub fn replay(
    directory: &Path,
    log: Option<&Path>,
    mut progress: impl FnMut(u64),
) -> anyhow::Result<Replayed> {
    let recording = Recording(directory.to_path_buf());
    let (system, mut faults) = recording.site()?;
    let method = recording.method()?;
    let blocks = directory.join(BLOCKS_FILE);
    let solver = Solver::new(&system, &method).map_err(|error| RecordingError::content(&blocks, error))?;
    let tracks = solver.tracks(&method).map_err(|error| RecordingError::content(&blocks, error))?;
    let system = Arc::new(system);
    let mut solver = ReplaySolver::new(&recording, system.clone(), solver)?;

    let (truth, stop) = (TruthStore::default(), CancellationToken::new());
    let log = log.map(|path| {
        let log = FixLog::open(path, Existing::MoveAside, Part::unobserved("fixes log"))?;
        anyhow::Ok(LogQueue::start(log, stop.clone(), true)?)
    });
    let part = log.as_ref().and_then(|log| log.as_ref().ok()).map(|(queue, _)| queue.part().clone());
    let (publisher, thread) = Publisher::start(system, truth.clone(), tracks, log.transpose()?)?;
    let viewer = publisher.viewer();
    let mut frames = 0;
    for event in recording.events(true)?.take_while(|_| !stop.is_cancelled()) {
        let (path, event) = event?;
        let taken = match event {
            ContainerEvent::Entry(entry) => solver.take(&entry),
            ContainerEvent::Channel { id, topic } => {
                solver.channels.define(id, &topic);
                continue;
            }
            ContainerEvent::Metadata(_) => continue,
            ContainerEvent::Damage(damage) => {
                if damage.loses {
                    solver.gap = true;
                }
                faults.damage(format!("{}: {damage}", path.display()));
                continue;
            }
            ContainerEvent::Truncated(at) => {
                let reason = format!("the file ends at byte {at} without its last records");
                faults.broken = Some(RecordingError::content(&path, reason));
                continue;
            }
        };
        let outgoing = match taken {
            Ok(outgoing) => outgoing,
            Err(problem) => {
                faults.missing(problem);
                continue;
            }
        };
        let Some((outgoing, gap)) = outgoing else { continue };
        if let Some(gap) = gap {
            faults.missing(gap);
        }
        for frame in outgoing.solved.basis.frames() {
            if let Some(target) = solver.truths.remove(&frame) {
                truth.insert(frame, target);
            }
        }
        publisher.publish_blocking(outgoing);
        frames += 1;
        progress(frames);
    }
    if let Some(gap) = solver.last_gap() {
        faults.missing(gap);
    }
    drop(publisher);
    thread.finish()?;
    // Frames before an error are valid; without any, the file is not a recording.
    if frames == 0 && !stop.is_cancelled() {
        faults.refuse(&blocks)?;
    }
    if let Some(loss) = part.and_then(|part| part.loss()) {
        anyhow::bail!(telemetry::exit::Failure::new(
            telemetry::exit::IO,
            format!("the fix log {}", loss.reason)
        ));
    }
    Ok(Replayed {
        figures: viewer.figures(),
        broken: faults.broken,
        damage: faults.damage.shown(),
        missing: faults.missing.shown(),
    })
}

/// What is wrong with a recording.
#[derive(Default)]
struct Faults {
    broken: Option<RecordingError>,
    damage: Limited,
    missing: Limited,
}

/// A list that is limited in length.
#[derive(Default)]
struct Limited(Vec<String>, usize);

impl Limited {
    fn add(&mut self, fault: String) {
        match self.0.len() < MOST_FAULTS {
            true => self.0.push(fault),
            false => self.1 += 1,
        }
    }

    fn shown(mut self) -> Vec<String> {
        if self.1 > 0 {
            self.0.push(format!("and {} more", self.1));
        }
        self.0
    }
}

impl Faults {
    fn damage(&mut self, fault: String) {
        self.damage.add(fault);
    }

    fn missing(&mut self, what: String) {
        self.missing.add(what);
    }

    /// An error if there is any fault.
    fn refuse(&mut self, path: &Path) -> Result<(), RecordingError> {
        let first = self.damage.0.first().or(self.missing.0.first());
        match (self.broken.take(), first) {
            (_, Some(first)) => Err(RecordingError::content(path, first)),
            (Some(broken), None) => Err(broken),
            (None, None) => Ok(()),
        }
    }
}

/// The directory of a recording.
struct Recording(PathBuf);

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

impl Recording {
    /// The site. Older recordings contain the scenario instead, and no checksum of the file.
    fn site(&self) -> Result<(System, Faults), RecordingError> {
        let (path, scenario) = (self.0.join(SITE_FILE), self.0.join(SCENARIO_FILE));
        let mut faults = Faults::default();
        if !path.exists() && scenario.exists() {
            let loaded = settings::load_site_of_file(&scenario);
            return Ok((loaded.map_err(|error| RecordingError::content(&scenario, error))?, faults));
        }
        let bytes = read(&path, MAX_SITE_BYTES as u64)?;
        let site = SharedSite::decode(&bytes);
        let stated = self.metadata();
        self.compare(&path, &bytes, stated.get(SITE_FILE_HASH))?;
        let site = site.map_err(|error| RecordingError::content(&path, error))?;
        // The hash of the content is that of this version of the protocol.
        let same_version =
            stated.get(VERSION).is_some_and(|version| *version == proto::PROTOCOL_VERSION.to_string());
        if same_version && stated.get(SITE_HASH).is_some_and(|hash| *hash != site.short_hash()) {
            let name = path.display();
            faults.damage(format!(
                "{name}: the site does not match the hash in {BLOCKS_FILE}: one of them is damaged"
            ));
        }
        Ok((site.system, faults))
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
        let mut events = self.events(false).into_iter().flatten().map_while(Result::ok);
        let first = events.find_map(|(_, event)| match event {
            ContainerEvent::Metadata(metadata) => Some(Some(metadata)),
            ContainerEvent::Entry(_) => Some(None),
            _ => None,
        });
        first.flatten().unwrap_or_default()
    }

    /// The events of all segments, with the checksums of whole segments if `whole`.
    fn events(
        &self,
        whole: bool,
    ) -> Result<impl Iterator<Item = Result<(PathBuf, ContainerEvent), RecordingError>>, RecordingError> {
        let paths = (1..).map(|number| segment_path(&self.0, number));
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
            let events = events.into_iter().flatten().map(move |event| {
                event.map(|event| (path.clone(), event)).map_err(RecordingError::file(&path))
            });
            error.into_iter().chain(events)
        });
        Ok(events)
    }

    /// All entries of a JSON channel that can be read.
    fn entries<E: DeserializeOwned, T>(
        &self,
        wanted: RecordingChannel,
        keyed: impl Fn(E) -> Option<(FrameId, T)>,
    ) -> Result<BTreeMap<FrameId, T>, RecordingError> {
        let mut channels = Channels::default();
        let mut entries = BTreeMap::new();
        for event in self.events(false)? {
            match event?.1 {
                ContainerEvent::Channel { id, topic } => channels.define(id, &topic),
                ContainerEvent::Entry(entry) if channels.get(entry.channel) == Some(wanted) => {
                    entries.extend(json(&entry).ok().and_then(&keyed));
                }
                _ => {}
            }
        }
        Ok(entries)
    }
}

/// The numbers of the channels. Those of the recorder are known even if the chunk that defines them is damaged.
#[derive(Default)]
struct Channels(BTreeMap<u16, Option<RecordingChannel>>);

impl Channels {
    fn define(&mut self, id: u16, topic: &str) {
        self.0.insert(id, RecordingChannel::of_topic(topic));
    }

    fn get(&self, id: u16) -> Option<RecordingChannel> {
        self.0.get(&id).copied().unwrap_or_else(|| RecordingChannel::of_number(id))
    }
}

/// The value of a JSON entry.
fn json<E: DeserializeOwned>(entry: &Entry) -> Result<E, String> {
    if entry.data.len() > MOST_ENTRY_BYTES {
        return Err(format!("an entry has more than {MOST_ENTRY_BYTES} bytes"));
    }
    serde_json::from_slice(&entry.data).map_err(|error| format!("an entry is invalid: {error}"))
}
