//! Bounds on the position (Section VI-A), averaged over random targets and channels as in the paper.
//!
//! Two variants of every bound: `exact`, gains unknown, and `paper`, gains known. The misprints of the formula (no
//! 2 / sigma^2, N for M, mixed indices) are corrected in both.

use std::f64::consts::TAU;

use model::scenario::ring;
use model::{Gain, Information, Point, Scenario, Scheme, System};
use rand::RngExt;

use super::{Draw, Study, column};
use crate::figures::rows::Row;

/// Elements or sensors per IRS.
const COUNTS: [usize; 8] = [4, 6, 8, 10, 14, 20, 28, 40];
/// Radii of the area around the first IRS.
const RADII_M: [f64; 9] = [5.0, 10.0, 20.0, 30.0, 50.0, 80.0, 120.0, 200.0, 300.0];
const IRS_COUNTS: [usize; 6] = [2, 3, 4, 5, 6, 8];

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

/// Minimum distance between a target of the coverage study and the first IRS.
const CLOSEST_M: f64 = 1.0;

/// One target: trace of the bound per gain and scheme, and Fisher information per gain and parameter.
struct TargetBounds {
    bound_m2: [[f64; SCHEMES.len()]; GAINS.len()],
    information: [[f64; PARAMETERS.len()]; GAINS.len()],
}

pub fn against_elements(study: &Study) -> anyhow::Result<Vec<Row>> {
    against_count(study, |scenario, count| scenario.surface.elements = count.into())
}

pub fn against_sensors(study: &Study) -> anyhow::Result<Vec<Row>> {
    against_count(study, |scenario, count| scenario.surface.sensors = count.into())
}

fn against_count(study: &Study, set: fn(&mut Scenario, usize)) -> anyhow::Result<Vec<Row>> {
    against(study, &COUNTS.map(|n| n as f64), true, |point, draw| {
        let mut scenario = Scenario::default().with_seed(draw.scenario_seed);
        set(&mut scenario, COUNTS[point]);
        let target_m = random_target(&scenario, draw);
        Ok((scenario, target_m))
    })
}

/// Targets are uniform over the disc around the first IRS without its innermost metre.
pub fn against_radius(study: &Study) -> anyhow::Result<Vec<Row>> {
    against(study, &RADII_M, false, |point, draw| {
        let scenario = Scenario::default().with_seed(draw.scenario_seed);
        let first_m = Point::from(scenario.irs[0].position_m);
        let reach = (CLOSEST_M / RADII_M[point]).powi(2);
        let distance_m = RADII_M[point] * draw.stream.random_range(reach..1.0).sqrt();
        let (sin, cos) = draw.stream.random_range(0.0..TAU).sin_cos();
        Ok((scenario, first_m + Point::new(cos, sin, 0.0) * distance_m))
    })
}

pub fn against_irs_count(study: &Study) -> anyhow::Result<Vec<Row>> {
    against(study, &IRS_COUNTS.map(|k| k as f64), false, |point, draw| {
        let scenario = ring(&Scenario::default(), IRS_COUNTS[point])?.with_seed(draw.scenario_seed);
        let target_m = random_target(&scenario, draw);
        Ok((scenario, target_m))
    })
}

fn random_target(scenario: &Scenario, draw: &mut Draw) -> Point {
    scenario.coverage.at(draw.stream.random(), draw.stream.random())
}

/// Bounds at every x; `scene` draws scenario and target of a trial.
fn against(
    study: &Study,
    xs: &[f64],
    with_information: bool,
    scene: impl Fn(usize, &mut Draw) -> anyhow::Result<(Scenario, Point)> + Sync,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = study.new_rows();
    for (point, &x) in study.points(xs) {
        let targets = study.point(point, |mut draw| {
            let (scenario, target_m) = scene(point, &mut draw)?;
            TargetBounds::new(&scenario, target_m)
        })?;
        for (g, (gain, _)) in GAINS.iter().enumerate() {
            let of = |scheme: usize| column(&targets, |target| target.bound_m2[g][scheme]);
            let hybrid = of(0);
            for (s, (name, _)) in SCHEMES.iter().enumerate() {
                let bounds = of(s);
                rows.mean(x, name, &format!("crb_{gain}_m2"), &bounds);
                rows.add(x, name, &format!("crb_{gain}_median_m2"), rows.resampler.median(&bounds));
                if s > 0 {
                    rows.ratio_db(x, name, &format!("over_hybrid_{gain}_db"), [&bounds, &hybrid]);
                    let over = rows.resampler.median_ratio_db(&bounds, &hybrid);
                    rows.add(x, name, &format!("over_hybrid_{gain}_median_db"), over);
                }
            }
            for (p, name) in PARAMETERS.iter().enumerate().filter(|_| with_information) {
                let information = column(&targets, |target| target.information[g][p]);
                rows.mean(x, name, &format!("fisher_{gain}"), &information);
            }
        }
    }
    Ok(rows.into_rows())
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
                // An unobservable position has an infinite bound.
                bounds.bound_m2[g][s] = bound.map_or(f64::INFINITY, |bound| bound.trace());
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
