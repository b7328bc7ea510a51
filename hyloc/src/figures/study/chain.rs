//! Raw echoes to position: the whole chain on single frames, as the processes run it.
//!
//! Delays at the node (beamformed, streams weighted by what can reach the area), joint angles, coherent delays,
//! location with faults excluded. Nothing is drawn from a bound and nothing true is given to an estimator. The bounds
//! are those of the ideal system: what an imperfection costs shows as the distance from them.

use estimation::angles::{AngleSettings, Extraction};
use estimation::delay::{DelayEstimator, DelaySettings, Statistic};
use estimation::fusion::{FrameBlocks, Fuser, FusionSettings, Method, PayloadKind};
use model::scenario::{CrossSection, Imperfections};
use model::{EchoSource, Gain, Information, Point, Scenario, Scheme, System};

use super::{Study, column};
use crate::figures::rows::{Row, Table};
use crate::figures::statistics::{Resampler, share};

/// Transmit powers.
pub const POWERS_DBM: [f64; 8] = [35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0];
/// Errors of the channel estimate behind zero-forcing, relative, dB.
const CHANNEL_ERRORS_DB: [f64; 6] = [-50.0, -40.0, -30.0, -20.0, -10.0, 0.0];
/// Standard deviations of the nodes' clock offsets, ns.
const CLOCK_OFFSETS_NS: [f64; 6] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0];
/// Transmit powers at which the cross-section fluctuates or not.
const CROSS_SECTION_POWERS_DBM: [f64; 6] = [45.0, 50.0, 55.0, 60.0, 65.0, 70.0];

/// An error above this is gross: more than ten times the bound at Table I.
pub const GROSS_M: f64 = 1.0;

/// One frame: squared error, and bounds of the ideal system.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    squared_m2: f64,
    exact_m2: f64,
    paper_m2: f64,
}

/// A point of the imperfections figure: curve, x, scenario.
pub struct ImperfectPoint {
    scheme: &'static str,
    x: f64,
    scenario: Scenario,
}

