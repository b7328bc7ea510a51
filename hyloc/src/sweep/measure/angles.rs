//! Angles (Section VI-B): every estimator on the same blocks, at the true delays.
//!
//! Two plans, both with S_k of rank N as in the paper: Table I with random path angles, and path angles on the DFT
//! grids (`deploy/scenarios/rank-full.toml`), where S_k is well-conditioned.
//! The blocks are at the true delays because the paper's are. One trial is one scene; its K angles count as one draw,
//! so that intervals do not treat angles of one scene as independent.

use estimation::Blocks;
use estimation::angles::admm::AdmmSettings;
use estimation::angles::extraction::combined_rad;
use estimation::angles::literal::paper_literal;
use estimation::angles::{AngleEstimate, AngleSettings, Extraction, estimate_angles};
use estimation::baselines::{Baseline, Extent};
use model::{EchoSource, Gain, Information, Scenario};

use super::literal::candidates;
use super::{Deserialize, Draw, Estimate, GridPoint, Measure, PointRows, Serialize, column, share};
use crate::scene::blocks_at_true_delays;

/// An error above this is gross: a tenth of the unambiguous sector's width.
const GROSS_RAD: f64 = 0.1;
/// Error that is counted if an estimator gives no angle: half the unambiguous sector.
const NO_ANGLE_RAD: f64 = 0.5;

const BASELINES: [(&str, Baseline); 6] = [
    ("music", Baseline::Music),
    ("root-music", Baseline::RootMusic),
    ("esprit", Baseline::Esprit),
    ("capon", Baseline::Capon),
    ("beamformer", Baseline::Beamformer),
    ("joint-beamformer", Baseline::JointBeamformer),
];
const EXTENTS: [(&str, Extent); 2] = [("all-blocks", Extent::AllBlocks), ("one-block", Extent::OneBlock)];

/// The printed algorithm, at each power with the best of its [`candidates`].
const LITERAL: &str = "paper-literal";

/// Names in the order of [`angles_of`], which ends with the candidates of the printed algorithm.
fn schemes() -> Vec<String> {
    let ours = [
        "proposed-polished",
        "beamformer-polished",
        "proposed-denoised",
        "proposed-eigenvector",
        "proposed-eigenvector-combined",
    ];
    let baselines = BASELINES
        .iter()
        .flat_map(|(baseline, _)| EXTENTS.iter().map(move |(extent, _)| format!("{baseline}-{extent}")));
    ours.map(String::from).into_iter().chain(baselines).collect()
}

/// One scene: per scheme the mean squared error of the angles and the number of gross errors.
#[derive(Debug, Serialize, Deserialize)]
pub struct SceneErrors {
    squared_rad2: Vec<f64>,
    gross: Vec<usize>,
    exact_rad2: f64,
    paper_rad2: f64,
}

/// Every estimator on the same blocks.
pub struct AngleMeasure;

impl Measure for AngleMeasure {
    type Outcome = SceneErrors;

    fn trial(draw: Draw) -> anyhow::Result<SceneErrors> {
        let scene = AngleScene::new(&draw.scenario)?;
        let errors = angles_of(&scene.blocks)?.into_iter().map(|angles| scene.error(&angles));
        let (squared_rad2, gross) = errors.unzip();
        Ok(SceneErrors { squared_rad2, gross, exact_rad2: scene.exact_rad2, paper_rad2: scene.paper_rad2 })
    }

