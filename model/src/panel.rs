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

use num_complex::Complex64;
use serde::{Deserialize, Serialize};

use crate::algebra::{CVector, unit_phasor};
use crate::geometry::{Orientation, Point};

/// Shape of the waves between an IRS and a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wavefront {
    /// Plane, as in the paper: valid far beyond `2 D^2 / lambda`, D the size of the array.
    #[default]
    Plane,
    /// Spherical: valid at every distance.
    Spherical,
}

impl Wavefront {
    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plane => "plane",
            Self::Spherical => "spherical",
        }
    }
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
    pub fn phase_rad(&self, offset_m: &Point, relative_m: &Point) -> (f64, Point) {
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

/// Columns and rows of the elements of a panel. A scenario states `[columns, rows]`, or one number for a line array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StatedGrid", into = "StatedGrid")]
pub struct ElementGrid {
    /// Elements side by side.
    pub columns: usize,
    /// Elements one above another; 1 for a line array.
    pub rows: usize,
}

/// How a scenario states an [`ElementGrid`].
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a count, or [columns, rows]")]
enum StatedGrid {
    Line(usize),
    Panel([usize; 2]),
}

impl From<StatedGrid> for ElementGrid {
    fn from(counts: StatedGrid) -> Self {
        match counts {
            StatedGrid::Line(columns) => columns.into(),
            StatedGrid::Panel([columns, rows]) => Self { columns, rows },
        }
    }
}

impl From<ElementGrid> for StatedGrid {
    fn from(grid: ElementGrid) -> Self {
        if grid.is_line() { Self::Line(grid.columns) } else { Self::Panel([grid.columns, grid.rows]) }
    }
}

impl From<usize> for ElementGrid {
    fn from(columns: usize) -> Self {
        Self { columns, rows: 1 }
    }
}

impl ElementGrid {
    /// Number of elements.
    pub fn count(&self) -> usize {
        self.columns.saturating_mul(self.rows)
    }

    /// Whether this is a line array.
    pub fn is_line(&self) -> bool {
        self.rows == 1
    }

    /// Distance between opposite corners in units of the spacing.
    pub fn diagonal(&self) -> f64 {
        let length = |count: usize| count.saturating_sub(1) as f64;
        length(self.columns).hypot(length(self.rows))
    }
}

impl std::fmt::Display for ElementGrid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_line() {
            write!(f, "{}", self.columns)
        } else {
            write!(f, "[{}, {}]", self.columns, self.rows)
        }
    }
}

/// The elements of an array, as offsets from the point to which phases and delays refer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Aperture {
    /// Offset of every element.
    pub offsets_m: Vec<Point>,
}

