//! What may be changed while the simulator runs, and its control over HTTP: the motion and the number of the targets, the
//! transmit power, and the clocks of the nodes.
//!
//! | request | effect |
//! | --- | --- |
//! | `GET /motion`, `GET /state` | what is chosen, and what there is to choose from ([`CourseView`]) |
//! | `PUT /motion` | changes to the motion that the body names; 422 with the reason if there is none |
//! | `PUT /targets` | changes the number of targets to that of the body, at most [`MOST_TARGETS`] |
//! | `PUT /power` | changes the transmit power to that of the body, in dBm |
//! | `PUT /clock` | lets the clock of a node step: `NODE NANOSECONDS` |
//!
//! `scenario` is the scenario's own motion; the others are those of [`Motion::named`], for all targets. Several targets walk on
//! their own ways. On a line, a circle or waypoints, target t of T is ahead by t / T of a round; targets at rest stand on
//! the circle in the same way. Nobody else is told of another power: estimators keep that of the site, and the truth
//! states cross-sections that are larger by the same factor, so that the bound is that of the echoes as they are. A change takes
//! effect with the next coherent interval, and the truth follows it frame by frame. Served only if that is allowed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use model::scenario::{ClockStep, Coverage, Motion};
use model::units::ratio_from_db;
use model::{EchoSource, MOST_TARGETS, Movement, Scenario, TrueTarget};
use serde::Serialize;
use telemetry::{HostNames, Listener, needing};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use trust::Needs;

/// Name of the scenario's own motion.
const OWN: &str = "scenario";

/// Period of the named motions.
const PERIOD_S: f64 = 20.0;

/// Powers that may be chosen, dBm.
const POWERS_DBM: std::ops::RangeInclusive<f64> = -50.0..=100.0;

/// Largest step of a clock, nanoseconds: a millisecond, as in scenarios.
const MOST_STEP_NS: f64 = 1e6;

/// Steps of clocks in one run.
const MOST_STEPS: usize = 10_000;

/// What is chosen; shared, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    chosen: Arc<Mutex<Chosen>>,
    own: Vec<Movement>,
    own_power_dbm: f64,
    nodes: usize,
    coverage: Coverage,
    round_frames: u64,
    coherent_frames: u64,
}

#[derive(Debug)]
struct Chosen {
    motion: &'static str,
    movements: Vec<Movement>,
    power_dbm: f64,
    /// Steps of clocks that no frame has yet, node and nanoseconds.
    steps: Vec<(usize, f64)>,
    steps_so_far: usize,
}

/// What holds from a frame on.
#[derive(Debug, Clone)]
pub(crate) struct Situation {
    pub movements: Vec<Movement>,
    /// Power of the echoes relative to those of the scenario.
    echo_ratio: f64,
}

