//! Raw echoes to position: the whole chain on single frames, as the processes run it.
//!
//! Delays at the node (beamformed, streams weighted by the power that can reach the area), joint angles, coherent delays,
//! location with fault exclusion. Nothing is drawn from a bound, and no estimator knows the truth. The bounds are those of
//! the ideal system: the cost of an imperfection is the distance from them.

use estimation::angles::{AngleSettings, Extraction};
use estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use estimation::fusion::{Estimator, FrameBlocks, Fuser, FuserError, FusionSettings, Method, PayloadKind};
use model::scenario::{CrossSection, Imperfections};
use model::{EchoSource, Point, Scenario, System};

use super::{Study, column, position_bounds_m2};
use crate::figures::rows::{FigureRows, Row};
use crate::figures::statistics::{Resampler, share};

const POWERS_DBM: [f64; 8] = [35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0];
/// Relative errors of the channel estimate behind zero-forcing, dB.
const CHANNEL_ERRORS_DB: [f64; 6] = [-50.0, -40.0, -30.0, -20.0, -10.0, 0.0];
/// Standard deviations of the nodes' clock offsets, ns.
const CLOCK_OFFSETS_NS: [f64; 6] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0];
/// Transmit powers of the comparison of constant and fluctuating cross-section.
const CROSS_SECTION_POWERS_DBM: [f64; 6] = [45.0, 50.0, 55.0, 60.0, 65.0, 70.0];

/// An error above this is gross: more than ten times the bound at Table I.
pub const GROSS_M: f64 = 1.0;

/// One frame: squared error, and bounds of the ideal system with the waves as they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameError {
    squared_m2: f64,
    exact_m2: f64,
    paper_m2: f64,
}

/// Makes the estimator of a system.
pub(super) type MakeEstimator = Box<dyn Fn(&System) -> Result<Box<dyn Estimator>, FuserError> + Sync>;

struct ImperfectPoint {
    scheme: &'static str,
    x: f64,
    scenario: Scenario,
}

pub fn against_power(study: &Study) -> anyhow::Result<Vec<Row>> {
    let mut rows = study.new_rows();
    for (point, power_dbm) in study.points(POWERS_DBM) {
        let scenario = Scenario::default().with_power_dbm(power_dbm);
        let schemes = schemes();
        let trials = study.point(point, |draw| {
            let scenario = scenario.clone().with_seed(draw.scenario_seed);
            schemes
                .iter()
                .map(|(_, estimator)| FrameError::new(&scenario, estimator))
                .collect::<Result<Vec<_>, _>>()
        })?;
        rows.mean(power_dbm, "exact-bound", "crb_m2", &column(&trials, |trial| trial[0].exact_m2));
        rows.mean(power_dbm, "paper-bound", "crb_m2", &column(&trials, |trial| trial[0].paper_m2));
        for (s, (scheme, _)) in schemes.iter().enumerate() {
            let frames: Vec<FrameError> = trials.iter().map(|trial| trial[s]).collect();
            add(&mut rows, power_dbm, scheme, &frames);
        }
    }
    Ok(rows.into_rows())
}

