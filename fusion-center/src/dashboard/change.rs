//! A change that the page asks for, checked and put into the words of the process that makes it.

use axum::body::Bytes;
use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use telemetry::client::escape;

use super::control::{ErrorResponse, refuse};

/// Who makes a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeHolder {
    Simulator,
    Backhaul,
    /// The supervisor of the node processes.
    Nodes,
}

impl ChangeHolder {
    pub fn name(self) -> &'static str {
        match self {
            Self::Simulator => "simulator",
            Self::Backhaul => "backhaul",
            Self::Nodes => "supervisor of the nodes",
        }
    }
}

/// A request to a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub holder: ChangeHolder,
    pub method: &'static str,
    pub path: String,
    pub body: String,
    /// The change in words.
    pub said: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NameWish {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetsWish {
    count: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PowerWish {
    dbm: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockWish {
    node: u32,
    step_ns: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkWish {
    name: String,
    cut: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeWish {
    index: u32,
    run: bool,
}

impl Change {
    /// The change of `subject` that the JSON in `body` asks for.
    pub fn parse(subject: &str, body: &Bytes) -> Result<Self, ErrorResponse> {
        let put = |holder, path: &str, body: String, said: String| Self {
            holder,
            method: "PUT",
            path: path.to_owned(),
            body,
            said,
        };
        Ok(match subject {
            "motion" => {
                let name = plain(&wish::<NameWish>(body)?.name)?;
                put(ChangeHolder::Simulator, "/motion", name.clone(), format!("target path: {name}"))
            }
            "targets" => {
                let count = wish::<TargetsWish>(body)?.count;
                put(
                    ChangeHolder::Simulator,
                    "/targets",
                    count.to_string(),
                    format!("number of targets: {count}"),
                )
            }
            "power" => {
                let dbm = wish::<PowerWish>(body)?.dbm;
                put(ChangeHolder::Simulator, "/power", dbm.to_string(), format!("transmit power: {dbm} dBm"))
            }
            "clock" => {
                let ClockWish { node, step_ns } = wish(body)?;
                let said = format!("the clock of node {node} steps by {step_ns} ns");
                put(ChangeHolder::Simulator, "/clock", format!("{node} {step_ns}"), said)
            }
            "profile" => {
                let name = plain(&wish::<NameWish>(body)?.name)?;
                let plan = format!("profile = \"{name}\"\n");
                put(ChangeHolder::Backhaul, "/profile", plan, format!("backhaul: {name}"))
            }
            "link" => {
                let LinkWish { name, cut } = wish(body)?;
                let (path, done) = if cut { ("/cut", "is cut") } else { ("/restore", "is restored") };
                Self {
                    method: "POST",
                    ..put(
                        ChangeHolder::Backhaul,
                        &format!("{path}?link={}", escape(&name)),
                        String::new(),
                        format!("link {name} {done}"),
                    )
                }
            }
            "node" => {
                let NodeWish { index, run } = wish(body)?;
                let (verb, done) = if run { ("start", "started") } else { ("kill", "killed") };
                put(
                    ChangeHolder::Nodes,
                    "/node",
                    format!("{verb} {index}"),
                    format!("node {index} is {done}"),
                )
            }
            _ => return Err(refuse(StatusCode::NOT_FOUND, "there is no such control; GET /api lists them")),
        })
    }
}

fn wish<T: DeserializeOwned>(body: &Bytes) -> Result<T, ErrorResponse> {
    serde_json::from_slice(body).map_err(|error| refuse(StatusCode::UNPROCESSABLE_ENTITY, error))
}

/// A name that can stand in a plan or a path as it is.
fn plain(name: &str) -> Result<String, ErrorResponse> {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if (1..=32).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(name.to_owned());
    }
    let reason = "a name has 1 to 32 lower-case letters, digits or hyphens";
    Err(refuse(StatusCode::UNPROCESSABLE_ENTITY, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(subject: &str, body: &str) -> Result<(&'static str, String, String), u16> {
        let change = Change::parse(subject, &Bytes::from(body.to_owned()));
        change.map(|change| (change.method, change.path, change.body)).map_err(|(status, _)| status.as_u16())
    }

    #[test]
    fn only_a_plain_name_is_passed_on() {
        let plan = "profile = \"5g-fronthaul\"\n";
        assert_eq!(
            parsed("profile", r#"{"name":"5g-fronthaul"}"#),
            Ok(("PUT", "/profile".into(), plan.into()))
        );
        for name in ["", "a\\n[up]", "Fibre", "fibre\\\"", &"a".repeat(33)] {
            assert_eq!(parsed("profile", &format!(r#"{{"name":"{name}"}}"#)), Err(422), "{name}");
        }
        assert_eq!(parsed("profile", r#"{"name":"fibre","link":"x"}"#), Err(422));
    }

    #[test]
    fn every_change_has_its_words() {
        let put = |path: &str, body: &str| Ok(("PUT", path.to_owned(), body.to_owned()));
        assert_eq!(parsed("targets", r#"{"count":3}"#), put("/targets", "3"));
        assert_eq!(parsed("power", r#"{"dbm":42.5}"#), put("/power", "42.5"));
        assert_eq!(parsed("clock", r#"{"node":1,"step_ns":-20}"#), put("/clock", "1 -20"));
        assert_eq!(parsed("node", r#"{"index":2,"run":false}"#), put("/node", "kill 2"));
        assert_eq!(parsed("node", r#"{"index":2,"run":true}"#), put("/node", "start 2"));
        let link = parsed("link", r#"{"name":"a&b=c d","cut":true}"#).unwrap();
        assert_eq!(link, ("POST", "/cut?link=a%26b%3Dc%20d".into(), String::new()));
        for (subject, bad) in [
            ("targets", r#"{"count":-1}"#),
            ("power", r#"{"dbm":"x"}"#),
            ("clock", "{}"),
            ("node", r#"{"index":0}"#),
        ] {
            assert_eq!(parsed(subject, bad), Err(422), "{subject}");
        }
    }
}
