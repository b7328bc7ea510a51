//! Clocks that are not trusted: position and offsets from one frame and with what earlier frames have told. Table I at 50 dBm,
//! offsets drawn from plus or minus 100 ns, one scene per seed.
#![allow(clippy::print_stdout)]

use hyloc_estimation::clock_filter::{ClockFilter, ClockFilterSettings};
use hyloc_estimation::delay::DelayEstimator;
use hyloc_estimation::direct::ClockPrior;
use hyloc_estimation::fusion::{
    FixMethod, FrameBlocks, FusedFix, Fuser, FusionError, FusionSettings, Method, PayloadKind,
};
use model::scenario::ClockStep;
use model::units::{SPEED_OF_LIGHT_M_S, db_from_ratio};
use model::{EchoSource, Gain, Information, Scenario, Scheme, Score};
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;

const PRIOR_NS: f64 = 100.0;

struct Scene {
    source: EchoSource,
    nodes: Vec<DelayEstimator>,
    fuser: Fuser,
    payload: PayloadKind,
}

impl Scene {
    fn new(scenario: &Scenario, payload: PayloadKind) -> Self {
        let source = EchoSource::new(scenario).unwrap();
        let system = source.system().clone();
        let nodes = (0..system.irs_count()).map(|l| DelayEstimator::new(&system, l).unwrap()).collect();
        let settings = FusionSettings { method: Method::Direct, ..FusionSettings::default() };
        Self { nodes, fuser: Fuser::new(system, settings).unwrap(), source, payload }
    }

    fn blocks(&self, frame: u64) -> FrameBlocks {
        self.timed_blocks(frame, None)
    }

    /// The blocks of nodes that know about their clocks as well as this.
    fn timed_blocks(&self, frame: u64, told: Option<&ClockPrior>) -> FrameBlocks {
        let target_m = self.source.target_m(frame);
        let mut blocks = FrameBlocks::new(self.nodes.len());
        for (l, node) in self.nodes.iter().enumerate() {
            let known = told.filter(|prior| prior.deviation_s(l) < 0.1 * PRIOR_NS * 1e-9);
            let offset_s = known.map(|prior| prior.mean_s()[l]);
            let report = node.estimate_timed(&[self.source.frame(l, frame, target_m)], offset_s).unwrap();
            blocks.insert_node(l, report, self.payload);
        }
        blocks
    }

    fn fix(&self, frame: u64, clocks: Option<&ClockPrior>) -> Option<FusedFix> {
        self.fuser.fuse_observed(&self.timed_blocks(frame, clocks), clocks, |_| {}).ok()
    }

    fn information(&self, frame: u64) -> Information {
        let (system, target_m) = (self.source.system(), self.source.target_m(frame));
        Information::new(system, target_m, self.source.rcs_m2(), Gain::Unknown)
    }

    fn offsets_s(&self, frame: u64) -> DVector<f64> {
        DVector::from_fn(self.nodes.len(), |l, _| self.source.clock_offset_s(l, frame))
    }
}

fn scenario(seed: u64) -> Scenario {
    let mut scenario = Scenario::default().with_seed(seed);
    (scenario.clocks.offset_ns, scenario.clocks.prior_ns) = (100.0, PRIOR_NS);
    scenario
}

/// Squared error, bound, NEES of the position and of the offsets.
fn outcome(scene: &Scene, clocks: Option<&ClockPrior>, bound_m2: f64) -> Option<[f64; 4]> {
    let fix = scene.fix(0, clocks)?;
    let score = Score::new(fix.position_m, &fix.covariance_m2, scene.source.target_m(0));
    let posterior = &fix.clocks.as_ref()?.posterior;
    let error_ns = (posterior.mean_s() - scene.offsets_s(0)) * 1e9;
    let spread = (posterior.covariance_s2() * 1e18).cholesky().unwrap();
    Some([score.error_m.powi(2), bound_m2, score.nees?, error_ns.dot(&spread.solve(&error_ns))])
}

