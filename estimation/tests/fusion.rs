//! Raw echoes to position: frames through the nodes' estimators and the fuser, against the exact bound.
//!
//! Table I, one scene per scenario seed. Figures are printed: run with `--nocapture` to see them.
#![allow(clippy::print_stdout)]

use estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use estimation::fusion::{FrameBlocks, Fuser, FusionSettings};
use estimation::location::Status;
use model::units::db_from_ratio;
use model::{EchoSource, Gain, Information, Point, Scenario, Scheme};
use rayon::prelude::*;

struct Outcome {
    error_m2: f64,
    bound_m2: f64,
    nees: f64,
    status: Status,
}

fn blocks(source: &EchoSource, frame: u64, target_m: Point) -> FrameBlocks {
    let system = source.system();
    let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
    let mut blocks = FrameBlocks::new(system.irs_count());
    for l in 0..system.irs_count() {
        let node = DelayEstimator::with_settings(system, l, settings.clone()).unwrap();
        blocks.insert_node(l, node.estimate(&source.frame(l, frame, target_m)).unwrap());
    }
    blocks
}

fn outcome(scenario: &Scenario) -> Outcome {
    let source = EchoSource::new(scenario).unwrap();
    let target_m = source.target_m(0);
    let fuser = Fuser::new(source.system().clone(), FusionSettings::default()).unwrap();
    let fix = fuser.fuse(&blocks(&source, 0, target_m)).expect("observable").fix;
    let error = fix.position_m() - target_m;
    let bound = Information::new(source.system(), target_m, Gain::Unknown).position_crb_m2(Scheme::Hybrid);
    Outcome {
        error_m2: error.norm_squared(),
        bound_m2: bound.expect("observable").trace(),
        nees: error.dot(&fix.covariance_m2().cholesky().expect("definite").solve(&error)),
        status: fix.status(),
    }
}

fn outcomes(power_dbm: f64, scenes: u64) -> Vec<Outcome> {
    let scenario = |seed| Scenario::default().with_power_dbm(power_dbm).with_seed(seed);
    (0..scenes).into_par_iter().map(|seed| outcome(&scenario(1000 + seed))).collect()
}

fn gap_db(outcomes: &[Outcome]) -> f64 {
    let sum = |value: fn(&Outcome) -> f64| outcomes.iter().map(value).sum::<f64>();
    db_from_ratio(sum(|o| o.error_m2) / sum(|o| o.bound_m2))
}

#[test]
fn paper_scene_at_sixty_dbm() {
    let outcomes = outcomes(60.0, 500);
    let nees = outcomes.iter().map(|o| o.nees).sum::<f64>() / outcomes.len() as f64;
    println!("60 dBm: {:.2} dB above the exact bound, NEES {nees:.2}", gap_db(&outcomes));
    assert!(gap_db(&outcomes) < 0.5);
}

#[test]
fn paper_scene_at_fifty_dbm() {
    let outcomes = outcomes(50.0, 500);
    let sound = |o: &&Outcome| o.error_m2 <= 9.0 * o.bound_m2 || o.status == Status::Degraded;
    let share = outcomes.iter().filter(sound).count() as f64 / outcomes.len() as f64;
    let nees = outcomes.iter().map(|o| o.nees).sum::<f64>() / outcomes.len() as f64;
    println!(
        "50 dBm: {:.2} dB above the exact bound, NEES {nees:.2}, {:.1} % within three bounds or degraded",
        gap_db(&outcomes),
        100.0 * share
    );
    assert!(share >= 0.97 && gap_db(&outcomes) < 0.5);
}

/// A node that is silent takes its row with it; the rest is located, and says that it is less.
#[test]
fn a_silent_node_costs_its_row_only() {
    let scenario = Scenario::default().with_power_dbm(60.0);
    let source = EchoSource::new(&scenario).unwrap();
    let fuser = Fuser::new(source.system().clone(), FusionSettings::default()).unwrap();
    let target_m = source.target_m(3);
    let all = blocks(&source, 3, target_m);
    let mut two = FrameBlocks::new(3);
    for (l, k, path) in all.present().filter(|(l, _, _)| *l != 1) {
        two.insert(l, k, source.system().noise_power_w, path.clone());
    }
    let (whole, part) = (fuser.fuse(&all).unwrap().fix, fuser.fuse(&two).unwrap().fix);
    assert!(part.covariance_m2().trace() > whole.covariance_m2().trace());
    assert!((part.position_m() - target_m).norm() < 4.0 * part.covariance_m2().trace().sqrt());
    assert!(fuser.fuse(&FrameBlocks::new(3)).is_err(), "nothing came");
}
