//! Panels in space: where the elements of an IRS are, and how they respond to a point, with exact derivatives.
//!
//! A panel has a centre c, an orientation and a grid of elements; q is the offset of an element from the centre. With
//! `v = p - c`, the response of the element to a point p is
//!
//! | wavefront | response | derivative of its phase by p |
//! | --- | --- | --- |
//! | spherical | `exp(-j k (\|v - q\| - \|v\|))` | `-k ((v - q) / \|v - q\| - v / \|v\|)` |
//! | plane, the limit for small q | `exp(+j k q.u)`, `u = v / \|v\|` | `k (q - u (q.u)) / \|v\|` |
//!
//! with `k = 2 pi / lambda`. All phases refer to the centre. The paper's steering vector of Eq. (2) counts from the end of
//! a line array instead. The two differ by a phase that is common to the array, which the unknown gain of the path
//! absorbs: positions and their exact bounds do not change. On the reflecting side the paper's `a(theta)^H` is this
//! response with the elements counted from the other end.

use std::f64::consts::TAU;

use nalgebra::{Matrix3, Vector3};
use num_complex::Complex64;

use crate::algebra::{CVector, unit_phasor};
use crate::geometry::Point;

/// A point in space, in metres.
pub type SpacePoint = Vector3<f64>;

/// A point of the plane at height zero, in space.
pub fn at_height_zero(point_m: Point) -> SpacePoint {
    SpacePoint::new(point_m.x, point_m.y, 0.0)
}

/// Shape of the waves between an IRS and a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wavefront {
    /// Plane, as in the paper: valid far beyond `2 D^2 / lambda`, D the size of the array.
    #[default]
    Plane,
    /// Spherical: valid at every distance.
    Spherical,
}

/// The carrier: wavelength, and the shape of its waves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Carrier {
    /// Wavelength lambda.
    pub wavelength_m: f64,
    /// Shape of the waves.
    pub wavefront: Wavefront,
}

impl Carrier {
    /// Phase of the response of an element at the offset `offset_m` from the centre to a point at `relative_m` from the
    /// centre, and its gradient with respect to the point.
    #[inline]
    pub fn phase_rad(&self, offset_m: &SpacePoint, relative_m: &SpacePoint) -> (f64, SpacePoint) {
        let wavenumber = TAU / self.wavelength_m;
        let distance = relative_m.norm();
        let direction = relative_m / distance;
        match self.wavefront {
            Wavefront::Plane => {
                let along = offset_m.dot(&direction);
                (wavenumber * along, (offset_m - direction * along) * (wavenumber / distance))
            }
            Wavefront::Spherical => {
                let from_element = relative_m - offset_m;
                let length = from_element.norm();
                // |v - q| - |v| without the difference of two nearly equal lengths.
                let longer = (offset_m.norm_squared() - 2.0 * relative_m.dot(offset_m)) / (length + distance);
                (-wavenumber * longer, (from_element / length - direction) * -wavenumber)
            }
        }
    }
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
    /// The boresight from a point towards another, without roll.
    pub fn towards(from_m: SpacePoint, to_m: SpacePoint) -> Self {
        let v = to_m - from_m;
        let horizontal = v.x.hypot(v.y);
        Self { azimuth_rad: v.y.atan2(v.x), elevation_rad: v.z.atan2(horizontal), roll_rad: 0.0 }
    }

    /// Unit vectors as columns: from one column of elements to the next, from one row to the next, boresight.
    pub fn axes(&self) -> Matrix3<f64> {
        let (sin_azimuth, cos_azimuth) = self.azimuth_rad.sin_cos();
        let (sin_elevation, cos_elevation) = self.elevation_rad.sin_cos();
        let (sin_roll, cos_roll) = self.roll_rad.sin_cos();
        let boresight =
            SpacePoint::new(cos_elevation * cos_azimuth, cos_elevation * sin_azimuth, sin_elevation);
        let level = SpacePoint::new(-sin_azimuth, cos_azimuth, 0.0);
        let upward = boresight.cross(&level);
        Matrix3::from_columns(&[
            level * cos_roll + upward * sin_roll,
            upward * cos_roll - level * sin_roll,
            boresight,
        ])
    }
}

/// The elements of an array, as offsets from the point to which phases and delays refer.
#[derive(Debug, Clone, PartialEq)]
pub struct Aperture {
    /// Offset of every element.
    pub offsets_m: Vec<SpacePoint>,
}

