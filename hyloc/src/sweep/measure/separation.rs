//! Two targets at the distance `apart_m` from each other, one frame.
//!
//! The first target is uniform in the area, the second lies in a random direction from it, both inside; their number is not
//! known. Errors and bounds are means over the scenes in which two targets are found: per target, the better of the two
//! assignments. The joint bound is exact, with all gains of both targets unknown; the other bound is that of each target if it were
//! alone. A second mean leaves out scenes in which a target is off by more than 1 m. A scene in which one target is found that is
//! called unresolved counts on its own: it is no error, but says less. Targets are told apart if they appear apart, which
//! prefers some scenes and some noise: where few are resolved, the mean without gross errors may be below the bound.

use std::f64::consts::TAU;

use estimation::direct::LocatedTarget;
use model::random::Stream;
use model::scenario::Coverage;
use model::{Point, TrueTarget, joint_crb_m2};
use rand::RngExt;

use super::target_site::TargetSite;
use super::{
    Deserialize, Draw, GROSS_M, GridPoint, Measure, PointRows, Resampler, Serialize, column,
    position_bounds_m2, share,
};

/// One scene.
#[derive(Debug, Serialize, Deserialize)]
pub struct PairScene {
    /// Squared errors of both targets, if two are found.
    squared_m2: Option<[f64; 2]>,
    /// Whether one target is found that may be two.
    unresolved: bool,
    /// Exact bounds, means over the two targets: of both together, and of each alone.
    joint_m2: f64,
    alone_m2: f64,
}

pub struct SeparationMeasure;

impl Measure for SeparationMeasure {
    type Outcome = PairScene;
    const NEEDS: &'static [&'static str] = &["apart_m"];

    fn trial(mut draw: Draw) -> anyhow::Result<PairScene> {
        let apart_m = draw.point.option("apart_m").unwrap_or(1.0);
        let site = TargetSite::new(&draw.scenario)?;
        let (source, rcs_m2) = (&site.source, site.source.rcs_m2());
        let places = pair(&mut draw.stream, &draw.scenario.coverage, apart_m);
        let [first, second] =
            [0, 1].map(|identity| TrueTarget { identity, position_m: places[identity], rcs_m2 });
        let (found, _) = site.located(&site.survey(0, &[first, second])?);
        let gains = [first, second].map(|target| (target.position_m, source.gains(0, &target)));
        let joint_m2 = joint_crb_m2(source.system(), &gains, |_, _| 1.0)?.trace() / 2.0;
        let alone = |place| anyhow::Ok(position_bounds_m2(source.system(), place, rcs_m2)?[0]);
        let alone_m2 = (alone(places[0])? + alone(places[1])?) / 2.0;
        let unresolved = matches!(found[..], [only] if only.unresolved);
        Ok(PairScene { squared_m2: squared_m2(&found, places), unresolved, joint_m2, alone_m2 })
    }

    fn rows(_point: &GridPoint, scenes: &[PairScene], rows: &mut PointRows) {
        let draws = scenes.len() as f64;
        let right: Vec<(&PairScene, [f64; 2])> =
            scenes.iter().filter_map(|scene| Some((scene, scene.squared_m2?))).collect();
        let unresolved = scenes.iter().filter(|scene| scene.unresolved).count();
        rows.add("located", "right_number_share", share(right.len() as f64, draws));
        rows.add("located", "unresolved_share", share(unresolved as f64, draws));
        add_errors(rows, &right);
    }
}

/// Errors and bounds of the scenes with the right number.
fn add_errors(rows: &mut PointRows, right: &[(&PairScene, [f64; 2])]) {
    if right.is_empty() {
        return;
    }
    let (count, resampler) = (right.len(), Resampler::new(right.len()));
    let squared = column(right, |(_, [first, second])| (first + second) / 2.0);
    let joint = column(right, |(scene, _)| scene.joint_m2);
    let alone = column(right, |(scene, _)| scene.alone_m2);
    let mut add = |scheme: &str, metric: &str, estimate| rows.add_of(count, scheme, metric, estimate);
    add("located", "mse_m2", resampler.mean(&squared));
    add("located", "gap_exact_db", resampler.ratio_db(&squared, &joint));
    add("joint-bound", "crb_m2", resampler.mean(&joint));
    add("single-bound", "crb_m2", resampler.mean(&alone));
    let kept: Vec<usize> =
        (0..right.len()).filter(|&i| right[i].1.iter().all(|s| *s <= GROSS_M * GROSS_M)).collect();
    add("located", "gross_error_share", share((right.len() - kept.len()) as f64, count as f64));
    if !kept.is_empty() {
        let of_kept = |values: &[f64]| column(&kept, |&i| values[i]);
        let (squared, resampler) = (of_kept(&squared), Resampler::new(kept.len()));
        let mut add = |metric: &str, estimate| rows.add_of(kept.len(), "located", metric, estimate);
        add("mse_without_gross_m2", resampler.mean(&squared));
        add("gap_exact_without_gross_db", resampler.ratio_db(&squared, &of_kept(&joint)));
    }
}

/// Two places in the area at this distance.
fn pair(random: &mut Stream, coverage: &Coverage, apart_m: f64) -> [Point; 2] {
    loop {
        let first = coverage.at(random.random(), random.random());
        let turn = random.random_range(0.0..TAU);
        let second = first + Point::new(turn.cos(), turn.sin(), 0.0) * apart_m;
        if coverage.contains(second) {
            return [first, second];
        }
    }
}

/// Squared errors by the better assignment, if there are two estimates.
fn squared_m2(found: &[LocatedTarget], truth: [Point; 2]) -> Option<[f64; 2]> {
    let [a, b] = found[..] else { return None };
    let errors = |a: Point, b: Point| [(a - truth[0]).norm_squared(), (b - truth[1]).norm_squared()];
    let (straight, crossed) = (errors(a.position_m, b.position_m), errors(b.position_m, a.position_m));
    Some(if straight[0] + straight[1] <= crossed[0] + crossed[1] { straight } else { crossed })
}
