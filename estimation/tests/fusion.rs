//! Raw echoes to position: frames through the nodes' estimators and the fuser, against the exact bound.
//!
//! Table I, one scene per scenario seed. Figures are printed: run with `--nocapture` to see them.
#![allow(clippy::print_stdout)]

use hyloc_estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use hyloc_estimation::direct::{Combination, DirectSettings, Missed, Survey};
use hyloc_estimation::fusion::{
    BatchSettings, FixMethod, FrameBlocks, FusedFix, Fuser, FusionError, FusionSettings, Method, PayloadKind,
};
use model::units::db_from_ratio;
use model::{CMatrix, EchoSource, Gain, Information, Point, Scenario, Scheme, Score};
use rayon::prelude::*;

struct Outcome {
    error_m2: f64,
    bound_m2: f64,
    nees: f64,
    fix: FusedFix,
}

fn nodes(source: &EchoSource) -> Vec<DelayEstimator> {
    let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
    let node = |l| DelayEstimator::with_settings(source.system(), l, settings.clone()).unwrap();
    (0..source.system().irs_count()).map(node).collect()
}

fn blocks_of(nodes: &[DelayEstimator], kind: PayloadKind, echo: impl Fn(usize) -> CMatrix) -> FrameBlocks {
    let mut blocks = FrameBlocks::new(nodes.len());
    for (l, node) in nodes.iter().enumerate() {
        blocks.insert_node(l, node.estimate(&echo(l)).unwrap(), kind);
    }
    blocks
}

fn blocks(source: &EchoSource, frame: u64, target_m: Point, kind: PayloadKind) -> FrameBlocks {
    blocks_of(&nodes(source), kind, |l| source.frame(l, frame, target_m))
}

fn with(method: Method) -> FusionSettings {
    FusionSettings { method, ..FusionSettings::default() }
}

fn outcome(scenario: &Scenario, method: Method, kind: PayloadKind) -> Option<Outcome> {
    let source = EchoSource::new(scenario).unwrap();
    let target_m = source.target_m(0);
    let fuser = Fuser::new(source.system().clone(), with(method)).unwrap();
    let fix = match fuser.fuse(&blocks(&source, 0, target_m, kind)) {
        Err(FusionError::Missed(Missed::NoTarget { .. })) => return None,
        fix => fix.expect("observable"),
    };
    let error = fix.position_m - target_m;
    let bound = Information::new(source.system(), target_m, source.rcs_m2(), Gain::Unknown)
        .position_crb_m2(Scheme::Hybrid);
    Some(Outcome {
        error_m2: error.norm_squared(),
        bound_m2: bound.expect("observable").trace(),
        nees: Score::new(fix.position_m, &fix.covariance_m2, target_m).nees.expect("definite"),
        fix,
    })
}

fn outcomes(power_dbm: f64, scenes: u64, method: Method, kind: PayloadKind) -> Vec<Outcome> {
    let scenario = |seed| Scenario::default().with_power_dbm(power_dbm).with_seed(seed);
    (0..scenes).into_par_iter().filter_map(|seed| outcome(&scenario(1000 + seed), method, kind)).collect()
}

fn gap_db(outcomes: &[Outcome]) -> f64 {
    let sum = |value: fn(&Outcome) -> f64| outcomes.iter().map(value).sum::<f64>();
    db_from_ratio(sum(|o| o.error_m2) / sum(|o| o.bound_m2))
}

fn mean_nees(outcomes: &[Outcome]) -> f64 {
    outcomes.iter().map(|o| o.nees).sum::<f64>() / outcomes.len() as f64
}

/// Whether a mean of `n` normalised squared errors is one of an honest covariance: within 2.6 standard errors of two,
/// which 1 % of honest ones are not. A covariance that is 25 % off is not, from 450 fixes on.
fn is_honest(nees: f64, n: usize) -> bool {
    (nees - 2.0).abs() < 2.6 * 2.0 / (n as f64).sqrt()
}

fn share(outcomes: &[Outcome], what: impl Fn(&Outcome) -> bool) -> f64 {
    outcomes.iter().filter(|o| what(o)).count() as f64 / outcomes.len() as f64
}

#[test]
fn three_stages_at_sixty_dbm() {
    let outcomes = outcomes(60.0, 500, Method::ThreeStage, PayloadKind::Block);
    let (gap_db, nees) = (gap_db(&outcomes), mean_nees(&outcomes));
    println!("60 dBm, three stages: {gap_db:.2} dB above the exact bound, NEES {nees:.2}");
    assert!(gap_db < 0.5 && is_honest(nees, outcomes.len()));
}

