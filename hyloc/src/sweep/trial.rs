//! One trial: a frame of a scenario through the whole chain in this process, compared with its truth and its exact bound.
//!
//! Trial t is frame t of the scenario (or the first frame of its t-th coherent interval), so that it is the same frame as in a
//! live run, whichever thread or machine makes it. Reports pass the messages of the wire, which quantise them. The direct method reads
//! nothing but spectra, so that nodes estimate no delays for it; this is most of what makes a sweep faster than a live run.

use estimation::delay::{DelayEstimate, DelayEstimator, NodeDelays};
use estimation::fusion::{Estimator, FrameBlocks, FusedFix, Fuser, Method, PayloadKind};
use estimation::location::Status;
use model::{CMatrix, EchoSource, Gain, Information, Scheme, Score, System, TrueTarget, joint_crb_m2};
use nalgebra::DVector;
use proto::convert::{FrameId, PayloadFormat, Times, report_from_wire, report_message};
use serde::{Deserialize, Serialize};
use tracking::{Gospa, GospaSettings, gospa};

use super::plan::GridPoint;

/// A target that was found, beside the truth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct JudgedFix {
    pub squared_m2: f64,
    /// Trace of the exact bound; none where the position cannot be determined.
    pub bound_m2: Option<f64>,
    pub nees: Option<f64>,
}

/// The outcome of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialOutcome {
    /// Targets that are there, and targets that were found.
    pub targets: u32,
    pub found: u32,
    /// Whether the first fix is nominal, and whether it is doubtful.
    pub nominal: bool,
    pub doubtful: bool,
    /// The targets that were found, strongest first; of several those within the cut-off of GOSPA.
    pub fixes: Vec<JudgedFix>,
    /// GOSPA (p = 2, c = 2 m), and the square of its part for localisation.
    pub gospa_m: f64,
    pub localisation_m2: f64,
    pub missed: u32,
    pub wrong: u32,
}

/// The chain of one point of the grid.
pub struct TrialChain {
    source: EchoSource,
    /// None where spectra alone are needed.
    nodes: Option<Vec<DelayEstimator>>,
    fuser: Fuser,
    format: PayloadFormat,
    /// Frames per trial.
    interval: u64,
    /// Whether the bound is that of one target, which needs no gains.
    one: bool,
}

impl TrialChain {
    pub fn new(point: &GridPoint) -> anyhow::Result<Self> {
        let source = EchoSource::new(&point.scenario)?;
        let fuser = Fuser::new(source.system().clone(), point.method.fusion())?;
        let spectra_alone =
            fuser.settings().method == Method::Direct && point.format.kind == PayloadKind::Spectrum;
        let nodes = (!spectra_alone).then(|| crate::figures::nodes(source.system())).transpose()?;
        let interval = point.scenario.signal.coherent_frames;
        let one = point.scenario.targets.len() == 1 && fuser.settings().max_targets == 1;
        Ok(Self { source, nodes, fuser, format: point.format, interval, one })
    }

    /// Number of free coordinates, the mean of a consistent NEES.
    pub fn dimensions(&self) -> usize {
        self.source.system().axes().len()
    }

    /// Passes a frame through the chain.
    pub fn run(&self, trial: u64) -> anyhow::Result<TrialOutcome> {
        let frame = trial * self.interval;
        let targets = self.source.targets(frame);
        let blocks = self.received(frame, &targets)?;
        // A frame without a fix is an outcome, not a failure.
        let fixes = self.fuser.estimate(&blocks).unwrap_or_default();
        self.judged(frame, &targets, &fixes)
    }

