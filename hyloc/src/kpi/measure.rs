//! The pipeline in this process: echo source, one delay estimator per node, fuser; no sockets.

use std::time::{Duration, Instant};

use estimation::delay::DelayEstimator;
use estimation::fusion::{FrameBlocks, FusedFix, Fuser, PayloadKind};
use estimation::location::Status;
use fusion_center::method::MethodSettings;
use model::scenario::{Motion, Target};
use model::{CMatrix, EchoSource, Point, Scenario};

use super::quantile::quantile;

/// Horizontal and vertical distance of a fix from its target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FixError {
    pub horizontal_m: f64,
    pub vertical_m: f64,
}

/// The measurements of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Frames with a target, and as many without.
    pub frames: u64,
    /// Of the targets that gave a fix.
    pub errors: Vec<FixError>,
    /// Fixes of targets that are nominal.
    pub nominal: usize,
    /// Frames without a target that gave a fix.
    pub false_alarms: u64,
    /// Whether the coverage area has no height.
    pub flat: bool,
    /// Per frame, with and without a target: the slowest node and fusion.
    pub latencies_s: Vec<f64>,
    /// Per frame: all nodes, one after the other, and fusion.
    pub times_s: Vec<f64>,
}

/// Nodes and fusion of a site.
struct Pipeline {
    nodes: Vec<DelayEstimator>,
    fuser: Fuser,
    payload: PayloadKind,
}

/// The outcome of one frame.
struct Passed {
    fix: Option<FusedFix>,
    latency: Duration,
    time: Duration,
}

impl Pipeline {
    fn new(source: &EchoSource) -> anyhow::Result<Self> {
        let (system, method) = (source.system(), MethodSettings::default());
        let nodes =
            (0..system.irs_count()).map(|l| DelayEstimator::new(system, l)).collect::<Result<_, _>>()?;
        let fuser = Fuser::new(system.clone(), method.fusion())?;
        Ok(Self { nodes, fuser, payload: method.payload(system).kind })
    }

    fn pass(&self, received: &[CMatrix]) -> anyhow::Result<Passed> {
        let mut blocks = FrameBlocks::new(self.nodes.len());
        let (mut slowest, mut all) = (Duration::ZERO, Duration::ZERO);
        for (l, (node, received)) in self.nodes.iter().zip(received).enumerate() {
            let began = Instant::now();
            let report = node.estimate(received)?;
            blocks.insert_node(l, report, self.payload);
            let took = began.elapsed();
            (slowest, all) = (slowest.max(took), all + took);
        }
        let began = Instant::now();
        let fix = self.fuser.fuse(&blocks).ok();
        let took = began.elapsed();
        Ok(Passed { fix, latency: slowest + took, time: all + took })
    }
}

/// Passes `frames` frames with a target and as many of noise alone through the pipeline; `passed` is called after each.
pub fn measure(scenario: &Scenario, frames: u64, passed: impl Fn()) -> anyhow::Result<Measured> {
    let mut scenario = scenario.clone();
    scenario.targets = vec![Target { motion: Motion::Random, ..scenario.only_target()?.clone() }];
    let source = EchoSource::new(&scenario)?;
    let pipeline = Pipeline::new(&source)?;
    let nodes = pipeline.nodes.len();
    let mut measured = Measured {
        frames,
        errors: Vec::new(),
        nominal: 0,
        false_alarms: 0,
        flat: scenario.coverage.is_flat(),
        latencies_s: Vec::new(),
        times_s: Vec::new(),
    };
    // A target stays where it is over a coherent interval.
    let interval = scenario.signal.coherent_frames;
    for i in 0..2 * frames {
        let number = i * interval;
        let target_m = (i < frames).then(|| source.target_m(number));
        let received: Vec<CMatrix> = (0..nodes)
            .map(|l| match target_m {
                Some(target_m) => source.frame(l, number, target_m),
                None => source.noise(l, number),
            })
            .collect();
        let outcome = pipeline.pass(&received)?;
        measured.latencies_s.push(outcome.latency.as_secs_f64());
        measured.times_s.push(outcome.time.as_secs_f64());
        match (outcome.fix, target_m) {
            (Some(fix), Some(target_m)) => measured.add(&fix, target_m),
            (Some(_), None) => measured.false_alarms += 1,
            (None, _) => {}
        }
        passed();
    }
    Ok(measured)
}

impl Measured {
    pub fn median_latency_s(&self) -> Option<f64> {
        quantile(&self.latencies_s, 0.5).map(|median| median.value)
    }

    fn add(&mut self, fix: &FusedFix, target_m: Point) {
        let error = fix.position_m - target_m;
        self.errors.push(FixError { horizontal_m: error.x.hypot(error.y), vertical_m: error.z.abs() });
        self.nominal += usize::from(Status::with_cautions(&fix.cautions) == Status::Nominal);
    }
}
