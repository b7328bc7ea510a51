//! Which link gets what: the file that can be changed while the relay runs.
//!
//! ```toml
//! profile = "fibre"        # of all links that have none of their own
//! [up]                     # changes to it, towards the fusion center
//! delay_ms = 4
//! [link.west]              # one link: its name, its address, or a host name that resolves to it
//! profile = "flaky"
//! cut = false
//! [link.west.down]         # changes to that, back to the node
//! rate_mbit_s = 5
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::Table;

use crate::profile::{Direction, NAMES, named};

/// Links that a plan may name, and that a relay keeps.
pub const MOST_LINKS: usize = 64;

/// Why a plan cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Not TOML, an unknown key, a value of the wrong kind.
    #[error("{0}")]
    Form(String),
    /// There is no such profile.
    #[error("there is no profile '{0}'; there are {names}", names = NAMES.join(", "))]
    Profile(String),
    /// A value is impossible.
    #[error("{place}: {reason}")]
    Value {
        /// Which part.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// Too many links.
    #[error("{0} links are named; at most {MOST_LINKS} may be")]
    Links(usize),
}

/// A plan as it is written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Document {
    /// Profile of all links that have none of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Changes to it, towards the fusion center.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub up: Table,
    /// Changes to it, back to the nodes.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub down: Table,
    /// Single links.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub link: BTreeMap<String, LinkDocument>,
}

/// One link as it is written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkDocument {
    /// Its profile; the common one, with its changes, without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Whether it is cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Changes, towards the fusion center.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub up: Table,
    /// Changes, back to the node.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub down: Table,
}

/// What one link does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkPlan {
    /// The profile that it starts from.
    pub profile: String,
    /// Whether it is cut.
    pub cut: bool,
    /// Towards the fusion center.
    pub up: Direction,
    /// Back to the node.
    pub down: Direction,
}

/// A checked plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    document: Document,
    common: LinkPlan,
    links: BTreeMap<String, LinkPlan>,
}

impl Plan {
    /// Reads a plan; `fallback` is the profile where it names none.
    pub fn parse(text: &str, fallback: &str) -> Result<Self, PlanError> {
        let document = toml::from_str(text).map_err(|error| PlanError::Form(error.to_string()))?;
        Self::check(document, fallback)
    }

    /// The plan that gives every link one profile.
    pub fn uniform(profile: &str) -> Result<Self, PlanError> {
        Self::check(Document::default(), profile)
    }

    fn check(mut document: Document, fallback: &str) -> Result<Self, PlanError> {
        if document.link.len() > MOST_LINKS {
            return Err(PlanError::Links(document.link.len()));
        }
        let profile = document.profile.get_or_insert_with(|| fallback.to_owned()).clone();
        let (up, down) = named(&profile).ok_or_else(|| PlanError::Profile(profile.clone()))?;
        let common = LinkPlan {
            up: changed(up, &document.up, "up")?,
            down: changed(down, &document.down, "down")?,
            profile,
            cut: false,
        };
        let mut links = BTreeMap::new();
        for (name, link) in &document.link {
            let mut plan = common.clone();
            if let Some(profile) = &link.profile {
                (plan.up, plan.down) = named(profile).ok_or_else(|| PlanError::Profile(profile.clone()))?;
                plan.profile = profile.clone();
            }
            plan.cut = link.cut;
            plan.up = changed(plan.up, &link.up, &format!("link.{name}.up"))?;
            plan.down = changed(plan.down, &link.down, &format!("link.{name}.down"))?;
            links.insert(name.clone(), plan);
        }
        Ok(Self { document, common, links })
    }

    /// The plan of a link.
    pub fn of(&self, link: &str) -> &LinkPlan {
        self.links.get(link).unwrap_or(&self.common)
    }

    /// Names of the links that have a plan of their own.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.links.keys().map(String::as_str)
    }

    /// Every direction of the plan.
    pub fn directions(&self) -> impl Iterator<Item = &Direction> {
        std::iter::once(&self.common).chain(self.links.values()).flat_map(|plan| [&plan.up, &plan.down])
    }

    /// As it is written.
    pub fn document(&self) -> &Document {
        &self.document
    }
}

/// `base` with the keys of `changes`.
fn changed(base: Direction, changes: &Table, place: &str) -> Result<Direction, PlanError> {
    let value = |reason: String| PlanError::Value { place: place.to_owned(), reason };
    let mut table = Table::try_from(base).map_err(|error| value(error.to_string()))?;
    for (key, given) in changes {
        // Whole numbers may stand for real ones.
        let wanted = table.get(key).is_some_and(toml::Value::is_float);
        let given = match given.as_integer() {
            Some(whole) if wanted => toml::Value::Float(whole as f64),
            _ => given.clone(),
        };
        table.insert(key.clone(), given);
    }
    let direction: Direction = table.try_into().map_err(|error: toml::de::Error| value(error.to_string()))?;
    direction.validate().map_err(|error| value(error.to_string()))?;
    Ok(direction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_start_from_the_common_profile_or_their_own() {
        let text = r#"
            profile = "fibre"
            [up]
            delay_ms = 4
            [link.west]
            profile = "flaky"
            [link.west.down]
            rate_mbit_s = 5.5
            [link.east]
            cut = true
            [link.east.up]
            jitter_law = "uniform"
        "#;
        let plan = Plan::parse(text, "clear").unwrap();
        let fibre = named("fibre").unwrap();
        assert_eq!(plan.of("north").up, Direction { delay_ms: 4.0, ..fibre.0 });
        assert_eq!(plan.of("north").down, fibre.1);
        let flaky = named("flaky").unwrap();
        assert_eq!(plan.of("west").up, flaky.0, "a profile of its own takes no changes of the common one");
        assert_eq!(plan.of("west").down, Direction { rate_mbit_s: 5.5, ..flaky.1 });
        assert!(plan.of("east").cut && !plan.of("west").cut);
        assert_eq!(plan.of("east").up.delay_ms, 4.0);
        assert_eq!(plan.directions().count(), 6);
        let again = Plan::parse(&toml::to_string(plan.document()).unwrap(), "clear").unwrap();
        assert_eq!(again, plan);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let refused = |text: &str| Plan::parse(text, "clear").unwrap_err().to_string();
        assert!(refused("profile = 'satellite'").contains("no profile 'satellite'; there are clear, fibre"));
        assert!(refused("[up]\nspeed = 3").contains("speed"));
        assert!(refused("[link.a.up]\nloss = 0.9").contains("link.a.up: loss = 0.9: must be 0 to 0.5"));
        assert!(refused("[lnk.a]").contains("lnk"));
        assert!(Plan::uniform("none").is_err());
    }
}
