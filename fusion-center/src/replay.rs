//! Replays a recording: solves the same paths in the same frames and gives the same fixes, bit for bit.
//!
//! The file is read as a stream, once for the truth (which may have been written shortly after its frame) and once
//! for the reports: memory does not grow with it, except for the truth's 40 bytes per frame. A truncated recording,
//! such as that of a process that was killed, is replayed up to its end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use estimation::fusion::FrameBlocks;
use mcap::io::MessageReader;
use model::System;
use prost::Message;
use proto::convert::{FrameId, report_from_wire};
use proto::site::SharedSite;
use proto::v1;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::fix::Source;
use crate::method::MethodSettings;
use crate::publish::{Outgoing, Publisher};
use crate::recording::{
    BLOCKS_FILE, FRAMES, FrameEntry, METHOD_FILE, REPORTS, RecordingError, SCENARIO_FILE, SITE_FILE, TRUTH,
    TruthEntry,
};
use crate::solve::{Earlier, History, Kept, Solver, solve};
use crate::statistics::Figures;
use crate::truth::{TrueTarget, TruthStore};

#[derive(Debug)]
pub struct Replayed {
    pub figures: Figures,
    /// Why the recording could not be read to its end.
    pub broken: Option<RecordingError>,
}

/// Replays the recording in `directory`; writes one JSON line per fix to `log`, until its reader leaves. `progress` is
/// called with the number of frames so far.
pub fn replay(
    directory: &Path,
    log: Option<&Path>,
    mut progress: impl FnMut(u64),
) -> anyhow::Result<Replayed> {
    let recording = Recording(directory.join(BLOCKS_FILE));
    let system = site(directory)?;
    let method = method(&directory.join(METHOD_FILE))?;
    let solver = Solver::new(&system, &method).map_err(|error| recording.content(error))?;
    let system = Arc::new(system);
    let mut solver = ReplaySolver::new(&recording, system.clone(), solver)?;

    let (truth, stop) = (TruthStore::default(), CancellationToken::new());
    let (publisher, thread) = Publisher::start(system, truth.clone(), log, stop.clone())?;
    let viewer = publisher.viewer();
    let (mut frames, mut broken) = (0, None);
    for message in recording.messages()?.take_while(|_| !stop.is_cancelled()) {
        let outgoing = match message {
            Ok(message) => solver.take(&message).map_err(|problem| recording.content(problem))?,
            // Frames before the error are valid; without any, the file is not a recording.
            Err(error) if frames > 0 => {
                broken = Some(error);
                break;
            }
            Err(error) => return Err(error.into()),
        };
        let Some(outgoing) = outgoing else { continue };
        for frame in outgoing.solved.basis.frames() {
            if let Some(target) = solver.truths.remove(&frame) {
                truth.insert(frame, target);
            }
        }
        publisher.publish_blocking(outgoing);
        frames += 1;
        progress(frames);
    }
    drop(publisher);
    thread.finish()?;
    Ok(Replayed { figures: viewer.figures(), broken })
}

/// The site of a recording. Older recordings contain the scenario instead.
fn site(directory: &Path) -> Result<System, RecordingError> {
    let (path, scenario) = (directory.join(SITE_FILE), directory.join(SCENARIO_FILE));
    if !path.exists() && scenario.exists() {
        let loaded = settings::load_site_of_file(&scenario);
        return loaded.map_err(|error| RecordingError::content(&scenario, error));
    }
    let bytes = std::fs::read(&path).map_err(RecordingError::file(&path))?;
    let site = SharedSite::decode(&bytes);
    site.map(|site| site.system).map_err(|error| RecordingError::content(&path, error))
}

/// The settings in `path`; the defaults if there is no such file.
fn method(path: &Path) -> Result<MethodSettings, RecordingError> {
    if !path.exists() {
        return Ok(MethodSettings::default());
    }
    let text = std::fs::read_to_string(path).map_err(RecordingError::file(path))?;
    toml::from_str(&text).map_err(|error| RecordingError::content(path, error))
}

/// The MCAP file.
struct Recording(PathBuf);

impl Recording {
    fn content(&self, problem: impl ToString) -> RecordingError {
        RecordingError::content(&self.0, problem)
    }

    /// All messages up to the first that cannot be read, and its error.
    fn messages(
        &self,
    ) -> Result<impl Iterator<Item = Result<mcap::Message<'static>, RecordingError>>, RecordingError> {
        let file = File::open(&self.0).map_err(RecordingError::file(&self.0))?;
        let container = |error| RecordingError::container(&self.0, error);
        Ok(MessageReader::new(BufReader::new(file)).map(move |message| message.map_err(container)))
    }

    /// All entries of a JSON channel up to the first message that cannot be read.
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

/// Assembles and solves frames from the messages of a recording.
struct ReplaySolver {
    system: Arc<System>,
    solver: Solver,
    reports: BTreeMap<u32, v1::FrameReport>,
    truths: BTreeMap<FrameId, TrueTarget>,
    /// With batches: a frame may have been solved before an earlier one of its batch.
    all_frames: Option<BTreeMap<FrameId, FrameEntry>>,
    history: History,
}

impl ReplaySolver {
    fn new(recording: &Recording, system: Arc<System>, solver: Solver) -> Result<Self, RecordingError> {
        let truths = recording.entries(TRUTH, |entry: TruthEntry| {
            let target = TrueTarget { position_m: entry.position_m.into(), rcs_m2: entry.rcs_m2 };
            (FrameId { run: entry.run, frame: entry.frame }, target)
        })?;
        let by_frame = |entry: FrameEntry| (FrameId { run: entry.run, frame: entry.frame }, entry);
        let batch_frames = solver.batch_frames();
        let batches = batch_frames > 1;
        let all_frames = batches.then(|| recording.entries(FRAMES, by_frame)).transpose()?;
        let history = History::new(2 * batch_frames);
        Ok(Self { system, solver, reports: BTreeMap::new(), truths, all_frames, history })
    }

    /// Takes a message; returns a fix if it is a frame.
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
        let frame = |number: &u64| {
            let id = FrameId { run: entry.run, frame: *number };
            if let Some(known) = self.history.get(id) {
                return Ok((*number, known));
            }
            let entry = self.all_frames.as_ref().and_then(|frames| frames.get(&id));
            let entry = entry.ok_or_else(|| format!("frame {number} of a batch is missing"))?;
            Ok((*number, self.assemble(entry)?))
        };
        entry.earlier.iter().map(frame).collect()
    }

    /// Assembles a frame as the assembler did: of several reports of a path, the first counts.
    fn assemble(&self, entry: &FrameEntry) -> Result<Arc<Kept>, String> {
        let system = &self.system;
        let mut blocks = FrameBlocks::new(system.irs_count());
        for sequence in &entry.reports {
            let message = self
                .reports
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
        Ok(Arc::new(Kept::new(blocks)))
    }
}

/// The node that sent a report. Older recordings do not contain it; then it is taken from the first block, which may
/// claim to be of another node.
fn sender(report: &v1::FrameReport) -> usize {
    let claimed = || report.blocks.first().map_or(0, |block| block.l);
    report.recorded_node.unwrap_or_else(claimed) as usize
}
