//! Plane geometry: poses of the IRSs, and how delay and bearing depend on the position of the target.
//!
//! Section II of the paper, with two differences. The bearing is the four-quadrant `atan2`, since the paper's arctan
//! loses the quadrant. The paper writes one theta for two angles that differ by the orientation of the array: here the
//! *bearing* is global (locator, Jacobians) and the *local angle* is measured from the broadside of the IRS (steering
//! vectors).

use std::f64::consts::{PI, TAU};

use nalgebra::Vector2;

use crate::units::SPEED_OF_LIGHT_M_S;

/// A point of the plane, in metres.
pub type Point = Vector2<f64>;

/// Position and orientation of one IRS.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pose {
    /// Centre of the array.
    pub position_m: Point,
    /// Bearing of the broadside.
    pub broadside_rad: f64,
}

impl Pose {
    /// A pose at `position_m` with its broadside towards `aim_m`.
    pub fn facing(position_m: Point, aim_m: Point) -> Self {
        Self { position_m, broadside_rad: bearing_rad(position_m, aim_m) }
    }

    /// Distance to `target_m`.
    pub fn distance_m(&self, target_m: Point) -> f64 {
        (target_m - self.position_m).norm()
    }

    /// Global bearing of `target_m`.
    pub fn bearing_rad(&self, target_m: Point) -> f64 {
        bearing_rad(self.position_m, target_m)
    }

    /// Angle of `target_m` from broadside, the argument of the steering vector, in [-pi, pi).
    pub fn local_angle_rad(&self, target_m: Point) -> f64 {
        wrap_angle(self.bearing_rad(target_m) - self.broadside_rad)
    }

    /// Unit vector from this IRS to `target_m`: the gradient of the distance.
    pub fn direction(&self, target_m: Point) -> Point {
        (target_m - self.position_m) / self.distance_m(target_m)
    }

    /// Gradient of the bearing (and of the local angle): `(-sin b, cos b) / d`.
    pub fn bearing_gradient_rad_m(&self, target_m: Point) -> Point {
        let u = self.direction(target_m);
        Point::new(-u.y, u.x) / self.distance_m(target_m)
    }
}

/// Bearing of `to` seen from `from`, in (-pi, pi].
pub fn bearing_rad(from: Point, to: Point) -> f64 {
    let v = to - from;
    v.y.atan2(v.x)
}

/// The equivalent angle in [-pi, pi).
pub fn wrap_angle(angle_rad: f64) -> f64 {
    (angle_rad + PI).rem_euclid(TAU) - PI
}

/// Delay reflector -> target -> sensor, `(d_l + d_k) / c`, without the known BS-IRS delay.
pub fn cascade_delay_s(sensor: &Pose, reflector: &Pose, target_m: Point) -> f64 {
    (sensor.distance_m(target_m) + reflector.distance_m(target_m)) / SPEED_OF_LIGHT_M_S
}

/// Gradient of the cascade delay, `(u_l + u_k) / c`.
pub fn cascade_delay_gradient_s_m(sensor: &Pose, reflector: &Pose, target_m: Point) -> Point {
    (sensor.direction(target_m) + reflector.direction(target_m)) / SPEED_OF_LIGHT_M_S
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point() -> impl Strategy<Value = Point> {
        (-80.0..80.0, -80.0..80.0).prop_map(|(x, y)| Point::new(x, y))
    }

    #[test]
    fn bearing_keeps_the_quadrant() {
        let irs = Pose::facing(Point::new(50.0, 0.0), Point::zeros());
        assert!((irs.broadside_rad.abs() - PI).abs() < 1e-12);
        assert!((irs.bearing_rad(Point::new(0.0, 50.0)) - 0.75 * PI).abs() < 1e-12);
        assert!((irs.local_angle_rad(Point::new(0.0, 50.0)) + 0.25 * PI).abs() < 1e-12);
    }

    #[test]
    fn wrap_covers_the_seam() {
        assert!((wrap_angle(3.5 * PI) + 0.5 * PI).abs() < 1e-12);
        assert_eq!(wrap_angle(PI), -PI);
    }

    proptest! {
        #[test]
        fn gradients_match_finite_differences(a in point(), b in point(), t in point()) {
            prop_assume!((a - t).norm() > 1.0 && (b - t).norm() > 1.0);
            let (sensor, reflector) = (Pose::facing(a, Point::zeros()), Pose::facing(b, Point::zeros()));
            let h = 1e-4;
            let delay = cascade_delay_gradient_s_m(&sensor, &reflector, t);
            let bearing = sensor.bearing_gradient_rad_m(t);
            for axis in 0..2 {
                let mut step = Point::zeros();
                step[axis] = h;
                let d = (cascade_delay_s(&sensor, &reflector, t + step) - cascade_delay_s(&sensor, &reflector, t - step)) / (2.0 * h);
                prop_assert!((d - delay[axis]).abs() * SPEED_OF_LIGHT_M_S < 1e-6);
                let d = wrap_angle(sensor.bearing_rad(t + step) - sensor.bearing_rad(t - step)) / (2.0 * h);
                prop_assert!((d - bearing[axis]).abs() < 1e-6);
            }
        }
    }
}