/// Gap in decibels, share of fixes off by more than 1 m, mean NEES of position and offsets.
fn judged(outcomes: &[Option<[f64; 4]>]) -> [f64; 4] {
    let found: Vec<&[f64; 4]> = outcomes.iter().flatten().collect();
    let gross = |o: &&[f64; 4]| o[0] > 1.0;
    let kept: Vec<&[f64; 4]> = found.iter().copied().filter(|o| !gross(o)).collect();
    let mean = |i: usize| kept.iter().map(|o| o[i]).sum::<f64>() / kept.len() as f64;
    let bad = (outcomes.len() - kept.len()) as f64 / outcomes.len() as f64;
    [db_from_ratio(mean(0) / mean(1)), bad, mean(2), mean(3)]
}

/// One frame alone: 300 scenes, +-0.35 dB at one standard deviation of the mean.
#[test]
fn one_frame_with_unknown_clocks_is_at_its_bound() {
    for (payload, most_db) in [(PayloadKind::Spectrum, 0.6), (PayloadKind::Block, 0.6)] {
        let outcomes: Vec<Option<[f64; 4]>> = (0..300u64)
            .into_par_iter()
            .map(|seed| {
                let scene = Scene::new(&scenario(seed), payload);
                let bound = scene.information(0).position_crb_after_m2(1, PRIOR_NS * 1e-9).unwrap();
                outcome(&scene, None, bound.trace())
            })
            .collect();
        let [gap_db, gross, nees, offset_nees] = judged(&outcomes);
        println!("{payload:?}: {gap_db:.2} dB, {gross:.3} gross, NEES {nees:.2}, offsets {offset_nees:.2}");
        assert!(gap_db < most_db && gross <= 0.01, "{payload:?}: {gap_db} dB, {gross}");
        let band = |dof: f64| 3.0 * (2.0 * dof / 300.0).sqrt();
        assert!((nees - 2.0).abs() < band(2.0), "{payload:?}: {nees}");
        assert!((offset_nees - 3.0).abs() < band(3.0), "{payload:?}: {offset_nees}");
    }
}

/// A node that knows the offset of its clock finds what it would find without: delays later by the offset, the same blocks.
#[test]
fn a_node_searches_around_the_offset_that_it_knows() {
    let late = Scene::new(&scenario(3), PayloadKind::Block);
    let mut exact = scenario(3);
    exact.clocks.offset_ns = 0.0;
    let exact = Scene::new(&exact, PayloadKind::Block);
    let target_m = late.source.target_m(0);
    for l in 0..3 {
        let offset_s = late.source.clock_offset_s(l, 0);
        let noiseless = |scene: &Scene| scene.source.frame(l, 0, target_m) - scene.source.noise(l, 0);
        let found = late.nodes[l].estimate_timed(&[noiseless(&late)], Some(offset_s)).unwrap();
        let expected = exact.nodes[l].estimate(&noiseless(&exact)).unwrap();
        for (found, expected) in found.paths.iter().zip(&expected.paths) {
            assert!((found.delay_s - offset_s - expected.delay_s).abs() < 1e-14);
            assert!((&found.block - &expected.block).norm() < 1e-6 * expected.block.norm());
        }
        assert!(noiseless(&late).columns(0, 1) != noiseless(&exact).columns(0, 1));
    }
}

