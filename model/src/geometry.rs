//! Geometry: points, poses of the IRSs, and how delay and bearing depend on the position of the target.
//!
//! Positions have three coordinates. The paper's method is one of the plane: line arrays and targets at one height. It uses
//! the *bearing* (global, four-quadrant `atan2`, since the paper's arctan loses the quadrant) and the *local angle* from the
//! broadside of an IRS, the argument of steering vectors; the paper writes one theta for both (Section II).

use std::f64::consts::{PI, TAU};

use nalgebra::{Matrix3, Vector2, Vector3};

use crate::units::SPEED_OF_LIGHT_M_S;

/// A point in space, in metres.
pub type Point = Vector3<f64>;

/// A point of the horizontal plane, in metres.
pub type PlanePoint = Vector2<f64>;

/// The point of a plane at this height.
pub fn at_height(point_m: PlanePoint, height_m: f64) -> Point {
    Point::new(point_m.x, point_m.y, height_m)
}

/// Direction of a panel: boresight, and rotation about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Orientation {
    /// Azimuth of the boresight, from the x-axis towards the y-axis.
    pub azimuth_rad: f64,
    /// Elevation of the boresight above the horizontal plane.
    pub elevation_rad: f64,
    /// Rotation of the panel about its boresight; zero if its columns stand side by side horizontally.
    pub roll_rad: f64,
}

impl Orientation {
    /// A boresight in the horizontal plane, without roll.
    pub fn level(azimuth_rad: f64) -> Self {
        Self { azimuth_rad, elevation_rad: 0.0, roll_rad: 0.0 }
    }

    /// The boresight from a point towards another, without roll.
    pub fn towards(from_m: Point, to_m: Point) -> Self {
        let v = to_m - from_m;
        Self { azimuth_rad: v.y.atan2(v.x), elevation_rad: v.z.atan2(v.x.hypot(v.y)), roll_rad: 0.0 }
    }

    /// Whether boresight and columns lie in the horizontal plane.
    pub fn is_level(&self) -> bool {
        self.elevation_rad == 0.0 && self.roll_rad == 0.0
    }

    /// Unit vectors as columns: from one column of elements to the next, from one row to the next, boresight.
    pub fn axes(&self) -> Matrix3<f64> {
        let (sin_azimuth, cos_azimuth) = self.azimuth_rad.sin_cos();
        let (sin_elevation, cos_elevation) = self.elevation_rad.sin_cos();
        let (sin_roll, cos_roll) = self.roll_rad.sin_cos();
        let boresight = Point::new(cos_elevation * cos_azimuth, cos_elevation * sin_azimuth, sin_elevation);
        let level = Point::new(-sin_azimuth, cos_azimuth, 0.0);
        let upward = boresight.cross(&level);
        Matrix3::from_columns(&[
            level * cos_roll + upward * sin_roll,
            upward * cos_roll - level * sin_roll,
            boresight,
        ])
    }
}

/// Position and orientation of one IRS.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pose {
    /// Centre of the panel.
    pub position_m: Point,
    /// Boresight and roll.
    pub orientation: Orientation,
}

impl Pose {
    /// A pose at `position_m` with its boresight towards `aim_m`.
    pub fn facing(position_m: Point, aim_m: Point) -> Self {
        Self { position_m, orientation: Orientation::towards(position_m, aim_m) }
    }

    /// Distance to `target_m`.
    pub fn distance_m(&self, target_m: Point) -> f64 {
        (target_m - self.position_m).norm()
    }

    /// Unit vector from this IRS to `target_m`: the gradient of the distance.
    pub fn direction(&self, target_m: Point) -> Point {
        (target_m - self.position_m) / self.distance_m(target_m)
    }

    /// Bearing of the boresight.
    pub fn broadside_rad(&self) -> f64 {
        self.orientation.azimuth_rad
    }

    /// Global bearing of `target_m`.
    pub fn bearing_rad(&self, target_m: Point) -> f64 {
        bearing_rad(self.position_m.xy(), target_m.xy())
    }

    /// Angle of `target_m` from broadside in the horizontal plane, the argument of the steering vector, in [-pi, pi).
    pub fn local_angle_rad(&self, target_m: Point) -> f64 {
        wrap_angle(self.bearing_rad(target_m) - self.broadside_rad())
    }

    /// Gradient of the bearing (and of the local angle): `(-sin b, cos b, 0) / d`, d the horizontal distance.
    pub fn bearing_gradient_rad_m(&self, target_m: Point) -> Point {
        let v = (target_m - self.position_m).xy();
        Point::new(-v.y, v.x, 0.0) / v.norm_squared()
    }
}

/// Bearing of `to` seen from `from`, in (-pi, pi].
pub fn bearing_rad(from: PlanePoint, to: PlanePoint) -> f64 {
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
        (-80.0..80.0, -80.0..80.0, -20.0..20.0).prop_map(|(x, y, z)| Point::new(x, y, z))
    }

    #[test]
    fn bearing_keeps_the_quadrant() {
        let irs = Pose::facing(Point::new(50.0, 0.0, 0.0), Point::zeros());
        assert!((irs.broadside_rad().abs() - PI).abs() < 1e-12);
        assert!((irs.bearing_rad(Point::new(0.0, 50.0, 0.0)) - 0.75 * PI).abs() < 1e-12);
        assert!((irs.local_angle_rad(Point::new(0.0, 50.0, 0.0)) + 0.25 * PI).abs() < 1e-12);
    }

    #[test]
    fn wrap_covers_the_seam() {
        assert!((wrap_angle(3.5 * PI) + 0.5 * PI).abs() < 1e-12);
        assert_eq!(wrap_angle(PI), -PI);
    }

    proptest! {
        #[test]
        fn gradients_match_finite_differences(a in point(), b in point(), t in point()) {
            prop_assume!((a - t).xy().norm() > 1.0 && (b - t).xy().norm() > 1.0);
            let (sensor, reflector) = (Pose::facing(a, Point::zeros()), Pose::facing(b, Point::zeros()));
            let h = 1e-4;
            let delay = cascade_delay_gradient_s_m(&sensor, &reflector, t);
            let bearing = sensor.bearing_gradient_rad_m(t);
            for axis in 0..3 {
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
