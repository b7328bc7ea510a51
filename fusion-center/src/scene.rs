//! Site and fixes as a scene that Foxglove draws without a plugin: panels, coverage area, the fix with its covariance, tracks.
//!
//! Everything is in one coordinate system, that of the site. `/site` does not change and `/scene` replaces itself with
//! every message, so that a viewer that jumps to any time needs one message of each.

use std::array::from_fn;

use model::{Point, System};
use nalgebra::{DMatrix, Matrix3, Rotation3, SymmetricEigen, UnitQuaternion};
use prost_types::Timestamp;
use proto::foxglove::{
    ArrowPrimitive, Color, CubePrimitive, LinePrimitive, Log, Point3, Pose, PoseInFrame, Quaternion,
    SceneEntity, SceneEntityDeletion, SceneUpdate, SpherePrimitive, TextPrimitive, Vector3, line_primitive,
    log, scene_entity_deletion,
};

use crate::fix::FixRecord;
use crate::place::symmetric;

/// Name of the coordinate system.
const FRAME: &str = "site";

/// Who writes the log.
const SPEAKER: &str = "fusion-center";

/// Squared radius of the ellipse and of the ellipsoid that hold 95 % of a normal distribution with unit covariance.
const CHI_SQUARE_95: [f64; 2] = [5.991_464_547, 7.814_727_903];

/// Smallest extent of what is drawn.
const LEAST_M: f64 = 0.02;

/// Height of a label in pixels.
const FONT: f64 = 14.0;

const PANEL: [f64; 4] = [0.20, 0.45, 0.85, 0.9];
const BASE_STATION: [f64; 4] = [0.45, 0.45, 0.45, 0.9];
const COVERAGE: [f64; 4] = [0.5, 0.5, 0.5, 0.6];
const TRUTH: [f64; 4] = [0.15, 0.65, 0.30, 0.9];
const TRACK: [f64; 4] = [0.55, 0.30, 0.75, 0.7];

/// Colour of a fix by its status.
fn of_status(status: &str) -> [f64; 4] {
    match status {
        "nominal" => [0.90, 0.45, 0.10, 0.7],
        "degraded" => [0.90, 0.70, 0.10, 0.7],
        _ => [0.85, 0.15, 0.15, 0.7],
    }
}

fn color([r, g, b, a]: [f64; 4]) -> Option<Color> {
    Some(Color { r, g, b, a })
}

fn time(time_ns: u64) -> Option<Timestamp> {
    Some(Timestamp { seconds: (time_ns / 1_000_000_000) as i64, nanos: (time_ns % 1_000_000_000) as i32 })
}

fn vector(at: Point) -> Option<Vector3> {
    Some(Vector3 { x: at.x, y: at.y, z: at.z })
}

/// A pose whose axes are the columns of a rotation.
fn pose(at: Point, axes: Matrix3<f64>) -> Option<Pose> {
    let rotation = UnitQuaternion::from_rotation_matrix(&Rotation3::from_matrix_unchecked(axes));
    let [x, y, z, w] = rotation.coords.into();
    Some(Pose { position: vector(at), orientation: Some(Quaternion { x, y, z, w }) })
}

fn entity(id: impl Into<String>, time_ns: u64) -> SceneEntity {
    SceneEntity { timestamp: time(time_ns), frame_id: FRAME.into(), id: id.into(), ..SceneEntity::default() }
}

fn label(text: String, at: Point, of: [f64; 4]) -> TextPrimitive {
    let pose = pose(at, Matrix3::identity());
    let [r, g, b, _] = of;
    TextPrimitive {
        pose,
        billboard: true,
        font_size: FONT,
        scale_invariant: true,
        color: color([r, g, b, 1.0]),
        text,
    }
}

fn arrow(at: Point, axes: Matrix3<f64>, length_m: f64, of: [f64; 4]) -> ArrowPrimitive {
    ArrowPrimitive {
        pose: pose(at, axes),
        shaft_length: 0.8 * length_m,
        shaft_diameter: 0.05 * length_m,
        head_length: 0.2 * length_m,
        head_diameter: 0.12 * length_m,
        color: color(of),
    }
}

/// The ellipsoid that holds a position with probability 0.95.
fn ellipsoid(at: Point, covariance_m2: &DMatrix<f64>, of: [f64; 4]) -> SpherePrimitive {
    let free = covariance_m2.nrows().min(3);
    let whole = Matrix3::from_fn(|i, j| if i < free && j < free { covariance_m2[(i, j)] } else { 0.0 });
    let SymmetricEigen { mut eigenvectors, eigenvalues } = SymmetricEigen::new(whole);
    if eigenvectors.determinant() < 0.0 {
        eigenvectors.column_mut(2).neg_mut();
    }
    let squared_radius = CHI_SQUARE_95[usize::from(free == 3)];
    let diameter = |i: usize| (2.0 * (squared_radius * eigenvalues[i].max(0.0)).sqrt()).max(LEAST_M);
    SpherePrimitive {
        pose: pose(at, eigenvectors),
        size: vector(Point::from(from_fn::<_, 3, _>(diameter))),
        color: color(of),
    }
}