impl Aperture {
    /// A grid of `[columns, rows]` elements about its centre, row by row; a line array is `[n, 1]`.
    pub fn grid([columns, rows]: [usize; 2], spacing_m: f64, orientation: &Orientation) -> Self {
        let axes = orientation.axes();
        let middle = |index: usize, count: usize| spacing_m * (index as f64 - 0.5 * (count as f64 - 1.0));
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (column, row)));
        let offset =
            |(column, row)| axes.column(0) * middle(column, columns) + axes.column(1) * middle(row, rows);
        Self { offsets_m: places.map(offset).collect() }
    }

    /// A line array in the plane with its first element at the reference point, as in Eq. (2).
    pub fn line_from_end(elements: usize, spacing_m: f64, broadside_rad: f64) -> Self {
        let along = SpacePoint::new(-broadside_rad.sin(), broadside_rad.cos(), 0.0) * spacing_m;
        Self { offsets_m: (0..elements).map(|m| along * m as f64).collect() }
    }

    /// The same elements on the other side of the reference point: conjugates the response to plane waves.
    pub fn mirrored(mut self) -> Self {
        self.offsets_m.iter_mut().for_each(|offset| *offset = -*offset);
        self
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.offsets_m.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.offsets_m.is_empty()
    }

    /// Largest distance between two elements.
    pub fn diameter_m(&self) -> f64 {
        let farthest =
            |from: &SpacePoint| self.offsets_m.iter().map(|to| (to - from).norm()).fold(0.0, f64::max);
        self.offsets_m.iter().map(farthest).fold(0.0, f64::max)
    }

    /// Response of every element to a point at `relative_m` from the reference point.
    pub fn response(&self, carrier: &Carrier, relative_m: &SpacePoint) -> CVector {
        let element = |offset: &SpacePoint| unit_phasor(carrier.phase_rad(offset, relative_m).0);
        CVector::from_iterator(self.len(), self.offsets_m.iter().map(element))
    }

    /// The response with its derivatives with respect to the three coordinates of the point.
    pub fn expansion(&self, carrier: &Carrier, relative_m: &SpacePoint) -> (CVector, [CVector; 3]) {
        let count = self.len();
        let (mut response, mut derivatives) =
            (CVector::zeros(count), [(); 3].map(|()| CVector::zeros(count)));
        for (m, offset) in self.offsets_m.iter().enumerate() {
            let (phase, gradient) = carrier.phase_rad(offset, relative_m);
            response[m] = unit_phasor(phase);
            for (derivative, slope) in derivatives.iter_mut().zip(gradient.iter()) {
                derivative[m] = response[m] * Complex64::new(0.0, *slope);
            }
        }
        (response, derivatives)
    }
}

/// An IRS in space: reflecting elements and sensors share centre and orientation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Panel {
    /// Centre, to which phases and delays refer.
    pub centre_m: SpacePoint,
    /// Boresight and roll.
    pub orientation: Orientation,
    /// Columns and rows of reflecting elements.
    pub elements: [usize; 2],
    /// Columns and rows of sensors.
    pub sensors: [usize; 2],
    /// Distance between neighbouring elements and sensors.
    pub spacing_m: f64,
}

impl Panel {
    /// Where the reflecting elements are.
    pub fn element_aperture(&self) -> Aperture {
        Aperture::grid(self.elements, self.spacing_m, &self.orientation)
    }

    /// Where the sensors are.
    pub fn sensor_aperture(&self) -> Aperture {
        Aperture::grid(self.sensors, self.spacing_m, &self.orientation)
    }

