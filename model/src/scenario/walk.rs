//! A random walk with inertia: positions that are drawn, but do not depend on those before.
//!
//! The walk is a uniform cubic B-spline `x(s) = sum_j B_j(u) c_(i+j)`, s = i + u, over control points c that are independent and
//! uniform in the coverage area. It is twice continuously differentiable and stays in the convex hull of the control points, and
//! thus in the area. Any position follows from four control points.
//!
//! The weights add up to one, so that only the variances of the control points matter for the speed: over a leg
//! `E |dx/ds|^2 = sum_a E_a^2 / 12 * integral of sum_j B_j'(u)^2 du = sum_a E_a^2 / 18`, E_a the extent of the area along axis a.
//! The integral is that of the squared derivative of one cubic B-spline over its four legs, 2/3. A leg of F frames has the rms
//! speed `sqrt(sum_a E_a^2 / 18) / F`, which gives F.

use rand::RngExt;

use super::{Coverage, Scenario};
use crate::geometry::Point;
use crate::random::{Purpose, Stream, stream};

impl Coverage {
    /// A point that is uniform in the area.
    pub(super) fn draw(&self, draws: &mut Stream) -> Point {
        let (u, v) = (draws.random(), draws.random());
        if self.is_flat() { self.at(u, v) } else { self.at_height(u, v, draws.random()) }
    }

    /// Frames of a leg of a walk at this rms speed.
    fn leg_frames(&self, speed_m_per_frame: f64) -> f64 {
        let squared_m2: f64 = self.extents_m().iter().map(|extent| extent.powi(2)).sum();
        (squared_m2 / 18.0).sqrt() / speed_m_per_frame
    }
}

impl Scenario {
    /// Position of target `t` in a frame if it walks at this rms speed.
    pub(super) fn walk_m(&self, t: usize, speed_m_per_frame: f64, frame: u64) -> Point {
        let way = frame as f64 / self.coverage.leg_frames(speed_m_per_frame);
        let (leg, u) = (way.floor(), way.fract());
        let control = |j: u64| {
            let indices = [(leg as u64).saturating_add(j), t as u64];
            self.coverage.draw(&mut stream(self.seed, Purpose::Walk, indices))
        };
        let [before, from, to, after] = [0, 1, 2, 3].map(control);
        let v = 1.0 - u;
        // About one of the points, so that a coordinate in which all agree is exact.
        from + (before - from) * (v.powi(3) / 6.0)
            + (to - from) * ((1.0 + 3.0 * (u + u * u - u.powi(3))) / 6.0)
            + (after - from) * (u.powi(3) / 6.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Motion;

    const SPEED: Motion = Motion::Walk { speed_m_per_frame: 0.03 };

    fn areas() -> [Scenario; 2] {
        let flat = Scenario::default();
        let mut high = Scenario::default();
        (high.coverage.min_m, high.coverage.max_m) = ([1.5, 1.5, 0.5], [18.5, 13.5, 2.0]);
        [flat, high]
    }

    /// Over 20 walks of 20 000 frames, of 90 to 180 legs each: within 5 % of the setting, and always in the area.
    #[test]
    fn a_walk_has_its_rms_speed_and_stays_in_the_area() {
        for scenario in areas() {
            let (mut squared_m2, frames, walks) = (0.0, 20_000, 20);
            for t in 0..walks {
                let way: Vec<Point> = (0..=frames).map(|n| scenario.position_m(t, &SPEED, n)).collect();
                assert!(way.iter().all(|&at| scenario.coverage.contains(at)));
                squared_m2 += way.windows(2).map(|pair| (pair[1] - pair[0]).norm_squared()).sum::<f64>();
            }
            let rms = (squared_m2 / (frames as f64 * walks as f64)).sqrt();
            assert!((rms / 0.03 - 1.0).abs() < 0.05, "{rms}");
        }
    }

    /// Third differences are within the third derivative of a leg, at most `4 E / F^3`, also from one leg to the next.
    #[test]
    fn a_walk_has_no_corners() {
        for scenario in areas() {
            let leg = scenario.coverage.leg_frames(0.03);
            let extent_m = scenario.coverage.extents_m().iter().map(|e| e.powi(2)).sum::<f64>().sqrt();
            for n in 0..3000 {
                let [a, b, c, d] = [0, 1, 2, 3].map(|i| scenario.position_m(3, &SPEED, n + i));
                let third = (d - c * 3.0 + b * 3.0 - a).norm();
                assert!(third <= 4.0 * extent_m / leg.powi(3), "{third} at frame {n}");
            }
        }
    }

    #[test]
    fn walks_of_targets_and_seeds_differ() {
        let scenario = Scenario::default();
        let at = |scenario: &Scenario, t| scenario.position_m(t, &SPEED, 1000);
        assert_eq!(at(&scenario, 0), at(&scenario, 0));
        assert!((at(&scenario, 0) - at(&scenario, 1)).norm() > 0.1);
        assert!((at(&scenario, 0) - at(&scenario.clone().with_seed(2), 0)).norm() > 0.1);
        let far = scenario.position_m(0, &SPEED, u64::MAX);
        assert!(scenario.coverage.contains(far), "{far}");
    }
}
