//! Raw echoes to position: the whole chain on single frames, as the processes run it.
//!
//! Delays at the node (beamformed, streams weighted by the power that can reach the area), joint angles, coherent delays,
//! location with fault exclusion. Nothing is drawn from a bound, and no estimator knows the truth. The bounds are those of
//! the ideal system: the cost of an imperfection is the distance from them.

use estimation::angles::{AngleSettings, Extraction};
use estimation::fusion::{Estimator, FrameBlocks, Fuser, FuserError, FusionSettings, Method};
use model::scenario::Imperfections;
use model::{Point, Scenario, System};

use super::{
    Deserialize, Draw, FrameChain, GROSS_M, GridPoint, Measure, PointRows, Resampler, Serialize, column,
    gross_count, position_bounds_m2, share,
};

/// An estimate beside its bound.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct FrameError {
    pub squared_m2: f64,
    pub bound_m2: f64,
}

/// One frame: errors by scheme, and the paper's bound.
#[derive(Debug, Serialize, Deserialize)]
pub struct FrameErrors {
    errors: Vec<FrameError>,
    paper_m2: f64,
}

/// Makes the estimator of a system.
type MakeEstimator = Box<dyn Fn(&System) -> Result<Box<dyn Estimator>, FuserError>>;

/// Without curves: the chain, the chain with a polished beamformer instead of the joint problem, and direct position determination.
/// With curves, such as one per imperfection: the chain alone.
pub struct EndToEndMeasure;

/// The estimators from frames to a position by their names in rows.
fn schemes(curve: &str) -> Vec<(&str, MakeEstimator)> {
    let chain = FusionSettings { method: Method::ThreeStage, ..FusionSettings::default() };
    let angles = AngleSettings { extraction: Extraction::Beamformer, ..chain.angles.clone() };
    let beamformer = FusionSettings { angles, ..chain.clone() };
    if curve.is_empty() {
        vec![("chain-beamformer", fuser(beamformer)), ("chain", fuser(chain)), ("direct", fuser(direct()))]
    } else {
        vec![(curve, fuser(chain))]
    }
}

impl Measure for EndToEndMeasure {
    type Outcome = FrameErrors;

    fn trial(draw: Draw) -> anyhow::Result<FrameErrors> {
        let chain = FrameChain::new(&draw.scenario)?;
        let (system, target_m) = (chain.system(), chain.source.target_m(0));
        let frame = chain.frame(0, None)?;
        let [exact_m2, paper_m2] = ideal_bounds_m2(&draw.scenario, target_m)?;
        let error = |(_, make): (&str, MakeEstimator)| {
            Ok(FrameError::new(located(system, make(system)?.as_ref(), &frame), target_m, exact_m2))
        };
        let errors = schemes(&draw.point.curve).into_iter().map(error).collect::<anyhow::Result<_>>()?;
        Ok(FrameErrors { errors, paper_m2 })
    }

    fn rows(point: &GridPoint, trials: &[FrameErrors], rows: &mut PointRows) {
        let exact = column(trials, |trial| trial.errors[0].bound_m2);
        let paper = column(trials, |trial| trial.paper_m2);
        if point.curve.is_empty() {
            rows.mean("exact-bound", "crb_m2", &exact);
            rows.mean("paper-bound", "crb_m2", &paper);
        }
        for (s, (scheme, _)) in schemes(&point.curve).into_iter().enumerate() {
            add_errors(rows, scheme, trials.iter().map(|trial| trial.errors[s]));
        }
        if !point.curve.is_empty() {
            rows.mean(&point.curve, "crb_exact_m2", &exact);
            rows.mean(&point.curve, "crb_paper_m2", &paper);
        }
    }
}

fn fuser(settings: FusionSettings) -> MakeEstimator {
    Box::new(move |system| Ok(Box::new(Fuser::new(system.clone(), settings.clone())?)))
}

/// Settings of direct position determination.
pub(super) fn direct() -> FusionSettings {
    FusionSettings { method: Method::Direct, ..FusionSettings::default() }
}

/// The first fix of a frame; the centre of the area if there is none.
pub(super) fn located(system: &System, estimator: &dyn Estimator, frame: &FrameBlocks) -> Point {
    let fixes = estimator.estimate(frame).unwrap_or_default();
    fixes.first().map_or(system.coverage.centre(), |fix| fix.position_m)
}

/// Bounds of the ideal system with the waves as they are.
pub(super) fn ideal_bounds_m2(scenario: &Scenario, target_m: Point) -> anyhow::Result<[f64; 2]> {
    let mut ideal = Scenario { imperfections: Imperfections::default(), ..scenario.clone() };
    ideal.prior.wavefront = None;
    position_bounds_m2(&System::new(&ideal)?, target_m, scenario.rcs_m2())
}

/// Rows of the errors of a scheme.
pub(super) fn add_errors(rows: &mut PointRows, scheme: &str, errors: impl Iterator<Item = FrameError>) {
    let (squared, bound): (Vec<f64>, Vec<f64>) =
        errors.map(|error| (error.squared_m2, error.bound_m2)).unzip();
    rows.mean(scheme, "mse_m2", &squared);
    rows.ratio_db(scheme, "gap_exact_db", [&squared, &bound]);
    let median = rows.resampler().median(&squared);
    rows.add(scheme, "median_squared_error_m2", median);
    // Accuracy of the fixes without a gross error.
    let kept = squared.iter().zip(&bound).filter(|(squared, _)| **squared <= GROSS_M * GROSS_M);
    let (fine, bound): (Vec<f64>, Vec<f64>) = kept.unzip();
    if !fine.is_empty() {
        let gap = Resampler::new(fine.len()).ratio_db(&fine, &bound);
        rows.add_of(fine.len(), scheme, "gap_exact_without_gross_db", gap);
    }
    rows.add(scheme, "gross_error_share", share(gross_count(&squared), squared.len() as f64));
}

impl FrameError {
    pub fn new(position_m: Point, target_m: Point, bound_m2: f64) -> Self {
        Self { squared_m2: (position_m - target_m).norm_squared(), bound_m2 }
    }
}
