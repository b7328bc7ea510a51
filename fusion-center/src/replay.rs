//! A recording fed to the solver again: the same blocks in the same frames, so the same fixes, bit for bit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use estimation::fusion::{FrameBlocks, Fuser, FusionSettings};
use mcap::MessageStream;
use model::{Point, System};
use prost::Message;
use proto::clock::unix_time_ns;
use proto::convert::{FrameId, report_from_wire};
use proto::scenario::SharedScenario;
use proto::v1;

use crate::fix::Source;
use crate::publish::Publisher;
use crate::recording::{
    BLOCKS_FILE, FRAMES, FrameEntry, REPORTS, RecordingError, SCENARIO_FILE, TRUTH, TruthEntry,
};
use crate::solve::solve;
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
    let fuser =
        Fuser::new(system.clone(), FusionSettings::default()).map_err(|error| content(error.to_string()))?;
    let bytes = read(&path)?;

    let truth = TruthBook::default();
    let (publisher, thread) = Publisher::start(Arc::new(system), truth.clone(), log)
        .map_err(|source| RecordingError::File { path: directory.to_path_buf(), source })?;
    let viewer = publisher.viewer();
    let mut reports: BTreeMap<u32, v1::FrameReport> = BTreeMap::new();
    let mut frames = 0;
    let container = |source| RecordingError::Container { path: path.clone(), source };
    let mut truths = truths(&bytes).map_err(content)?;
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
                let blocks = blocks(&entry, &mut reports, fuser.system()).map_err(content)?;
                let solved = solve(&fuser, frame, &blocks, Source::Replayed);
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

/// The truth of all frames: it may have been written a little after the frame.
fn truths(bytes: &[u8]) -> Result<BTreeMap<FrameId, Point>, String> {
    let mut truths = BTreeMap::new();
    for message in MessageStream::new(bytes).map_err(|error| error.to_string())? {
        let message = message.map_err(|error| error.to_string())?;
        if message.channel.topic == TRUTH {
            let entry: TruthEntry =
                serde_json::from_slice(&message.data).map_err(|error| error.to_string())?;
            truths.insert(FrameId { run: entry.run, frame: entry.frame }, Point::from(entry.position_m));
        }
    }
    Ok(truths)
}

/// The blocks of a frame, put together as they were: the first of a path wins.
fn blocks(
    entry: &FrameEntry,
    reports: &mut BTreeMap<u32, v1::FrameReport>,
    system: &System,
) -> Result<FrameBlocks, String> {
    let mut blocks = FrameBlocks::new(system.irs_count());
    for sequence in &entry.reports {
        let message = reports
            .remove(sequence)
            .ok_or_else(|| format!("report {sequence} of frame {} is missing", entry.frame))?;
        let node = message.blocks.first().map_or(0, |block| block.l as usize);
        let report = report_from_wire(message, node, system).map_err(|error| error.to_string())?;
        for (k, path) in report.paths {
            if blocks.path(node, k).is_none() {
                blocks.insert(node, k, report.noise_power_w, path);
            }
        }
    }
    // Reports that went into no frame (late, shed) are not needed any more.
    if let Some(first) = entry.reports.iter().min() {
        let kept = reports.split_off(&first.saturating_sub(4096));
        *reports = kept;
    }
    Ok(blocks)
}
