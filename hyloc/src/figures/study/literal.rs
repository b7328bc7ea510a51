//! The printed angle algorithm over its two settings: lambda, the weight of the fit, and rho, the penalty of Algorithm 1.
//!
//! lambda decides what is estimated, rho only how fast. Lambda is swept with the penalty balanced on the way, so that the
//! answers are those of the problem itself; rho is swept as printed, fixed and without over-relaxation. Two
//! scenes at 50 dBm, as in [`super::angles`].

use estimation::angles::admm::AdmmSettings;
use estimation::angles::literal::{LiteralSettings, paper_literal};
use model::Scenario;

use super::angles::{Scene, well_conditioned};
use super::{Study, column};
use crate::figures::rows::{Row, Table};
use crate::figures::statistics::{Resampler, share};

/// Weights of the fit, for data of unit noise after the inverse.
const LAMBDAS: [f64; 7] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
/// Penalties, fixed.
const RHOS: [f64; 6] = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0];
/// At which rho is swept: the lambda with the least error where S_k is well-conditioned, and one at which the answer is not
/// zero at Table I, where no lambda is better than another.
const LAMBDA_OF_RHO: [f64; 2] = [0.2, 1.0];
/// Iteration limit. What converges takes some tens; a lambda so small that the answer is zero never does.
const MAX_ITERATIONS: usize = 100;

/// The settings among which the comparison against power takes the best at each power: less SNR needs more lambda.
pub fn candidates() -> [LiteralSettings; 2] {
    [0.2, 1.0].map(balanced)
}

fn balanced(lambda: f64) -> LiteralSettings {
    let admm = AdmmSettings { tolerance: 3e-3, max_iterations: MAX_ITERATIONS, ..AdmmSettings::default() };
    LiteralSettings { lambda, admm }
}

fn fixed(lambda: f64, rho: f64) -> LiteralSettings {
    let LiteralSettings { lambda, admm } = balanced(lambda);
    LiteralSettings { lambda, admm: AdmmSettings { penalty: rho, relaxation: 1.0, balanced: false, ..admm } }
}

/// A point of the sweep: curve, x, scene, settings.
struct Point {
    scheme: String,
    x: f64,
    scenario: Scenario,
    settings: LiteralSettings,
}

fn points() -> Vec<Point> {
    let scenes = [("full-rank", well_conditioned()), ("table-one", Scenario::default())];
    let of_scene = |((name, scenario), lambda_of_rho): ((&str, Scenario), f64)| {
        let point = |swept: &str, x, settings| Point {
            scheme: format!("{name}-{swept}"),
            x,
            scenario: scenario.clone(),
            settings,
        };
        let lambdas = LAMBDAS.map(|lambda| point("lambda", lambda, balanced(lambda)));
        let rhos = RHOS.map(|rho| point("rho", rho, fixed(lambda_of_rho, rho)));
        lambdas.into_iter().chain(rhos).collect::<Vec<_>>()
    };
    scenes.into_iter().zip(LAMBDA_OF_RHO).flat_map(of_scene).collect()
}

/// Number of points.
pub fn point_count() -> usize {
    2 * (LAMBDAS.len() + RHOS.len())
}

/// One scene: its angles, and how its 2K problems ended.
struct Outcome {
    squared_rad2: f64,
    gross: f64,
    exact_rad2: f64,
    paper_rad2: f64,
    iterations: f64,
    converged: f64,
    residual: f64,
}

pub fn sweep(study: &Study) -> anyhow::Result<Vec<Row>> {
    let mut table = Table::new(study.figure, study.trials);
    let resampler = Resampler::new(study.trials as usize);
    for Point { scheme, x, scenario, settings } in points() {
        // The same scenes at every point: what differs is the settings.
        let outcomes = study
            .point(0, |draw| Outcome::new(&scenario.clone().with_seed(draw.scenario_seed), &settings))?;
        let squared = column(&outcomes, |o| o.squared_rad2);
        let mut add = |metric: &str, estimate| table.add(x, &scheme, metric, estimate);
        add("gap_exact_db", resampler.ratio_db(&squared, &column(&outcomes, |o| o.exact_rad2)));
        add("gap_paper_db", resampler.ratio_db(&squared, &column(&outcomes, |o| o.paper_rad2)));
        let shared = |of: fn(&Outcome) -> f64| share(column(&outcomes, of).iter().sum(), study.trials as f64);
        add("gross_error_share", shared(|o| o.gross));
        add("converged_share", shared(|o| o.converged));
        add("iterations", resampler.mean(&column(&outcomes, |o| o.iterations)));
        add("residual", resampler.median(&column(&outcomes, |o| o.residual)));
    }
    Ok(table.into_rows())
}

impl Outcome {
    fn new(scenario: &Scenario, settings: &LiteralSettings) -> anyhow::Result<Self> {
        let scene = Scene::new(scenario)?;
        let estimate = paper_literal(&scene.blocks, settings)?;
        let (squared_rad2, gross) = scene.error(&estimate.angle_rad);
        let problems = estimate.problems.len() as f64;
        let converged = estimate.problems.iter().filter(|problem| problem.converged).count();
        let iterations: usize = estimate.problems.iter().map(|problem| problem.iterations).sum();
        Ok(Self {
            squared_rad2,
            gross: gross as f64 / estimate.angle_rad.len() as f64,
            exact_rad2: scene.exact_rad2,
            paper_rad2: scene.paper_rad2,
            iterations: iterations as f64 / problems,
            converged: converged as f64 / problems,
            // Relative to an answer of zero a residual is huge without a meaning: all of it, then.
            residual: estimate.problems.iter().map(|problem| problem.residual.min(1.0)).fold(0.0, f64::max),
        })
    }
}
