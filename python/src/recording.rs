//! Recordings as arrays: fixes, reports and truth.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use estimation::fusion::FrameBlocks;
use fusion_center::fix::FixRecord;
use fusion_center::recorded::{FrameEntry, RecordedEntry, RecordedReport, Recording, TrueFrame};
use fusion_center::replay::replay;
use model::System;
use numpy::{PyArray1, PyArray2};
use proto::convert::FrameId;
use pyo3::prelude::*;

use crate::arrays::array;
use crate::blocks::BlocksHandle;
use crate::errors::{ErrorKind, of_recording};
use crate::fixes::FixesHandle;
use crate::site::SiteHandle;
use crate::wire::record_of_wire;
use crate::work::{Cancelled, detached};

/// Reports that are kept for the frames that name them.
const MOST_WAITING: usize = 8192;

/// A recording that was read.
#[pyclass(name = "RecordingHandle", module = "hyloc._hyloc", frozen)]
pub struct RecordingHandle {
    pub system: Arc<System>,
    method: String,
    fixes: Vec<FixRecord>,
    frames: Vec<(FrameId, FrameBlocks)>,
    pub truths: BTreeMap<FrameId, TrueFrame>,
    faults: Vec<String>,
}

impl RecordingHandle {
    fn read(directory: &Path, cancelled: &Cancelled) -> Result<Self, PyErr> {
        let recording = Recording::open(directory).map_err(|error| of_recording(&error))?;
        let mut read = Self {
            system: Arc::new(recording.system().clone()),
            method: toml::to_string(recording.method()).unwrap_or_default(),
            fixes: Vec::new(),
            frames: Vec::new(),
            truths: BTreeMap::new(),
            faults: recording.damage().to_vec(),
        };
        let mut reports: BTreeMap<u32, RecordedReport> = BTreeMap::new();
        for entry in recording.entries().map_err(|error| of_recording(&error))? {
            if cancelled.get() {
                break;
            }
            match entry.map_err(|error| of_recording(&error))?.1 {
                RecordedEntry::Report(report) => {
                    reports.insert(report.sequence, *report);
                    if reports.len() > MOST_WAITING {
                        reports.pop_first();
                    }
                }
                RecordedEntry::Frame(frame) => match assembled(&frame, &reports, read.system.irs_count()) {
                    Ok(blocks) => read.frames.push((frame.frame_id(), blocks)),
                    Err(fault) => read.faults.push(fault),
                },
                RecordedEntry::Truth(frame, told) => drop(read.truths.insert(frame, told)),
                RecordedEntry::Fix(fix) => read.fixes.push(record_of_wire(*fix)),
                RecordedEntry::Hole(hole) => read.faults.push(hole.to_string()),
                RecordedEntry::Fault(fault) => read.faults.push(fault),
            }
        }
        if read.fixes.is_empty() && !read.frames.is_empty() && !cancelled.get() {
            read.fixes = replayed(directory)?;
        }
        Ok(read)
    }
}

/// The received paths of a frame; of several reports of a path, the first counts.
fn assembled(
    entry: &FrameEntry,
    reports: &BTreeMap<u32, RecordedReport>,
    nodes: usize,
) -> Result<FrameBlocks, String> {
    let mut blocks = FrameBlocks::new(nodes);
    for sequence in &entry.reports {
        let frame = entry.frame;
        let RecordedReport { node, report, .. } =
            reports.get(sequence).ok_or_else(|| format!("report {sequence} of frame {frame} is missing"))?;
        for (k, path) in &report.paths {
            if blocks.path(*node, *k).is_none() {
                blocks.insert(*node, *k, report.node, path.clone());
            }
        }
    }
    Ok(blocks)
}

/// The fixes of a recording that has none, as a replay makes them.
fn replayed(directory: &Path) -> Result<Vec<FixRecord>, PyErr> {
    let failed = |error: io::Error| ErrorKind::Internal.error(error);
    let folder = tempfile::tempdir().map_err(failed)?;
    let log = folder.path().join("fixes.jsonl");
    replay(directory, Some(&log), |_| {})
        .map_err(|error| ErrorKind::Recording.error(format!("{error:#}")))?;
    let text = std::fs::read_to_string(&log).map_err(failed)?;
    let records = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    records.map_err(|error| ErrorKind::Recording.error(error))
}

/// Run, frame, identity, position and cross-section of true targets.
type TruthColumns<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray1<f64>>,
);

#[pymethods]
impl RecordingHandle {
    #[new]
    fn new(py: Python<'_>, directory: PathBuf) -> PyResult<Self> {
        detached(py, |cancelled| Self::read(&directory, cancelled))?
    }

    #[getter]
    fn site(&self) -> SiteHandle {
        SiteHandle { system: self.system.clone() }
    }

    /// The settings of the solver, as TOML.
    #[getter]
    fn method(&self) -> &str {
        &self.method
    }

    #[getter]
    fn faults(&self) -> Vec<String> {
        self.faults.clone()
    }

    fn fixes(&self) -> FixesHandle {
        FixesHandle { records: self.fixes.clone(), axes: self.system.axes().len() }
    }

    fn blocks(&self) -> BlocksHandle {
        BlocksHandle { system: self.system.clone(), frames: self.frames.clone() }
    }

    fn truth<'py>(&self, py: Python<'py>) -> PyResult<TruthColumns<'py>> {
        let all =
            self.truths.iter().flat_map(|(id, told)| told.targets.iter().map(move |target| (id, target)));
        let all: Vec<_> = all.collect();
        let count = all.len();
        let places = all.iter().flat_map(|(_, target)| <[f64; 3]>::from(target.position_m.point()));
        Ok((
            array(py, [count], all.iter().map(|(id, _)| id.run).collect())?,
            array(py, [count], all.iter().map(|(id, _)| id.frame as i64).collect())?,
            array(py, [count], all.iter().map(|(_, target)| target.identity as i64).collect())?,
            array(py, [count, 3], places.collect())?,
            array(py, [count], all.iter().map(|(_, target)| target.rcs_m2).collect())?,
        ))
    }
}
