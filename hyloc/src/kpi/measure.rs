//! Errors, false alarms and times of the pipeline in this process.

use std::time::{Duration, Instant};

use estimation::fusion::{FrameBlocks, FusedFix, Fuser};
use estimation::location::Status;
use fusion_center::method::MethodSettings;
use model::scenario::{Motion, Target};
use model::{Point, Scenario};

use super::quantile::quantile;
use crate::sweep::chain::FrameChain;

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

/// Passes `frames` frames with a target and as many of noise alone through the pipeline; `passed` is called after each.
pub fn measure(scenario: &Scenario, frames: u64, passed: impl Fn()) -> anyhow::Result<Measured> {
    let mut scenario = scenario.clone();
    scenario.targets = vec![Target { motion: Motion::Random, ..scenario.only_target()?.clone() }];
    let (chain, method) = (FrameChain::new(&scenario)?, MethodSettings::default());
    let (system, payload) = (chain.system(), method.payload(chain.system()).kind);
    let fuser = Fuser::new(system.clone(), method.fusion())?;
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
        let targets = if i < frames { chain.source.targets(number) } else { Vec::new() };
        let mut blocks = FrameBlocks::new(system.irs_count());
        let (mut slowest, mut all) = (Duration::ZERO, Duration::ZERO);
        for l in 0..system.irs_count() {
            let received = chain.source.frame_of(l, number, &targets);
            let began = Instant::now();
            blocks.insert_node(l, chain.report(l, &received)?, payload);
            let took = began.elapsed();
            (slowest, all) = (slowest.max(took), all + took);
        }
        let began = Instant::now();
        let fix = fuser.fuse(&blocks).ok();
        let took = began.elapsed();
        measured.latencies_s.push((slowest + took).as_secs_f64());
        measured.times_s.push((all + took).as_secs_f64());
        match (fix, targets.first()) {
            (Some(fix), Some(target)) => measured.add(&fix, target.position_m),
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