    /// What the fusion center receives of a frame.
    fn received(&self, frame: u64, targets: &[TrueTarget]) -> anyhow::Result<FrameBlocks> {
        let system = self.source.system();
        let mut blocks = FrameBlocks::new(system.irs_count());
        for l in 0..system.irs_count() {
            let echoes = self.source.frame_of(l, frame, targets);
            let delays = match &self.nodes {
                Some(nodes) => nodes[l].estimate(&echoes)?,
                None => spectra(system, &echoes),
            };
            let id = FrameId { run: 0, frame };
            let message = report_message(id, l, &delays, self.format, Times::default());
            let report = report_from_wire(message, l, system)?;
            for (k, path) in report.paths {
                blocks.insert(l, k, report.node, path);
            }
        }
        Ok(blocks)
    }

    /// Compares fixes with the truth. A single target is compared with the first fix however far that is.
    fn judged(&self, frame: u64, targets: &[TrueTarget], fixes: &[FusedFix]) -> anyhow::Result<TrialOutcome> {
        let place = |position_m: model::Point| DVector::from_row_slice(position_m.as_slice());
        let truth: Vec<_> = targets.iter().map(|target| place(target.position_m)).collect();
        let found: Vec<_> = fixes.iter().map(|fix| place(fix.position_m)).collect();
        let Gospa { total, localisation, assignments, .. } =
            gospa(&truth, &found, &GospaSettings::default())?;
        let pairs: Vec<(usize, usize)> = match (self.one, targets, fixes) {
            (true, [_], [_, ..]) => vec![(0, 0)],
            _ => assignments.iter().enumerate().filter_map(|(t, fix)| Some((t, (*fix)?))).collect(),
        };
        let bounds = self.bounds_m2(frame, targets);
        let judged = |&(t, f): &(usize, usize)| {
            let fix = &fixes[f];
            let score = Score::new(fix.position_m, &fix.covariance_m2, targets[t].position_m);
            let squared_m2 = score.error_m.powi(2);
            JudgedFix { squared_m2, bound_m2: bounds.get(t).copied().flatten(), nees: score.nees }
        };
        let status = fixes.first().map(|fix| Status::with_cautions(&fix.cautions));
        let missed = assignments.iter().filter(|fix| fix.is_none()).count();
        Ok(TrialOutcome {
            targets: targets.len() as u32,
            found: fixes.len() as u32,
            nominal: status == Some(Status::Nominal),
            doubtful: status == Some(Status::Doubtful),
            fixes: pairs.iter().map(judged).collect(),
            gospa_m: total,
            localisation_m2: localisation,
            missed: missed as u32,
            wrong: (fixes.len() + missed).saturating_sub(targets.len()) as u32,
        })
    }

    /// Traces of the exact bounds on all targets of a frame; the joint bound where there are several.
    fn bounds_m2(&self, frame: u64, targets: &[TrueTarget]) -> Vec<Option<f64>> {
        let system = self.source.system();
        if let [TrueTarget { position_m, rcs_m2, .. }] = targets {
            let information = Information::new(system, *position_m, *rcs_m2, Gain::Unknown);
            return vec![information.position_crb_m2(Scheme::Hybrid).ok().map(|bound| bound.trace())];
        }
        let all: Vec<_> =
            targets.iter().map(|target| (target.position_m, self.source.gains(frame, target))).collect();
        let axes = self.dimensions();
        let bound = joint_crb_m2(system, &all, |_, _| 1.0).ok();
        let own = |t: usize| bound.as_ref().map(|all| all.view((t * axes, t * axes), (axes, axes)).trace());
        (0..targets.len()).map(own).collect()
    }
}

/// The report of a node that estimates no delays: those of its message are not read.
fn spectra(system: &System, echoes: &CMatrix) -> NodeDelays {
    let path = |irs: &model::system::Irs| DelayEstimate {
        delay_s: 0.0,
        delay_variance_s2: 1.0,
        snr: 0.0,
        block: CMatrix::zeros(0, 0),
        block_derivative: CMatrix::zeros(0, 0),
        spectrum: echoes.select_columns(&irs.waveform.subcarriers),
    };
    let paths = system.irs.iter().map(path).collect();
    NodeDelays { paths, arrival: None, noise_power_w: system.noise_power_w, frames: 1 }
}
