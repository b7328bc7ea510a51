//! `/metrics` for Prometheus and `/health` for supervisors.

use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::CONTENT_TYPE;
use crate::{Health, Metrics};

/// The two routes; a process may add others.
pub fn routes(metrics: Metrics, health: Health) -> Router {
    let show_metrics = async move || ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.render());
    let show_health = async move || match health.reason() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    };
    Router::new().route("/metrics", get(show_metrics)).route("/health", get(show_health))
}

/// Binds `address`, where port 0 means any free port, and returns the bound address.
pub async fn bind(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Serves `router` until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
}

/// Whether the Host header of a request is an IP address or `localhost`. A request by a page of another site whose name
/// was made to resolve to this machine (DNS rebinding) has another one.
pub fn named_by_address(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[test]
    fn a_name_that_was_made_to_point_here_is_told_apart() {
        let named = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            named_by_address(&headers)
        };
        for host in ["127.0.0.1:7401", "192.0.2.7", "[::1]:7401", "[::1]", "localhost:80", "LOCALHOST"] {
            assert!(named(host), "{host}");
        }
        for host in ["rebound.example:7401", "127.0.0.1.example", "localhost.example", ""] {
            assert!(!named(host), "{host}");
        }
        assert!(!named_by_address(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn metrics_and_health_are_served_until_shutdown() {
        let (metrics, health) = (Metrics::new(), Health::new());
        metrics.counter("hyloc_frames_total", "Frames.", &[]).inc_by(3);
        let (listener, address) = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(serve(listener, routes(metrics, health.clone()), shutdown.clone()));
        let asking = async {
            let before = get(address, "/health").await;
            assert!(before.starts_with("HTTP/1.1 503") && before.ends_with("starting\n"), "{before}");
            health.ready();
            assert!(get(address, "/health").await.starts_with("HTTP/1.1 200"));
            let shown = get(address, "/metrics").await;
            assert!(
                shown.starts_with("HTTP/1.1 200") && shown.contains("hyloc_frames_total{} 3\n"),
                "{shown}"
            );
        };
        tokio::time::timeout(Duration::from_secs(10), asking).await.unwrap();
        shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
    }
}