#[test]
fn three_stages_at_fifty_dbm() {
    let outcomes = outcomes(50.0, 500, Method::ThreeStage, PayloadKind::Block);
    let sound = share(&outcomes, |o| o.error_m2 <= 9.0 * o.bound_m2 || !o.fix.cautions.is_empty());
    let (gap_db, nees) = (gap_db(&outcomes), mean_nees(&outcomes));
    println!(
        "50 dBm, three stages: {gap_db:.2} dB above the exact bound, NEES {nees:.2}, {:.1} % within three bounds or \
         degraded",
        100.0 * sound
    );
    assert!(sound >= 0.97 && gap_db < 0.5 && is_honest(nees, outcomes.len()));
}

/// Auto takes the three-stage fix where every path is strong, the direct one where it is not, and is at the
/// bound with both.
#[test]
fn auto_takes_what_is_safe() {
    for (power_dbm, direct_at_least, direct_at_most, most_gap_db) in
        [(65.0, 0.0, 0.2, 0.5), (50.0, 0.4, 1.0, 0.5), (40.0, 1.0, 1.0, 1.0)]
    {
        let outcomes = outcomes(power_dbm, 300, Method::Auto, PayloadKind::Spectrum);
        let direct = share(&outcomes, |o| o.fix.method == FixMethod::Direct);
        let (gap_db, nees) = (gap_db(&outcomes), mean_nees(&outcomes));
        println!(
            "{power_dbm} dBm, auto: {gap_db:.2} dB above the exact bound, NEES {nees:.2}, {:.0} % direct, {} of 300",
            100.0 * direct,
            outcomes.len()
        );
        assert!((direct_at_least..=direct_at_most).contains(&direct));
        assert!(gap_db <= most_gap_db && outcomes.len() >= 290 && is_honest(nees, outcomes.len()));
    }
}

/// Noise raises a false fix in at most one frame of a thousand, whatever the payload.
#[test]
fn a_frame_without_a_target_gives_no_fix() {
    let source = EchoSource::new(&Scenario::default()).unwrap();
    let (nodes, fuser) =
        (nodes(&source), Fuser::new(source.system().clone(), FusionSettings::default()).unwrap());
    for (kind, frames) in
        [(PayloadKind::Spectrum, 2000), (PayloadKind::Block, 1000), (PayloadKind::Parameters, 1000)]
    {
        let false_fixes = (0..frames)
            .into_par_iter()
            .filter(|&frame| fuser.fuse(&blocks_of(&nodes, kind, |l| source.noise(l, frame))).is_ok())
            .count();
        println!("{kind:?}: {false_fixes} false fixes of {frames} frames of noise");
        assert!(false_fixes as f64 <= 1e-3 * frames as f64);
    }
}

/// Batches of noise raise as many false fixes as were asked for, at a share that shows in a few hundred batches.
#[test]
fn a_batch_without_a_target_gives_no_fix() {
    const FRAMES: u64 = 4;
    const BATCHES: u64 = 400;
    let source = EchoSource::new(&Scenario::default()).unwrap();
    let nodes = nodes(&source);
    let fusers = [Combination::NonCoherent, Combination::Coherent].map(|combination| {
        let batch = BatchSettings { frames: FRAMES as usize, combination, ..BatchSettings::default() };
        let direct = DirectSettings { false_alarm_probability: 0.1, ..DirectSettings::default() };
        let settings = FusionSettings { method: Method::Direct, direct, batch, ..FusionSettings::default() };
        Fuser::new(source.system().clone(), settings).unwrap()
    });
    let fixes: Vec<[bool; 2]> = (0..BATCHES)
        .into_par_iter()
        .map(|batch| {
            let frames: Vec<(u64, FrameBlocks)> = (FRAMES * batch..FRAMES * (batch + 1))
                .map(|f| (f, blocks_of(&nodes, PayloadKind::Spectrum, |l| source.noise(l, f))))
                .collect();
            fusers.each_ref().map(|fuser| {
                let surveys = frames.iter().map(|(f, blocks)| (*f, fuser.survey(blocks, None).unwrap()));
                let surveys: Vec<(u64, Survey)> = surveys.collect();
                let frames: Vec<(u64, &Survey)> = surveys.iter().map(|(f, survey)| (*f, survey)).collect();
                fuser.fuse_frames(&frames).is_ok()
            })
        })
        .collect();
    for (way, fuser) in fusers.iter().enumerate() {
        let false_fixes = fixes.iter().filter(|fix| fix[way]).count();
        println!("{:?}: {false_fixes} false fixes of {BATCHES} batches", fuser.settings().batch.combination);
        // Asked for were 40; 99.9 % of all runs with that mean stay below 61, and twice that share does not. The
        // threshold may be on the safe side by a factor of five.
        assert!((8..=60).contains(&false_fixes), "{false_fixes}, asked for were 40");
    }
}

