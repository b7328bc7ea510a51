//! Checks of every HTTP request before a route sees it, against pages of other sites in a user's browser.
//!
//! | request | refused with |
//! | --- | --- |
//! | its Host is neither an IP address, nor localhost, nor a configured name (DNS rebinding) | 421 |
//! | it has an Origin other than the server itself | 403 |
//! | it may change something and is neither JSON nor marked by [`CONTROL_HEADER`], as a form of another site | 415 |
//!
//! A browser asks before it sends JSON or a header of its own to another site, and is not allowed to.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::log_limit::clipped;
use crate::warn_limited;

/// Name of the header that marks a request that may change something, if its body is not JSON.
pub const CONTROL_HEADER: &str = "x-hyloc";

/// Value of [`CONTROL_HEADER`].
pub const CONTROL_VALUE: &str = "control";

/// Host names by which a server may be addressed, besides IP addresses and localhost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames(Arc<[String]>);

impl HostNames {
    pub fn new(names: &[String]) -> Self {
        Self(names.into())
    }

    /// Whether a server may be addressed by `host`, with or without a port.
    fn allow(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_address = match bare {
            Some(bare) => bare.parse().is_ok_and(|address: IpAddr| address.is_ipv6()),
            None => name.parse().is_ok_and(|address: IpAddr| address.is_ipv4()),
        };
        let named = |known: &String| known.eq_ignore_ascii_case(name);
        is_address || name.eq_ignore_ascii_case("localhost") || self.0.iter().any(named)
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum RequestRefusal {
    #[error(
        "address this server by IP address or as localhost, not as '{0}'; http_name allows further names"
    )]
    Host(String),
    #[error("a page of '{0}' may not use this server")]
    Origin(String),
    #[error(
        "a request that changes something must be application/json or have the header {CONTROL_HEADER}: {CONTROL_VALUE}"
    )]
    Form,
}

impl RequestRefusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin(_) => StatusCode::FORBIDDEN,
            Self::Form => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }
}

/// The middleware.
pub(crate) async fn check(State(names): State<HostNames>, request: Request, next: Next) -> Response {
    match judge(&names, request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let path = clipped(request.uri().path());
            warn_limited!(%refusal, method = %request.method(), path, "HTTP request refused");
            (refusal.status(), format!("{refusal}\n")).into_response()
        }
    }
}

fn judge(names: &HostNames, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), RequestRefusal> {
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut hosts = headers.get_all(header::HOST).iter().map(text);
    let (host, second) = (hosts.next().unwrap_or_default(), hosts.next());
    let target = uri.authority().is_none_or(|authority| names.allow(authority.as_str()));
    if !names.allow(&host) || second.is_some() || !target {
        return Err(RequestRefusal::Host(clipped(&host)));
    }
    let own = |origin: &str| {
        let site = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        site.is_some_and(|site| site.eq_ignore_ascii_case(&host))
    };
    if let Some(origin) = headers.get_all(header::ORIGIN).iter().map(text).find(|origin| !own(origin)) {
        return Err(RequestRefusal::Origin(clipped(&origin)));
    }
    if method.is_safe() {
        return Ok(());
    }
    let kind = headers.get(header::CONTENT_TYPE).map(text).unwrap_or_default();
    let json =
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    let marked = headers.get(CONTROL_HEADER).is_some_and(|value| value == CONTROL_VALUE);
    if json || marked { Ok(()) } else { Err(RequestRefusal::Form) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status with which a request is refused; 200 if it is not.
    fn status(method: Method, headers: &[(&str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: axum::http::HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        let names = HostNames::new(&["fusion-center".into()]);
        let judged = judge(&names, &method, &Uri::from_static("/cut"), &map);
        judged.map_or_else(|refusal| refusal.status().as_u16(), |()| 200)
    }

    #[test]
    fn a_name_that_was_made_to_point_here_is_refused() {
        for host in [
            "127.0.0.1:7401",
            "192.0.2.7",
            "[::1]:7401",
            "[::1]",
            "localhost:80",
            "LOCALHOST",
            "fusion-center:7401",
        ] {
            assert_eq!(status(Method::GET, &[("host", host)]), 200, "{host}");
        }
        for host in [
            "rebound.example:7401",
            "127.0.0.1.example",
            "localhost.example",
            "",
            "::1",
            "[127.0.0.1]",
            "[::1",
            "127.0.0.1:80:80",
            "fusion-center.example",
            "user@127.0.0.1",
            "localhost.",
        ] {
            assert_eq!(status(Method::GET, &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status(Method::GET, &[]), 421);
        assert_eq!(status(Method::GET, &[("host", "127.0.0.1"), ("host", "rebound.example")]), 421);
        let rebound = Uri::from_static("http://rebound.example/cut");
        let headers = HeaderMap::from_iter([(header::HOST, "127.0.0.1".parse().unwrap())]);
        assert!(judge(&HostNames::default(), &Method::GET, &rebound, &headers).is_err());
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let here = ("host", "127.0.0.1:7411");
        let json = ("content-type", "application/json; charset=utf-8");
        assert_eq!(status(Method::POST, &[here, json]), 200);
        assert_eq!(status(Method::PUT, &[here, (CONTROL_HEADER, CONTROL_VALUE)]), 200);
        assert_eq!(status(Method::POST, &[here, json, ("origin", "http://127.0.0.1:7411")]), 200);
        for origin in
            ["http://evil.example", "null", "http://127.0.0.1:7412", "file://", "http://127.0.0.1:7411.evil"]
        {
            assert_eq!(status(Method::POST, &[here, json, ("origin", origin)]), 403, "{origin}");
            assert_eq!(status(Method::GET, &[here, ("origin", origin)]), 403, "{origin}");
        }
        for form in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            assert_eq!(status(Method::POST, &[here, ("content-type", form)]), 415, "{form}");
        }
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(status(method.clone(), &[here]), 415, "{method}");
        }
    }
}
