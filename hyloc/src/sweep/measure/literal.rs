//! The printed angle algorithm over its two settings: lambda, the weight of the fit, and rho, the penalty of Algorithm 1.
//!
//! lambda determines the solution, rho only the speed of convergence. Lambda is swept with adaptive balancing of the
//! penalty, so that the solutions are those of the problem itself; rho is swept as printed, fixed and without
//! over-relaxation.

use estimation::angles::admm::AdmmSettings;
use estimation::angles::literal::{LiteralSettings, paper_literal};

use super::angles::AngleScene;
use super::{Deserialize, Draw, GridPoint, Measure, PointRows, Serialize, column, share};

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

/// One scene: errors of its angles, and convergence of its 2K problems.
#[derive(Debug, Serialize, Deserialize)]
pub struct LiteralTrial {
    squared_rad2: f64,
    gross: f64,
    exact_rad2: f64,
    paper_rad2: f64,
    iterations: f64,
    converged: f64,
    residual: f64,
}

/// The algorithm with the weight `lambda`: with balanced penalty, or with the fixed penalty `rho`.
pub struct LiteralMeasure;

impl Measure for LiteralMeasure {
    type Outcome = LiteralTrial;
    const NEEDS: &'static [&'static str] = &["lambda"];
    const TAKES: &'static [&'static str] = &["rho"];

    fn trial(draw: Draw) -> anyhow::Result<LiteralTrial> {
        let lambda = draw.point.option("lambda").unwrap_or(1.0);
        let settings = draw.point.option("rho").map_or_else(|| balanced(lambda), |rho| fixed(lambda, rho));
        let scene = AngleScene::new(&draw.scenario)?;
        let estimate = paper_literal(&scene.blocks, &settings)?;
        let (squared_rad2, gross) = scene.error(&estimate.angle_rad);
        let problems = estimate.problems.len() as f64;
        let converged = estimate.problems.iter().filter(|problem| problem.converged).count();
        let iterations: usize = estimate.problems.iter().map(|problem| problem.iterations).sum();
        Ok(LiteralTrial {
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

    fn rows(point: &GridPoint, trials: &[LiteralTrial], rows: &mut PointRows) {
        let scheme = &point.curve;
        let of = |pick: fn(&LiteralTrial) -> f64| column(trials, pick);
        let mean_share = |pick| share(of(pick).iter().sum(), trials.len() as f64);
        let squared = of(|trial| trial.squared_rad2);
        rows.ratio_db(scheme, "gap_exact_db", [&squared, &of(|trial| trial.exact_rad2)]);
        rows.ratio_db(scheme, "gap_paper_db", [&squared, &of(|trial| trial.paper_rad2)]);
        rows.add(scheme, "gross_error_share", mean_share(|trial| trial.gross));
        rows.add(scheme, "converged_share", mean_share(|trial| trial.converged));
        rows.mean(scheme, "iterations", &of(|trial| trial.iterations));
        let residual = rows.resampler().median(&of(|trial| trial.residual));
        rows.add(scheme, "residual", residual);
    }
}
