//! Replays a recording: solves the same paths in the same frames and gives the same fixes, bit for bit.
//!
//! The file is read as a stream, once for the truth (which may have been written shortly after its frame) and once
//! for the reports: memory does not grow with it, except for the truth's 40 bytes per frame. Every checksum is verified
//! (see [`container`](crate::container)). A frame is solved from all of its reports or not at all: what a fault of the
//! recording makes impossible is named in [`Replayed`], and the rest is replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use estimation::fusion::FrameBlocks;
use model::System;
use prost::Message;
use proto::convert::{FrameId, max_report_bytes, report_from_wire};
use proto::site::{MAX_SITE_BYTES, SharedSite};
use proto::v1;
use serde::de::DeserializeOwned;
use telemetry::Part;
use tokio_util::sync::CancellationToken;

use crate::container::{Container, Entry, Event};
use crate::fix::Source;
use crate::fix_log::{Existing, FixLog, LogQueue};
use crate::method::MethodSettings;
use crate::publish::{Outgoing, Publisher};
use crate::recording::{
    BLOCKS_FILE, FrameEntry, HoleEntry, METHOD_FILE, RecordingError, SCENARIO_FILE, SITE_FILE, TruthEntry,
};
use crate::segment::{
    Channel, METHOD_FILE_HASH, SITE_FILE_HASH, SITE_HASH, VERSION, file_hash, segment_path,
};
use crate::solve::{Earlier, History, Kept, Solver, solve};
use crate::statistics::Figures;
use crate::truth::{TrueTarget, TruthStore};

/// Largest entry of a channel other than that of the reports.
const MOST_ENTRY_BYTES: usize = 1 << 20;

/// Largest settings file of a recording.
const MOST_METHOD_BYTES: u64 = 1 << 20;

/// Reports that one frame may name.
const MOST_REPORTS: usize = 4096;

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
    let system = Arc::new(system);
    let mut solver = ReplaySolver::new(&recording, system.clone(), solver)?;

    let (truth, stop) = (TruthStore::default(), CancellationToken::new());
    let log = log.map(|path| {
        let log = FixLog::open(path, Existing::MoveAside, Part::unobserved("fixes log"))?;
        anyhow::Ok(LogQueue::start(log, stop.clone(), true)?)
    });
    let part = log.as_ref().and_then(|log| log.as_ref().ok()).map(|(queue, _)| queue.part().clone());
    let (publisher, thread) = Publisher::start(system, truth.clone(), log.transpose()?)?;
    let viewer = publisher.viewer();
    let mut frames = 0;
    for event in recording.events(true)?.take_while(|_| !stop.is_cancelled()) {
        let (path, event) = event?;
        let taken = match event {
            Event::Entry(entry) => solver.take(&entry),
            Event::Channel { id, topic } => {
                solver.channels.define(id, &topic);
                continue;
            }
            Event::Metadata(_) => continue,
            Event::Damage(damage) => {
                if damage.loses {
                    solver.gap = true;
                }
                faults.damage(format!("{}: {damage}", path.display()));
                continue;
            }
            Event::Truncated(at) => {
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
            Event::Metadata(metadata) => Some(Some(metadata)),
            Event::Entry(_) => Some(None),
            _ => None,
        });
        first.flatten().unwrap_or_default()
    }

    /// The events of all segments, with the checksums of whole segments if `whole`.
    fn events(
        &self,
        whole: bool,
    ) -> Result<impl Iterator<Item = Result<(PathBuf, Event), RecordingError>>, RecordingError> {
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
        wanted: Channel,
        keyed: impl Fn(E) -> (FrameId, T),
    ) -> Result<BTreeMap<FrameId, T>, RecordingError> {
        let mut channels = Channels::default();
        let mut entries = BTreeMap::new();
        for event in self.events(false)? {
            match event?.1 {
                Event::Channel { id, topic } => channels.define(id, &topic),
                Event::Entry(entry) if channels.get(entry.channel) == Some(wanted) => {
                    entries.extend(json(&entry).ok().map(&keyed));
                }
                _ => {}
            }
        }
        Ok(entries)
    }
}

