//! Motion of a target: its position is a function of the frame number, and of the seed and the number of the target where it is
//! drawn, so that any frame can be generated without the previous ones.
//!
//! Line, circle and waypoints have constant speed between their points and repeat: a line and a list of waypoints are
//! followed forth and back, a circle is followed round.

use std::f64::consts::TAU;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::coordinates::{self, Coordinates};
use super::validate::{show, within};
use super::{Coverage, ScenarioError};
use crate::geometry::Point;

/// Motion of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "snake_case", deny_unknown_fields)]
pub enum Motion {
    /// Uniform over the coverage area, drawn for every coherent interval, as in the paper.
    Random,
    /// At rest.
    Fixed {
        /// May lie outside the coverage area.
        #[serde(with = "coordinates::point")]
        position_m: Coordinates,
    },
    /// Back and forth on a line.
    Line {
        /// Position at frame 0.
        #[serde(with = "coordinates::point")]
        from_m: Coordinates,
        /// The other end.
        #[serde(with = "coordinates::point")]
        to_m: Coordinates,
        /// Frames from end to end.
        frames: u64,
    },
    /// Counter-clockwise on a circle, from the point in the direction of x.
    Circle {
        /// Centre of the circle.
        #[serde(with = "coordinates::point")]
        centre_m: Coordinates,
        /// Radius, positive.
        radius_m: f64,
        /// Frames of a round.
        frames: u64,
    },
    /// From point to point at constant speed, and back from the last one.
    Waypoints {
        /// At least two points.
        #[serde(with = "coordinates::points")]
        points_m: Vec<Coordinates>,
        /// Frames from one point to the next.
        frames_per_leg: u64,
    },
    /// A smooth random walk through the coverage area, drawn for every target.
    Walk {
        /// Root-mean-square speed.
        speed_m_per_frame: f64,
    },
}

impl Motion {
    /// Kinds of motion, by their keys in a scenario.
    pub const NAMES: [&str; 6] = ["random", "fixed", "line", "circle", "waypoints", "walk"];

    /// The motion of this kind that fits a coverage area: its centre, a diagonal, a circle about the centre, or the
    /// sides of a square, completed once in `frames`, or a walk at the rms speed of that circle. None if the kind is unknown.
    pub fn named(name: &str, coverage: &Coverage, frames: u64) -> Option<Self> {
        let at = |u: f64, v: f64| -> Coordinates { coverage.at(u, v).into() };
        let side_m = |axis: usize| coverage.max_m[axis] - coverage.min_m[axis];
        let frames = frames.max(1);
        let radius_m = 0.35 * side_m(0).min(side_m(1));
        Some(match name {
            "random" => Self::Random,
            "fixed" => Self::Fixed { position_m: at(0.5, 0.5) },
            "line" => Self::Line { from_m: at(0.1, 0.1), to_m: at(0.9, 0.9), frames },
            "circle" => Self::Circle { centre_m: at(0.5, 0.5), radius_m, frames },
            "waypoints" => Self::Waypoints {
                points_m: vec![
                    at(0.15, 0.15),
                    at(0.85, 0.15),
                    at(0.85, 0.85),
                    at(0.15, 0.85),
                    at(0.15, 0.15),
                ],
                frames_per_leg: frames.div_ceil(4),
            },
            "walk" => Self::Walk { speed_m_per_frame: TAU * radius_m / frames as f64 },
            _ => return None,
        })
    }

    /// Frames after which the motion repeats; none if it does not or the target is at rest.
    pub fn round_frames(&self) -> Option<u64> {
        match self {
            Self::Random | Self::Fixed { .. } | Self::Walk { .. } => None,
            Self::Line { frames, .. } => Some(frames.saturating_mul(2)),
            Self::Circle { frames, .. } => Some(*frames),
            Self::Waypoints { points_m, frames_per_leg } => {
                let legs = points_m.len().saturating_sub(1) as u64;
                Some(legs.saturating_mul(*frames_per_leg).saturating_mul(2))
            }
        }
    }

