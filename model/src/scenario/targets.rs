//! The targets of a scenario: none, one or several.
//!
//! One target is the table `[target]`, several are the list `[[target]]`, and `target = []` is none.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::validate::{Check, within};
use super::{Motion, Scenario, ScenarioError};
use crate::MOST_TARGETS;
use crate::geometry::Point;
use crate::random::{Purpose, stream};
use crate::units::ratio_from_db;

/// Speed of the targets of [`Scenario::with_targets`]: 1.5 m/s at 50 frames a second.
const WALK_M_PER_FRAME: f64 = 0.03;

/// A target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    /// Radar cross-section kappa.
    pub rcs_dbsm: f64,
    /// Position as a function of the frame.
    pub motion: Motion,
    /// First frame in which it is there, if not the first of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_frame: Option<u64>,
    /// First frame in which it is gone again, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_frame: Option<u64>,
}

impl Default for Target {
    fn default() -> Self {
        Self { rcs_dbsm: 7.0, motion: Motion::Random, from_frame: None, until_frame: None }
    }
}

impl Target {
    /// Radar cross-section in square metres; the mean if it fluctuates.
    pub fn rcs_m2(&self) -> f64 {
        ratio_from_db(self.rcs_dbsm)
    }

    /// Whether it is there in a frame.
    pub fn is_there(&self, frame: u64) -> bool {
        self.from_frame.is_none_or(|from| from <= frame) && self.until_frame.is_none_or(|until| frame < until)
    }
}

impl Scenario {
    /// The same scenario with `count` targets of the cross-section of its first one. One target is the first one; several walk at
    /// random.
    pub fn with_targets(mut self, count: usize) -> Self {
        let first = self.targets.first().cloned().unwrap_or_default();
        if count == 1 {
            self.targets = vec![first];
        } else {
            let motion = Motion::Walk { speed_m_per_frame: WALK_M_PER_FRAME };
            let one = Target { rcs_dbsm: first.rcs_dbsm, motion, ..Target::default() };
            // One too many is refused as more would be.
            self.targets = vec![one; count.min(MOST_TARGETS + 1)];
        }
        self
    }

    /// The target of a scenario that must have exactly one.
    pub fn only_target(&self) -> Result<&Target, ScenarioError> {
        let [target] = self.targets.as_slice() else {
            let rule = "must be exactly one target here";
            return Err(ScenarioError::new("target", format!("a list of {}", self.targets.len()), rule));
        };
        Ok(target)
    }

    /// The coherent interval of a frame.
    pub(crate) fn interval(&self, frame: u64) -> u64 {
        frame / self.signal.coherent_frames.max(1)
    }

    /// Position in a frame of target `t` with this motion.
    pub(crate) fn position_m(&self, t: usize, motion: &Motion, frame: u64) -> Point {
        if let Motion::Walk { speed_m_per_frame } = motion {
            return self.walk_m(t, *speed_m_per_frame, frame);
        }
        let random =
            || self.coverage.draw(&mut stream(self.seed, Purpose::Target, [self.interval(frame), t as u64]));
        motion.position_m(frame).unwrap_or_else(random)
    }

    /// Key of target `t`: it has no index where it is the only one.
    fn target_key(&self, t: usize) -> String {
        if self.targets.len() == 1 { "target".into() } else { format!("target[{t}]") }
    }

    pub(super) fn validate_targets(&self) -> Check {
        let count = self.targets.len();
        if count > MOST_TARGETS {
            return Err(ScenarioError::new(
                "target",
                count,
                format!("must list at most {MOST_TARGETS} targets"),
            ));
        }
        for (t, target) in self.targets.iter().enumerate() {
            let key = |name: &str| format!("{}.{name}", self.target_key(t));
            within(&key("rcs_dbsm"), target.rcs_dbsm, -100.0, 100.0)?;
            let from = target.from_frame.unwrap_or(0);
            if let Some(until) = target.until_frame.filter(|&until| until <= from) {
                let rule = format!("must be above from_frame = {from}");
                return Err(ScenarioError::new(key("until_frame"), until, rule));
            }
            if let Motion::Fixed { position_m } = target.motion {
                self.validate_target_place(&key("motion.fixed.position_m"), position_m)?;
            }
            target.motion.validate(&key("motion"), &self.coverage)?;
        }
        Ok(())
    }
}

/// Writes one target as a table, and any other number as a list.
pub(super) fn serialize<S: Serializer>(targets: &[Target], serializer: S) -> Result<S::Ok, S::Error> {
    match targets {
        [target] => target.serialize(serializer),
        targets => targets.serialize(serializer),
    }
}

/// Reads a table or a list of tables.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Target>, D::Error> {
    struct OneOrSeveral;

    impl<'de> Visitor<'de> for OneOrSeveral {
        type Value = Vec<Target>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
            formatter.write_str("the table of a target, or a list of such tables")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            Ok(vec![Target::deserialize(MapAccessDeserializer::new(map))?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut targets = Vec::new();
            let named = |index: usize| {
                move |error: A::Error| {
                    A::Error::custom(format!("target[{index}]: {}", error.to_string().trim()))
                }
            };
            while let Some(target) = list.next_element().map_err(named(targets.len()))? {
                targets.push(target);
            }
            Ok(targets)
        }
    }

    deserializer.deserialize_any(OneOrSeveral)
}
