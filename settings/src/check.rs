//! Checks of single settings, each of which names the key, the value and what is allowed.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

use crate::SettingsError;

/// Longest time that may be asked for.
const LONGEST_S: f64 = 3600.0;

/// What is served nowhere, or reached nowhere.
const NONE: &str = "none";

/// Refuses a value.
pub fn refuse(key: &'static str, value: impl Display, allowed: impl Display) -> SettingsError {
    SettingsError::Value { key, value: value.to_string(), allowed: allowed.to_string() }
}

/// A number between two others, or one of them.
pub fn within<T: PartialOrd + Display>(
    key: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<T, SettingsError> {
    if (&least..=&most).contains(&&value) {
        return Ok(value);
    }
    Err(refuse(key, value, format_args!("between {least} and {most}")))
}

/// A time in seconds, up to an hour.
pub fn seconds(key: &'static str, value: f64) -> Result<Duration, SettingsError> {
    within(key, value, 0.0, LONGEST_S).map(Duration::from_secs_f64)
}

/// One of the names that an enumeration has in files.
pub fn named<'a, T: Deserialize<'a>>(
    key: &'static str,
    value: &'a str,
    allowed: &str,
) -> Result<T, SettingsError> {
    let name: StrDeserializer<'a, Error> = value.into_deserializer();
    T::deserialize(name).map_err(|_| refuse(key, value, allowed))
}

/// Where to listen.
pub fn address(key: &'static str, value: &str) -> Result<SocketAddr, SettingsError> {
    value.parse().map_err(|_| refuse(key, value, "address:port, as in 127.0.0.1:7400"))
}

/// Where to listen, or `none`.
pub fn address_or_none(key: &'static str, value: &str) -> Result<Option<SocketAddr>, SettingsError> {
    if value == NONE {
        return Ok(None);
    }
    value.parse().map(Some).map_err(|_| refuse(key, value, "address:port or none"))
}

/// Whom to reach.
pub fn host_and_port(key: &'static str, value: String) -> Result<String, SettingsError> {
    if is_host_and_port(&value) { Ok(value) } else { Err(refuse(key, value, "host:port")) }
}

/// Whom to reach, or `none`.
pub fn host_and_port_or_none(key: &'static str, value: String) -> Result<Option<String>, SettingsError> {
    match value {
        none if none == NONE => Ok(None),
        reached if is_host_and_port(&reached) => Ok(Some(reached)),
        other => Err(refuse(key, other, "host:port or none")),
    }
}

fn is_host_and_port(value: &str) -> bool {
    let parts = value.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason<T: std::fmt::Debug>(checked: Result<T, SettingsError>) -> String {
        checked.unwrap_err().to_string()
    }

    #[test]
    fn numbers_stay_within_their_limits() {
        assert_eq!(within("queue", 4096, 1, 4096).unwrap(), 4096);
        assert_eq!(reason(within("queue", 0, 1, 4096)), "queue = 0: must be between 1 and 4096");
        assert_eq!(reason(within("rate", f64::NAN, 0.5, 2.0)), "rate = NaN: must be between 0.5 and 2");
        assert_eq!(seconds("wait_s", 0.25).unwrap(), Duration::from_millis(250));
        assert_eq!(reason(seconds("wait_s", -1.0)), "wait_s = -1: must be between 0 and 3600");
    }

    #[test]
    fn names_are_those_of_files() {
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Method {
            ThreeStage,
        }
        assert_eq!(named::<Method>("method", "three-stage", "three-stage").unwrap(), Method::ThreeStage);
        let refused = named::<Method>("method", "magic", "three-stage");
        assert_eq!(reason(refused), "method = magic: must be three-stage");
    }

    #[test]
    fn addresses_have_both_parts() {
        assert_eq!(address("listen", "[::1]:0").unwrap().port(), 0);
        assert_eq!(address_or_none("listen", "none").unwrap(), None);
        assert_eq!(reason(address_or_none("listen", "here")), "listen = here: must be address:port or none");
        assert!(reason(address("listen", "none")).starts_with("listen = none: must be address:port, as in"));
        assert_eq!(host_and_port("fusion", "hub:7400".into()).unwrap(), "hub:7400");
        for bad in ["hub", ":7400", "hub:0", "hub:99999", "none"] {
            assert_eq!(
                reason(host_and_port("fusion", bad.into())),
                format!("fusion = {bad}: must be host:port")
            );
        }
        assert_eq!(host_and_port_or_none("fusion", "none".into()).unwrap(), None);
        assert_eq!(
            reason(host_and_port_or_none("fusion", ":1".into())),
            "fusion = :1: must be host:port or none"
        );
    }
}