    /// Position of the target in a frame; none if it is drawn at random.
    pub fn position_m(&self, frame: u64) -> Option<Point> {
        match self {
            Self::Random | Self::Walk { .. } => None,
            Self::Fixed { position_m } => Some(Point::from(*position_m)),
            Self::Line { from_m, to_m, frames } => Some(along(&[*from_m, *to_m], *frames, frame)),
            Self::Circle { centre_m, radius_m, frames } => {
                let frames = (*frames).max(1);
                let (sin, cos) = (TAU * (frame % frames) as f64 / frames as f64).sin_cos();
                Some(Point::from(*centre_m) + Point::new(cos, sin, 0.0) * *radius_m)
            }
            Self::Waypoints { points_m, frames_per_leg } => Some(along(points_m, *frames_per_leg, frame)),
        }
    }

    /// Points whose convex hull contains the motion, with their keys; none if the motion may leave the coverage area.
    fn corners(&self) -> Vec<(String, Coordinates)> {
        let key = str::to_owned;
        match self {
            Self::Random | Self::Fixed { .. } | Self::Walk { .. } => Vec::new(),
            Self::Line { from_m, to_m, .. } => {
                vec![(key("line.from_m"), *from_m), (key("line.to_m"), *to_m)]
            }
            Self::Circle { centre_m: [x, y, z], radius_m: r, .. } => {
                let around = [[x - r, y - r, *z], [x + r, y + r, *z]];
                around.map(|corner| (key("circle.radius_m"), corner)).to_vec()
            }
            Self::Waypoints { points_m, .. } => {
                let named = points_m.iter().enumerate();
                named.map(|(i, point)| (key(&format!("waypoints.points_m[{i}]")), *point)).collect()
            }
        }
    }

    /// Refuses a motion without duration, without points, or out of the coverage area. A fixed target may
    /// be outside, to study that case. `at` is the key of the motion.
    pub(super) fn validate(&self, at: &str, coverage: &Coverage) -> Result<(), ScenarioError> {
        let refuse = |key: &str, value: &dyn Display, rule: &str| {
            Err(ScenarioError::new(format!("{at}.{key}"), value, rule))
        };
        let at_least_one = "must be at least 1";
        match self {
            Self::Line { frames: 0, .. } => return refuse("line.frames", &0, at_least_one),
            Self::Circle { frames: 0, .. } => return refuse("circle.frames", &0, at_least_one),
            Self::Waypoints { frames_per_leg: 0, .. } => {
                return refuse("waypoints.frames_per_leg", &0, at_least_one);
            }
            Self::Circle { radius_m, .. } if !(radius_m.is_finite() && *radius_m > 0.0) => {
                return refuse("circle.radius_m", radius_m, "must be positive and finite");
            }
            Self::Waypoints { points_m, .. } if points_m.len() < 2 => {
                return refuse("waypoints.points_m", &points_m.len(), "must list at least two points");
            }
            Self::Walk { speed_m_per_frame } => {
                return within(&format!("{at}.walk.speed_m_per_frame"), *speed_m_per_frame, 1e-6, 1e3);
            }
            _ => {}
        }
        // A line between two points of a box stays inside it, and so does a circle in its square.
        match self.corners().into_iter().find(|(_, corner)| !coverage.contains(Point::from(*corner))) {
            None => Ok(()),
            Some((key, corner)) => refuse(&key, &show(corner), "leads the target out of the coverage area"),
        }
    }
}

