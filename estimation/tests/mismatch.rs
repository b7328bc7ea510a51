//! What a wrong assumption costs: the same echoes, estimated by nodes and a fusion center that assume a cross-section or
//! a noise power 10 dB off.
//!
//! Table I at 50 dBm, 300 scenes of one frame each, blocks as payload, and 600 frames of noise at a false-alarm
//! probability of one half, so that there are some to count. Only the assumption differs between the rows: scenes, targets, noise are the same. The table
//! in `docs/science/mismatch.md` is what `cargo test -p hyloc-estimation --test mismatch -- --nocapture` prints.
#![allow(clippy::print_stdout)]

use hyloc_estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use hyloc_estimation::direct::DirectSettings;
use hyloc_estimation::fusion::{FrameBlocks, Fuser, FusionSettings, PayloadKind};
use model::Score;
use model::units::{db_from_ratio, ratio_from_db};
use model::{CMatrix, EchoSource, Gain, Information, Scenario, Scheme, System, SystemParts};
use rayon::prelude::*;

const SCENES: u64 = 300;
const NOISE_FRAMES: u64 = 600;
const FALSE_ALARM_PROBABILITY: f64 = 0.5;

/// What is believed, against the truth.
#[derive(Debug, Clone, Copy)]
struct Belief {
    name: &'static str,
    /// The prior's median over the true cross-section.
    rcs_db: f64,
    /// The noise power over the true one.
    noise_db: f64,
}

const BELIEFS: [Belief; 5] = [
    Belief { name: "as it is", rcs_db: 0.0, noise_db: 0.0 },
    Belief { name: "cross-section 10 dB too small", rcs_db: -10.0, noise_db: 0.0 },
    Belief { name: "cross-section 10 dB too large", rcs_db: 10.0, noise_db: 0.0 },
    Belief { name: "noise 10 dB too low", rcs_db: 0.0, noise_db: -10.0 },
    Belief { name: "noise 10 dB too high", rcs_db: 0.0, noise_db: 10.0 },
];

impl Belief {
    fn system(&self, source: &EchoSource) -> System {
        let mut system = SystemParts::clone(source.system());
        system.prior.median_m2 = source.rcs_m2() * ratio_from_db(self.rcs_db);
        system.noise_power_w *= ratio_from_db(self.noise_db);
        System::checked(system).unwrap()
    }
}

struct Chain {
    nodes: Vec<DelayEstimator>,
    fuser: Fuser,
}

impl Chain {
    fn new(system: System) -> Self {
        let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
        let node = |l| DelayEstimator::with_settings(&system, l, settings.clone()).unwrap();
        let direct =
            DirectSettings { false_alarm_probability: FALSE_ALARM_PROBABILITY, ..DirectSettings::default() };
        let nodes = (0..system.irs_count()).map(node).collect();
        let settings = FusionSettings { direct, ..FusionSettings::default() };
        Self { nodes, fuser: Fuser::new(system, settings).unwrap() }
    }

    /// Position, and squared error over what the fix itself claims, of echoes by node.
    fn fix(&self, echo: impl Fn(usize) -> CMatrix) -> Option<(model::Point, nalgebra::DMatrix<f64>)> {
        let mut blocks = FrameBlocks::new(self.nodes.len());
        for (l, node) in self.nodes.iter().enumerate() {
            blocks.insert_node(l, node.estimate(&echo(l)).unwrap(), PayloadKind::Block);
        }
        self.fuser.fuse(&blocks).ok().map(|fix| (fix.position_m, fix.covariance_m2))
    }
}

/// Squared error, bound and NEES of a scene under every belief; none where there was no fix.
type Scene = [Option<[f64; 3]>; BELIEFS.len()];

fn scene(seed: u64) -> Scene {
    let source = EchoSource::new(&Scenario::default().with_seed(5000 + seed)).unwrap();
    let target_m = source.target_m(0);
    let echoes: Vec<CMatrix> = (0..3).map(|l| source.frame(l, 0, target_m)).collect();
    let information = Information::new(source.system(), target_m, source.rcs_m2(), Gain::Unknown);
    let bound_m2 = information.position_crb_m2(Scheme::Hybrid).unwrap().trace();
    BELIEFS.map(|belief| {
        let chain = Chain::new(belief.system(&source));
        let (position_m, covariance_m2) = chain.fix(|l| echoes[l].clone())?;
        let score = Score::new(position_m, &covariance_m2, target_m);
        Some([score.error_m.powi(2), bound_m2, score.nees?])
    })
}

/// Frames of noise that give a fix, under every belief.
fn false_alarms() -> [Vec<bool>; BELIEFS.len()] {
    let source = EchoSource::new(&Scenario::default()).unwrap();
    BELIEFS.map(|belief| {
        let chain = Chain::new(belief.system(&source));
        let alarm = |frame| chain.fix(|l| source.noise(l, frame)).is_some();
        (0..NOISE_FRAMES).into_par_iter().map(alarm).collect()
    })
}

#[test]
fn a_wrong_cross_section_or_noise_power_costs_next_to_nothing() {
    let scenes: Vec<Scene> = (0..SCENES).into_par_iter().map(scene).collect();
    let alarms = false_alarms();
    println!("| assumed | above the exact bound | NEES | frames without a fix | false alarms |");
    println!("| --- | --- | --- | --- | --- |");
    let mut gaps_db = Vec::new();
    for (i, belief) in BELIEFS.iter().enumerate() {
        // Scenes that have a fix under every belief, so that all rows are of the same ones.
        let common = scenes.iter().filter(|scene| scene.iter().all(Option::is_some));
        let fixes: Vec<[f64; 3]> = common.filter_map(|scene| scene[i]).collect();
        let mean = |what: usize| fixes.iter().map(|fix| fix[what]).sum::<f64>() / fixes.len() as f64;
        let gap_db = db_from_ratio(mean(0) / mean(1));
        let missed = scenes.iter().filter(|scene| scene[i].is_none()).count();
        let false_alarms = alarms[i].iter().filter(|alarm| **alarm).count();
        println!(
            "| {} | {gap_db:.2} dB | {:.2} | {missed} of {SCENES} | {false_alarms} of {NOISE_FRAMES} |",
            belief.name,
            mean(2)
        );
        gaps_db.push(gap_db);
        assert!(missed <= 3, "{}: {missed} frames without a fix", belief.name);
        // The same frames of noise: what differs is beyond three standard deviations of chance only if the rate is.
        let differing = alarms[0].iter().zip(&alarms[i]).filter(|(a, b)| a != b).count() as f64;
        let excess = false_alarms as f64 - alarms[0].iter().filter(|alarm| **alarm).count() as f64;
        assert!(excess.abs() <= 3.0 * differing.sqrt() + 1.0, "{}: {excess} more false alarms", belief.name);
        let most = NOISE_FRAMES as f64 * FALSE_ALARM_PROBABILITY;
        assert!(false_alarms as f64 <= most + 3.0 * most.sqrt(), "{}: {false_alarms}", belief.name);
    }
    for (belief, gap_db) in BELIEFS.iter().zip(&gaps_db).skip(1) {
        let cost_db = gap_db - gaps_db[0];
        assert!(cost_db <= 0.2, "{}: {cost_db:.2} dB", belief.name);
    }
}