/// The numbers of the channels. Those of the recorder are known even if the chunk that defines them is damaged.
#[derive(Default)]
struct Channels(BTreeMap<u16, Option<Channel>>);

impl Channels {
    fn define(&mut self, id: u16, topic: &str) {
        self.0.insert(id, Channel::of_topic(topic));
    }

    fn get(&self, id: u16) -> Option<Channel> {
        self.0.get(&id).copied().unwrap_or_else(|| Channel::of_number(id))
    }
}

/// The value of a JSON entry.
fn json<E: DeserializeOwned>(entry: &Entry) -> Result<E, String> {
    if entry.data.len() > MOST_ENTRY_BYTES {
        return Err(format!("an entry has more than {MOST_ENTRY_BYTES} bytes"));
    }
    serde_json::from_slice(&entry.data).map_err(|error| format!("an entry is invalid: {error}"))
}

/// Assembles and solves frames from the messages of a recording.
struct ReplaySolver {
    system: Arc<System>,
    solver: Solver,
    channels: Channels,
    /// Encoded, by sequence number.
    reports: BTreeMap<u32, Vec<u8>>,
    /// Largest report of this site.
    most_report_bytes: usize,
    truths: BTreeMap<FrameId, TrueTarget>,
    /// With batches: a frame may have been solved before an earlier one of its batch.
    all_frames: Option<BTreeMap<FrameId, FrameEntry>>,
    history: History,
    /// The frame that was solved last.
    last: Option<FrameId>,
    /// Whether messages were lost behind it.
    gap: bool,
}

impl ReplaySolver {
    fn new(recording: &Recording, system: Arc<System>, solver: Solver) -> Result<Self, RecordingError> {
        let truths = recording.entries(Channel::Truth, |entry: TruthEntry| {
            let target = TrueTarget { position_m: entry.position_m.into(), rcs_m2: entry.rcs_m2 };
            (FrameId { run: entry.run, frame: entry.frame }, target)
        })?;
        let by_frame = |entry: FrameEntry| (FrameId { run: entry.run, frame: entry.frame }, entry);
        let batch_frames = solver.batch_frames();
        let batches = batch_frames > 1;
        let all_frames = batches.then(|| recording.entries(Channel::Frames, by_frame)).transpose()?;
        let history = History::new(2 * batch_frames);
        let most_report_bytes = 2 * max_report_bytes(&system);
        let (channels, reports) = (Channels::default(), BTreeMap::new());
        let (last, gap) = (None, false);
        Ok(Self {
            system,
            solver,
            channels,
            reports,
            most_report_bytes,
            truths,
            all_frames,
            history,
            last,
            gap,
        })
    }

    /// Takes an entry; returns a fix if it is a frame, and a description of the frames that are missing before it. An
    /// error says which frame cannot be replayed, and why.
    fn take(&mut self, entry: &Entry) -> Result<Option<(Outgoing, Option<String>)>, String> {
        match self.channels.get(entry.channel) {
            Some(Channel::Reports) if entry.data.len() > self.most_report_bytes => {
                Err(format!("report {} is larger than any of this site", entry.sequence))
            }
            Some(Channel::Reports) => {
                self.reports.insert(entry.sequence, entry.data.clone());
                Ok(None)
            }
            Some(Channel::Frames) => {
                let entry: FrameEntry = json(entry)?;
                let frame = FrameId { run: entry.run, frame: entry.frame };
                let outgoing = self.solve(&entry).map_err(|reason| {
                    format!("frame {} of run {} is not replayed: {reason}", frame.frame, frame.run)
                })?;
                let gap = std::mem::take(&mut self.gap).then(|| self.gap_before(frame)).flatten();
                self.last = Some(frame);
                Ok(Some((outgoing, gap)))
            }
            Some(Channel::Holes) => {
                let HoleEntry { run, first, last, entries } = json(entry)?;
                Err(format!("{entries} entries of frames {first} to {last} of run {run} were not recorded"))
            }
            Some(Channel::Truth) | None => Ok(None),
        }
    }

