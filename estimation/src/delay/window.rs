//! Search intervals: the delays and angles that a target inside the coverage area can have.
//!
//! A cascade delay is a sum of two distances, a convex function of the target: its maximum over the
//! area is at a corner; its minimum is the distance of the two IRSs where both are inside the area,
//! and otherwise lies on an edge (on a face, if the area has a height), along which the sum is convex too. The sine of the local angle is sampled
//! along the edges.

use model::units::SPEED_OF_LIGHT_M_S;
use model::{Point, Pose, System};

use super::DelayError;

/// An interval of delays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayWindow {
    /// Shortest delay searched.
    pub min_s: f64,
    /// Longest delay searched.
    pub max_s: f64,
}

impl DelayWindow {
    /// An interval that must be finite and not empty.
    pub fn new(min_s: f64, max_s: f64) -> Result<Self, DelayError> {
        if min_s.is_finite() && max_s.is_finite() && max_s > min_s {
            Ok(Self { min_s, max_s })
        } else {
            Err(DelayError::Window { min_s, max_s })
        }
    }

    /// Length of the interval.
    pub fn width_s(&self) -> f64 {
        self.max_s - self.min_s
    }
}

/// Standard deviations of a clock offset that are searched.
const CLOCK_REACH: f64 = 4.0;
/// Steps of the search along one edge.
const EDGE_STEPS: usize = 64;
/// Golden-section steps: 0.618^60 of an edge is below a nanometre.
const GOLDEN_STEPS: usize = 60;

/// Delays that a target of the coverage area can have on path (l, k), with a guard on either side.
pub fn coverage_delays(system: &System, l: usize, k: usize, guard_s: f64) -> Result<DelayWindow, DelayError> {
    DelayError::check_index(system, l.max(k))?;
    let (sensor, reflector) = (&system.irs[l].pose, &system.irs[k].pose);
    let length = |target: Point| sensor.distance_m(target) + reflector.distance_m(target);
    let corners = system.coverage.corners();
    let max_m = corners.iter().map(|&corner| length(corner)).fold(0.0, f64::max);
    let both_inside = [sensor, reflector].iter().all(|pose| system.coverage.contains(pose.position_m));
    let min_m = if both_inside {
        sensor.distance_m(reflector.position_m)
    } else if system.coverage.is_flat() {
        (0..4).map(|i| shortest_on_edge(corners[i], corners[(i + 1) % 4], &length)).fold(max_m, f64::min)
    } else {
        let faces =
            (0..4).map(|i| [i, (i + 1) % 4, (i + 1) % 4 + 4, i + 4]).chain([[0, 1, 2, 3], [4, 5, 6, 7]]);
        faces.map(|face| shortest_on_face(face.map(|i| corners[i]), &length)).fold(max_m, f64::min)
    };
    DelayWindow::new(min_m / SPEED_OF_LIGHT_M_S - guard_s, max_m / SPEED_OF_LIGHT_M_S + guard_s)
}

/// The delays that a node must search on path (l, k): those of [`coverage_delays`], and where its clock is not trusted an offset of
/// up to [`CLOCK_REACH`] standard deviations either way, as far as the waveform is unambiguous.
pub(crate) fn searched_delays(
    system: &System,
    l: usize,
    k: usize,
    guard_s: f64,
) -> Result<DelayWindow, DelayError> {
    let plain = coverage_delays(system, l, k, guard_s)?;
    let unambiguous_s = system.subcarriers as f64 / system.bandwidth_hz;
    let most_s = (0.5 * (unambiguous_s - plain.width_s())).max(0.0);
    let wider_s = (CLOCK_REACH * system.clock_prior_s).min(most_s);
    DelayWindow::new(plain.min_s - wider_s, plain.max_s + wider_s)
}

/// Golden-section search of a convex function over a rectangle with these corners, in order round it.
fn shortest_on_face([a, b, c, d]: [Point; 4], length: &impl Fn(Point) -> f64) -> f64 {
    let along = |s: f64| shortest_on_edge(a.lerp(&b, s), d.lerp(&c, s), length);
    shortest_on_edge(Point::zeros(), Point::x(), &|at: Point| along(at.x))
}

