//! A recording fed to the solver again: the same blocks in the same frames, so the same fixes, bit for bit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use estimation::fusion::{FrameBlocks, Fuser};
use mcap::MessageStream;
use model::{Point, System};
use prost::Message;
use proto::clock::unix_time_ns;
use proto::convert::{FrameId, report_from_wire};
use proto::scenario::SharedScenario;
use proto::v1;

use crate::fix::Source;
use crate::method::MethodSettings;
use crate::publish::Publisher;
use crate::recording::{
    BLOCKS_FILE, FRAMES, FrameEntry, METHOD_FILE, REPORTS, RecordingError, SCENARIO_FILE, TRUTH, TruthEntry,
};
use crate::solve::{Earlier, History, solve};
use crate::statistics::Figures;
use crate::truth::TruthBook;

/// Replays the recording in `directory`; one JSON line per fix goes to `log`. `progress` is told the frames so far.
pub fn replay(
    directory: &Path,
    log: Option<&Path>,
    mut progress: impl FnMut(u64),
) -> Result<Figures, RecordingError> {
    let path = directory.join(BLOCKS_FILE);
    let content = |problem: String| RecordingError::Content { path: path.clone(), problem };
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| RecordingError::File { path: path.to_path_buf(), source })
    };
    let scenario = String::from_utf8_lossy(&read(&directory.join(SCENARIO_FILE))?).into_owned();
    let scenario: model::Scenario = toml::from_str(&scenario).map_err(|error| content(error.to_string()))?;
    let scenario = SharedScenario::new(scenario).map_err(|error| content(error.to_string()))?;
    let system = System::new(&scenario.scenario).map_err(|error| content(error.to_string()))?;
    // Without the file, as by default.
    let method = std::fs::read_to_string(directory.join(METHOD_FILE)).unwrap_or_default();
    let method: MethodSettings = toml::from_str(&method).map_err(|error| content(error.to_string()))?;
    let fuser = Fuser::new(system.clone(), method.fusion()).map_err(|error| content(error.to_string()))?;
    let bytes = read(&path)?;

    let truth = TruthBook::default();
    let (publisher, thread) = Publisher::start(Arc::new(system), truth.clone(), log)
        .map_err(|source| RecordingError::File { path: directory.to_path_buf(), source })?;
    let viewer = publisher.viewer();
    let mut reports: BTreeMap<u32, v1::FrameReport> = BTreeMap::new();
    let mut frames = 0;
    let container = |source| RecordingError::Container { path: path.clone(), source };
    let mut truths: BTreeMap<FrameId, Point> = entries(&bytes, TRUTH, |entry: TruthEntry| {
        (FrameId { run: entry.run, frame: entry.frame }, Point::from(entry.position_m))
    })
    .map_err(content)?;
    let batches = method.batch_frames > 1;
    // A frame may have been solved before an earlier one of its batch was.
    let all_frames: BTreeMap<FrameId, FrameEntry> = if batches {
        entries(&bytes, FRAMES, |entry: FrameEntry| (FrameId { run: entry.run, frame: entry.frame }, entry))
            .map_err(content)?
    } else {
        BTreeMap::new()
    };
    let mut history = History::new(2 * method.batch_frames);
    for message in MessageStream::new(&bytes).map_err(container)? {
        let message = message.map_err(container)?;
        match message.channel.topic.as_str() {
            REPORTS => {
                let report = v1::FrameReport::decode(message.data.as_ref())
                    .map_err(|error| content(error.to_string()))?;
                reports.insert(message.sequence, report);
            }
            FRAMES => {
                let entry: FrameEntry =
                    serde_json::from_slice(&message.data).map_err(|error| content(error.to_string()))?;
                let frame = FrameId { run: entry.run, frame: entry.frame };
                let made = blocks(&entry, &reports, fuser.system()).map_err(content)?;
                let earlier: Earlier = entry
                    .earlier
                    .iter()
                    .map(|number| {
                        let id = FrameId { frame: *number, ..frame };
                        if let Some(known) = history.get(id) {
                            return Ok((*number, known));
                        }
                        let entry = all_frames
                            .get(&id)
                            .ok_or_else(|| format!("frame {number} of a batch is missing"))?;
                        Ok((*number, Arc::new(blocks(entry, &reports, fuser.system())?)))
                    })
                    .collect::<Result<_, String>>()
                    .map_err(content)?;
                let solved = solve(&fuser, frame, &made, &earlier, Source::Replayed);
                if batches {
                    history.keep(frame, Arc::new(made));
                }
                forget(&entry, &mut reports);
                if let Some(truth_m) = truths.remove(&frame) {
                    truth.insert(frame, truth_m);
                }
                let mut record = solved.record;
                record.timing.time_ns = unix_time_ns();
                record.timing.angles_ms = solved.angles.as_secs_f64() * 1e3;
                record.timing.locate_ms = solved.locate.as_secs_f64() * 1e3;
                record.timing.fusion_ms = record.timing.angles_ms + record.timing.locate_ms;
                publisher.publish_blocking(record);
                frames += 1;
                progress(frames);
            }
            _ => {}
        }
    }
    drop(publisher);
    thread.finish().map_err(|source| RecordingError::File { path: directory.to_path_buf(), source })?;
    Ok(viewer.figures())
}

/// All entries of a JSON channel: a truth may have been written a little after its frame.
fn entries<E: serde::de::DeserializeOwned, T>(
    bytes: &[u8],
    topic: &str,
    keyed: impl Fn(E) -> (FrameId, T),
) -> Result<BTreeMap<FrameId, T>, String> {
    let mut entries = BTreeMap::new();
    for message in MessageStream::new(bytes).map_err(|error| error.to_string())? {
        let message = message.map_err(|error| error.to_string())?;
        if message.channel.topic == topic {
            let entry = serde_json::from_slice(&message.data).map_err(|error| error.to_string())?;
            let (frame, value) = keyed(entry);
            entries.insert(frame, value);
        }
    }
    Ok(entries)
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
        let node = message.blocks.first().map_or(0, |block| block.l as usize);
        let report = report_from_wire(message, node, system).map_err(|error| error.to_string())?;
        for (k, path) in report.paths {
            if blocks.path(node, k).is_none() {
                blocks.insert(node, k, report.node, path);
            }
        }
    }
    Ok(blocks)
}

/// Drops reports that no later frame can be made of: those long before this frame's.
fn forget(entry: &FrameEntry, reports: &mut BTreeMap<u32, v1::FrameReport>) {
    if let Some(first) = entry.reports.iter().min() {
        *reports = reports.split_off(&first.saturating_sub(4096));
    }
}
