//! The printed angle algorithm over its two settings: lambda, the weight of the fit, and rho, the penalty of Algorithm 1.
//!
//! lambda determines the solution, rho only the speed of convergence. Lambda is swept with adaptive balancing of the
//! penalty, so that the solutions are those of the problem itself; rho is swept as printed, fixed and without
//! over-relaxation. Two scenarios at 50 dBm, as in [`super::angles`].

use estimation::angles::admm::AdmmSettings;
use estimation::angles::literal::{LiteralSettings, paper_literal};
use model::Scenario;

use super::angles::{AngleScene, well_conditioned};
use super::{Study, column};
use crate::figures::rows::Row;
use crate::figures::statistics::share;

/// Weights of the fit, for data of unit noise after the inverse.
const LAMBDAS: [f64; 7] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
const RHOS: [f64; 6] = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0];
/// Lambda at which rho is swept: the one with the smallest error for well-conditioned S_k, and one with a nonzero solution
/// at Table I, where no lambda is better than another.
const LAMBDA_OF_RHO: [f64; 2] = [0.2, 1.0];
/// Iteration limit. Convergence takes some tens of iterations; with a lambda so small that the solution is zero there is none.
const MAX_ITERATIONS: usize = 100;

/// Settings of which the comparison against power takes the best at each power: lower SNR needs a larger lambda.
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

struct SweepPoint {
    scheme: String,
    x: f64,
    scenario: Scenario,
    settings: LiteralSettings,
}

fn points() -> Vec<SweepPoint> {
    let scenes = [("full-rank", well_conditioned()), ("table-one", Scenario::default())];
    let of_scene = |((name, scenario), lambda_of_rho): ((&str, Scenario), f64)| {
        let point = |swept: &str, x, settings| SweepPoint {
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

/// One scene: errors of its angles, and convergence of its 2K problems.
struct LiteralTrial {
    squared_rad2: f64,
    gross: f64,
    exact_rad2: f64,
    paper_rad2: f64,
    iterations: f64,
    converged: f64,
    residual: f64,
}

pub fn sweep(study: &Study) -> anyhow::Result<Vec<Row>> {
    let mut rows = study.new_rows();
    for (_, SweepPoint { scheme, x, scenario, settings }) in study.points(points()) {
        // The same scenes at every point: only the settings differ.
        let trials = study
            .point(0, |draw| LiteralTrial::new(&scenario.clone().with_seed(draw.scenario_seed), &settings))?;
        let squared = column(&trials, |t| t.squared_rad2);
        rows.ratio_db(x, &scheme, "gap_exact_db", [&squared, &column(&trials, |t| t.exact_rad2)]);
        rows.ratio_db(x, &scheme, "gap_paper_db", [&squared, &column(&trials, |t| t.paper_rad2)]);
        let mean_share =
            |of: fn(&LiteralTrial) -> f64| share(column(&trials, of).iter().sum(), study.trials as f64);
        rows.add(x, &scheme, "gross_error_share", mean_share(|t| t.gross));
        rows.add(x, &scheme, "converged_share", mean_share(|t| t.converged));
        rows.mean(x, &scheme, "iterations", &column(&trials, |t| t.iterations));
        let residual = rows.resampler.median(&column(&trials, |t| t.residual));
        rows.add(x, &scheme, "residual", residual);
    }
    Ok(rows.into_rows())
}

impl LiteralTrial {
    fn new(scenario: &Scenario, settings: &LiteralSettings) -> anyhow::Result<Self> {
        let scene = AngleScene::new(scenario)?;
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
            // Relative to a solution of zero the residual is arbitrarily large: it is limited to 1.
            residual: estimate.problems.iter().map(|problem| problem.residual.min(1.0)).fold(0.0, f64::max),
        })
    }
}
