//! Angles against transmit power (Section VI-B): every estimator on the same blocks, at the true delays.
//!
//! The blocks are at the true delays because the paper's are. One trial is one scene; its K angles are
//! one draw, so that intervals do not take angles of one scene as independent.

use estimation::Blocks;
use estimation::angles::admm::AdmmSettings;
use estimation::angles::literal::paper_literal_angles_rad;
use estimation::angles::{AngleEstimator, AngleSettings, Extraction};
use estimation::baselines::{Baseline, Extent};
use estimation::delay::MatchedFilter;
use model::geometry::cascade_delay_s;
use model::{CMatrix, EchoSource, Gain, Information, Scenario};

use super::{Study, column};
use crate::figures::rows::{Row, Table};
use crate::figures::statistics::{Resampler, share};

/// Transmit powers.
pub const POWERS_DBM: [f64; 9] = [30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0];

/// An error above this is gross: a tenth of the unambiguous sector's width.
const GROSS_RAD: f64 = 0.1;
/// Counted where an estimator gives no angle: half the unambiguous sector.
const NO_ANGLE_RAD: f64 = 0.5;

/// Iterations of the paper's printed algorithm. Its data `R S^+` are so badly scaled that it does not converge in 2000
/// either; from 200 on its error stays the same to within 3 %.
const LITERAL_ITERATIONS: usize = 200;

const BASELINES: [(&str, Baseline); 6] = [
    ("music", Baseline::Music),
    ("root-music", Baseline::RootMusic),
    ("esprit", Baseline::Esprit),
    ("capon", Baseline::Capon),
    ("beamformer", Baseline::Beamformer),
    ("joint-beamformer", Baseline::JointBeamformer),
];
const EXTENTS: [(&str, Extent); 2] = [("all-blocks", Extent::AllBlocks), ("one-block", Extent::OneBlock)];

/// Names in the order of [`angles_of`].
fn schemes() -> Vec<String> {
    let ours = ["proposed-polished", "proposed-denoised", "proposed-eigenvector", "paper-literal"];
    let baselines = BASELINES
        .iter()
        .flat_map(|(baseline, _)| EXTENTS.iter().map(move |(extent, _)| format!("{baseline}-{extent}")));
    ours.map(String::from).into_iter().chain(baselines).collect()
}

/// One scene: per scheme the mean squared error of its angles and how many are gross.
struct Outcome {
    squared_rad2: Vec<f64>,
    gross: Vec<usize>,
    exact_rad2: f64,
    paper_rad2: f64,
}

pub fn against_power(study: &Study) -> anyhow::Result<Vec<Row>> {
    let mut table = Table::new(study.figure, study.trials);
    let resampler = Resampler::new(study.trials as usize);
    for (point, &power_dbm) in POWERS_DBM.iter().enumerate() {
        let base = Scenario::default().with_power_dbm(power_dbm);
        let count = base.irs.len() as f64;
        let outcomes =
            study.point(point, |draw| Outcome::new(&base.clone().with_seed(draw.scenario_seed)))?;
        let exact = column(&outcomes, |o| o.exact_rad2);
        let paper = column(&outcomes, |o| o.paper_rad2);
        table.add(power_dbm, "exact-bound", "crb_rad2", resampler.mean(&exact));
        table.add(power_dbm, "paper-bound", "crb_rad2", resampler.mean(&paper));
        for (s, scheme) in schemes().iter().enumerate() {
            let squared = column(&outcomes, |o| o.squared_rad2[s]);
            let gross: usize = outcomes.iter().map(|o| o.gross[s]).sum();
            table.add(power_dbm, scheme, "mse_rad2", resampler.mean(&squared));
            table.add(power_dbm, scheme, "gap_exact_db", resampler.ratio_db(&squared, &exact));
            table.add(power_dbm, scheme, "gap_paper_db", resampler.ratio_db(&squared, &paper));
            // As many draws as scenes: the angles of one scene share its blocks.
            let gross = share(gross as f64 / count, study.trials as f64);
            table.add(power_dbm, scheme, "gross_error_share", gross);
        }
    }
    Ok(table.into_rows())
}

impl Outcome {
    fn new(scenario: &Scenario) -> anyhow::Result<Self> {
        let source = EchoSource::new(scenario)?;
        let (system, target_m) = (source.system(), source.target_m(0));
        let truth: Vec<f64> = system.irs.iter().map(|irs| irs.pose.local_angle_rad(target_m)).collect();
        let bound = |gain| -> anyhow::Result<f64> {
            let bounds = Information::new(system, target_m, source.rcs_m2(), gain).angle_crb_rad2()?;
            Ok(bounds.iter().sum::<f64>() / bounds.len() as f64)
        };
        let mut outcome = Self {
            squared_rad2: Vec::new(),
            gross: Vec::new(),
            exact_rad2: bound(Gain::Unknown)?,
            paper_rad2: bound(Gain::Known)?,
        };
        for angles in angles_of(&blocks_at_true_delays(&source)?)? {
            let errors: Vec<f64> =
                angles.iter().zip(&truth).map(|(a, t)| a.map_or(NO_ANGLE_RAD, |a| a - t)).collect();
            outcome.squared_rad2.push(errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64);
            outcome.gross.push(errors.iter().filter(|e| e.abs() > GROSS_RAD).count());
        }
        Ok(outcome)
    }
}

/// R_lk of all paths of the first frame.
fn blocks_at_true_delays(source: &EchoSource) -> anyhow::Result<Blocks> {
    let (system, target_m) = (source.system(), source.target_m(0));
    let count = system.irs_count();
    let filters = (0..count).map(|k| MatchedFilter::of_system(system, k)).collect::<Result<Vec<_>, _>>()?;
    let block = |frame: &CMatrix, l: usize, k: usize| {
        let delay_s = cascade_delay_s(&system.irs[l].pose, &system.irs[k].pose, target_m);
        let spectrum = frame.select_columns(&system.irs[k].waveform.subcarriers);
        filters[k].block(&spectrum, delay_s).map(Some)
    };
    let table = (0..count)
        .map(|l| {
            let frame = source.frame(l, 0, target_m);
            (0..count).map(|k| block(&frame, l, k)).collect()
        })
        .collect::<Result<Vec<Vec<_>>, _>>()?;
    Ok(Blocks::of_system(system, system.noise_power_w, table)?)
}

/// The angles of all IRSs by every scheme, in the order of [`schemes`].
fn angles_of(blocks: &Blocks) -> anyhow::Result<Vec<Vec<Option<f64>>>> {
    let settings = AngleSettings::default();
    let polished = AngleEstimator::new(settings.clone()).estimate(blocks)?;
    let by_eigenvector = AngleSettings { extraction: Extraction::Eigenvector, ..settings.clone() };
    let eigenvector = AngleEstimator::new(by_eigenvector).estimate(blocks)?;
    let literal = AdmmSettings { max_iterations: LITERAL_ITERATIONS, ..settings.admm.clone() };
    let mut angles = vec![
        polished.irs.iter().map(|irs| irs.angle_rad).collect(),
        // What the polish starts from: the maximum over the denoised blocks.
        polished.irs.iter().map(|irs| irs.arrival_rad.or(irs.departure_rad)).collect(),
        eigenvector.irs.iter().map(|irs| irs.angle_rad).collect(),
        paper_literal_angles_rad(blocks, settings.lambda, &literal)?,
    ];
    for (_, baseline) in BASELINES {
        for (_, extent) in EXTENTS {
            angles.push((0..blocks.irs_count()).map(|l| baseline.estimate(blocks, l, extent).ok()).collect());
        }
    }
    Ok(angles)
}