/// Golden-section search of a convex function between two points.
fn shortest_on_edge(from: Point, to: Point, length: &impl Fn(Point) -> f64) -> f64 {
    let ratio = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..GOLDEN_STEPS {
        let (left, right) = (high - ratio * (high - low), low + ratio * (high - low));
        if length(from.lerp(&to, left)) < length(from.lerp(&to, right)) {
            high = right;
        } else {
            low = left;
        }
    }
    length(from.lerp(&to, (low + high) / 2.0))
}

/// Points spread over the coverage area so densely that neighbours share a beam.
pub(crate) fn coverage_points(system: &System) -> Vec<Point> {
    let heights = if system.coverage.is_flat() { 0 } else { EDGE_STEPS / 4 };
    let fraction = |i: usize, steps: usize| if steps == 0 { 0.5 } else { i as f64 / steps as f64 };
    let columns = (0..=EDGE_STEPS).flat_map(|i| (0..=EDGE_STEPS).map(move |j| (i, j)));
    let levels = |(i, j)| {
        let (u, v) = (fraction(i, EDGE_STEPS), fraction(j, EDGE_STEPS));
        (0..=heights).map(move |w| system.coverage.at_height(u, v, fraction(w, heights)))
    };
    columns.flat_map(levels).collect()
}

/// Interval of sin(local angle).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SineSector {
    pub min: f64,
    pub max: f64,
}

/// Sines of the local angle at which the array of `pose` can see the coverage area, widened by `guard` on
/// either side and never wider than one period `1 / s` of the array's response.
pub(crate) fn coverage_sines(system: &System, pose: &Pose, guard: f64) -> SineSector {
    let period = 1.0 / system.spacing_wavelengths;
    if system.coverage.contains(pose.position_m) {
        return sector_of_period(period);
    }
    let corners = system.coverage.corners();
    let sines = (0..4).flat_map(|i| {
        let (from, to) = (corners[i], corners[(i + 1) % 4]);
        (0..EDGE_STEPS).map(move |step| from.lerp(&to, step as f64 / EDGE_STEPS as f64))
    });
    let sines = sines.map(|target| pose.local_angle_rad(target).sin());
    let (min, max) = sines.fold((1.0, -1.0), |(min, max): (f64, f64), s| (min.min(s), max.max(s)));
    let (min, max) = ((min - guard).max(-1.0), (max + guard).min(1.0));
    if max - min > period { sector_of_period(period) } else { SineSector { min, max } }
}

/// One period of the array's response about broadside, or all sines where that is less.
pub(crate) fn sector_of_period(period: f64) -> SineSector {
    let half = (period / 2.0).min(1.0);
    SineSector { min: -half, max: half }
}

#[cfg(test)]
mod tests {
    use model::geometry::cascade_delay_s;
    use model::{Scenario, SystemParts};

    use super::*;

    #[test]
    fn windows_hold_all_targets_and_are_tight() {
        let paper = System::new(&Scenario::default()).expect("valid");
        // IRSs on either side of the area, so that the line between them crosses it, and one inside.
        let mut around = SystemParts::clone(&paper);
        around.irs[0].pose.position_m = Point::new(-30.0, 5.0, 0.0);
        around.irs[1].pose.position_m = Point::new(40.0, 5.0, 0.0);
        around.irs[2].pose.position_m = Point::new(5.0, 5.0, 0.0);
        for system in [paper, System::checked(around).expect("valid")] {
            for (l, k) in (0..3).flat_map(|l| (0..3).map(move |k| (l, k))) {
                let window = coverage_delays(&system, l, k, 0.0).expect("a window");
                let sector = coverage_sines(&system, &system.irs[l].pose, 0.01);
                let (mut low, mut high) = (f64::INFINITY, 0f64);
                for (i, j) in (0..=100).flat_map(|i| (0..=100).map(move |j| (i, j))) {
                    let target = system.coverage.at(i as f64 / 100.0, j as f64 / 100.0);
                    let delay = cascade_delay_s(&system.irs[l].pose, &system.irs[k].pose, target);
                    (low, high) = (low.min(delay), high.max(delay));
                    let sine = system.irs[l].pose.local_angle_rad(target).sin();
                    let in_sector = sector.min <= sine && sine <= sector.max;
                    assert!(in_sector || system.coverage.contains(system.irs[l].pose.position_m));
                }
                assert!(window.min_s <= low + 1e-16 && high <= window.max_s + 1e-16);
                assert!(low - window.min_s < 1e-10 && window.max_s - high < 1e-16);
            }
        }
    }
}