/// Less on the backhaul, less accuracy: each payload through the method that it is made for.
#[test]
fn every_payload_is_located() {
    let gaps = [PayloadKind::Spectrum, PayloadKind::Block, PayloadKind::Parameters].map(|kind| {
        let outcomes = outcomes(55.0, 200, Method::Auto, kind);
        let (gap_db, nees) = (gap_db(&outcomes), mean_nees(&outcomes));
        println!(
            "55 dBm, {kind:?}: {gap_db:.2} dB above the exact bound, NEES {nees:.2}, {} of 200",
            outcomes.len()
        );
        assert!(outcomes.len() >= 190 && is_honest(nees, outcomes.len()), "{kind:?}");
        gap_db
    });
    assert!(gaps[0] <= 0.5 && gaps[1] <= 1.0 && gaps[2] <= 4.0);
}

/// Three frames of a target on its way are worth more than the last one alone.
#[test]
fn a_batch_is_better_than_its_last_frame() {
    let batch = BatchSettings { frames: 3, ..BatchSettings::default() };
    let settings = FusionSettings { method: Method::Direct, batch, ..FusionSettings::default() };
    let squared: Vec<(f64, f64)> = (0..100u64)
        .into_par_iter()
        .map(|seed| {
            let source = EchoSource::new(&Scenario::default().with_seed(500 + seed)).unwrap();
            let at = |frame: u64| Point::new(3.0 + 0.2 * frame as f64, 6.0 - 0.1 * frame as f64, 0.0);
            let fuser = Fuser::new(source.system().clone(), settings.clone()).unwrap();
            let frames: Vec<FrameBlocks> =
                (0..3).map(|f| blocks(&source, f, at(f), PayloadKind::Spectrum)).collect();
            let surveys: Vec<Survey> =
                frames.iter().map(|frame| fuser.survey(frame, None).unwrap()).collect();
            let numbered: Vec<(u64, &Survey)> =
                surveys.iter().enumerate().map(|(f, survey)| (1_000_000 + f as u64, survey)).collect();
            let moving = fuser.fuse_frames(&numbered).expect("found");
            assert_eq!(moving.method, FixMethod::DirectFrames);
            let middle = moving.position_m - moving.velocity_m_per_frame.unwrap();
            let single = fuser.fuse(&frames[1]).expect("found");
            ((middle - at(1)).norm_squared(), (single.position_m - at(1)).norm_squared())
        })
        .collect();
    let gain_db =
        db_from_ratio(squared.iter().map(|s| s.1).sum::<f64>() / squared.iter().map(|s| s.0).sum::<f64>());
    println!("three frames: {gain_db:.1} dB better than one at the middle of the batch (4.8 expected)");
    assert!((3.3..6.3).contains(&gain_db));
}

/// A target that jumps about has no velocity: its frames are not taken for one that moves.
#[test]
fn a_target_that_jumps_makes_no_batch() {
    const BATCHES: u64 = 100;
    let source = EchoSource::new(&Scenario::default()).unwrap();
    let batch = BatchSettings { frames: 4, ..BatchSettings::default() };
    let settings = FusionSettings { method: Method::Direct, batch, ..FusionSettings::default() };
    let fuser = Fuser::new(source.system().clone(), settings).unwrap();
    let mistaken = (0..BATCHES).into_par_iter().filter(|batch| {
        let frames = 4 * batch..4 * (batch + 1);
        let blocks = frames.map(|f| (f, blocks(&source, f, source.target_m(f), PayloadKind::Spectrum)));
        let surveys: Vec<(u64, Survey)> =
            blocks.map(|(f, blocks)| (f, fuser.survey(&blocks, None).unwrap())).collect();
        let numbered: Vec<(u64, &Survey)> = surveys.iter().map(|(f, survey)| (*f, survey)).collect();
        fuser.fuse_frames(&numbered) != Err(FusionError::Missed(Missed::Unobservable))
    });
    let mistaken = mistaken.count();
    println!("{mistaken} of {BATCHES} batches of a jumping target are taken for one that moves");
    assert!(mistaken <= 2);
}

/// A node that is silent takes its row with it; the rest is located, and says that it is less.
#[test]
fn a_silent_node_costs_its_row_only() {
    let scenario = Scenario::default().with_power_dbm(60.0);
    let source = EchoSource::new(&scenario).unwrap();
    let target_m = source.target_m(3);
    for method in [Method::ThreeStage, Method::Direct, Method::Auto] {
        let fuser = Fuser::new(source.system().clone(), with(method)).unwrap();
        let all = blocks(&source, 3, target_m, PayloadKind::Spectrum);
        let mut two = FrameBlocks::new(3);
        for (l, k, path) in all.present().filter(|(l, _, _)| *l != 1) {
            two.insert(l, k, *all.node(l).unwrap(), path.clone());
        }
        let (whole, part) = (fuser.fuse(&all).unwrap(), fuser.fuse(&two).unwrap());
        assert!(part.covariance_m2.trace() > whole.covariance_m2.trace());
        assert!((part.position_m - target_m).norm() < 4.0 * part.covariance_m2.trace().sqrt());
        assert!(fuser.fuse(&FrameBlocks::new(3)).is_err(), "nothing came");
    }
}
