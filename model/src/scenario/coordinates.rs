//! Positions as a scenario states them: three coordinates, or two, which mean height zero. Nothing is dropped silently, and a
//! position is written with two coordinates where its height is zero.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// x, y and height.
pub type Coordinates = [f64; 3];

fn in_space(coordinates: &[f64]) -> Result<Coordinates, String> {
    match coordinates {
        [x, y] => Ok([*x, *y, 0.0]),
        [x, y, z] => Ok([*x, *y, *z]),
        _ => Err(format!("{} coordinates: a position has 2 (height 0) or 3", coordinates.len())),
    }
}

/// The coordinates as a scenario or a fix states them.
pub fn stated(at: &Coordinates) -> &[f64] {
    if at[2] == 0.0 { &at[..2] } else { at }
}

/// One position.
pub mod point {
    use super::*;

    /// Reads two or three coordinates.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Coordinates, D::Error> {
        in_space(&Vec::deserialize(deserializer)?).map_err(D::Error::custom)
    }

    /// Writes two or three coordinates.
    pub fn serialize<S: Serializer>(at: &Coordinates, serializer: S) -> Result<S::Ok, S::Error> {
        stated(at).serialize(serializer)
    }
}

/// A position that may be absent.
pub mod optional {
    use super::*;

    /// Reads two or three coordinates.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Coordinates>, D::Error> {
        let stated: Option<Vec<f64>> = Option::deserialize(deserializer)?;
        stated.map(|coordinates| in_space(&coordinates)).transpose().map_err(D::Error::custom)
    }

    /// Writes two or three coordinates.
    pub fn serialize<S: Serializer>(at: &Option<Coordinates>, serializer: S) -> Result<S::Ok, S::Error> {
        at.as_ref().map(stated).serialize(serializer)
    }
}

/// A list of positions.
pub mod points {
    use super::*;

    /// Reads positions of two or three coordinates.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Coordinates>, D::Error> {
        let all: Vec<Vec<f64>> = Vec::deserialize(deserializer)?;
        all.iter().map(|at| in_space(at)).collect::<Result<_, _>>().map_err(D::Error::custom)
    }

    /// Writes positions of two or three coordinates.
    pub fn serialize<S: Serializer>(all: &[Coordinates], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all.iter().map(stated))
    }
}