    /// Frames that lie between the last one and `next`.
    fn gap_before(&self, next: FrameId) -> Option<String> {
        let FrameId { run, frame } = next;
        match self.last {
            None if frame == 0 => None,
            None => Some(format!("frames before {frame} of run {run} are lost")),
            Some(last) if last.run != run => Some(format!(
                "frames behind {} of run {} and before {frame} of run {run} are lost",
                last.frame, last.run
            )),
            Some(last) if last.frame.saturating_add(1) >= frame => None,
            Some(last) => Some(format!("frames {} to {} of run {run} are lost", last.frame + 1, frame - 1)),
        }
    }

    /// Frames at the end that were lost.
    fn last_gap(&self) -> Option<String> {
        let last = self.last.filter(|_| self.gap)?;
        Some(format!("frames behind {} of run {} are lost, if there were any", last.frame, last.run))
    }

    fn solve(&mut self, entry: &FrameEntry) -> Result<Outgoing, String> {
        let frame = FrameId { run: entry.run, frame: entry.frame };
        let kept = self.assemble(entry)?;
        let earlier = self.earlier(entry)?;
        let solved = solve(&self.solver, frame, &kept, &earlier, Source::Replayed);
        if self.all_frames.is_some() {
            self.history.keep(frame, kept);
        }
        // Later frames do not use reports that are long before this frame's.
        if let Some(first) = entry.reports.iter().min() {
            self.reports = self.reports.split_off(&first.saturating_sub(4096));
        }
        Ok(Outgoing { solved, arrivals: None })
    }

    /// The frames that a frame was solved with.
    fn earlier(&self, entry: &FrameEntry) -> Result<Earlier, String> {
        if entry.earlier.len() > self.solver.batch_frames() {
            return Err("its batch is larger than that of the method".into());
        }
        let frame = |number: &u64| {
            let id = FrameId { run: entry.run, frame: *number };
            if let Some(known) = self.history.get(id) {
                return Ok((*number, known));
            }
            let entry = self.all_frames.as_ref().and_then(|frames| frames.get(&id));
            let entry = entry.ok_or_else(|| format!("frame {number} of its batch is missing"))?;
            Ok((*number, self.assemble(entry)?))
        };
        entry.earlier.iter().map(frame).collect()
    }

    /// Assembles a frame as the assembler did: of several reports of a path, the first counts.
    fn assemble(&self, entry: &FrameEntry) -> Result<Arc<Kept>, String> {
        let system = &self.system;
        let mut blocks = FrameBlocks::new(system.irs_count());
        let distinct: BTreeSet<u32> = entry.reports.iter().copied().collect();
        if entry.reports.len() > MOST_REPORTS || distinct.len() < entry.reports.len() {
            return Err("it names too many reports, or one of them twice".into());
        }
        for sequence in &entry.reports {
            let report = self.reports.get(sequence);
            let report = report.ok_or_else(|| format!("its report {sequence} is missing"))?;
            let message = v1::FrameReport::decode(report.as_slice()).map_err(|error| error.to_string())?;
            let node = sender(&message);
            let report = report_from_wire(message, node, system).map_err(|error| error.to_string())?;
            for (k, path) in report.paths {
                if blocks.path(node, k).is_none() {
                    blocks.insert(node, k, report.node, path);
                }
            }
        }
        Ok(Arc::new(Kept::new(blocks)))
    }
}

/// The node that sent a report. Older recordings do not contain it; then it is taken from the first block, which may
/// claim to be of another node.
fn sender(report: &v1::FrameReport) -> usize {
    let claimed = || report.blocks.first().map_or(0, |block| block.l);
    report.recorded_node.unwrap_or_else(claimed) as usize
}
