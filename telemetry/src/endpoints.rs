//! The ports for metrics and health of a process: bound first, then served.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trust::Identity;
use trust::options::{grpc_acceptor, http_acceptor};

use crate::listener::{bind_some, limits};
use crate::{Health, HostNames, Listener, Metrics, Started, health, http};

/// Longest time to wait for open connections at the end of a process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Bound ports: HTTP for `/metrics` and `/health`, gRPC for health only.
#[derive(Debug, Default)]
pub struct Endpoints {
    http: Option<TcpListener>,
    grpc: Option<TcpListener>,
    names: HostNames,
    identity: Option<Identity>,
}

impl Endpoints {
    /// Binds the given addresses; the error names the address.
    pub async fn bind(http: Option<SocketAddr>, grpc: Option<SocketAddr>) -> anyhow::Result<Self> {
        let (http, grpc) = (bind_some(http).await?, bind_some(grpc).await?);
        Ok(Self { http, grpc, ..Self::default() })
    }

    /// The same with host names that HTTP requests may address.
    pub fn with_names(self, names: &[String]) -> Self {
        Self { names: HostNames::new(names), ..self }
    }

    /// The same with a certificate, if there is one: for gRPC, and for HTTP on addresses other than loopback.
    pub fn secured(self, identity: Option<&Identity>) -> Self {
        Self { identity: identity.cloned(), ..self }
    }

    /// The start line of the process with these addresses.
    pub fn started(&self, role: &str) -> Started {
        let address = |bound: &Option<TcpListener>| bound.as_ref().and_then(|bound| bound.local_addr().ok());
        Started { grpc: address(&self.grpc), http: address(&self.http), ..Started::new(role) }
    }

    /// Serves until `shutdown`.
    pub fn serve(self, metrics: Metrics, health: Health, shutdown: CancellationToken) -> Serving {
        let mut tasks = JoinSet::new();
        if let Some(listener) = self.http {
            let acceptor = http_acceptor(self.identity.as_ref(), listener.local_addr());
            let listener = Listener::new(listener, limits::HTTP, &metrics).secured(acceptor);
            let routes = http::routes(metrics.clone(), health.clone());
            tasks.spawn(http::serve(listener, self.names, routes, shutdown.clone()));
        }
        if let Some(listener) = self.grpc {
            let acceptor = grpc_acceptor(self.identity.as_ref());
            let listener = Listener::new(listener, limits::HEALTH, &metrics).secured(acceptor);
            tasks.spawn(async {
                if let Err(error) = health::serve_grpc(listener, health, shutdown).await {
                    tracing::error!(%error, "the gRPC health server ended");
                }
            });
        }
        Serving(tasks)
    }
}

/// Running servers, which end with their shutdown token.
#[derive(Debug)]
pub struct Serving(JoinSet<()>);

impl Serving {
    /// Waits for the servers to end, but not long for connections that stay open.
    pub async fn ended(mut self) {
        let all = async { while self.0.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await;
    }
}
