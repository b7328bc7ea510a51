//! Value parsers of `clap` for single options; an error says what is allowed.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};

const NONE: &str = "none";
const AUTO: &str = "auto";

/// A value, or what is allowed.
pub type Checked<T> = Result<T, String>;

/// A number from `least` to `most`, both included.
pub fn within<T>(least: T, most: T) -> impl Fn(&str) -> Checked<T> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let value = text.parse().ok().filter(|value| (&least..=&most).contains(&value));
        value.ok_or_else(|| format!("must be between {least} and {most}"))
    }
}

/// A time in seconds, up to an hour.
pub fn seconds(text: &str) -> Checked<Duration> {
    within(0.0, 3600.0)(text).map(Duration::from_secs_f64)
}

/// A time in milliseconds, from `least` to a minute.
pub fn milliseconds(least: u64) -> impl Fn(&str) -> Checked<Duration> + Clone {
    move |text| within(least, 60_000)(text).map(Duration::from_millis)
}

/// The value of an enumeration by its name in files.
pub fn named<T: DeserializeOwned>(allowed: &str) -> impl Fn(&str) -> Checked<T> + Clone {
    let allowed = allowed.to_owned();
    move |text| by_name(text).ok_or_else(|| format!("must be {allowed}"))
}

/// The value of an enumeration by its name in files, or `auto`.
pub fn auto_or<T: DeserializeOwned>(allowed: &str) -> impl Fn(&str) -> Checked<Option<T>> + Clone {
    let allowed = allowed.to_owned();
    move |text| match text {
        AUTO => Ok(None),
        name => by_name(name).map(Some).ok_or_else(|| format!("must be {AUTO}, {allowed}")),
    }
}

fn by_name<T: DeserializeOwned>(text: &str) -> Option<T> {
    let name: StrDeserializer<Error> = text.into_deserializer();
    T::deserialize(name).ok()
}

/// The value that `read` parses, or `none`.
pub fn or_none<T>(
    allowed: &str,
    read: impl Fn(&str) -> Option<T> + Clone,
) -> impl Fn(&str) -> Checked<Option<T>> + Clone {
    let allowed = allowed.to_owned();
    move |text| match text {
        NONE => Ok(None),
        text => read(text).map(Some).ok_or_else(|| format!("must be {allowed} or {NONE}")),
    }
}

/// Checks a text and returns it unchanged, for an option that is passed to another process.
pub fn accepted<T>(check: impl Fn(&str) -> Checked<T> + Clone) -> impl Fn(&str) -> Checked<String> + Clone {
    move |text| check(text).map(|_| text.to_owned())
}

/// A socket address to listen on.
pub fn address(text: &str) -> Checked<SocketAddr> {
    text.parse().map_err(|_| "must be address:port, as in 127.0.0.1:7400".into())
}

pub fn address_or_none(text: &str) -> Checked<Option<SocketAddr>> {
    or_none("address:port", |text| text.parse().ok())(text)
}

/// The address of a peer.
pub fn host_and_port(text: &str) -> Checked<String> {
    peer(text).ok_or_else(|| "must be host:port".into())
}

pub fn host_and_port_or_none(text: &str) -> Checked<Option<String>> {
    or_none("host:port", peer)(text)
}

/// A host name without port, as it appears in the Host header of a request.
pub fn host_name(text: &str) -> Checked<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let valid = (1..=253).contains(&text.len()) && text.bytes().all(plain);
    if valid { Ok(text.into()) } else { Err("must be a host name without port, as in fusion-center".into()) }
}

fn peer(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let valid = !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0);
    valid.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_their_limits() {
        let queue = within(1, 4096);
        assert_eq!(queue("4096"), Ok(4096));
        for bad in ["0", "4097", "-1", "many", ""] {
            assert_eq!(queue(bad), Err("must be between 1 and 4096".into()), "{bad}");
        }
        assert_eq!(within(0.5, 2.0)("NaN"), Err("must be between 0.5 and 2".into()));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(seconds("-1"), Err("must be between 0 and 3600".into()));
        assert_eq!(milliseconds(1)("0"), Err("must be between 1 and 60000".into()));
    }

    #[test]
    fn names_are_those_of_files() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Method {
            ThreeStage,
        }
        assert_eq!(named("three-stage")("three-stage"), Ok(Method::ThreeStage));
        assert_eq!(named::<Method>("three-stage")("magic"), Err("must be three-stage".into()));
        assert_eq!(auto_or::<Method>("three-stage")("auto"), Ok(None));
        assert_eq!(accepted(named::<Method>("three-stage"))("three-stage"), Ok("three-stage".into()));
        assert_eq!(auto_or::<Method>("or three-stage")("no"), Err("must be auto, or three-stage".into()));
    }

    #[test]
    fn addresses_have_both_parts() {
        assert_eq!(address("[::1]:0").unwrap().port(), 0);
        assert_eq!(address_or_none("none"), Ok(None));
        assert_eq!(address_or_none("here"), Err("must be address:port or none".into()));
        assert!(address("none").unwrap_err().starts_with("must be address:port, as in"));
        assert_eq!(host_name("fusion-center.lab").unwrap(), "fusion-center.lab");
        assert!(["hub:7400", "", "*", "http://hub"].iter().all(|bad| host_name(bad).is_err()));
        assert_eq!(host_and_port("hub:7400").unwrap(), "hub:7400");
        for bad in ["hub", ":7400", "hub:0", "hub:99999", "none"] {
            assert_eq!(host_and_port(bad), Err("must be host:port".into()));
        }
        assert_eq!(host_and_port_or_none("none"), Ok(None));
        assert_eq!(host_and_port_or_none(":1"), Err("must be host:port or none".into()));
    }
}
