//! Assembles and solves the frames of a recording.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use estimation::fusion::FrameBlocks;
use model::System;
use prost::Message;
use proto::convert::{FrameId, max_report_bytes, report_from_wire};
use proto::v1;

use super::comparison::FixComparison;
use crate::channels::{Channels, RecordingChannel};
use crate::container::Entry;
use crate::fix::Source;
use crate::publish::Outgoing;
use crate::recorded::{FrameEntry, HoleEntry, Recording, decode_fix, decode_truth, sender};
use crate::recording::RecordingError;
use crate::solve::{Earlier, History, Kept, Solver, solve};
use crate::told::TrueFrame;

/// Reports that one frame may name.
const MOST_REPORTS: usize = 4096;

/// Assembles and solves frames from the messages of a recording.
pub(super) struct ReplaySolver {
    system: Arc<System>,
    solver: Solver,
    pub(super) channels: Channels,
    /// Encoded, by sequence number.
    reports: BTreeMap<u32, Vec<u8>>,
    /// Largest report of this site.
    most_report_bytes: usize,
    pub(super) truths: BTreeMap<FrameId, TrueFrame>,
    /// With batches: a frame may have been solved before an earlier one of its batch.
    all_frames: Option<BTreeMap<FrameId, FrameEntry>>,
    history: History,
    comparison: FixComparison,
    /// The frame that was solved last.
    last: Option<FrameId>,
    /// Whether messages were lost behind it.
    pub(super) gap: bool,
}

impl ReplaySolver {
    pub(super) fn new(
        recording: &Recording,
        system: Arc<System>,
        solver: Solver,
        comparison: FixComparison,
    ) -> Result<Self, RecordingError> {
        let nodes = system.irs_count();
        let truths = recording.by_frame(RecordingChannel::Truth, |data| decode_truth(data, nodes))?;
        let by_frame = |data: &[u8]| FrameEntry::decode(data).map(|entry| (entry.frame_id(), entry));
        let batch_frames = solver.batch_frames();
        let batches = batch_frames > 1;
        let all_frames =
            batches.then(|| recording.by_frame(RecordingChannel::Frames, by_frame)).transpose()?;
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
            comparison,
            last,
            gap,
        })
    }

    /// Takes an entry; returns a fix if it is a frame, and a description of the frames that are missing before it. An
    /// error says which frame cannot be replayed, and why.
    pub(super) fn take(&mut self, entry: &Entry) -> Result<Option<(Outgoing, Option<String>)>, String> {
        match self.channels.get(entry.channel) {
            Some(RecordingChannel::Reports) if entry.data.len() > self.most_report_bytes => {
                Err(format!("report {} is larger than any of this site", entry.sequence))
            }
            Some(RecordingChannel::Reports) => {
                self.reports.insert(entry.sequence, entry.data.clone());
                Ok(None)
            }
            Some(RecordingChannel::Frames) => {
                let entry = FrameEntry::decode(&entry.data)?;
                let frame = entry.frame_id();
                let outgoing = self.solve(&entry).map_err(|reason| {
                    format!("frame {} of run {} is not replayed: {reason}", frame.frame, frame.run)
                })?;
                let gap = std::mem::take(&mut self.gap).then(|| self.gap_before(frame)).flatten();
                self.last = Some(frame);
                Ok(Some((outgoing, gap)))
            }
            Some(RecordingChannel::Holes) => Err(HoleEntry::decode(&entry.data)?.to_string()),
            Some(RecordingChannel::Fixes) => {
                self.comparison.recorded(decode_fix(&entry.data)?);
                Ok(None)
            }
            _ => Ok(None),
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
    pub(super) fn last_gap(&self) -> Option<String> {
        let last = self.last.filter(|_| self.gap)?;
        Some(format!("frames behind {} of run {} are lost, if there were any", last.frame, last.run))
    }

    fn solve(&mut self, entry: &FrameEntry) -> Result<Outgoing, String> {
        let frame = entry.frame_id();
        let kept = self.assemble(entry)?;
        let earlier = self.earlier(entry)?;
        let clocks = entry.clocks.as_ref().map(|clocks| clocks.prior(self.system.irs_count())).transpose()?;
        let mut solved = solve(&self.solver, frame, &kept, &earlier, clocks.as_ref(), Source::Replayed);
        if let Some(followable) = &mut solved.followable {
            followable.time_s = entry.time_s.ok_or("its time is missing")?;
        }
        if self.all_frames.is_some() {
            self.history.keep(frame, kept);
        }
        // Later frames do not use reports that are long before this frame's.
        if let Some(first) = entry.reports.iter().min() {
            self.reports = self.reports.split_off(&first.saturating_sub(4096));
        }
        Ok(Outgoing { solved, arrivals: None, unwritten: None })
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
