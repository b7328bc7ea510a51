//! Requests to the HTTP endpoints of other processes: health checks from an image without a shell, control of a running
//! process.

use std::net::ToSocketAddrs;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use trust::{ClientTls, Protocol};
use ureq::http::Request;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, TcpConnector};
use ureq::{Agent, Error};

use crate::exit::{self, Failure};
use crate::guard::{CONTROL_HEADER, CONTROL_VALUE};
use crate::tls_connector::TlsConnector;

/// Timeout of a request. A relay that measures itself takes seconds to respond.
const TIMEOUT: Duration = Duration::from_secs(60);

const MAX_RESPONSE_BYTES: u64 = 16 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: String,
}

/// Requests `url`, as in `http://127.0.0.1:7401/health`, and waits for the response. No proxy is used. If `url` begins with
/// `https://`, the server is verified by the authority of `tls` and its role, not by its host name.
pub fn request_with(
    tls: Option<&ClientTls>,
    method: &str,
    url: &str,
    body: &str,
) -> anyhow::Result<Response> {
    let (tls, port) = match tls.filter(|_| url.starts_with("https://")) {
        Some(tls) => (Some(tls.config(Protocol::Http)?), ":443"),
        None => (None, ":80"),
    };
    if tls.is_none() && url.starts_with("https://") {
        bail!(Failure::new(exit::USAGE, format!("'{url}': https needs --tls-ca")));
    }
    if tls.is_none() && !url.starts_with("http://") {
        bail!(Failure::new(exit::USAGE, format!("'{url}' does not begin with http:// or https://")));
    }
    let settings =
        Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).proxy(None);
    // Servers refuse what may change something unless it is marked: forms of other sites are not.
    let request = Request::builder().method(method).uri(url).header(CONTROL_HEADER, CONTROL_VALUE).body(body);
    let request = request.map_err(|error| Failure::new(exit::USAGE, format!("'{url}': {error}")))?;
    let host = request.uri().authority().map_or("", |authority| authority.as_str());
    let port = if request.uri().port().is_some() { "" } else { port };
    if format!("{host}{port}").to_socket_addrs().is_err() {
        bail!(Failure::new(exit::NO_HOST, format!("{host} has no address")));
    }
    let agent = match tls {
        Some(config) => Agent::with_parts(
            settings.build(),
            TcpConnector::default().chain(TlsConnector(config)),
            DefaultResolver::default(),
        ),
        None => settings.build().new_agent(),
    };
    let mut response = agent.run(request).map_err(explained)?;
    let body = response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_string();
    Ok(Response { status: response.status().as_u16(), body: body.map_err(explained)? })
}

fn explained(error: Error) -> anyhow::Error {
    match error {
        Error::Protocol(error) => Failure::new(exit::DATA, format!("not an HTTP response: {error}")).into(),
        other => other.into_io().into(),
    }
}

/// Percent-encodes `text` as part of a query.
pub fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

/// Exit code of a health check: 0 if the response of `url` is a success, or if there is one at all for a process that must
/// only be `alive`; else 1 and the reason on standard error.
pub fn check(tls: Option<&ClientTls>, url: &str, alive: bool) -> ExitCode {
    let reason = match request_with(tls, "GET", url, "") {
        Ok(Response { status: 200..300, .. }) => return ExitCode::SUCCESS,
        Ok(_) if alive => return ExitCode::SUCCESS,
        Ok(response) => format!("{} {}", response.status, response.body.trim_end()),
        Err(error) => exit::sentence(&error),
    };
    crate::print_error("healthcheck", &format!("{url}: {reason}"));
    ExitCode::from(exit::FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::{bind, limits};
    use crate::{Health, HostNames, Listener, Metrics, http};
    use tokio_util::sync::CancellationToken;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_check_follows_the_health() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (health, shutdown) = (Health::new(), CancellationToken::new());
        let metrics = Metrics::new();
        let listener = Listener::new(listener, limits::HTTP, &metrics);
        let routes = http::routes(metrics, health.clone());
        let server = tokio::spawn(http::serve(listener, HostNames::default(), routes, shutdown.clone()));
        let ask = move || request_with(None, "GET", &format!("http://{address}/health"), "");
        let answer = tokio::task::spawn_blocking(ask).await.unwrap().unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (503, "starting\n"));
        health.ready();
        let answer = tokio::task::spawn_blocking(ask).await.unwrap().unwrap();
        assert_eq!(answer.status, 200);
        shutdown.cancel();
        server.await.unwrap();
        assert!(tokio::task::spawn_blocking(ask).await.unwrap().is_err(), "nobody listens any more");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        assert!(
            request_with(None, "GET", "127.0.0.1:7401/health", "")
                .unwrap_err()
                .to_string()
                .contains("http://")
        );
        let unknown = request_with(None, "GET", "http://nowhere..invalid/health", "").unwrap_err();
        assert_eq!(exit::code(&unknown), exit::NO_HOST, "{unknown:#}");
        assert_eq!(escape("a b/1.2:c"), "a%20b%2F1.2:c");
    }
}