/// With what nine frames have told about the clocks, by the bound, the tenth is at its own: within 0.2 dB of known clocks.
#[test]
fn a_frame_with_filtered_clocks_is_near_the_bound_of_known_ones() {
    let outcomes: Vec<Option<[f64; 4]>> = (0..300u64)
        .into_par_iter()
        .map(|seed| {
            let scene = Scene::new(&scenario(seed), PayloadKind::Spectrum);
            let information = scene.information(0);
            let known = information.offset_information().unwrap() * (9.0 * SPEED_OF_LIGHT_M_S.powi(2));
            let covariance: DMatrix<f64> = known.clone().cholesky().unwrap().inverse();
            // An error of that covariance.
            let mut draws = model::random::stream(seed, model::random::Purpose::Study, [7, 0]);
            let normal = DVector::from_fn(3, |_, _| model::random::complex_normal(&mut draws, 2.0).re);
            let error = covariance.clone().cholesky().unwrap().l() * normal;
            let prior = ClockPrior::new(scene.offsets_s(0) + error, covariance).unwrap();
            let bound = information.position_crb_after_m2(10, 1e-6).unwrap();
            outcome(&scene, Some(&prior), bound.trace())
        })
        .collect();
    let [gap_db, gross, nees, offset_nees] = judged(&outcomes);
    println!("filtered: {gap_db:.2} dB, {gross:.3} gross, NEES {nees:.2}, offsets {offset_nees:.2}");
    assert!(gap_db < 0.6 && gross == 0.0, "{gap_db} {gross}");
    assert!((nees - 2.0).abs() < 0.35 && (offset_nees - 3.0).abs() < 0.45, "{nees} {offset_nees}");
}

/// Three stages take what is known as corrections: from offsets known to 0.2 ns each, near the bound; from those of the direct
/// method, the same clocks.
#[test]
fn three_stages_take_the_offsets_as_corrections() {
    let (mut squared_m2, mut bound_m2) = (0.0, 0.0);
    for seed in 0..60 {
        let scene = Scene::new(&scenario(seed), PayloadKind::Block);
        let settings = FusionSettings { method: Method::ThreeStage, ..FusionSettings::default() };
        let staged = Fuser::new(scene.source.system().clone(), settings).unwrap();
        let mut draws = model::random::stream(seed, model::random::Purpose::Study, [8, 0]);
        let error_s = DVector::from_fn(3, |_, _| 0.2e-9 * model::random::complex_normal(&mut draws, 2.0).re);
        let prior =
            ClockPrior::new(scene.offsets_s(0) + error_s, DMatrix::identity(3, 3) * 0.04e-18).unwrap();
        let blocks = scene.timed_blocks(0, Some(&prior));
        let Ok(fix) = staged.fuse_observed(&blocks, Some(&prior), |_| {}) else { continue };
        assert_eq!(fix.method, FixMethod::ThreeStage);
        let update = fix.clocks.expect("the direct method tells the clocks");
        let direct = scene.fuser.fuse_observed(&blocks, Some(&prior), |_| {}).unwrap();
        assert_eq!(Some(update), direct.clocks);
        squared_m2 += (fix.position_m - scene.source.target_m(0)).norm_squared().min(1.0);
        bound_m2 += scene.information(0).position_crb_m2(Scheme::Hybrid).unwrap().trace();
    }
    let gap_db = db_from_ratio(squared_m2 / bound_m2);
    println!("three stages: {gap_db:.2} dB above the bound of known clocks");
    assert!(gap_db < 2.0, "{gap_db}");
}

/// A frame of a run through the filter.
struct Outcome {
    squared_m2: f64,
    /// Bounds for known clocks, and with what was known about them.
    known_m2: f64,
    timed_m2: f64,
    offset_nees: f64,
    fix: FusedFix,
}