    fn rows(point: &GridPoint, scenes: &[SceneErrors], rows: &mut PointRows) {
        let exact = column(scenes, |scene| scene.exact_rad2);
        let paper = column(scenes, |scene| scene.paper_rad2);
        rows.mean("exact-bound", "crb_rad2", &exact);
        rows.mean("paper-bound", "crb_rad2", &paper);
        let schemes = schemes();
        let sum = |s: usize| column(scenes, |scene| scene.squared_rad2[s]).iter().sum::<f64>();
        let literal = (schemes.len()..schemes.len() + candidates().len())
            .min_by(|&a, &b| sum(a).total_cmp(&sum(b)))
            .unwrap_or(schemes.len());
        let lambda = candidates()[literal - schemes.len()].lambda;
        rows.add(LITERAL, "lambda", Estimate::exact(lambda));
        let named = schemes.iter().map(String::as_str).enumerate();
        for (s, scheme) in named.chain([(literal, LITERAL)]) {
            let squared = column(scenes, |scene| scene.squared_rad2[s]);
            let gross: usize = scenes.iter().map(|scene| scene.gross[s]).sum();
            rows.mean(scheme, "mse_rad2", &squared);
            rows.ratio_db(scheme, "gap_exact_db", [&squared, &exact]);
            rows.ratio_db(scheme, "gap_paper_db", [&squared, &paper]);
            // As many draws as scenes: the angles of one scene share its blocks.
            let angles = point.scenario.irs.len() as f64;
            rows.add(scheme, "gross_error_share", share(gross as f64 / angles, scenes.len() as f64));
        }
    }
}

/// Blocks at the true delays, true angles, and the mean bounds on them.
pub struct AngleScene {
    pub blocks: Blocks,
    truth_rad: Vec<f64>,
    pub exact_rad2: f64,
    pub paper_rad2: f64,
}

impl AngleScene {
    pub fn new(scenario: &Scenario) -> anyhow::Result<Self> {
        let source = EchoSource::new(scenario)?;
        let (system, target_m) = (source.system(), source.target_m(0));
        let bound = |gain| -> anyhow::Result<f64> {
            let bounds = Information::new(system, target_m, source.rcs_m2(), gain).angle_crb_rad2()?;
            Ok(bounds.iter().sum::<f64>() / bounds.len() as f64)
        };
        Ok(Self {
            blocks: blocks_at_true_delays(&source)?,
            truth_rad: system.irs.iter().map(|irs| irs.pose.local_angle_rad(target_m)).collect(),
            exact_rad2: bound(Gain::Unknown)?,
            paper_rad2: bound(Gain::Known)?,
        })
    }

    /// Mean squared error of the angles, and number of gross errors.
    pub fn error(&self, angles: &[Option<f64>]) -> (f64, usize) {
        let pairs = angles.iter().zip(&self.truth_rad);
        let errors: Vec<f64> = pairs.map(|(a, t)| a.map_or(NO_ANGLE_RAD, |a| a - t)).collect();
        let squared = errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64;
        (squared, errors.iter().filter(|e| e.abs() > GROSS_RAD).count())
    }
}

/// The angles of all IRSs by every scheme, in the order of [`schemes`].
fn angles_of(blocks: &Blocks) -> anyhow::Result<Vec<Vec<Option<f64>>>> {
    // Angles without the polish need more accuracy than the default.
    let admm = AdmmSettings { tolerance: 3e-3, ..AdmmSettings::default() };
    let settings = AngleSettings { admm, ..AngleSettings::default() };
    let by = |extraction| estimate_angles(blocks, &AngleSettings { extraction, ..settings.clone() });
    let angles = |estimate: &AngleEstimate| estimate.irs.iter().map(|irs| irs.angle_rad).collect();
    let (polished, eigenvector) = (by(Extraction::Polished)?, by(Extraction::Eigenvector)?);
    let both = eigenvector.irs.iter().enumerate();
    let combined = both.map(|(i, irs)| combined_rad(blocks, i, irs.arrival_rad, irs.departure_rad)).collect();
    let mut angles = vec![
        angles(&polished),
        angles(&by(Extraction::Beamformer)?),
        // Starting point of the polish: the maximum over the denoised blocks.
        polished.irs.iter().map(|irs| irs.arrival_rad.or(irs.departure_rad)).collect(),
        angles(&eigenvector),
        combined,
    ];
    for (_, baseline) in BASELINES {
        for (_, extent) in EXTENTS {
            angles.push((0..blocks.irs_count()).map(|l| baseline.estimate(blocks, l, extent).ok()).collect());
        }
    }
    for settings in candidates() {
        angles.push(paper_literal(blocks, &settings)?.angle_rad);
    }
    Ok(angles)
}
