//! The time that 1000 frames of Table I take from echoes to fixes on all cores: the yardstick of `python/benchmarks/frames.py`.
//!
//! `cargo run --release -p hyloc-estimation --example thousand_frames`
#![allow(clippy::print_stdout)]

use std::time::Instant;

use hyloc_estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use hyloc_estimation::fusion::{FrameBlocks, Fuser, FusionSettings, PayloadKind};
use hyloc_estimation::model::{CMatrix, EchoSource, Scenario};
use rayon::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = EchoSource::new(&Scenario::default())?;
    let system = source.system();
    let nodes = 0..system.irs_count();
    let echoes: Vec<Vec<CMatrix>> = (0..1000)
        .into_par_iter()
        .map(|f| nodes.clone().map(|l| source.frame(l, f, source.target_m(f))).collect())
        .collect();
    let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
    let estimators = nodes.map(|l| DelayEstimator::with_settings(system, l, settings.clone()));
    let estimators = estimators.collect::<Result<Vec<_>, _>>()?;
    let fuser = Fuser::new(system.clone(), FusionSettings::default())?;
    let locate = |frame: &Vec<CMatrix>| {
        let mut blocks = FrameBlocks::new(frame.len());
        for (l, (estimator, echo)) in estimators.iter().zip(frame).enumerate() {
            blocks.insert_node(l, estimator.estimate(echo).ok()?, PayloadKind::Block);
        }
        fuser.fuse(&blocks).ok()
    };
    let began = Instant::now();
    let fixes: Vec<_> = echoes.par_iter().map(locate).collect();
    let seconds = began.elapsed().as_secs_f64();
    println!("{} fixes in {seconds:.3} s", fixes.iter().flatten().count());
    Ok(())
}
