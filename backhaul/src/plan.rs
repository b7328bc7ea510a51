//! The plan: which link has which profile. Its file may change while the relay runs.
//!
//! ```toml
//! profile = "fibre"        # profile of all links without one of their own
//! [up]                     # overrides of it, towards the fusion center
//! delay_ms = 4
//! [link.west]              # one link: its name, its address, or a host name that resolves to it
//! profile = "flaky"
//! cut = false
//! [link.west.down]         # overrides of that, back to the node
//! rate_mbit_s = 5
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::Table;

use crate::profile::{Direction, NAMES, named};

/// Maximum number of links in a plan, and in a relay.
pub const MOST_LINKS: usize = 64;

/// Why a plan cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Not TOML, an unknown key, or a value of the wrong type.
    #[error("{0}")]
    Form(String),
    #[error("there is no profile '{0}'; there are {names}", names = NAMES.join(", "))]
    Profile(String),
    #[error("{place}: {reason}")]
    Value { place: String, reason: String },
    #[error("{0} links are named; at most {MOST_LINKS} may be")]
    Links(usize),
}

/// A plan as written in TOML; empty parts are not written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Document {
    /// Profile of all links without one of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Overrides of this profile, towards the fusion center.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub up: Table,
    /// Overrides of this profile, back to the nodes.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub down: Table,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub link: BTreeMap<String, LinkDocument>,
}

/// One link of a [`Document`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkDocument {
    /// Without a profile, the link has the common one with its overrides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub up: Table,
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub down: Table,
}

/// Parameters of one link: the profile that it starts from, and both directions with their overrides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkPlan {
    pub profile: String,
    pub cut: bool,
    pub up: Direction,
    pub down: Direction,
}

/// A valid plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    document: Document,
    common: LinkPlan,
    links: BTreeMap<String, LinkPlan>,
}

impl Plan {
    /// Parses a plan; `fallback` is the profile if it has none.
    pub fn parse(text: &str, fallback: &str) -> Result<Self, PlanError> {
        let mut document: Document =
            toml::from_str(text).map_err(|error| PlanError::Form(error.to_string()))?;
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

    pub fn of(&self, link: &str) -> &LinkPlan {
        self.links.get(link).unwrap_or(&self.common)
    }

    /// Names of the links with parameters of their own.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.links.keys().map(String::as_str)
    }

    pub fn directions(&self) -> impl Iterator<Item = &Direction> {
        std::iter::once(&self.common).chain(self.links.values()).flat_map(|plan| [&plan.up, &plan.down])
    }

    pub fn document(&self) -> &Document {
        &self.document
    }
}

/// `base` with the values of `changes`; `place` is for errors.
fn changed(base: Direction, changes: &Table, place: &str) -> Result<Direction, PlanError> {
    let value = |reason: String| PlanError::Value { place: place.to_owned(), reason };
    let mut table = Table::try_from(base).map_err(|error| value(error.to_string()))?;
    for (key, given) in changes {
        // TOML integers are accepted for floats.
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
        assert!(Plan::parse("", "none").is_err());
    }
}