/// Position on the way through `points` and back, with `frames` frames for each leg.
fn along(points: &[Coordinates], frames: u64, frame: u64) -> Point {
    let legs = points.len().saturating_sub(1) as u64;
    let there = legs.saturating_mul(frames).max(1);
    let step = frame % there.saturating_mul(2);
    let step = if step > there { there.saturating_mul(2) - step } else { step };
    let (leg, within) = (step / frames.max(1), step % frames.max(1));
    let at = |index: u64| points.get(index as usize).or(points.last()).copied().unwrap_or_default();
    let (from, to) = (Point::from(at(leg)), Point::from(at(leg + 1)));
    from + (to - from) * (within as f64 / frames.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(motion: &Motion, frames: &[u64]) -> Vec<[f64; 2]> {
        frames.iter().map(|&frame| motion.position_m(frame).unwrap()).map(|p| [p.x, p.y]).collect()
    }

    #[test]
    fn a_line_goes_there_and_back_at_constant_speed() {
        let line = Motion::Line { from_m: [1.0, 2.0, 0.0], to_m: [5.0, 4.0, 0.0], frames: 4 };
        let expected = [[1.0, 2.0], [2.0, 2.5], [5.0, 4.0], [4.0, 3.5], [1.0, 2.0], [2.0, 2.5]];
        assert_eq!(positions(&line, &[0, 1, 4, 5, 8, 9]), expected);
    }

    #[test]
    fn a_circle_goes_round() {
        let circle = Motion::Circle { centre_m: [5.0, 5.0, 0.0], radius_m: 2.0, frames: 8 };
        for (frame, expected) in
            [(0, [7.0, 5.0, 0.0]), (2, [5.0, 7.0, 0.0]), (4, [3.0, 5.0, 0.0]), (14, [5.0, 3.0, 0.0])]
        {
            let at = positions(&circle, &[frame])[0];
            let error = (at[0] - expected[0]).hypot(at[1] - expected[1]);
            assert!(error < 1e-12, "frame {frame}: {at:?}");
        }
    }

    #[test]
    fn waypoints_are_met_one_after_another() {
        let points_m = vec![[0.0, 0.0, 0.0], [4.0, 0.0, 0.0], [4.0, 8.0, 0.0]];
        let way = Motion::Waypoints { points_m, frames_per_leg: 2 };
        let expected = [[0.0, 0.0], [2.0, 0.0], [4.0, 0.0], [4.0, 4.0], [4.0, 8.0], [4.0, 4.0], [4.0, 0.0]];
        assert_eq!(positions(&way, &[0, 1, 2, 3, 4, 5, 6]), expected);
        assert_eq!(way.position_m(8), way.position_m(0));
    }

    #[test]
    fn every_kind_has_a_motion_that_fits_any_area() {
        let coverage = Coverage { min_m: [-3.0, 2.0, 0.0], max_m: [1.0, 40.0, 0.0] };
        for name in Motion::NAMES {
            let motion = Motion::named(name, &coverage, 500).unwrap();
            assert_eq!(motion.validate("motion", &coverage), Ok(()), "{name}");
            assert_eq!(motion.position_m(0).is_none(), ["random", "walk"].contains(&name));
            let round = motion.round_frames().unwrap_or(1);
            assert!(motion.position_m(77) == motion.position_m(77 + round), "{name}");
            assert!(motion.position_m(123).is_none_or(|at| coverage.contains(at)));
        }
        assert_eq!(Motion::named("spiral", &coverage, 500), None);
    }

    #[test]
    fn what_leads_nowhere_or_out_of_the_area_is_refused() {
        let coverage = Coverage::default();
        let refused = |motion: Motion| motion.validate("motion", &coverage).unwrap_err().key;
        let line = |to_m, frames| Motion::Line { from_m: [0.0, 0.0, 0.0], to_m, frames };
        let circle = |radius_m, frames| Motion::Circle { centre_m: [5.0, 5.0, 0.0], radius_m, frames };
        let way =
            |points_m: &[Coordinates]| Motion::Waypoints { points_m: points_m.to_vec(), frames_per_leg: 1 };
        assert_eq!(line([10.0, 10.0, 0.0], 1).validate("motion", &coverage), Ok(()));
        assert_eq!(circle(5.0, 1).validate("motion", &coverage), Ok(()));
        assert_eq!(refused(line([1.0, 1.0, 0.0], 0)), "motion.line.frames");
        assert_eq!(refused(line([1.0, 10.5, 0.0], 3)), "motion.line.to_m");
        assert_eq!(refused(line([f64::NAN, 1.0, 0.0], 3)), "motion.line.to_m");
        assert_eq!(refused(circle(5.5, 3)), "motion.circle.radius_m");
        assert_eq!(refused(circle(-1.0, 3)), "motion.circle.radius_m");
        assert_eq!(refused(way(&[[1.0, 1.0, 0.0]])), "motion.waypoints.points_m");
        assert_eq!(refused(way(&[[1.0, 1.0, 0.0], [2.0, -1.0, 0.0]])), "motion.waypoints.points_m[1]");
        for speed_m_per_frame in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(Motion::Walk { speed_m_per_frame }), "motion.walk.speed_m_per_frame");
        }
    }
}
