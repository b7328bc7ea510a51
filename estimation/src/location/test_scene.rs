//! A scene for unit tests: four IRSs around a target.

use model::geometry::PlanePoint;
use model::units::SPEED_OF_LIGHT_M_S;

use super::likelihood::Likelihood;
use super::measurements::{Bearing, CascadeDelay, Measurements};

pub(super) const TARGET_M: PlanePoint = PlanePoint::new(4.0, 3.0);

/// Exact measurements of four IRSs, with 0.1 m and 0.01 rad of standard deviation.
pub(super) fn exact() -> Likelihood {
    let nodes = vec![
        PlanePoint::new(10.0, 50.0),
        PlanePoint::new(10.0, -50.0),
        PlanePoint::new(50.0, 0.0),
        PlanePoint::new(-40.0, 5.0),
    ];
    let distance_m: Vec<f64> = nodes.iter().map(|node| (TARGET_M - node).norm()).collect();
    Likelihood {
        range_m: (0..16).map(|path| distance_m[path / 4] + distance_m[path % 4]).collect(),
        range_weight: vec![100.0; 16],
        bearing_direction: nodes.iter().map(|node| (TARGET_M - node).normalize()).collect(),
        bearing_weight: vec![1e4; 4],
        nodes,
    }
}

/// The same with errors of about `deviations` standard deviations, and a variance of its own for each measurement.
pub(super) fn inexact(deviations: f64) -> Measurements {
    let exact = exact();
    let delay = |path: usize| {
        let deviation_m = 0.1 * (1.0 + 0.5 * (path as f64).sin());
        let range_m = exact.range_m[path] + deviations * deviation_m * (7.0 * path as f64).cos();
        let variance_s2 = (deviation_m / SPEED_OF_LIGHT_M_S).powi(2);
        CascadeDelay { delay_s: range_m / SPEED_OF_LIGHT_M_S, variance_s2 }
    };
    let bearing = |node: usize| {
        let deviation_rad = 0.01 * (1.0 + 0.3 * node as f64);
        let direction = exact.bearing_direction[node];
        let error_rad = deviations * deviation_rad * (5.0 * node as f64 + 1.0).cos();
        Bearing {
            bearing_rad: direction.y.atan2(direction.x) + error_rad,
            variance_rad2: deviation_rad * deviation_rad,
        }
    };
    let delays = (0..16).map(|path| Some(delay(path))).collect();
    let bearings = (0..4).map(|node| Some(bearing(node))).collect();
    Measurements::new(exact.nodes, delays, bearings).unwrap()
}