impl Aperture {
    /// A grid of elements about its centre, row by row.
    pub fn grid(grid: ElementGrid, spacing_m: f64, orientation: &Orientation) -> Self {
        let ElementGrid { columns, rows } = grid;
        let axes = orientation.axes();
        let middle = |index: usize, count: usize| spacing_m * (index as f64 - 0.5 * (count as f64 - 1.0));
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (column, row)));
        let offset =
            |(column, row)| axes.column(0) * middle(column, columns) + axes.column(1) * middle(row, rows);
        Self { offsets_m: places.map(offset).collect() }
    }

    /// A line array with its first element at the reference point, as in Eq. (2).
    pub fn line_from_end(elements: usize, spacing_m: f64, orientation: &Orientation) -> Self {
        let along = orientation.axes().column(0) * spacing_m;
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

    /// Response of every element to a point at `relative_m` from the reference point.
    pub fn response(&self, carrier: &Carrier, relative_m: &Point) -> CVector {
        let element = |offset: &Point| unit_phasor(carrier.phase_rad(offset, relative_m).0);
        CVector::from_iterator(self.len(), self.offsets_m.iter().map(element))
    }

    /// The response with its derivatives with respect to the three coordinates of the point.
    pub fn expansion(&self, carrier: &Carrier, relative_m: &Point) -> (CVector, [CVector; 3]) {
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

#[cfg(test)]
mod tests {
    use nalgebra::Matrix3;
    use proptest::prelude::*;

    use super::*;
    use crate::array::UniformLinearArray;
    use crate::geometry::Pose;

    fn point(reach: f64) -> impl Strategy<Value = Point> {
        (-reach..reach, -reach..reach, -reach..reach).prop_map(|(x, y, z)| Point::new(x, y, z))
    }

    /// Centre, orientation, grid and spacing of a panel.
    fn panel() -> impl Strategy<Value = (Point, Orientation, ElementGrid, f64)> {
        let angles =
            (-3.1..3.1f64, -1.5..1.5f64, -3.1..3.1f64).prop_map(|(azimuth_rad, elevation_rad, roll_rad)| {
                Orientation { azimuth_rad, elevation_rad, roll_rad }
            });
        let grid = (1usize..9, 1usize..5).prop_map(|(columns, rows)| ElementGrid { columns, rows });
        (point(60.0), angles, grid, 0.02..0.3f64)
    }

    #[test]
    fn grids_are_written_as_they_are_read() {
        let read = |text: &str| serde_json::from_str::<ElementGrid>(text);
        for (text, columns, rows) in [("10", 10, 1), ("[8, 4]", 8, 4)] {
            let grid = read(text).unwrap();
            assert_eq!((grid.columns, grid.rows, grid.count()), (columns, rows, columns * rows));
            assert_eq!(serde_json::to_string(&grid).unwrap(), text.replace(' ', ""));
        }
        assert_eq!(read("[7, 1]").unwrap(), 7.into());
        for refused in ["[8]", "[2, 3, 4]", "-1", "2.5"] {
            let message = read(refused).unwrap_err().to_string();
            assert!(message.contains("a count, or [columns, rows]"), "{message}");
        }
    }

    /// Largest distance between two elements.
    fn diameter_m(aperture: &Aperture) -> f64 {
        let offsets_m = &aperture.offsets_m;
        offsets_m.iter().flat_map(|a| offsets_m.iter().map(move |b| (a - b).norm())).fold(0.0, f64::max)
    }

    #[test]
    fn axes_of_a_level_panel() {
        let towards_x = Orientation::towards(Point::zeros(), Point::new(3.0, 0.0, 0.0));
        assert!(
            (towards_x.axes() - Matrix3::from_columns(&[Point::y(), Point::z(), Point::x()])).norm() < 1e-15
        );
        let rolled = Orientation { roll_rad: TAU / 4.0, ..towards_x };
        assert!((rolled.axes().column(0) - Point::z()).norm() < 1e-15);
        let grid = Aperture::grid(ElementGrid { columns: 3, rows: 2 }, 0.5, &towards_x);
        assert_eq!(grid.len(), 6);
        assert!((grid.offsets_m[0] - Point::new(0.0, -0.5, -0.25)).norm() < 1e-15);
        assert!((grid.offsets_m[5] - Point::new(0.0, 0.5, 0.25)).norm() < 1e-15);
        assert!((diameter_m(&grid) - 1.25f64.sqrt()).abs() < 1e-15);
    }

    proptest! {
        #[test]
        fn axes_are_orthonormal_and_right_handed((centre_m, orientation, _, _) in panel()) {
            let axes = orientation.axes();
            prop_assert!((axes.transpose() * axes - Matrix3::identity()).norm() < 1e-12);
            prop_assert!((axes.determinant() - 1.0).abs() < 1e-12);
            let aim = centre_m + axes.column(2) * 7.0;
            let found = Orientation::towards(centre_m, aim).axes();
            prop_assert!((found.column(2) - axes.column(2)).norm() < 1e-9);
        }

        /// Line and panel, plane and spherical.
        #[test]
        fn derivatives_match_differences(
            (centre_m, orientation, grid, spacing_m) in panel(),
            p in point(60.0),
            spherical in any::<bool>(),
            wavelength_m in 0.05..0.4f64,
        ) {
            let wavefront = if spherical { Wavefront::Spherical } else { Wavefront::Plane };
            let carrier = Carrier { wavelength_m, wavefront };
            let v = p - centre_m;
            for aperture in [Aperture::grid(grid, spacing_m, &orientation), Aperture::line_from_end(grid.columns, spacing_m, &orientation)] {
                prop_assume!(v.norm() > 1.0 + 2.0 * diameter_m(&aperture));
                let (response, derivatives) = aperture.expansion(&carrier, &v);
                prop_assert!((response - aperture.response(&carrier, &v)).norm() == 0.0);
                for (axis, derivative) in derivatives.iter().enumerate() {
                    // Fourth order: truncation and rounding both stay below 1e-8 of the derivative's scale.
                    let h = 1e-3 * v.norm().min(wavelength_m * v.norm() / (0.1 + diameter_m(&aperture)));
                    let at = |steps: f64| aperture.response(&carrier, &(v + Point::ith(axis, steps * h)));
                    let difference = ((at(1.0) - at(-1.0)).scale(8.0) - (at(2.0) - at(-2.0))).unscale(12.0 * h);
                    let scale = 1.0 + derivative.norm();
                    let error = (difference - derivative).norm();
                    prop_assert!(error < 1e-6 * scale, "{error} of {scale}");
                }
            }
        }

        /// Plane waves are the limit of spherical ones for a small array.
        #[test]
        fn spherical_waves_become_plane((centre_m, orientation, grid, _) in panel(), p in point(60.0)) {
            let v = p - centre_m;
            prop_assume!(v.norm() > 1.0);
            let small = Aperture::grid(grid, 1e-5, &orientation);
            let response = |wavefront| small.response(&Carrier { wavelength_m: 1e-4, wavefront }, &v);
            let error = response(Wavefront::Plane) - response(Wavefront::Spherical);
            prop_assert!(error.norm() < 1e-3, "{}", error.norm());
        }

        /// A line array from its end has the steering vector of Eq. (2); from its centre it differs by a common phase.
        #[test]
        fn line_arrays_have_the_steering_vector_of_the_paper(
            x in 1.0..50.0f64, y in -50.0..50.0f64, broadside_rad in -3.0..3.0f64, count in 1usize..20,
        ) {
            let target = Point::new(x, y, 0.0);
            let level = Orientation::level(broadside_rad);
            let pose = Pose { position_m: Point::zeros(), orientation: level };
            let array = UniformLinearArray { elements: count, spacing_wavelengths: 0.8 };
            let steering = array.steering(pose.local_angle_rad(target));
            let carrier = Carrier { wavelength_m: 0.3, wavefront: Wavefront::Plane };
            let (spacing_m, v) = (0.8 * 0.3, target);
            let line = Aperture::line_from_end(count, spacing_m, &level);
            prop_assert!((line.response(&carrier, &v) - &steering).norm() < 1e-10);
            prop_assert!((line.mirrored().response(&carrier, &v) - steering.conjugate()).norm() < 1e-10);
            let centred = Aperture::grid(count.into(), spacing_m, &level).response(&carrier, &v);
            prop_assert!((centred.dotc(&steering).norm() - count as f64).abs() < 1e-9);
        }
    }
}
