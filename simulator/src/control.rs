//! The motion of the target, and its control over HTTP.
//!
//! | request | effect |
//! | --- | --- |
//! | `GET /motion` | `{"motion": NAME, "motions": [NAMES]}`: the current motion, and the motions to choose from |
//! | `PUT /motion` | changes to the motion that the body names; 422 with the reason if there is none |
//!
//! `scenario` is the scenario's own motion; the others are those of [`Motion::named`], for all targets. Several targets walk on
//! their own ways. On a line, a circle or waypoints, target t of T is ahead by t / T of a round; targets at rest stand on
//! the circle in the same way. A change takes effect with the next coherent interval, and the truth follows it frame by frame.
//! Served only if that is allowed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use model::scenario::{Coverage, Motion};
use model::{Movement, Scenario};
use serde::Serialize;
use telemetry::{HostNames, Listener, needing};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use trust::Needs;

/// Name of the scenario's own motion.
const OWN: &str = "scenario";

/// Period of the named motions.
const PERIOD_S: f64 = 20.0;

/// The chosen motion of the targets; shared, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    chosen: Arc<Mutex<(&'static str, Vec<Movement>)>>,
    own: Vec<Movement>,
    coverage: Coverage,
    round_frames: u64,
    coherent_frames: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct MotionView {
    motion: &'static str,
    motions: Vec<&'static str>,
}

impl Course {
    /// The scenario's own motion at a frame rate of `rate_hz`.
    pub fn new(scenario: &Scenario, rate_hz: f64) -> Self {
        let movement = |motion: Motion| Movement { motion, ahead_frames: 0 };
        let own: Vec<_> = scenario.targets.iter().map(|target| movement(target.motion.clone())).collect();
        Self {
            chosen: Arc::new(Mutex::new((OWN, own.clone()))),
            own,
            coverage: scenario.coverage.clone(),
            round_frames: (PERIOD_S * rate_hz).ceil() as u64,
            coherent_frames: scenario.signal.coherent_frames.max(1),
        }
    }

    /// Whether a change may take effect with `frame`: targets keep their motion within a coherent interval.
    pub fn turns_at(&self, frame: u64) -> bool {
        frame.is_multiple_of(self.coherent_frames)
    }

    fn chosen(&self) -> MutexGuard<'_, (&'static str, Vec<Movement>)> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The movements of all targets.
    pub fn movements(&self) -> Vec<Movement> {
        self.chosen().1.clone()
    }

    /// The movement of this name of target `t` of `count`; none if there is no such motion.
    fn named(&self, name: &str, t: usize, count: usize) -> Option<Movement> {
        let motion = Motion::named(name, &self.coverage, self.round_frames)?;
        let share = |round: u64| (u128::from(round) * t as u128 / count as u128) as u64;
        if count > 1 && matches!(motion, Motion::Fixed { .. }) {
            let circle = Motion::named("circle", &self.coverage, self.round_frames)?;
            let position_m = circle.position_m(share(self.round_frames))?.into();
            return Some(Movement { motion: Motion::Fixed { position_m }, ahead_frames: 0 });
        }
        let ahead_frames = motion.round_frames().map_or(0, share);
        Some(Movement { motion, ahead_frames })
    }

    fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once(OWN).chain(Motion::NAMES)
    }

    fn choose(&self, name: &str) -> Result<MotionView, String> {
        let unknown = || {
            let names: Vec<&str> = Self::names().collect();
            format!("there is no motion '{}'; there are {}\n", name.escape_default(), names.join(", "))
        };
        let name = Self::names().find(|known| *known == name).ok_or_else(unknown)?;
        let count = self.own.len();
        let movements = match name {
            OWN => self.own.clone(),
            _ => (0..count)
                .map(|t| self.named(name, t, count).ok_or_else(unknown))
                .collect::<Result<_, _>>()?,
        };
        *self.chosen() = (name, movements);
        tracing::info!(motion = name, "the motion was changed");
        Ok(self.view())
    }

    fn view(&self) -> MotionView {
        let motion = self.chosen().0;
        MotionView { motion, motions: Self::names().collect() }
    }
}

/// Serves the control of `course` until `stop`, or until the handle is dropped.
pub(crate) fn serve(
    listener: Listener,
    names: HostNames,
    course: &Course,
    stop: CancellationToken,
) -> AbortOnDropHandle<()> {
    let shown = needing(Needs::Watcher, Router::new().route("/motion", get(show)));
    let changed = needing(Needs::Operator, Router::new().route("/motion", put(change)));
    let routes = shown.merge(changed).with_state(course.clone());
    AbortOnDropHandle::new(tokio::spawn(telemetry::http::serve(listener, names, routes, stop)))
}

async fn show(State(course): State<Course>) -> Json<MotionView> {
    Json(course.view())
}

async fn change(
    State(course): State<Course>,
    name: String,
) -> Result<Json<MotionView>, (StatusCode, String)> {
    course.choose(name.trim()).map(Json).map_err(|reason| (StatusCode::UNPROCESSABLE_ENTITY, reason))
}

#[cfg(test)]
mod tests {
    use model::EchoSource;

    use super::*;

    #[test]
    fn a_course_is_the_scenarios_until_another_is_chosen() {
        let mut scenario = Scenario::default();
        scenario.signal.coherent_frames = 4;
        let course = Course::new(&scenario, 50.0);
        let motion = || course.movements().remove(0).motion;
        assert_eq!((course.view().motion, motion()), ("scenario", Motion::Random));
        assert_eq!(course.choose("circle").unwrap().motion, "circle");
        let Motion::Circle { frames, .. } = motion() else { panic!("{:?}", motion()) };
        assert_eq!(frames, 1000, "twenty seconds");
        assert!(course.choose("spi\nral").unwrap_err().starts_with("there is no motion 'spi\\nral'"));
        assert_eq!(course.view().motion, "circle", "what cannot be used changes nothing");
        course.choose("scenario").unwrap();
        assert_eq!(motion(), Motion::Random);
        let turns: Vec<u64> = (0..9).filter(|&frame| course.turns_at(frame)).collect();
        assert_eq!(turns, [0, 4, 8]);
    }

    #[test]
    fn several_targets_share_no_place() {
        let scenario = Scenario::default().with_targets(3);
        let source = EchoSource::new(&scenario).unwrap();
        let course = Course::new(&scenario, 50.0);
        assert_eq!(source.targets_on(&course.movements(), 9), source.targets(9));
        for name in Motion::NAMES {
            course.choose(name).unwrap();
            let at: Vec<_> =
                source.targets_on(&course.movements(), 100).iter().map(|target| target.position_m).collect();
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                assert!((at[a] - at[b]).norm() > 0.1, "{name}: {at:?}");
            }
            assert!(at.iter().all(|&at| scenario.coverage.contains(at)));
        }
        let none = Course::new(&scenario.with_targets(0), 50.0);
        assert_eq!(none.choose("circle").map(|_| none.movements()), Ok(Vec::new()));
    }
}
