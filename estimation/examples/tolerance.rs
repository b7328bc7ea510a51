//! What iterations of the joint solver buy: mean iterations, and gross errors of the polished angles, by the accuracy of the objective
//! that is asked for. 250 scenes of Table I per power.
//!
//! `cargo run --release -p hyloc-estimation --example tolerance`
#![allow(clippy::print_stdout)]

#[path = "../tests/support/mod.rs"]
mod support;

use hyloc_estimation::angles::{AngleEstimator, AngleSettings, Extraction};
use hyloc_estimation::model::Scenario;
use rayon::prelude::*;
use support::{GROSS_RAD, Scene, scene};

const SCENES: u64 = 250;

fn main() {
    println!("| accuracy | power (dBm) | iterations | gross errors of {} |", 3 * SCENES);
    println!("| --- | --- | --- | --- |");
    for power_dbm in [30.0, 35.0, 40.0, 45.0, 50.0] {
        let scenario = Scenario::default().with_power_dbm(power_dbm);
        let scenes: Vec<Scene> =
            (0..SCENES).into_par_iter().map(|seed| scene(&scenario.clone().with_seed(seed))).collect();
        for tolerance in [1e-4, 3e-3, 2e-2, 5e-2] {
            let mut settings = AngleSettings::default();
            settings.admm.tolerance = tolerance;
            measure(&format!("{tolerance:e}"), power_dbm, &scenes, settings);
        }
        let beamformer = AngleSettings { extraction: Extraction::Beamformer, ..AngleSettings::default() };
        measure("none: polished beamformer", power_dbm, &scenes, beamformer);
    }
}

fn measure(accuracy: &str, power_dbm: f64, scenes: &[Scene], settings: AngleSettings) {
    let estimator = AngleEstimator::new(settings);
    let of_scene = |scene: &Scene| {
        let estimate = estimator.estimate(&scene.blocks).ok()?;
        let angles = estimate.irs.iter().zip(&scene.truth_rad);
        let gross = angles
            .filter(|(irs, truth)| irs.angle_rad.is_none_or(|angle| (angle - *truth).abs() > GROSS_RAD))
            .count();
        Some((estimate.iterations, gross))
    };
    let counts: Vec<(usize, usize)> = scenes.par_iter().filter_map(of_scene).collect();
    let iterations = counts.iter().map(|(iterations, _)| iterations).sum::<usize>() as f64;
    let gross: usize = counts.iter().map(|(_, gross)| gross).sum();
    println!("| {accuracy} | {power_dbm} | {:.0} | {gross} |", iterations / counts.len() as f64);
}
