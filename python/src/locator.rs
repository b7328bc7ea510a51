//! From echoes or reports to fixes: the estimators of the nodes and the solver of the fusion center.

use std::sync::Arc;

use estimation::delay::{DelayEstimator, DelaySettings, NodeDelays, Statistic};
use estimation::fusion::{FrameBlocks, PayloadKind};
use fusion_center::fix::{FixRecord, Source};
use fusion_center::method::{MOST_FRAMES, MethodSettings, method};
use fusion_center::solve::{Earlier, Kept, Solver, solve};
use model::{CMatrix, System};
use proto::convert::{FrameId, MOST_AVERAGED_FRAMES, PayloadFormat, Times, report_from_wire, report_message};
use proto::samples::Precision;
use pyo3::prelude::*;
use rayon::prelude::*;
use settings::check::{Checked, named, within};

use crate::arrays::{EchoArray, EchoView};
use crate::blocks::BlocksHandle;
use crate::errors::ErrorKind;
use crate::fixes::FixesHandle;
use crate::site::SiteHandle;
use crate::work::{Cancelled, detached};

/// Estimators of all nodes and the solver, made once per site.
#[pyclass(name = "LocatorHandle", module = "hyloc._hyloc", frozen)]
pub struct LocatorHandle {
    system: Arc<System>,
    nodes: Vec<DelayEstimator>,
    solver: Solver,
    kind: PayloadKind,
    /// None where matrices are passed on as they are.
    precision: Option<Precision>,
    frames_per_fix: usize,
}

/// The settings as Python states them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct LocatorSettings {
    method: String,
    payload: Option<String>,
    precision: Option<String>,
    max_targets: i64,
    frames_per_fix: i64,
    batch_frames: i64,
    false_alarm_probability: f64,
}

/// A setting that was read, or the sentence that refuses it.
fn read<T>(name: &str, text: &str, check: impl Fn(&str) -> Checked<T>) -> PyResult<T> {
    check(text).map_err(|allowed| ErrorKind::Argument.error(format!("{name} = {text}: {allowed}")))
}

impl LocatorSettings {
    fn method(&self) -> PyResult<MethodSettings> {
        let most = estimation::direct::MOST_TARGETS;
        let probability = self.false_alarm_probability;
        Ok(MethodSettings {
            method: read("method", &self.method, method)?,
            max_targets: read("max_targets", &self.max_targets.to_string(), within(1, most))?,
            batch_frames: read("batch_frames", &self.batch_frames.to_string(), within(1, MOST_FRAMES))?,
            false_alarm_probability: read(
                "false_alarm_probability",
                &probability.to_string(),
                within(1e-12, 1.0),
            )?,
            ..MethodSettings::default()
        })
    }

    fn payload(&self) -> PyResult<Option<PayloadKind>> {
        let check = named::<PayloadKind>("parameters, block or spectrum");
        self.payload.as_ref().map(|text| read("payload", text, &check)).transpose()
    }

    fn precision(&self) -> PyResult<Option<Precision>> {
        let check = named::<Precision>("f64, f32, q16, q8, q4 or q2");
        self.precision.as_ref().map(|text| read("precision", text, &check)).transpose()
    }
}

impl LocatorHandle {
    fn check_shape(&self, shape: &[usize]) -> PyResult<()> {
        let system = &self.system;
        let expected = [system.irs_count(), system.sensors(), system.subcarriers];
        if shape[1..] != expected {
            let [nodes, sensors, subcarriers] = expected;
            return Err(ErrorKind::Argument.error(format!(
                "the echoes are {} x {} x {} x {}, expected frames x {nodes} nodes x {sensors} sensors x {subcarriers} subcarriers",
                shape[0], shape[1], shape[2], shape[3]
            )));
        }
        Ok(())
    }

    /// What the nodes report about the group of frames `group`.
    fn report(
        &self,
        echoes: EchoView<'_>,
        start: u64,
        group: usize,
    ) -> Result<(FrameId, FrameBlocks), String> {
        let first = group * self.frames_per_fix;
        let last = (first + self.frames_per_fix).min(echoes.shape()[0]);
        let id = FrameId { run: 0, frame: start.saturating_add(first as u64) };
        let mut blocks = FrameBlocks::new(self.system.irs_count());
        for (node, estimator) in self.nodes.iter().enumerate() {
            let frames: Vec<CMatrix> = (first..last).filter_map(|f| echoes.matrix(f, node)).collect();
            if frames.is_empty() {
                continue;
            }
            let delays = estimator
                .estimate_timed(&frames, None)
                .map_err(|error| format!("frame {}, node {node}: {error}", id.frame))?;
            self.insert(&mut blocks, id, node, delays)?;
        }
        Ok((id, blocks))
    }

    /// Adds the report of a node, quantised as on the wire if a precision is set.
    fn insert(
        &self,
        blocks: &mut FrameBlocks,
        id: FrameId,
        node: usize,
        delays: NodeDelays,
    ) -> Result<(), String> {
        let Some(precision) = self.precision else {
            blocks.insert_node(node, delays, self.kind);
            return Ok(());
        };
        let format = PayloadFormat { kind: self.kind, precision };
        let message = report_message(id, node, &delays, format, Times::default());
        let report = report_from_wire(message, node, &self.system).map_err(|error| error.to_string())?;
        for (k, path) in report.paths {
            blocks.insert(node, k, report.node, path);
        }
        Ok(())
    }