/// The estimators from frames to a position: the chain, the chain with a polished beamformer instead of the joint problem,
/// and direct position determination.
fn schemes() -> [(&'static str, MakeEstimator); 3] {
    let chain = three_stage();
    let angles = AngleSettings { extraction: Extraction::Beamformer, ..chain.angles.clone() };
    let direct = FusionSettings { method: Method::Direct, ..FusionSettings::default() };
    let beamformer = FusionSettings { angles, ..chain.clone() };
    [("chain-beamformer", fuser(beamformer)), ("chain", fuser(chain)), ("direct", fuser(direct))]
}

pub(super) fn fuser(settings: FusionSettings) -> MakeEstimator {
    Box::new(move |system| Ok(Box::new(Fuser::new(system.clone(), settings.clone())?)))
}

fn three_stage() -> FusionSettings {
    FusionSettings { method: Method::ThreeStage, ..FusionSettings::default() }
}

pub fn under_imperfections(study: &Study) -> anyhow::Result<Vec<Row>> {
    let mut rows = study.new_rows();
    let chain = fuser(three_stage());
    for (point, ImperfectPoint { scheme, x, scenario }) in study.points(imperfect_points()) {
        let frames = study
            .point(point, |draw| FrameError::new(&scenario.clone().with_seed(draw.scenario_seed), &chain))?;
        add(&mut rows, x, scheme, &frames);
        rows.mean(x, scheme, "crb_exact_m2", &column(&frames, |frame| frame.exact_m2));
        rows.mean(x, scheme, "crb_paper_m2", &column(&frames, |frame| frame.paper_m2));
    }
    Ok(rows.into_rows())
}

/// All curves of the imperfections figure; x is in dB, ns or dBm by curve. The first two are at 60 dBm, well above the
/// threshold of a single frame, so that the imperfection dominates the noise.
fn imperfect_points() -> Vec<ImperfectPoint> {
    let with = |scheme, x, power_dbm, imperfections| ImperfectPoint {
        scheme,
        x,
        scenario: Scenario { imperfections, ..Scenario::default().with_power_dbm(power_dbm) },
    };
    let none = Imperfections::default();
    let leakage = CHANNEL_ERRORS_DB.map(|error_db| {
        let imperfections = Imperfections { channel_error: 10f64.powf(error_db / 20.0), ..none.clone() };
        with("leakage", error_db, 60.0, imperfections)
    });
    let clocks = CLOCK_OFFSETS_NS.map(|offset_ns| {
        let mut point = with("clock-offset", offset_ns, 60.0, none.clone());
        // Uniform within plus or minus the root of three deviations.
        point.scenario.clocks.offset_ns = offset_ns * 3f64.sqrt();
        point
    });
    let constant = CROSS_SECTION_POWERS_DBM
        .map(|power_dbm| with("constant-cross-section", power_dbm, power_dbm, none.clone()));
    let fluctuating = CROSS_SECTION_POWERS_DBM.map(|power_dbm| {
        let imperfections = Imperfections { cross_section: CrossSection::Swerling1, ..none.clone() };
        with("fluctuating-cross-section", power_dbm, power_dbm, imperfections)
    });
    leakage.into_iter().chain(clocks).chain(constant).chain(fluctuating).collect()
}

pub(super) fn add(rows: &mut FigureRows, x: f64, scheme: &str, frames: &[FrameError]) {
    let squared = column(frames, |frame| frame.squared_m2);
    let exact = column(frames, |frame| frame.exact_m2);
    let gross = squared.iter().filter(|&&s| s > GROSS_M * GROSS_M).count();
    rows.mean(x, scheme, "mse_m2", &squared);
    rows.ratio_db(x, scheme, "gap_exact_db", [&squared, &exact]);
    rows.add(x, scheme, "median_squared_error_m2", rows.resampler.median(&squared));
    // Accuracy of the fixes without a gross error.
    let kept = squared.iter().zip(&exact).filter(|(squared, _)| **squared <= GROSS_M * GROSS_M);
    let (squared, exact): (Vec<f64>, Vec<f64>) = kept.unzip();
    if !squared.is_empty() {
        let gap = Resampler::new(squared.len()).ratio_db(&squared, &exact);
        rows.add_of(squared.len() as u64, x, scheme, "gap_exact_without_gross_db", gap);
    }
    rows.add(x, scheme, "gross_error_share", share(gross as f64, frames.len() as f64));
}

impl FrameError {
    pub(super) fn new(scenario: &Scenario, estimator: &MakeEstimator) -> anyhow::Result<Self> {
        let source = EchoSource::new(scenario)?;
        let target_m = source.target_m(0);
        // The estimate of a frame without a fix is the centre of the area.
        let position_m = fixed(&source, target_m, estimator)?.unwrap_or(scenario.coverage.centre());
        let mut ideal = Scenario { imperfections: Imperfections::default(), ..scenario.clone() };
        ideal.prior.wavefront = None;
        let [exact_m2, paper_m2] = position_bounds_m2(&System::new(&ideal)?, target_m, source.rcs_m2())?;
        Ok(Self { squared_m2: (position_m - target_m).norm_squared(), exact_m2, paper_m2 })
    }

    pub(super) fn squared_m2(&self) -> f64 {
        self.squared_m2
    }

    /// An estimate beside a bound of its own.
    pub(super) fn against(position_m: Point, target_m: Point, bound_m2: f64) -> Self {
        let squared_m2 = (position_m - target_m).norm_squared();
        Self { squared_m2, exact_m2: bound_m2, paper_m2: f64::NAN }
    }
}

/// The delay estimators of all nodes, with the settings of the node process.
pub fn nodes(system: &System) -> anyhow::Result<Vec<DelayEstimator>> {
    let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
    let node = |l| DelayEstimator::with_settings(system, l, settings.clone());
    Ok((0..system.irs_count()).map(node).collect::<Result<_, _>>()?)
}

/// The fix of the first frame, if there is one.
fn fixed(source: &EchoSource, target_m: Point, estimator: &MakeEstimator) -> anyhow::Result<Option<Point>> {
    let system = source.system();
    let mut frame = FrameBlocks::new(system.irs_count());
    for (l, node) in nodes(system)?.iter().enumerate() {
        frame.insert_node(l, node.estimate(&source.frame(l, 0, target_m))?, PayloadKind::Spectrum);
    }
    let fixes = estimator(system)?.estimate(&frame).unwrap_or_default();
    Ok(fixes.first().map(|fix| fix.position_m))
}