/// Frames with the clocks that a filter follows, or with the true ones.
fn run(scenario: &Scenario, frames: u64, told: bool) -> Vec<Outcome> {
    let scene = Scene::new(scenario, PayloadKind::Block);
    let prior_s = scenario.clocks.prior_ns * 1e-9;
    let mut filter = (prior_s > 0.0).then(|| ClockFilter::new(3, ClockFilterSettings::new(prior_s)));
    (0..frames)
        .map(|frame| {
            let time_s = frame as f64 * scenario.clocks.frame_interval_s;
            let prior = if told {
                let exact = DMatrix::identity(3, 3) * 1e-24;
                Some(ClockPrior::new(scene.offsets_s(frame), exact).unwrap())
            } else {
                filter.as_ref().and_then(|filter| filter.prior(time_s))
            };
            let fix = scene.fix(frame, prior.as_ref()).expect("a fix at 50 dBm");
            if let (Some(filter), Some(update)) = (&mut filter, &fix.clocks) {
                filter.update(time_s, update);
            }
            let target_m = scene.source.target_m(frame);
            let information = scene.information(frame);
            let known_m2 = information.position_crb_m2(Scheme::Hybrid).unwrap().trace();
            let timed_m2 = prior.as_ref().map_or(known_m2, |prior| {
                let known =
                    (prior.covariance_s2() * SPEED_OF_LIGHT_M_S.powi(2)).cholesky().unwrap().inverse();
                information.position_crb_with_clocks_m2(&known).unwrap().trace()
            });
            let offset_nees = fix.clocks.as_ref().map_or(0.0, |update| {
                let error_ns = (update.posterior.mean_s() - scene.offsets_s(frame)) * 1e9;
                let spread = (update.posterior.covariance_s2() * 1e18).cholesky().unwrap();
                error_ns.dot(&spread.solve(&error_ns))
            });
            Outcome {
                squared_m2: (fix.position_m - target_m).norm_squared(),
                known_m2,
                timed_m2,
                offset_nees,
                fix,
            }
        })
        .collect()
}

fn drifting(seed: u64) -> Scenario {
    let mut scenario = scenario(seed);
    scenario.clocks.drift_ppb = 50.0;
    scenario
}

/// Mean squared error in units of the mean bound for known clocks.
fn ratio(of: &[Outcome]) -> f64 {
    of.iter().map(|o| o.squared_m2).sum::<f64>() / of.iter().map(|o| o.known_m2).sum::<f64>()
}

/// Twelve runs of 160 frames at 50 frames per second, offsets of up to 100 ns and drifts of up to 50 ppb. From frame 100 on
/// the error is that of known clocks to 2 % rms, from the same echoes, and the offsets are as good as they say. Errors of the
/// offsets hold on for tens of frames, so that a run counts as few independent samples.
#[test]
fn filtered_clocks_are_as_good_as_known_ones() {
    let runs: Vec<[f64; 4]> = (0..12u64)
        .into_par_iter()
        .map(|seed| {
            let (unknown, known) = (run(&drifting(seed), 160, false), run(&drifting(seed), 160, true));
            let sum = |of: fn(&Outcome) -> f64| unknown[100..].iter().map(of).sum::<f64>();
            let loss = sum(|o| o.timed_m2) / sum(|o| o.known_m2);
            assert!(unknown.iter().all(|o| o.fix.clocks.as_ref().unwrap().stepped.is_empty()), "seed {seed}");
            [ratio(&unknown[100..]), ratio(&known[100..]), sum(|o| o.offset_nees) / 60.0, loss]
        })
        .collect();
    let mean = |i: usize| runs.iter().map(|run| run[i]).sum::<f64>() / runs.len() as f64;
    let share = (mean(1) / mean(0)).sqrt();
    println!(
        "filtered: {:.2} dB (the bound: {:.2} dB), known {:.2} dB, {:.1} % of their accuracy, NEES of the offsets {:.2}",
        db_from_ratio(mean(0)),
        db_from_ratio(mean(3)),
        db_from_ratio(mean(1)),
        100.0 * share,
        mean(2)
    );
    assert!(share > 0.98, "{share}");
    assert!(db_from_ratio(mean(0)) < 0.4, "{}", db_from_ratio(mean(0)));
    assert!((mean(2) - 3.0).abs() < 1.2, "{}", mean(2));
}