pub fn against_power(study: &Study) -> anyhow::Result<Vec<Row>> {
    let mut table = Table::new(study.figure, study.trials);
    for (point, &power_dbm) in POWERS_DBM.iter().enumerate() {
        let scenario = Scenario::default().with_power_dbm(power_dbm);
        let schemes = schemes();
        let trials = study.point(point, |draw| {
            let scenario = scenario.clone().with_seed(draw.scenario_seed);
            schemes
                .iter()
                .map(|(_, settings)| Outcome::new(&scenario, settings))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let resampler = Resampler::new(trials.len());
        let bound = |of: fn(&Outcome) -> f64| resampler.mean(&column(&trials, |trial| of(&trial[0])));
        table.add(power_dbm, "exact-bound", "crb_m2", bound(|o| o.exact_m2));
        table.add(power_dbm, "paper-bound", "crb_m2", bound(|o| o.paper_m2));
        for (s, (scheme, _)) in schemes.iter().enumerate() {
            let outcomes: Vec<Outcome> = trials.iter().map(|trial| trial[s]).collect();
            add(&mut table, power_dbm, scheme, &outcomes, &resampler);
        }
    }
    Ok(table.into_rows())
}

/// The ways from echoes to a position: the chain, the chain with a polished beamformer in place of the joint problem, and
/// directly.
fn schemes() -> [(&'static str, FusionSettings); 3] {
    let chain = three_stage();
    let angles = AngleSettings { extraction: Extraction::Beamformer, ..chain.angles.clone() };
    let direct = FusionSettings { method: Method::Direct, ..FusionSettings::default() };
    [("chain-beamformer", FusionSettings { angles, ..chain.clone() }), ("chain", chain), ("direct", direct)]
}

fn three_stage() -> FusionSettings {
    FusionSettings { method: Method::ThreeStage, ..FusionSettings::default() }
}

pub fn under_imperfections(study: &Study) -> anyhow::Result<Vec<Row>> {
    let mut table = Table::new(study.figure, study.trials);
    for (point, ImperfectPoint { scheme, x, scenario }) in imperfect_points().into_iter().enumerate() {
        let outcomes = study.point(point, |draw| {
            Outcome::new(&scenario.clone().with_seed(draw.scenario_seed), &three_stage())
        })?;
        let resampler = Resampler::new(outcomes.len());
        add(&mut table, x, scheme, &outcomes, &resampler);
        table.add(x, scheme, "crb_exact_m2", resampler.mean(&column(&outcomes, |o| o.exact_m2)));
        table.add(x, scheme, "crb_paper_m2", resampler.mean(&column(&outcomes, |o| o.paper_m2)));
    }
    Ok(table.into_rows())
}

/// All curves of the imperfections figure; x is dB, ns or dBm by curve. The first two are at 60 dBm, clear of the
/// threshold of a single frame, so that what shows is the imperfection and not the noise.
pub fn imperfect_points() -> Vec<ImperfectPoint> {
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
        let imperfections = Imperfections { clock_offset_s: offset_ns * 1e-9, ..none.clone() };
        with("clock-offset", offset_ns, 60.0, imperfections)
    });
    let constant = CROSS_SECTION_POWERS_DBM
        .map(|power_dbm| with("constant-cross-section", power_dbm, power_dbm, none.clone()));
    let fluctuating = CROSS_SECTION_POWERS_DBM.map(|power_dbm| {
        let imperfections = Imperfections { cross_section: CrossSection::Swerling1, ..none.clone() };
        with("fluctuating-cross-section", power_dbm, power_dbm, imperfections)
    });
    leakage.into_iter().chain(clocks).chain(constant).chain(fluctuating).collect()
}

fn add(table: &mut Table, x: f64, scheme: &str, outcomes: &[Outcome], resampler: &Resampler) {
    let squared = column(outcomes, |o| o.squared_m2);
    let exact = column(outcomes, |o| o.exact_m2);
    let gross = squared.iter().filter(|&&s| s > GROSS_M * GROSS_M).count();
    table.add(x, scheme, "mse_m2", resampler.mean(&squared));
    table.add(x, scheme, "gap_exact_db", resampler.ratio_db(&squared, &exact));
    table.add(x, scheme, "median_squared_error_m2", resampler.median(&squared));
    // Gross errors set apart: what accuracy the other fixes have.
    let kept: Vec<usize> = (0..outcomes.len()).filter(|&i| squared[i] <= GROSS_M * GROSS_M).collect();
    if !kept.is_empty() {
        let pick = |values: &[f64]| -> Vec<f64> { kept.iter().map(|&i| values[i]).collect() };
        let (squared, exact) = (pick(&squared), pick(&exact));
        let rest = Resampler::new(kept.len());
        let gap = rest.ratio_db(&squared, &exact);
        table.add_of(kept.len() as u64, x, scheme, "gap_exact_without_gross_db", gap);
    }
    table.add(x, scheme, "gross_error_share", share(gross as f64, outcomes.len() as f64));
}

impl Outcome {
    fn new(scenario: &Scenario, settings: &FusionSettings) -> anyhow::Result<Self> {
        let source = EchoSource::new(scenario)?;
        let target_m = source.target_m(0);
        // A frame without a fix is as good as a guess at the centre of the area.
        let position_m = fixed(&source, target_m, settings)?.unwrap_or(scenario.coverage.centre());
        let ideal = Scenario { imperfections: Imperfections::default(), ..scenario.clone() };
        let system = System::new(&ideal)?;
        let bound = |gain| -> anyhow::Result<f64> {
            Ok(Information::new(&system, target_m, source.rcs_m2(), gain)
                .position_crb_m2(Scheme::Hybrid)?
                .trace())
        };
        Ok(Self {
            squared_m2: (position_m - target_m).norm_squared(),
            exact_m2: bound(Gain::Unknown)?,
            paper_m2: bound(Gain::Known)?,
        })
    }
}

/// The nodes' estimators, as the processes set them.
pub fn nodes(system: &System) -> anyhow::Result<Vec<DelayEstimator>> {
    let settings = DelaySettings { statistic: Statistic::Illuminated, ..DelaySettings::default() };
    let node = |l| DelayEstimator::with_settings(system, l, settings.clone());
    Ok((0..system.irs_count()).map(node).collect::<Result<_, _>>()?)
}

/// The fix of the first frame; none where fusion has none.
fn fixed(source: &EchoSource, target_m: Point, settings: &FusionSettings) -> anyhow::Result<Option<Point>> {
    let system = source.system();
    let mut frame = FrameBlocks::new(system.irs_count());
    for (l, node) in nodes(system)?.iter().enumerate() {
        frame.insert_node(l, node.estimate(&source.frame(l, 0, target_m))?, PayloadKind::Spectrum);
    }
    let fuser = Fuser::new(system.clone(), settings.clone())?;
    Ok(fuser.fuse(&frame).ok().map(|fused| fused.position_m))
}