fn ball(at: Point, diameter_m: f64, of: [f64; 4]) -> SpherePrimitive {
    let size = vector(Point::repeat(diameter_m));
    SpherePrimitive { pose: pose(at, Matrix3::identity()), size, color: color(of) }
}

/// Panels with their boresights, the base station and the coverage area.
pub fn site_scene(system: &System) -> SceneUpdate {
    let spacing_m = system.spacing_wavelengths * system.wavelength_m;
    let grid = system.element_grid;
    let extent = |count: usize| (count as f64 * spacing_m).max(5.0 * LEAST_M);
    let panel = |(k, irs): (usize, &model::system::Irs)| {
        let at = irs.pose.position_m;
        let axes = irs.pose.orientation.axes();
        // The boresight is the x-axis.
        let axes = Matrix3::from_columns(&[axes.column(2), axes.column(0), axes.column(1)]);
        let size = vector(Point::new(LEAST_M, extent(grid.columns), extent(grid.rows)));
        SceneEntity {
            cubes: vec![CubePrimitive { pose: pose(at, axes), size, color: color(PANEL) }],
            arrows: vec![arrow(at, axes, 1.0, PANEL)],
            texts: vec![label(format!("IRS {k}"), at, PANEL)],
            ..entity(format!("irs-{k}"), 0)
        }
    };
    let at = system.base_station_m;
    let size = vector(Point::repeat(0.3));
    let base_station = SceneEntity {
        cubes: vec![CubePrimitive { pose: pose(at, Matrix3::identity()), size, color: color(BASE_STATION) }],
        texts: vec![label("base station".into(), at, BASE_STATION)],
        ..entity("base-station", 0)
    };
    let coverage = SceneEntity { lines: vec![coverage(system)], ..entity("coverage", 0) };
    let panels = system.irs.iter().enumerate().map(panel);
    SceneUpdate { deletions: Vec::new(), entities: panels.chain([base_station, coverage]).collect() }
}

/// The edges of the coverage area.
fn coverage(system: &System) -> LinePrimitive {
    let (min_m, max_m) = (system.coverage.min_m, system.coverage.max_m);
    let corner = |number: usize| {
        let [x, y, z] = from_fn(|axis| if number >> axis & 1 == 0 { min_m[axis] } else { max_m[axis] });
        Point3 { x, y, z }
    };
    let heights = if system.coverage.is_flat() { 4 } else { 8 };
    // An edge joins two corners that differ in one coordinate.
    let edges = (0..heights).flat_map(|from| (0..3).map(move |axis| (from, from | 1 << axis)));
    let edges = edges.filter(|&(from, to)| to > from && to < heights);
    LinePrimitive {
        r#type: line_primitive::Type::LineList.into(),
        pose: pose(Point::zeros(), Matrix3::identity()),
        thickness: 1.5,
        scale_invariant: true,
        points: edges.flat_map(|(from, to)| [corner(from), corner(to)]).collect(),
        color: color(COVERAGE),
        ..LinePrimitive::default()
    }
}

