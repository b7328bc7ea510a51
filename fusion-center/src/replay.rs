//! A recording fed to the solver again: the same blocks in the same frames, so the same fixes, bit for bit.
//!
//! The file is read as a stream, once for the truth (which may have been written a little after its frame) and once
//! for the reports: memory does not grow with it, but for the truth's 40 bytes a frame. A recording that breaks off,
//! as that of a process that was killed, is replayed up to there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use estimation::fusion::{FrameBlocks, Fuser};
use mcap::io::MessageReader;
use model::System;
use prost::Message;
use proto::convert::{FrameId, report_from_wire};
use proto::site::SharedSite;
use proto::v1;
use serde::de::DeserializeOwned;

use crate::fix::Source;
use crate::method::MethodSettings;
use crate::publish::{Outgoing, Publisher};
use crate::recording::{
    BLOCKS_FILE, FRAMES, FrameEntry, METHOD_FILE, REPORTS, RecordingError, SCENARIO_FILE, SITE_FILE, TRUTH,
    TruthEntry,
};
use crate::solve::{Earlier, History, Kept, Solved, solve};
use crate::statistics::Figures;
use crate::truth::{TrueTarget, TruthStore};

/// What a replay gave.
#[derive(Debug)]
pub struct Replayed {
    /// What the fixes add up to.
    pub figures: Figures,
    /// Why the recording could not be read to its end.
    pub broken: Option<RecordingError>,
}

/// Replays the recording in `directory`; one JSON line per fix goes to `log`. `progress` is told the frames so far.
pub fn replay(
    directory: &Path,
    log: Option<&Path>,
    mut progress: impl FnMut(u64),
) -> Result<Replayed, RecordingError> {
    let recording = Recording(directory.join(BLOCKS_FILE));
    let system = site(directory)?;
    let method_path = directory.join(METHOD_FILE);
    // Without the file, as by default.
    let method: MethodSettings = if method_path.exists() { parse(&method_path)? } else { Default::default() };
    let fuser = Fuser::new(system.clone(), method.fusion()).map_err(|error| recording.content(error))?;
    let mut stage = Stage::new(&recording, fuser, method.batch_frames)?;

    let truth = TruthStore::default();
    let (publisher, thread) =
        Publisher::start(Arc::new(system), truth.clone(), log).map_err(refuse(directory))?;
    let viewer = publisher.viewer();
    let (mut frames, mut broken) = (0, None);
    for message in recording.messages()? {
        let outgoing = match message {
            Ok(message) => stage.take(&message).map_err(|problem| recording.content(problem))?,
            // What came before the break is sound; where nothing did, it is no recording.
            Err(error) if frames > 0 => {
                broken = Some(error);
                break;
            }
            Err(error) => return Err(error),
        };
        let Some(outgoing) = outgoing else { continue };
        for frame in outgoing.basis.frames() {
            if let Some(target) = stage.truths.remove(&frame) {
                truth.insert(frame, target);
            }
        }
        publisher.publish_blocking(outgoing);
        frames += 1;
        progress(frames);
    }
    drop(publisher);
    thread.finish().map_err(refuse(directory))?;
    Ok(Replayed { figures: viewer.figures(), broken })
}

/// The site of a recording. Older ones hold the scenario that it follows from.
fn site(directory: &Path) -> Result<System, RecordingError> {
    let (path, scenario) = (directory.join(SITE_FILE), directory.join(SCENARIO_FILE));
    if !path.exists() && scenario.exists() {
        let loaded = settings::load_site_of_file(&scenario);
        return loaded
            .map_err(|error| RecordingError::Content { path: scenario, problem: error.to_string() });
    }
    let bytes = std::fs::read(&path).map_err(refuse(&path))?;
    let site = SharedSite::decode(&bytes);
    site.map(|site| site.system).map_err(|error| RecordingError::Content { path, problem: error.to_string() })
}

fn refuse(path: &Path) -> impl Fn(std::io::Error) -> RecordingError {
    let path = path.to_path_buf();
    move |source| RecordingError::File { path: path.clone(), source }
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T, RecordingError> {
    let text = std::fs::read_to_string(path).map_err(refuse(path))?;
    toml::from_str(&text)
        .map_err(|error| RecordingError::Content { path: path.to_path_buf(), problem: error.to_string() })
}

/// The file of the blocks.
struct Recording(PathBuf);

impl Recording {
    fn content(&self, problem: impl ToString) -> RecordingError {
        RecordingError::Content { path: self.0.clone(), problem: problem.to_string() }
    }

    /// Its messages from the first on, until one cannot be read.
    fn messages(
        &self,
    ) -> Result<impl Iterator<Item = Result<mcap::Message<'static>, RecordingError>>, RecordingError> {
        let file = File::open(&self.0).map_err(refuse(&self.0))?;
        let container = |source| RecordingError::Container { path: self.0.clone(), source };
        Ok(MessageReader::new(BufReader::new(file)).map(move |message| message.map_err(container)))
    }

    /// All entries of a JSON channel that can be read.
    fn entries<E: DeserializeOwned, T>(
        &self,
        topic: &str,
        keyed: impl Fn(E) -> (FrameId, T),
    ) -> Result<BTreeMap<FrameId, T>, RecordingError> {
        let messages = self.messages()?.map_while(Result::ok);
        let entries = messages.filter(|message| message.channel.topic == topic).map(|message| {
            let entry = serde_json::from_slice(&message.data).map_err(|error| self.content(error))?;
            Ok(keyed(entry))
        });
        entries.collect()
    }
}

