//! Positions and covariances as fixes state them.
//!
//! A position has two coordinates in a flat area at height zero, as in releases without heights, and three elsewhere. A
//! covariance is over the free coordinates, which the fix names, and is stated as its upper triangle, row by row: xx, xy, yy,
//! or xx, xy, xz, yy, yz, zz.

use std::ops::Deref;

use model::{Point, System};
use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};

/// Free coordinates of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axes {
    /// The coverage area is flat.
    Xy,
    Xyz,
}

impl Axes {
    pub fn of_site(system: &System) -> Self {
        if system.coverage.is_flat() { Self::Xy } else { Self::Xyz }
    }

    /// Those of a covariance of this many rows.
    pub fn of_covariance(covariance_m2: &DMatrix<f64>) -> Self {
        if covariance_m2.nrows() < 3 { Self::Xy } else { Self::Xyz }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Xy => "xy",
            Self::Xyz => "xyz",
        }
    }

    /// Their number, which is also the mean of the normalised squared error for a consistent covariance.
    pub fn count(self) -> usize {
        self.name().len()
    }
}

/// A position, or a velocity: a list of two or three coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub struct FixPlace {
    at: [f64; 3],
    count: usize,
}

impl FixPlace {
    pub fn new(at: Point, axes: Axes) -> Self {
        let count = if at.z == 0.0 { axes.count() } else { 3 };
        Self { at: at.into(), count }
    }

    pub fn point(&self) -> Point {
        self.at.into()
    }
}

impl Deref for FixPlace {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.at[..self.count]
    }
}

impl TryFrom<Vec<f64>> for FixPlace {
    type Error = String;

    fn try_from(stated: Vec<f64>) -> Result<Self, String> {
        match stated[..] {
            [x, y] => Ok(Self { at: [x, y, 0.0], count: 2 }),
            [x, y, z] => Ok(Self { at: [x, y, z], count: 3 }),
            _ => Err(format!("{} coordinates: a position has 2 (height 0) or 3", stated.len())),
        }
    }
}

impl From<FixPlace> for Vec<f64> {
    fn from(place: FixPlace) -> Self {
        place.to_vec()
    }
}

/// The upper triangle of a covariance, row by row.
pub fn upper_triangle(matrix: &DMatrix<f64>) -> Vec<f64> {
    let count = matrix.nrows();
    (0..count).flat_map(|row| (row..count).map(move |column| matrix[(row, column)])).collect()
}

/// The covariance of an upper triangle; none unless it is one of two coordinates at least.
pub fn symmetric(triangle: &[f64]) -> Option<DMatrix<f64>> {
    let count = (2..=triangle.len()).find(|count| count * (count + 1) / 2 >= triangle.len())?;
    if count * (count + 1) / 2 != triangle.len() {
        return None;
    }
    let entry = |row: usize, column: usize| {
        let (first, second) = (row.min(column), row.max(column));
        triangle[first * count - first * (first + 1) / 2 + second]
    };
    Some(DMatrix::from_fn(count, count, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_stated_with_its_height_unless_that_is_zero_in_a_flat_area() {
        let stated = |z, axes| serde_json::to_string(&FixPlace::new(Point::new(1.0, 2.0, z), axes)).unwrap();
        assert_eq!(stated(0.0, Axes::Xy), "[1.0,2.0]");
        assert_eq!(stated(1.5, Axes::Xy), "[1.0,2.0,1.5]");
        assert_eq!(stated(0.0, Axes::Xyz), "[1.0,2.0,0.0]");
        let read = |text| serde_json::from_str::<FixPlace>(text);
        assert_eq!(read("[1, 2]").unwrap().point(), Point::new(1.0, 2.0, 0.0));
        assert_eq!(read("[1, 2, 3]").unwrap().point(), Point::new(1.0, 2.0, 3.0));
        assert!(read("[1, 2, 3, 4]").unwrap_err().to_string().contains("4 coordinates"));
    }

    #[test]
    fn a_triangle_is_read_as_it_is_written() {
        for entries in [vec![1.0, 2.0, 3.0], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]] {
            let matrix = symmetric(&entries).unwrap();
            assert_eq!((upper_triangle(&matrix), matrix.transpose()), (entries, matrix));
        }
        assert_eq!((symmetric(&[1.0, 2.0]), symmetric(&[]), symmetric(&[1.0; 7])), (None, None, None));
        assert_eq!(symmetric(&[1.0; 10]).unwrap().nrows(), 4);
    }
}