/// The targets of a fix, the tracks and the truth; it replaces every earlier scene.
pub fn fix_scene(fix: &FixRecord) -> SceneUpdate {
    let time_ns = fix.timing.time_ns;
    let of = of_status(&fix.status);
    let mut found = SceneEntity::default();
    for target in &fix.targets {
        let at = target.position_m.point();
        found
            .spheres
            .extend(symmetric(&target.covariance_m2).map(|covariance| ellipsoid(at, &covariance, of)));
        found.spheres.push(ball(at, 2.0 * LEAST_M, of));
    }
    if let Some(first) = fix.position_m {
        found.texts.push(label(fix.status.clone(), first.point(), of));
    }
    let mut tracks = SceneEntity::default();
    for track in fix.tracks() {
        let (at, velocity) = (track.position_m.point(), track.velocity_m_s.point());
        if let Some(whole) = symmetric(&track.covariance) {
            let axes = whole.nrows() / 2;
            tracks.spheres.push(ellipsoid(at, &whole.view((0, 0), (axes, axes)).into_owned(), TRACK));
        }
        // As long as the way of one second.
        if let Some(towards) = velocity.try_normalize(1e-3) {
            let across = Point::z().cross(&towards).try_normalize(1e-6).unwrap_or_else(Point::x);
            let axes = Matrix3::from_columns(&[towards, across, towards.cross(&across)]);
            tracks.arrows.push(arrow(at, axes, velocity.norm(), TRACK));
        }
        tracks.texts.push(label(format!("track {}", track.identity), at, TRACK));
    }
    let mut told = SceneEntity::default();
    if let Some(truth) = &fix.truth {
        let listed = truth.targets.iter().flatten().map(|target| target.position_m);
        let all: Vec<_> =
            if truth.targets.is_some() { listed.collect() } else { truth.position_m.into_iter().collect() };
        told.spheres.extend(all.iter().map(|at| ball(at.point(), 3.0 * LEAST_M, TRUTH)));
    }
    let named = [("fix", found), ("tracks", tracks), ("truth", told)].map(|(id, shapes)| {
        let SceneEntity { timestamp, frame_id, id, .. } = entity(id, time_ns);
        SceneEntity { timestamp, frame_id, id, ..shapes }
    });
    let drawn = |entity: &SceneEntity| {
        !(entity.spheres.is_empty() && entity.arrows.is_empty() && entity.texts.is_empty())
    };
    let all = scene_entity_deletion::Type::All.into();
    SceneUpdate {
        deletions: vec![SceneEntityDeletion { timestamp: time(time_ns), r#type: all, id: String::new() }],
        entities: named.into_iter().filter(drawn).collect(),
    }
}

/// The position of a fix.
pub fn fix_pose(fix: &FixRecord) -> Option<PoseInFrame> {
    let pose = pose(fix.position_m?.point(), Matrix3::identity());
    Some(PoseInFrame { timestamp: time(fix.timing.time_ns), frame_id: FRAME.into(), pose })
}

/// A line of the log; `usual` or a warning.
pub fn said(time_ns: u64, usual: bool, message: String) -> Log {
    let level = if usual { log::Level::Info } else { log::Level::Warning };
    Log { timestamp: time(time_ns), level: level.into(), message, name: SPEAKER.into(), ..Log::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::Source;
    use crate::place::{Axes, FixPlace};
    use crate::targets::FixTarget;
    use estimation::fusion::FrameBlocks;
    use model::Scenario;

    fn rotated(pose: &Pose, by: Point) -> Point {
        let Quaternion { x, y, z, w } = pose.orientation.unwrap();
        UnitQuaternion::from_quaternion(nalgebra::Quaternion::new(w, x, y, z)) * by
    }

    #[test]
    fn the_site_shows_panels_that_face_the_coverage_area() {
        let system = System::new(&Scenario::default()).unwrap();
        let SceneUpdate { entities, .. } = site_scene(&system);
        assert_eq!(entities.len(), system.irs_count() + 2);
        for (irs, entity) in system.irs.iter().zip(&entities) {
            let towards = rotated(entity.arrows[0].pose.as_ref().unwrap(), Point::x());
            let boresight = irs.pose.orientation.axes().column(2).into_owned();
            assert!((towards - boresight).norm() < 1e-12, "{towards} {boresight}");
        }
        let edges = &entities.last().unwrap().lines[0].points;
        assert_eq!(edges.len(), 2 * 4, "a rectangle");
        let length: f64 =
            edges.chunks(2).map(|edge| (edge[0].x - edge[1].x).hypot(edge[0].y - edge[1].y)).sum();
        let (min_m, max_m) = (system.coverage.min_m, system.coverage.max_m);
        assert!((length - 2.0 * (max_m[0] - min_m[0] + max_m[1] - min_m[1])).abs() < 1e-9);
    }

    #[test]
    fn a_fix_is_drawn_with_the_ellipse_of_its_covariance() {
        let none = Err(estimation::location::Unobservable::NoMeasurements.into());
        let mut fix =
            FixRecord::new(Default::default(), &FrameBlocks::new(3), None, &none, Source::Simulated);
        assert_eq!((fix_scene(&fix).entities.len(), fix_pose(&fix)), (0, None));
        let position_m = FixPlace::new(Point::new(3.0, 4.0, 0.0), Axes::Xy);
        // Deviations of 0.2 m along (1, 1) and 0.1 m across.
        let covariance_m2 = vec![0.025, 0.015, 0.025];
        fix.position_m = Some(position_m);
        fix.targets =
            vec![FixTarget { position_m, covariance_m2, false_alarm_probability: None, unresolved: false }];
        fix.timing.time_ns = 1_500_000_000;
        let SceneUpdate { entities, deletions } = fix_scene(&fix);
        assert_eq!(deletions[0].r#type(), scene_entity_deletion::Type::All);
        assert_eq!(entities[0].timestamp, Some(Timestamp { seconds: 1, nanos: 500_000_000 }));
        let SpherePrimitive { pose, size, .. } = &entities[0].spheres[0];
        let size = size.unwrap();
        let radius = CHI_SQUARE_95[0].sqrt();
        let axes = [(size.x, Point::x()), (size.y, Point::y()), (size.z, Point::z())];
        let (longest, along) = axes.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        assert!((longest - 2.0 * radius * 0.2).abs() < 1e-9, "{size:?}");
        let along = rotated(pose.as_ref().unwrap(), along);
        assert!((along.x.abs() - 0.5f64.sqrt()).abs() < 1e-9 && (along.x - along.y).abs() < 1e-9, "{along}");
        assert!(axes.iter().any(|(extent, _)| (extent - 2.0 * radius * 0.1).abs() < 1e-9), "{size:?}");
        assert_eq!(fix_pose(&fix).unwrap().pose.unwrap().position, Some(Vector3 { x: 3.0, y: 4.0, z: 0.0 }));
    }
}
