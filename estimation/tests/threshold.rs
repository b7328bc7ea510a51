//! What a fix says of itself: near the detection threshold, and with a faulty path.
//!
//! Table I through the nodes' estimators and the fuser, as in the pipeline; frames of one scenario. Figures are printed:
//! run with `--nocapture` to see them.
#![allow(clippy::print_stdout)]

use std::f64::consts::TAU;

use hyloc_estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use hyloc_estimation::fusion::{
    BatchSettings, FrameBlocks, FusedFix, Fuser, FusionSettings, Method, PayloadKind,
};
use hyloc_estimation::location::{Fault, Status};
use model::Score;
use model::random::{Purpose, stream};
use model::{CMatrix, EchoSource, Point, Scenario};
use num_complex::Complex64;
use rand::RngExt;
use rayon::prelude::*;

/// 99.9 % quantile of a chi-square variable of two degrees of freedom.
const ELLIPSE: f64 = 13.816;

/// A scenario with its nodes and its fuser.
struct Pipeline {
    source: EchoSource,
    nodes: Vec<DelayEstimator>,
    fuser: Fuser,
    kind: PayloadKind,
}

struct Outcome {
    error_m: f64,
    nees: f64,
    fix: FusedFix,
}

impl Pipeline {
    fn new(scenario: &Scenario, kind: PayloadKind, settings: FusionSettings) -> Self {
        let source = EchoSource::new(scenario).unwrap();
        let delays = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
        let node = |l| DelayEstimator::with_settings(source.system(), l, delays.clone()).unwrap();
        let nodes = (0..source.system().irs_count()).map(node).collect();
        let fuser = Fuser::new(source.system().clone(), settings).unwrap();
        Self { source, nodes, fuser, kind }
    }

    fn blocks(&self, echoes: &[CMatrix]) -> FrameBlocks {
        let mut blocks = FrameBlocks::new(self.nodes.len());
        for (l, (node, echo)) in self.nodes.iter().zip(echoes).enumerate() {
            blocks.insert_node(l, node.estimate(echo).unwrap(), self.kind);
        }
        blocks
    }

    fn echoes(&self, frame: u64, target_m: Point) -> Vec<CMatrix> {
        (0..self.nodes.len()).map(|l| self.source.frame(l, frame, target_m)).collect()
    }

    fn outcome(&self, frame: u64) -> Option<Outcome> {
        let target_m = self.source.target_m(frame);
        let fix = self.fuser.fuse(&self.blocks(&self.echoes(frame, target_m))).ok()?;
        Some(Outcome::new(fix, target_m))
    }
}

impl Outcome {
    fn new(fix: FusedFix, target_m: Point) -> Self {
        let score = Score::new(fix.position_m, &fix.covariance_m2, target_m);
        Self { error_m: score.error_m, nees: score.nees.expect("definite"), fix }
    }

    fn is_nominal(&self) -> bool {
        Status::with_cautions(&self.fix.cautions) == Status::Nominal
    }
}

struct Nominal {
    fixes: usize,
    nees: f64,
    outside: usize,
}

impl Nominal {
    /// Those of all outcomes that are called nominal.
    fn new(label: &str, all: &[Outcome]) -> Self {
        let nominal: Vec<&Outcome> = all.iter().filter(|outcome| outcome.is_nominal()).collect();
        let result = Self {
            fixes: nominal.len(),
            nees: nominal.iter().map(|o| o.nees).sum::<f64>() / nominal.len() as f64,
            outside: nominal.iter().filter(|o| o.nees > ELLIPSE).count(),
        };
        println!(
            "{label}: {} fixes, {} off by more than 1 m; {} nominal, of which {} off by more than 1 m, {} outside \
             their 99.9 % ellipse, NEES {:.2}",
            all.len(),
            all.iter().filter(|o| o.error_m > 1.0).count(),
            result.fixes,
            nominal.iter().filter(|o| o.error_m > 1.0).count(),
            result.outside,
            result.nees,
        );
        result
    }

    /// NEES of at most 2.6 (three standard errors more where there are fewer than thirty fixes, which have no mean to
    /// speak of), and at most 1 % of the fixes outside their 99.9 % ellipse.
    fn assert_consistent(&self, label: &str) {
        let slack = if self.fixes < 30 { 6.0 / (self.fixes.max(1) as f64).sqrt() } else { 0.0 };
        assert!(self.fixes == 0 || self.nees <= 2.6 + slack, "{label}: {}", self.nees);
        assert!(self.outside as f64 <= 0.01 * self.fixes as f64, "{label}: {}", self.outside);
    }
}