/// What is between the messages and the solver.
struct Stage {
    fuser: Fuser,
    reports: BTreeMap<u32, v1::FrameReport>,
    truths: BTreeMap<FrameId, TrueTarget>,
    /// With batches: a frame may have been solved before an earlier one of its batch was.
    all_frames: Option<BTreeMap<FrameId, FrameEntry>>,
    history: History,
}

impl Stage {
    fn new(recording: &Recording, fuser: Fuser, batch_frames: usize) -> Result<Self, RecordingError> {
        let truths = recording.entries(TRUTH, |entry: TruthEntry| {
            let target = TrueTarget { position_m: entry.position_m.into(), rcs_m2: entry.rcs_m2 };
            (FrameId { run: entry.run, frame: entry.frame }, target)
        })?;
        let by_frame = |entry: FrameEntry| (FrameId { run: entry.run, frame: entry.frame }, entry);
        let batches = batch_frames > 1;
        let all_frames = batches.then(|| recording.entries(FRAMES, by_frame)).transpose()?;
        let history = History::new(2 * batch_frames);
        Ok(Self { fuser, reports: BTreeMap::new(), truths, all_frames, history })
    }

    /// Takes a message; a frame gives a fix.
    fn take(&mut self, message: &mcap::Message) -> Result<Option<Outgoing>, String> {
        match message.channel.topic.as_str() {
            REPORTS => {
                let report =
                    v1::FrameReport::decode(message.data.as_ref()).map_err(|error| error.to_string())?;
                self.reports.insert(message.sequence, report);
                Ok(None)
            }
            FRAMES => {
                let entry = serde_json::from_slice(&message.data).map_err(|error| error.to_string())?;
                self.solve(&entry).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn solve(&mut self, entry: &FrameEntry) -> Result<Outgoing, String> {
        let frame = FrameId { run: entry.run, frame: entry.frame };
        let kept = Arc::new(self.assemble(entry)?);
        let earlier = self.earlier(entry)?;
        let solved = solve(&self.fuser, frame, &kept, &earlier, Source::Replayed);
        if self.all_frames.is_some() {
            self.history.keep(frame, kept);
        }
        forget(entry, &mut self.reports);
        let Solved { record, basis, reason } = solved;
        Ok(Outgoing { record, basis, reason, since: None })
    }

    /// The frames that a frame was solved with.
    fn earlier(&self, entry: &FrameEntry) -> Result<Earlier, String> {
        let frame = |number: &u64| {
            let id = FrameId { run: entry.run, frame: *number };
            if let Some(known) = self.history.get(id) {
                return Ok((*number, known));
            }
            let entry = self.all_frames.as_ref().and_then(|frames| frames.get(&id));
            let entry = entry.ok_or_else(|| format!("frame {number} of a batch is missing"))?;
            Ok((*number, Arc::new(self.assemble(entry)?)))
        };
        entry.earlier.iter().map(frame).collect()
    }

    fn assemble(&self, entry: &FrameEntry) -> Result<Kept, String> {
        blocks(entry, &self.reports, self.fuser.system()).map(Kept::new)
    }
}

/// The blocks of a frame, put together as they were: the first of a path wins.
fn blocks(
    entry: &FrameEntry,
    reports: &BTreeMap<u32, v1::FrameReport>,
    system: &System,
) -> Result<FrameBlocks, String> {
    let mut blocks = FrameBlocks::new(system.irs_count());
    for sequence in &entry.reports {
        let message = reports
            .get(sequence)
            .cloned()
            .ok_or_else(|| format!("report {sequence} of frame {} is missing", entry.frame))?;
        let node = sender(&message);
        let report = report_from_wire(message, node, system).map_err(|error| error.to_string())?;
        for (k, path) in report.paths {
            if blocks.path(node, k).is_none() {
                blocks.insert(node, k, report.node, path);
            }
        }
    }
    Ok(blocks)
}

/// The node that sent a report. Recordings made before it was stored leave only its first block to go by, which may
/// have claimed to be another node's.
fn sender(report: &v1::FrameReport) -> usize {
    let claimed = || report.blocks.first().map_or(0, |block| block.l);
    report.recorded_node.unwrap_or_else(claimed) as usize
}

/// Drops reports that no later frame can be made of: those long before this frame's.
fn forget(entry: &FrameEntry, reports: &mut BTreeMap<u32, v1::FrameReport>) {
    if let Some(first) = entry.reports.iter().min() {
        *reports = reports.split_off(&first.saturating_sub(4096));
    }
}