    fn solve_one(&self, id: FrameId, kept: &Kept, earlier: &Earlier) -> FixRecord {
        solve(&self.solver, id, kept, earlier, None, Source::Simulated).record
    }

    /// Solves frames in any order on all threads; a fix depends only on its frame and the earlier ones of its batch.
    fn solve_all(&self, frames: Vec<(FrameId, FrameBlocks)>, cancelled: &Cancelled) -> Vec<FixRecord> {
        let kept = frames.into_iter().map(|(id, blocks)| (id, Arc::new(Kept::new(blocks))));
        let kept: Vec<(FrameId, Arc<Kept>)> = kept.collect();
        let batch = self.solver.batch_frames().max(1);
        let solve = |i: usize| {
            if cancelled.get() {
                return None;
            }
            let (id, frame) = &kept[i];
            let before = kept[i.saturating_sub(batch - 1)..i].iter();
            let near = before.filter(|(other, _)| {
                other.run == id.run && other.frame < id.frame && id.frame - other.frame < batch as u64
            });
            let earlier = near.map(|(other, kept)| (other.frame, kept.clone())).collect();
            Some(self.solve_one(*id, frame, &earlier))
        };
        (0..kept.len()).into_par_iter().filter_map(solve).collect()
    }

    fn groups(&self, frames: usize) -> usize {
        frames.div_ceil(self.frames_per_fix)
    }
}

#[pymethods]
impl LocatorHandle {
    #[new]
    fn new(py: Python<'_>, site: &SiteHandle, settings: LocatorSettings) -> PyResult<Self> {
        let method = settings.method()?;
        let system = site.system.clone();
        let kind = settings.payload()?.unwrap_or_else(|| method.payload(&system).kind);
        let precision = settings.precision()?;
        let most = i64::from(MOST_AVERAGED_FRAMES);
        let frames = settings.frames_per_fix.to_string();
        let frames_per_fix = read("frames_per_fix", &frames, within(1, most))? as usize;
        let delays = DelaySettings {
            statistic: Statistic::Illuminated,
            frames: frames_per_fix,
            ..DelaySettings::default()
        };
        let built = detached(py, |_| {
            let node = |l| DelayEstimator::with_settings(&system, l, delays.clone());
            let nodes = (0..system.irs_count()).into_par_iter().map(node).collect::<Result<Vec<_>, _>>();
            let nodes = nodes.map_err(|error| error.to_string())?;
            Ok((nodes, Solver::new(&system, &method).map_err(|error| error.to_string())?))
        })?;
        let (nodes, solver) = built.map_err(|reason: String| ErrorKind::Scenario.error(reason))?;
        Ok(Self { system, nodes, solver, kind, precision, frames_per_fix })
    }

    #[getter]
    fn payload(&self) -> &'static str {
        self.kind.name()
    }

    /// Fixes of echoes, frames x K x M x L, whose first frame has the number `start`.
    fn locate(&self, py: Python<'_>, echoes: EchoArray<'_>, start: u64) -> PyResult<FixesHandle> {
        let view = echoes.view();
        self.check_shape(view.shape())?;
        let batches = self.solver.batch_frames() > 1;
        let records = detached(py, |cancelled| {
            let groups = (0..self.groups(view.shape()[0])).into_par_iter();
            let report = |group: usize| (!cancelled.get()).then(|| self.report(view, start, group));
            if batches {
                let frames = groups.filter_map(report).collect::<Result<Vec<_>, String>>()?;
                return Ok(self.solve_all(frames, cancelled));
            }
            let located = |group: usize| {
                let solved = |(id, blocks)| self.solve_one(id, &Kept::new(blocks), &Earlier::new());
                Some(report(group)?.map(solved))
            };
            groups.filter_map(located).collect::<Result<Vec<_>, String>>()
        })?;
        let records = records.map_err(|reason| ErrorKind::Argument.error(reason))?;
        Ok(FixesHandle { records, axes: self.system.axes().len() })
    }

    /// What the nodes report about these echoes.
    fn report_all(&self, py: Python<'_>, echoes: EchoArray<'_>, start: u64) -> PyResult<BlocksHandle> {
        let view = echoes.view();
        self.check_shape(view.shape())?;
        let frames = detached(py, |cancelled| {
            let report = |group: usize| (!cancelled.get()).then(|| self.report(view, start, group));
            (0..self.groups(view.shape()[0]))
                .into_par_iter()
                .filter_map(report)
                .collect::<Result<Vec<_>, String>>()
        })?;
        let frames = frames.map_err(|reason| ErrorKind::Argument.error(reason))?;
        Ok(BlocksHandle { system: self.system.clone(), frames })
    }

    /// Fixes of reports.
    fn locate_blocks(&self, py: Python<'_>, blocks: &BlocksHandle) -> PyResult<FixesHandle> {
        let (found, expected) = (blocks.system.irs_count(), self.system.irs_count());
        if found != expected {
            let reason =
                format!("the reports are of {found} nodes, and the site of the locator has {expected}");
            return Err(ErrorKind::Argument.error(reason));
        }
        let records = detached(py, |cancelled| self.solve_all(blocks.frames.clone(), cancelled))?;
        Ok(FixesHandle { records, axes: self.system.axes().len() })
    }
}
