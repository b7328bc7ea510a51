//! Bounds on the position (Section VI-A), averaged over random targets and channels as in the paper.
//!
//! Two variants of every bound: `exact`, gains unknown, and `paper`, gains known. The misprints of the formula (no
//! 2 / sigma^2, N for M, mixed indices) are corrected in both.

use std::f64::consts::TAU;

use model::{Gain, Information, Point, Scenario, Scheme, System};
use rand::RngExt;

use super::{Deserialize, Draw, GridPoint, Measure, PointRows, Serialize, column};

/// The schemes of Section VI-A by name; the single IRS is a separate system.
const SCHEMES: [(&str, Option<Scheme>); 5] = [
    ("hybrid", Some(Scheme::Hybrid)),
    ("angle", Some(Scheme::AngleOnly)),
    ("delay", Some(Scheme::DelayOnly)),
    ("no-collaboration", Some(Scheme::NoCollaboration)),
    ("single-irs", None),
];
const GAINS: [(&str, Gain); 2] = [("exact", Gain::Unknown), ("paper", Gain::Known)];
const PARAMETERS: [&str; 3] = ["information-aoa", "information-aod", "information-delay"];

/// Minimum distance between a target of the disc and the first IRS.
const CLOSEST_M: f64 = 1.0;

/// One target: trace of the bound per gain and scheme, none where the position cannot be determined, and Fisher information per gain
/// and parameter.
#[derive(Debug, Serialize, Deserialize)]
pub struct TargetBounds {
    bound_m2: [[Option<f64>; SCHEMES.len()]; GAINS.len()],
    information: [[f64; PARAMETERS.len()]; GAINS.len()],
}

/// Bounds at targets that are uniform over the area, or over the disc of radius `radius_m` around the first IRS without its
/// innermost metre. `information` adds rows of the Fisher information of single parameters.
pub struct BoundMeasure;

impl Measure for BoundMeasure {
    type Outcome = TargetBounds;
    const TAKES: &'static [&'static str] = &["radius_m", "information"];

    fn trial(mut draw: Draw) -> anyhow::Result<TargetBounds> {
        let scenario = draw.scenario;
        let target_m = match draw.point.option("radius_m") {
            None => scenario.coverage.at(draw.stream.random(), draw.stream.random()),
            Some(radius_m) => {
                let reach = (CLOSEST_M / radius_m).powi(2);
                let distance_m = radius_m * draw.stream.random_range(reach..1.0).sqrt();
                let (sin, cos) = draw.stream.random_range(0.0..TAU).sin_cos();
                Point::from(scenario.irs[0].position_m) + Point::new(cos, sin, 0.0) * distance_m
            }
        };
        TargetBounds::new(&scenario, target_m)
    }

    fn rows(point: &GridPoint, targets: &[TargetBounds], rows: &mut PointRows) {
        for (g, (gain, _)) in GAINS.iter().enumerate() {
            let of =
                |scheme: usize| column(targets, |target| target.bound_m2[g][scheme].unwrap_or(f64::INFINITY));
            let hybrid = of(0);
            for (s, (name, _)) in SCHEMES.iter().enumerate() {
                let bounds = of(s);
                rows.mean(name, &format!("crb_{gain}_m2"), &bounds);
                let median = rows.resampler().median(&bounds);
                rows.add(name, &format!("crb_{gain}_median_m2"), median);
                if s > 0 {
                    rows.ratio_db(name, &format!("over_hybrid_{gain}_db"), [&bounds, &hybrid]);
                    let over = rows.resampler().median_ratio_db(&bounds, &hybrid);
                    rows.add(name, &format!("over_hybrid_{gain}_median_db"), over);
                }
            }
            let with_information = point.option("information").is_some_and(|asked| asked != 0.0);
            for (p, name) in PARAMETERS.iter().enumerate().filter(|_| with_information) {
                let information = column(targets, |target| target.information[g][p]);
                rows.mean(name, &format!("fisher_{gain}"), &information);
            }
        }
    }
}

impl TargetBounds {
    fn new(scenario: &Scenario, target_m: Point) -> anyhow::Result<Self> {
        let system = System::new(scenario)?;
        let single = System::new(&scenario.clone().single_irs())?;
        let mut bounds = Self { bound_m2: Default::default(), information: Default::default() };
        for (g, &(_, gain)) in GAINS.iter().enumerate() {
            let several = Information::new(&system, target_m, scenario.rcs_m2(), gain);
            let alone = Information::new(&single, target_m, scenario.rcs_m2(), gain);
            for (s, &(_, scheme)) in SCHEMES.iter().enumerate() {
                let bound = match scheme {
                    Some(scheme) => several.position_crb_m2(scheme),
                    None => alone.position_crb_m2(Scheme::Hybrid),
                };
                bounds.bound_m2[g][s] = bound.ok().map(|bound| bound.trace());
            }
            bounds.information[g] = mean_information(&several);
        }
        Ok(bounds)
    }
}

/// Information on AOA, AOD and delay, mean over the paths.
fn mean_information(information: &Information) -> [f64; PARAMETERS.len()] {
    let present: Vec<_> = information.paths().iter().flatten().flatten().collect();
    std::array::from_fn(|i| present.iter().map(|f| f[(i, i)]).sum::<f64>() / present.len() as f64)
}
