//! Positions as a scenario states them: two coordinates, or three of which the height is zero. Nothing is dropped silently.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// One position.
pub(super) fn point<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    in_plane(&Vec::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// A list of positions.
pub(super) fn points<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<[f64; 2]>, D::Error> {
    let all: Vec<Vec<f64>> = Vec::deserialize(deserializer)?;
    all.iter().map(|coordinates| in_plane(coordinates)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn in_plane(coordinates: &[f64]) -> Result<[f64; 2], String> {
    match coordinates {
        [x, y] | [x, y, 0.0] => Ok([*x, *y]),
        [_, _, height_m] => Err(format!(
            "height {height_m} m: scenarios are located in the plane, so that the third coordinate must be 0 or left out"
        )),
        _ => Err(format!("{} coordinates: a position has 2, or 3 with the height 0", coordinates.len())),
    }
}
