//! The HTTP server of every process: `/metrics` for Prometheus, `/health` for supervisors, `/ready` for whoever
//! needs results, and what a process adds.
//!
//! Requests are checked before any route sees them ([`crate::guard`]); connections have the limits of their
//! [`Listener`], and the head of a request a timeout.

use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio_util::sync::CancellationToken;
use trust::{Caller, Needs};

use crate::access::needing;
use crate::guard::{self, HostNames};
use crate::listener::Listener;
use crate::listener::limits::{
    ESTABLISH_TIMEOUT, HEADER_TIMEOUT, MAX_BODY_BYTES, MAX_HEAD_BYTES, MAX_HEADERS, REQUEST_TIMEOUT,
};
use crate::metrics::CONTENT_TYPE;
use crate::{Health, Metrics};

/// The three routes; a process may add others. Health and readiness need no certificate.
pub fn routes(metrics: Metrics, health: Health) -> Router {
    let show_metrics = async move || ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.render());
    let ready = health.clone();
    let show_health = async move || match health.reason() {
        None => (StatusCode::OK, serving(&health)),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    };
    let show_ready = async move || match ready.problems() {
        problems if problems.is_empty() => (StatusCode::OK, "ready\n".to_owned()),
        problems => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", problems.join("\n"))),
    };
    needing(Needs::Watcher, Router::new().route("/metrics", get(show_metrics)))
        .route("/health", get(show_health))
        .route("/ready", get(show_ready))
}

/// `serving`, and a line for every part that fails while the process goes on.
fn serving(health: &Health) -> String {
    let degraded = health.degradations.current().into_iter().map(|part| format!("degraded: {part}\n"));
    std::iter::once("serving\n".to_owned()).chain(degraded).collect()
}

/// Serves `router` to clients that address it by IP address, as localhost or by one of `names`, until `shutdown`. The
/// [`Caller`] is an extension of every request. TLS is given as long as a first request may take.
pub async fn serve(listener: Listener, names: HostNames, router: Router, shutdown: CancellationToken) {
    let router = TowerToHyperService::new(prepared(router, names));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES);
    let graceful = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            stream = listener.accept() => stream,
        };
        let (establishment, address) = (stream.establishment(), stream.peer());
        let (router, watcher, http) = (router.clone(), graceful.watcher(), http.clone());
        let acceptor = listener.acceptor();
        tokio::spawn(async move {
            let accepted = tokio::time::timeout(ESTABLISH_TIMEOUT, acceptor.accept(stream)).await;
            let Ok(Ok(stream)) = accepted else { return };
            let caller = Caller { peer: stream.peer(), address };
            let service = service_fn(move |mut request: Request<Incoming>| {
                establishment.establish();
                request.extensions_mut().insert(caller.clone());
                router.call(request)
            });
            // An error belongs to the client: it went away, was too slow or sent no HTTP.
            let _ = watcher.watch(http.serve_connection(TokioIo::new(stream), service)).await;
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// The routes behind all checks and limits.
fn prepared(router: Router, names: HostNames) -> Router {
    router
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn(in_time))
        .layer(axum::middleware::from_fn_with_state(names, guard::check))
}

/// Ends a request whose body does not arrive, or whose response does not begin.
async fn in_time(request: Request, next: Next) -> Response {
    limited(REQUEST_TIMEOUT, next.run(request)).await
}

async fn limited(most: Duration, response: impl Future<Output = Response>) -> Response {
    let late = || (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response();
    tokio::time::timeout(most, response).await.unwrap_or_else(|_| late())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::listener::{bind, limits};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn metrics_and_health_are_served_until_shutdown() {
        let (metrics, health) = (Metrics::new(), Health::new());
        metrics.counter("hyloc_frames_total", "Frames.", &[]).inc_by(3);
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Listener::new(listener, limits::HTTP, &metrics);
        let shutdown = CancellationToken::new();
        let routes = routes(metrics, health.clone());
        let server = tokio::spawn(serve(listener, HostNames::default(), routes, shutdown.clone()));
        let asking = async {
            let before = get(address, "/health").await;
            assert!(before.starts_with("HTTP/1.1 503") && before.ends_with("starting\n"), "{before}");
            health.ready();
            assert!(get(address, "/health").await.starts_with("HTTP/1.1 200"));
            let part = health.degradations.part("fixes log", &Metrics::new());
            part.failing("disk full");
            let degraded = get(address, "/health").await;
            assert!(
                degraded.starts_with("HTTP/1.1 200")
                    && degraded.contains("\ndegraded: fixes log: disk full\n")
            );
            part.recovered();
            assert!(get(address, "/health").await.ends_with("\r\n\r\nserving\n"));
            assert!(get(address, "/ready").await.starts_with("HTTP/1.1 200"));
            health.condition("nodes", Some("none is connected".into()));
            let waiting = get(address, "/ready").await;
            assert!(
                waiting.starts_with("HTTP/1.1 503") && waiting.ends_with("nodes: none is connected\n"),
                "{waiting}"
            );
            assert!(get(address, "/health").await.starts_with("HTTP/1.1 200"));
            let shown = get(address, "/metrics").await;
            assert!(
                shown.starts_with("HTTP/1.1 200") && shown.contains("hyloc_frames_total{} 3\n"),
                "{shown}"
            );
            let fate = "hyloc_connections_total{listener=\"http\",fate=\"accepted\"} 8\n";
            assert!(shown.contains(fate), "{shown}");
        };
        tokio::time::timeout(Duration::from_secs(10), asking).await.unwrap();
        shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_takes_too_long_is_ended() {
        let response = limited(REQUEST_TIMEOUT, std::future::pending()).await;
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    }
}