/// A step of one clock is named in its frame, costs the other clocks nothing, and twenty frames later the error is what it was.
#[test]
fn a_step_is_found_and_left_behind() {
    let runs: Vec<[f64; 2]> = (0..8u64)
        .into_par_iter()
        .map(|seed| {
            let mut scenario = drifting(seed);
            let step_ns = if seed % 2 == 0 { 20.0 } else { -20.0 };
            scenario.clocks.step = Some(ClockStep { node: 1, frame: 60, step_ns });
            let outcomes = run(&scenario, 140, false);
            for (frame, outcome) in outcomes.iter().enumerate() {
                let stepped = &outcome.fix.clocks.as_ref().unwrap().stepped;
                let expected: &[usize] = if frame == 60 { &[1] } else { &[] };
                assert_eq!(stepped, expected, "seed {seed}, frame {frame}");
                let rms_m = outcome.known_m2.sqrt();
                assert!(outcome.squared_m2.sqrt() < 5.0 * rms_m, "seed {seed}, frame {frame}");
            }
            let deviation_ns = |frame: usize, l: usize| {
                outcomes[frame].fix.clocks.as_ref().unwrap().posterior.deviation_s(l) * 1e9
            };
            assert!(deviation_ns(60, 1) > 1.5 * deviation_ns(59, 1));
            assert!(deviation_ns(60, 0) < 1.1 * deviation_ns(59, 0));
            [ratio(&outcomes[80..]), ratio(&outcomes[20..60])]
        })
        .collect();
    let mean = |i: usize| runs.iter().map(|run| run[i]).sum::<f64>() / runs.len() as f64;
    println!("after the step {:.2} dB, before it {:.2} dB", db_from_ratio(mean(0)), db_from_ratio(mean(1)));
    assert!(db_from_ratio(mean(0)) < 0.5, "{}", db_from_ratio(mean(0)));
}

/// Two IRSs, missing paths and parameters alone: there is a fix, and what cannot be observed keeps its prior.
#[test]
fn little_data_falls_back_to_the_prior() {
    let mut pair = scenario(2);
    pair.irs.truncate(2);
    let scene = Scene::new(&pair, PayloadKind::Spectrum);
    let blocks = scene.blocks(0);
    let fix = scene.fuser.fuse(&blocks).unwrap();
    assert!((fix.position_m - scene.source.target_m(0)).norm() < 5.0, "{:?}", fix.position_m);
    let scene = Scene::new(&scenario(2), PayloadKind::Spectrum);
    let whole = scene.blocks(0);
    let mut part = FrameBlocks::new(3);
    for (l, k, path) in whole.present().filter(|(l, ..)| *l != 2) {
        part.insert(l, k, *whole.node(l).unwrap(), path.clone());
    }
    let fix = scene.fuser.fuse(&part).unwrap();
    let clocks = fix.clocks.unwrap();
    assert!(clocks.posterior.deviation_s(0) < 5e-9 && clocks.posterior.deviation_s(1) < 5e-9);
    assert!((clocks.posterior.deviation_s(2) / (PRIOR_NS * 1e-9) - 1.0).abs() < 1e-6);
    // A clock that may be anywhere is searched within the ambiguity of the waveform, and one without paths not at all.
    let anywhere = DMatrix::from_diagonal(&DVector::from_row_slice(&[1e-14, 1e-14, 1e2]));
    let prior = ClockPrior::new(DVector::zeros(3), anywhere).unwrap();
    assert!(scene.fuser.fuse_observed(&part, Some(&prior), |_| {}).is_ok());
    assert!(scene.fuser.fuse_observed(&whole, Some(&prior), |_| {}).is_ok());
    let scene = Scene::new(&scenario(2), PayloadKind::Parameters);
    let error_s = DVector::from_row_slice(&[0.2e-9, -0.3e-9, 0.1e-9]);
    let prior = ClockPrior::new(scene.offsets_s(0) + error_s, DMatrix::identity(3, 3) * 0.1e-18).unwrap();
    let fix = scene.fix(0, Some(&prior)).unwrap();
    assert!((fix.position_m - scene.source.target_m(0)).norm() < 1.0, "{:?}", fix.position_m);
}

/// Several frames are not combined with the clocks of each unknown.
#[test]
fn batches_need_trusted_clocks() {
    let scene = Scene::new(&scenario(2), PayloadKind::Spectrum);
    assert_eq!(scene.fuser.fuse_frames(&[]), Err(FusionError::UnknownClocks));
}