impl Situation {
    /// The targets of a frame, with the strength that their echoes have.
    pub fn targets(&self, source: &EchoSource, frame: u64) -> Vec<TrueTarget> {
        let mut targets = source.targets_on(&self.movements, frame);
        targets.iter_mut().for_each(|target| target.rcs_m2 *= self.echo_ratio);
        targets
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct CourseView {
    motion: &'static str,
    motions: Vec<&'static str>,
    targets: usize,
    most_targets: usize,
    power_dbm: f64,
    /// That of the scenario, which estimators know.
    scenario_power_dbm: f64,
    /// Nodes whose clocks may step.
    nodes: usize,
}

impl Course {
    /// The scenario as it is, at a frame rate of `rate_hz`.
    pub fn new(scenario: &Scenario, rate_hz: f64) -> Self {
        let movement = |motion: Motion| Movement { motion, ahead_frames: 0 };
        let own: Vec<_> = scenario.targets.iter().map(|target| movement(target.motion.clone())).collect();
        let own_power_dbm = scenario.base_station.power_dbm;
        let chosen = Chosen {
            motion: OWN,
            movements: own.clone(),
            power_dbm: own_power_dbm,
            steps: Vec::new(),
            steps_so_far: 0,
        };
        Self {
            chosen: Arc::new(Mutex::new(chosen)),
            own,
            own_power_dbm,
            nodes: scenario.irs.len(),
            coverage: scenario.coverage.clone(),
            round_frames: (PERIOD_S * rate_hz).ceil() as u64,
            coherent_frames: scenario.signal.coherent_frames.max(1),
        }
    }

    /// Whether a change may take effect with `frame`: nothing changes within a coherent interval.
    pub fn turns_at(&self, frame: u64) -> bool {
        frame.is_multiple_of(self.coherent_frames)
    }

    fn chosen(&self) -> MutexGuard<'_, Chosen> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What holds now.
    pub fn situation(&self) -> Situation {
        let chosen = self.chosen();
        let echo_ratio = ratio_from_db(chosen.power_dbm - self.own_power_dbm);
        Situation { movements: chosen.movements.clone(), echo_ratio }
    }

    /// Steps of clocks that were asked for since the last call, to be taken with `frame`.
    pub fn take_steps(&self, frame: u64) -> Vec<ClockStep> {
        let steps = std::mem::take(&mut self.chosen().steps);
        steps.into_iter().map(|(node, step_ns)| ClockStep { node, frame, step_ns }).collect()
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

    /// The movements of `count` targets; targets that the scenario does not have walk if the motion is its own.
    fn movements(&self, name: &str, count: usize) -> Option<Vec<Movement>> {
        let of = |t: usize| match name {
            OWN => self.own.get(t).cloned().or_else(|| self.named("walk", t, count)),
            _ => self.named(name, t, count),
        };
        (0..count).map(of).collect()
    }

    fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once(OWN).chain(Motion::NAMES)
    }

    fn choose_motion(&self, name: &str) -> Result<(), String> {
        let unknown = || {
            let names: Vec<&str> = Self::names().collect();
            format!("there is no motion '{}'; there are {}\n", name.escape_default(), names.join(", "))
        };
        let name = Self::names().find(|known| *known == name).ok_or_else(unknown)?;
        let mut chosen = self.chosen();
        chosen.movements = self.movements(name, chosen.movements.len()).ok_or_else(unknown)?;
        chosen.motion = name;
        tracing::info!(motion = name, "the motion was changed");
        Ok(())
    }

    fn choose_targets(&self, count: &str) -> Result<(), String> {
        let refused = || format!("targets = '{}': must be 0 to {MOST_TARGETS}\n", count.escape_default());
        let count = count.parse().ok().filter(|count| *count <= MOST_TARGETS).ok_or_else(refused)?;
        let mut chosen = self.chosen();
        chosen.movements = self.movements(chosen.motion, count).ok_or_else(refused)?;
        tracing::info!(count, "the number of targets was changed");
        Ok(())
    }

    fn choose_power(&self, dbm: &str) -> Result<(), String> {
        let (least, most) = (POWERS_DBM.start(), POWERS_DBM.end());
        let refused = || format!("power = '{}': must be {least} to {most} dBm\n", dbm.escape_default());
        let power_dbm = dbm.parse().ok().filter(|dbm| POWERS_DBM.contains(dbm)).ok_or_else(refused)?;
        self.chosen().power_dbm = power_dbm;
        tracing::info!(power_dbm, "the transmit power was changed");
        Ok(())
    }

    fn step_clock(&self, step: &str) -> Result<(), String> {
        let refused = || {
            let (said, last) = (step.escape_default(), self.nodes.saturating_sub(1));
            format!(
                "step = '{said}': must be a node from 0 to {last} and up to {MOST_STEP_NS:.0} nanoseconds, as in '1 20'\n"
            )
        };
        let (node, step_ns) = step.split_once(' ').ok_or_else(refused)?;
        let node = node.parse().ok().filter(|node| *node < self.nodes).ok_or_else(refused)?;
        let step_ns = step_ns.parse().ok().filter(|ns: &f64| ns.abs() <= MOST_STEP_NS).ok_or_else(refused)?;
        let mut chosen = self.chosen();
        if chosen.steps_so_far == MOST_STEPS {
            return Err(format!(
                "clocks have stepped {MOST_STEPS} times in this run: start the simulator again\n"
            ));
        }
        chosen.steps_so_far += 1;
        chosen.steps.push((node, step_ns));
        tracing::info!(node, step_ns, "the clock of a node steps");
        Ok(())
    }

    fn view(&self) -> CourseView {
        let chosen = self.chosen();
        CourseView {
            motion: chosen.motion,
            motions: Self::names().collect(),
            targets: chosen.movements.len(),
            most_targets: MOST_TARGETS,
            power_dbm: chosen.power_dbm,
            scenario_power_dbm: self.own_power_dbm,
            nodes: self.nodes,
        }
    }
}

/// What becomes of a request.
type Changed = Result<Json<CourseView>, (StatusCode, String)>;

/// Serves the control of `course` until `stop`, or until the handle is dropped.
pub(crate) fn serve(
    listener: Listener,
    names: HostNames,
    course: &Course,
    stop: CancellationToken,
) -> AbortOnDropHandle<()> {
    let show = async |State(course): State<Course>| Json(course.view());
    let change = |change: fn(&Course, &str) -> Result<(), String>| {
        put(move |State(course): State<Course>, body: String| async move {
            let refused = |reason| (StatusCode::UNPROCESSABLE_ENTITY, reason);
            change(&course, body.trim()).map_err(refused)?;
            Changed::Ok(Json(course.view()))
        })
    };
    let shown = Router::new().route("/motion", get(show)).route("/state", get(show));
    let changed = Router::new()
        .route("/motion", change(Course::choose_motion))
        .route("/targets", change(Course::choose_targets))
        .route("/power", change(Course::choose_power))
        .route("/clock", change(Course::step_clock));
    let routes =
        needing(Needs::Watcher, shown).merge(needing(Needs::Operator, changed)).with_state(course.clone());
    AbortOnDropHandle::new(tokio::spawn(telemetry::http::serve(listener, names, routes, stop)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_is_the_scenarios_until_another_is_chosen() {
        let mut scenario = Scenario::default();
        scenario.signal.coherent_frames = 4;
        let course = Course::new(&scenario, 50.0);
        let motion = || course.situation().movements.remove(0).motion;
        assert_eq!((course.view().motion, motion()), ("scenario", Motion::Random));
        course.choose_motion("circle").unwrap();
        let Motion::Circle { frames, .. } = motion() else { panic!("{:?}", motion()) };
        assert_eq!(frames, 1000, "twenty seconds");
        assert!(course.choose_motion("spi\nral").unwrap_err().starts_with("there is no motion 'spi\\nral'"));
        assert_eq!(course.view().motion, "circle", "what cannot be used changes nothing");
        course.choose_motion("scenario").unwrap();
        assert_eq!(motion(), Motion::Random);
        let turns: Vec<u64> = (0..9).filter(|&frame| course.turns_at(frame)).collect();
        assert_eq!(turns, [0, 4, 8]);
    }

    #[test]
    fn several_targets_share_no_place() {
        let scenario = Scenario::default().with_targets(3);
        let source = EchoSource::new(&scenario).unwrap();
        let course = Course::new(&scenario, 50.0);
        assert_eq!(course.situation().targets(&source, 9), source.targets(9));
        for name in Motion::NAMES {
            course.choose_motion(name).unwrap();
            let targets = course.situation().targets(&source, 100);
            let at: Vec<_> = targets.iter().map(|target| target.position_m).collect();
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                assert!((at[a] - at[b]).norm() > 0.1, "{name}: {at:?}");
            }
            assert!(at.iter().all(|&at| scenario.coverage.contains(at)));
        }
        let none = Course::new(&scenario.with_targets(0), 50.0);
        assert_eq!(none.choose_motion("circle").map(|()| none.view().targets), Ok(0));
    }

    /// The number of targets changes under any motion, and the first ones stay who they are.
    #[test]
    fn targets_come_and_go() {
        let scenario = Scenario::default();
        let source = EchoSource::new(&scenario).unwrap();
        let course = Course::new(&scenario, 50.0);
        let first = source.targets(7);
        course.choose_targets("3").unwrap();
        let three = course.situation().targets(&source, 7);
        assert_eq!((three.len(), &three[..1]), (3, &first[..]));
        course.choose_motion("circle").unwrap();
        assert_eq!(course.view().targets, 3);
        course.choose_targets("0").unwrap();
        assert_eq!(course.situation().targets(&source, 7), []);
        for bad in ["17", "-1", "two", ""] {
            assert!(course.choose_targets(bad).unwrap_err().contains("must be 0 to 16"), "{bad}");
        }
        assert_eq!(course.view().targets, 0);
    }

    /// 10 dB more power are echoes and a stated cross-section that are ten times as strong.
    #[test]
    fn power_is_that_of_the_echoes() {
        let scenario = Scenario::default();
        let source = EchoSource::new(&scenario).unwrap();
        let course = Course::new(&scenario, 50.0);
        let echo =
            |targets: &[TrueTarget]| (source.frame_of(0, 3, targets) - source.noise(0, 3)).norm_squared();
        let before = course.situation().targets(&source, 3);
        course.choose_power("60").unwrap();
        let after = course.situation().targets(&source, 3);
        assert!((after[0].rcs_m2 / before[0].rcs_m2 - 10.0).abs() < 1e-9);
        assert!((echo(&after) / echo(&before) - 10.0).abs() < 1e-6);
        for bad in ["101", "NaN", "inf", "much"] {
            assert!(course.choose_power(bad).unwrap_err().contains("must be -50 to 100 dBm"), "{bad}");
        }
        assert_eq!(course.view().power_dbm, 60.0);
    }

    #[test]
    fn a_step_of_a_clock_is_taken_once() {
        let course = Course::new(&Scenario::default(), 50.0);
        course.step_clock("1 -20.5").unwrap();
        assert_eq!(course.take_steps(9), [ClockStep { node: 1, frame: 9, step_ns: -20.5 }]);
        assert_eq!(course.take_steps(10), []);
        for bad in ["3 20", "1", "1 2e6", "1 NaN", "x 20"] {
            assert!(course.step_clock(bad).unwrap_err().contains("must be a node from 0 to 2"), "{bad}");
        }
    }
}