    /// `2 D^2 / (lambda d)` of the larger grid at a point: plane waves are a good approximation well below one.
    pub fn near_field_ratio(&self, point_m: SpacePoint, wavelength_m: f64) -> f64 {
        let size = |[columns, rows]: [usize; 2]| {
            let length = |count: usize| self.spacing_m * (count as f64 - 1.0).max(0.0);
            length(columns).hypot(length(rows))
        };
        let largest_m = size(self.elements).max(size(self.sensors));
        2.0 * largest_m.powi(2) / (wavelength_m * (point_m - self.centre_m).norm())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::array::UniformLinearArray;
    use crate::geometry::Pose;

    fn point(reach: f64) -> impl Strategy<Value = SpacePoint> {
        (-reach..reach, -reach..reach, -reach..reach).prop_map(|(x, y, z)| SpacePoint::new(x, y, z))
    }

    fn panel() -> impl Strategy<Value = Panel> {
        let angles = (-3.1..3.1f64, -1.5..1.5f64, -3.1..3.1f64);
        let grids = ([1usize..9, 1usize..5], [1usize..9, 1usize..5]);
        (point(60.0), angles, grids, 0.02..0.3f64).prop_map(
            |(centre_m, (azimuth_rad, elevation_rad, roll_rad), (elements, sensors), spacing_m)| Panel {
                centre_m,
                orientation: Orientation { azimuth_rad, elevation_rad, roll_rad },
                elements,
                sensors,
                spacing_m,
            },
        )
    }

    #[test]
    fn axes_of_a_level_panel() {
        let towards_x = Orientation::towards(SpacePoint::zeros(), SpacePoint::new(3.0, 0.0, 0.0));
        assert!(
            (towards_x.axes() - Matrix3::from_columns(&[SpacePoint::y(), SpacePoint::z(), SpacePoint::x()]))
                .norm()
                < 1e-15
        );
        let rolled = Orientation { roll_rad: TAU / 4.0, ..towards_x };
        assert!((rolled.axes().column(0) - SpacePoint::z()).norm() < 1e-15);
        let grid = Aperture::grid([3, 2], 0.5, &towards_x);
        assert_eq!(grid.len(), 6);
        assert!((grid.offsets_m[0] - SpacePoint::new(0.0, -0.5, -0.25)).norm() < 1e-15);
        assert!((grid.offsets_m[5] - SpacePoint::new(0.0, 0.5, 0.25)).norm() < 1e-15);
        assert!((grid.diameter_m() - 1.25f64.sqrt()).abs() < 1e-15);
    }

    #[test]
    fn near_field_of_table_one() {
        // 2 D^2 / lambda is 49 m at ten elements one wavelength apart, 913 m at forty.
        for (count, metres) in [(10, 48.6), (40, 912.6)] {
            let panel = Panel {
                centre_m: SpacePoint::zeros(),
                orientation: Orientation { azimuth_rad: 0.0, elevation_rad: 0.0, roll_rad: 0.0 },
                elements: [count, 1],
                sensors: [1, 1],
                spacing_m: 0.3,
            };
            assert!(
                (panel.near_field_ratio(SpacePoint::new(50.0, 0.0, 0.0), 0.3) * 50.0 - metres).abs() < 1e-9
            );
        }
    }

    proptest! {
        #[test]
        fn axes_are_orthonormal_and_right_handed(panel in panel()) {
            let axes = panel.orientation.axes();
            prop_assert!((axes.transpose() * axes - Matrix3::identity()).norm() < 1e-12);
            prop_assert!((axes.determinant() - 1.0).abs() < 1e-12);
            let aim = panel.centre_m + axes.column(2) * 7.0;
            let found = Orientation::towards(panel.centre_m, aim).axes();
            prop_assert!((found.column(2) - axes.column(2)).norm() < 1e-9);
        }

        /// Line and panel, plane and spherical.
        #[test]
        fn derivatives_match_differences(
            panel in panel(),
            p in point(60.0),
            spherical in any::<bool>(),
            wavelength_m in 0.05..0.4f64,
        ) {
            let wavefront = if spherical { Wavefront::Spherical } else { Wavefront::Plane };
            let carrier = Carrier { wavelength_m, wavefront };
            let v = p - panel.centre_m;
            for aperture in [panel.element_aperture(), panel.sensor_aperture()] {
                prop_assume!(v.norm() > 1.0 + 2.0 * aperture.diameter_m());
                let (response, derivatives) = aperture.expansion(&carrier, &v);
                prop_assert!((response - aperture.response(&carrier, &v)).norm() == 0.0);
                for (axis, derivative) in derivatives.iter().enumerate() {
                    // Fourth order: truncation and rounding both stay below 1e-8 of the derivative's scale.
                    let h = 1e-3 * v.norm().min(wavelength_m * v.norm() / (0.1 + aperture.diameter_m()));
                    let at = |steps: f64| aperture.response(&carrier, &(v + SpacePoint::ith(axis, steps * h)));
                    let difference = ((at(1.0) - at(-1.0)).scale(8.0) - (at(2.0) - at(-2.0))).unscale(12.0 * h);
                    let scale = 1.0 + derivative.norm();
                    let error = (difference - derivative).norm();
                    prop_assert!(error < 1e-6 * scale, "{error} of {scale}");
                }
            }
        }

        /// Plane waves are the limit of spherical ones for a small array.
        #[test]
        fn spherical_waves_become_plane(panel in panel(), p in point(60.0)) {
            let v = p - panel.centre_m;
            prop_assume!(v.norm() > 1.0);
            let small = Panel { spacing_m: 1e-5, ..panel }.sensor_aperture();
            let response = |wavefront| small.response(&Carrier { wavelength_m: 1e-4, wavefront }, &v);
            let error = response(Wavefront::Plane) - response(Wavefront::Spherical);
            prop_assert!(error.norm() < 1e-3, "{}", error.norm());
        }

        /// A line array from its end has the steering vector of Eq. (2); from its centre it differs by a common phase.
        #[test]
        fn line_arrays_have_the_steering_vector_of_the_paper(
            x in 1.0..50.0f64, y in -50.0..50.0f64, broadside_rad in -3.0..3.0f64, count in 1usize..20,
        ) {
            let target = Point::new(x, y);
            let pose = Pose { position_m: Point::zeros(), broadside_rad };
            let array = UniformLinearArray { elements: count, spacing_wavelengths: 0.8 };
            let steering = array.steering(pose.local_angle_rad(target));
            let carrier = Carrier { wavelength_m: 0.3, wavefront: Wavefront::Plane };
            let (spacing_m, v) = (0.8 * 0.3, at_height_zero(target));
            let line = Aperture::line_from_end(count, spacing_m, broadside_rad);
            prop_assert!((line.response(&carrier, &v) - &steering).norm() < 1e-10);
            prop_assert!((line.mirrored().response(&carrier, &v) - steering.conjugate()).norm() < 1e-10);
            let level = Orientation { azimuth_rad: broadside_rad, elevation_rad: 0.0, roll_rad: 0.0 };
            let centred = Aperture::grid([count, 1], spacing_m, &level).response(&carrier, &v);
            prop_assert!((centred.dotc(&steering).norm() - count as f64).abs() < 1e-9);
        }
    }
}