/// Nominal fixes of 1500 frames.
fn nominal(power_dbm: f64, kind: PayloadKind) -> Nominal {
    let scenario = Scenario::default().with_power_dbm(power_dbm);
    let pipeline = Pipeline::new(&scenario, kind, FusionSettings::default());
    let all: Vec<Outcome> = (0..1500).into_par_iter().filter_map(|frame| pipeline.outcome(frame)).collect();
    Nominal::new(&format!("{power_dbm} dBm, {kind:?}"), &all)
}

/// Where the likelihood has other peaks, a fix is widened or called doubtful: what is called nominal can be relied on.
#[test]
fn nominal_fixes_below_the_threshold_are_where_they_say() {
    for kind in [PayloadKind::Spectrum, PayloadKind::Block] {
        for power_dbm in [30.0, 32.0, 35.0, 40.0] {
            nominal(power_dbm, kind).assert_consistent(&format!("{power_dbm} dBm, {kind:?}"));
        }
    }
}

#[test]
fn nearly_every_fix_at_fifty_dbm_is_nominal() {
    for kind in [PayloadKind::Spectrum, PayloadKind::Block] {
        let nominal = nominal(50.0, kind);
        assert!(nominal.fixes >= 1485, "{} of 1500", nominal.fixes);
        // Three standard errors of the mean of as many chi-square variables of two degrees of freedom.
        assert!((nominal.nees - 2.0).abs() < 3.0 * 2.0 / (nominal.fixes as f64).sqrt(), "{}", nominal.nees);
    }
}

/// A batch of frames of a target of constant velocity: the fix, and where the target is at the last frame.
fn batch(
    pipeline: &Pipeline,
    number: u64,
    frames: u64,
    spoil: impl Fn(&mut [CMatrix]),
) -> Option<(FusedFix, Point)> {
    let at = |step: u64| {
        pipeline.source.target_m(number) * 0.8
            + Point::new(1.0 + 0.1 * step as f64, 1.0 - 0.1 * step as f64, 0.0)
    };
    let survey = |step: u64| {
        let frame = frames * number + step;
        let mut echoes = pipeline.echoes(frame, at(step));
        spoil(&mut echoes);
        (frame, pipeline.fuser.survey(&pipeline.blocks(&echoes), None).unwrap())
    };
    let surveys: Vec<_> = (0..frames).map(survey).collect();
    let numbered: Vec<_> = surveys.iter().map(|(frame, survey)| (*frame, survey)).collect();
    Some((pipeline.fuser.fuse_frames(&numbered).ok()?, at(frames - 1)))
}

fn batch_pipeline(power_dbm: f64, frames: u64) -> Pipeline {
    let batch = BatchSettings { frames: frames as usize, ..BatchSettings::default() };
    let settings = FusionSettings { method: Method::Direct, batch, ..FusionSettings::default() };
    Pipeline::new(&Scenario::default().with_power_dbm(power_dbm), PayloadKind::Spectrum, settings)
}

/// The same for batches of four frames: other places are weighed with the prior of the cross-section counted once.
#[test]
fn nominal_batches_below_the_threshold_are_where_they_say() {
    for (power_dbm, least_nominal) in [(30.0, 0), (32.0, 100), (35.0, 600)] {
        let pipeline = batch_pipeline(power_dbm, 4);
        let outcome = |number| batch(&pipeline, number, 4, |_| ()).map(|(fix, at)| Outcome::new(fix, at));
        let all: Vec<Outcome> = (0..1000).into_par_iter().filter_map(outcome).collect();
        let label = format!("{power_dbm} dBm, batches of four");
        let nominal = Nominal::new(&label, &all);
        nominal.assert_consistent(&label);
        assert!(nominal.fixes >= least_nominal, "{label}: {} nominal", nominal.fixes);
    }
}

/// Adds a delay to the echoes of the paths that a fault spoils, twice where it does so in two roles.
fn spoil(source: &EchoSource, echoes: &mut [CMatrix], fault: Fault, bias_s: f64) {
    let system = source.system();
    for (l, echo) in echoes.iter_mut().enumerate() {
        for (k, irs) in system.irs.iter().enumerate() {
            if !fault.spoils_path(l, k) {
                continue;
            }
            let twice = matches!(fault, Fault::NodeDelays { .. }) && l == k;
            for &i in &irs.waveform.subcarriers {
                let phase = -TAU * system.frequency_hz(i) * bias_s * if twice { 2.0 } else { 1.0 };
                let mut column = echo.column_mut(i);
                column *= Complex64::from_polar(1.0, phase);
            }
        }
    }
}

