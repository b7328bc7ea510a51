//! What the joint solver is compared with: the paper's algorithm as printed, and a beamformer with the same polish.
//!
//! 50 dBm but where said otherwise, blocks at the true delays, 60 scenes of three angles each, seeds 0 to 59.

#![allow(clippy::print_stdout)]

mod support;

use hyloc_estimation::angles::admm::AdmmSettings;
use hyloc_estimation::angles::literal::{LiteralEstimate, LiteralSettings, paper_literal};
use hyloc_estimation::angles::{AngleSettings, Extraction, estimate_angles};
use model::Scenario;
use model::scenario::PathAngles;
use support::{Scene, Tally, scene};

const SCENES: u64 = 60;

fn scenes(base: &Scenario, power_dbm: f64) -> Vec<Scene> {
    (0..SCENES).map(|seed| scene(&base.clone().with_power_dbm(power_dbm).with_seed(seed))).collect()
}

/// `deploy/scenarios/rank-full.toml`.
fn well_conditioned() -> Scenario {
    let mut scenario = Scenario::default();
    scenario.channel.angles = PathAngles::DftGrid;
    scenario
}

fn literal(scenes: &[Scene], lambda: f64) -> (Vec<LiteralEstimate>, Tally) {
    let admm = AdmmSettings { tolerance: 3e-3, max_iterations: 300, ..AdmmSettings::default() };
    let settings = LiteralSettings { lambda, admm };
    let mut tally = Tally::default();
    let estimates: Vec<_> =
        scenes.iter().map(|scene| paper_literal(&scene.blocks, &settings).unwrap()).collect();
    for (estimate, scene) in estimates.iter().zip(scenes) {
        tally.add_scene(&estimate.angle_rad, &[], scene);
    }
    println!(
        "as printed, lambda {lambda}: {:.2} dB, {:.1} % gross",
        tally.gap_db(),
        100.0 * tally.gross_share()
    );
    (estimates, tally)
}

fn tally_of(scenes: &[Scene], angles: impl Fn(usize) -> Vec<Option<f64>>) -> Tally {
    let mut tally = Tally::default();
    scenes.iter().enumerate().for_each(|(i, scene)| tally.add_scene(&angles(i), &[], scene));
    tally
}

/// On S_k that is well-conditioned every problem converges within 100 iterations, and the combination of AOA and AOD is
/// near the exact bound: the mean of two estimates is 3 dB better than either, which one of them alone would fail.
#[test]
fn paper_algorithm_as_printed_works_on_well_conditioned_signals() {
    let scenes = scenes(&well_conditioned(), 50.0);
    let (estimates, combined) = literal(&scenes, 0.2);
    for problem in estimates.iter().flat_map(|estimate| &estimate.problems) {
        assert!(problem.converged && problem.iterations <= 100 && problem.residual <= 9e-3, "{problem:?}");
    }
    assert!(estimates.iter().all(|estimate| estimate.problems.len() == 6));
    // Standard deviation of the gap over 180 angles: 0.5 dB.
    assert!(combined.gap_db() < 1.5 && combined.gross_share() == 0.0, "{:.2} dB", combined.gap_db());
    let arrival = tally_of(&scenes, |i| estimates[i].arrival_rad.clone());
    let departure = tally_of(&scenes, |i| estimates[i].departure_rad.clone());
    println!("AOA alone {:.2} dB, AOD alone {:.2} dB", arrival.gap_db(), departure.gap_db());
    assert!(combined.gap_db() + 1.5 < arrival.gap_db().min(departure.gap_db()));
}

/// With the random multipath of Table I no lambda helps: the inverse of S_k turns noise into the answer.
#[test]
fn paper_algorithm_as_printed_fails_on_badly_conditioned_signals() {
    let scenes = scenes(&Scenario::default(), 50.0);
    for lambda in [0.5, 2.0, 10.0] {
        let (_, tally) = literal(&scenes, lambda);
        assert!(
            tally.gap_db() > 30.0 && tally.gross_share() > 0.4,
            "lambda {lambda}: {:.1} dB",
            tally.gap_db()
        );
    }
}

/// The joint beamformer with the same polish: as good as the joint solver at 50 dBm, and no better below.
#[test]
fn polished_beamformer_equals_the_joint_solver_above_threshold() {
    for (power_dbm, most_db) in [(50.0, 1.5), (60.0, 1.5)] {
        let scenes = scenes(&Scenario::default(), power_dbm);
        let of = |extraction| {
            let settings = AngleSettings { extraction, ..AngleSettings::default() };
            let angles = |i: usize| -> Vec<Option<f64>> {
                let estimate = estimate_angles(&scenes[i].blocks, &settings).unwrap();
                estimate.irs.iter().map(|irs| irs.angle_rad).collect()
            };
            tally_of(&scenes, angles)
        };
        let (admm, beamformer) = (of(Extraction::Polished), of(Extraction::Beamformer));
        println!("{power_dbm} dBm: ADMM {:.2} dB, beamformer {:.2} dB", admm.gap_db(), beamformer.gap_db());
        assert!(beamformer.gap_db() < most_db, "{power_dbm} dBm: {:.2} dB", beamformer.gap_db());
        assert!((beamformer.gap_db() - admm.gap_db()).abs() < 0.2);
    }
}