/// A fault of a random kind; its size is log-uniform from 0.3 to 300 ns, a tenth of a deviation to a whole window.
fn random_fault(frame: u64) -> (Fault, f64) {
    let mut rng = stream(77, Purpose::Study, [frame, 0]);
    let (node, other) = (rng.random_range(0..3), rng.random_range(0..3));
    let fault = match rng.random_range(0..4) {
        0 => Fault::Path { sensor: node, reflector: other },
        1 => Fault::SensorDelays { node },
        2 => Fault::ReflectorDelays { node },
        _ => Fault::NodeDelays { node },
    };
    let sign = if rng.random_bool(0.5) { 1.0 } else { -1.0 };
    (fault, sign * 10f64.powf(rng.random_range(-9.5..-6.5)))
}

/// The largest number of events of probability 1e-3 that 99.9 % of so many trials stay below.
fn most_exceedances(trials: usize) -> usize {
    let mean = 1e-3 * trials as f64;
    let (mut term, mut sum, mut count) = ((-mean).exp(), (-mean).exp(), 0);
    while sum < 0.999 {
        count += 1;
        term *= mean / count as f64;
        sum += term;
    }
    count
}

/// Every direct fix carries a radius that holds its error but for one in a thousand, whatever path or clock is wrong.
#[test]
fn protection_levels_of_direct_fixes_hold_with_a_fault() {
    const FRAMES: u64 = 4000;
    let settings = FusionSettings { method: Method::Direct, ..FusionSettings::default() };
    let pipeline = Pipeline::new(&Scenario::default(), PayloadKind::Spectrum, settings);
    for faulty in [false, true] {
        let levels: Vec<(f64, f64)> = (0..FRAMES)
            .into_par_iter()
            .filter_map(|frame| {
                let target_m = pipeline.source.target_m(frame);
                let mut echoes = pipeline.echoes(frame, target_m);
                if faulty {
                    let (fault, bias_s) = random_fault(frame);
                    spoil(&pipeline.source, &mut echoes, fault, bias_s);
                }
                let outcome = Outcome::new(pipeline.fuser.fuse(&pipeline.blocks(&echoes)).ok()?, target_m);
                Some((outcome.error_m, outcome.fix.protection_level_m?))
            })
            .collect();
        let beyond = levels.iter().filter(|(error_m, level_m)| error_m > level_m).count();
        let mut sorted: Vec<f64> = levels.iter().map(|(_, level_m)| *level_m).collect();
        sorted.sort_by(f64::total_cmp);
        println!(
            "direct, faulty {faulty}: {beyond} of {} errors beyond the protection level, median level {:.2} m",
            levels.len(),
            sorted[sorted.len() / 2]
        );
        assert!(levels.len() as f64 >= 0.95 * FRAMES as f64, "{} of {FRAMES} have a level", levels.len());
        assert!(beyond <= most_exceedances(levels.len()), "{beyond}");
        // A level that says nothing would hold too.
        assert!(sorted[sorted.len() / 2] < 1.5, "{}", sorted[sorted.len() / 2]);
    }
}

/// The same for batches: one path is wrong in all frames.
#[test]
fn protection_levels_of_batches_hold_with_a_fault() {
    const BATCHES: u64 = 600;
    let pipeline = batch_pipeline(Scenario::default().base_station.power_dbm, 3);
    let levels: Vec<(f64, Option<f64>)> = (0..BATCHES)
        .into_par_iter()
        .filter_map(|number| {
            let (fault, bias_s) = random_fault(number);
            let spoil = |echoes: &mut [CMatrix]| spoil(&pipeline.source, echoes, fault, bias_s);
            let (fix, at) = batch(&pipeline, number, 3, spoil)?;
            Some(((fix.position_m - at).norm(), fix.protection_level_m))
        })
        .collect();
    let levelled: Vec<(f64, f64)> =
        levels.iter().filter_map(|(error_m, level_m)| Some((*error_m, (*level_m)?))).collect();
    let beyond = levelled.iter().filter(|(error_m, level_m)| error_m > level_m).count();
    println!("batches: {beyond} of {} errors beyond the protection level", levelled.len());
    assert!(levelled.len() >= 300, "{} of {BATCHES} batches have a level", levelled.len());
    assert!(beyond <= most_exceedances(levelled.len()), "{beyond}");
}
