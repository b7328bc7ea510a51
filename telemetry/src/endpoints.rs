//! The ports that a process opens for those who watch it: bound all at once, then served.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{Health, Metrics, Started, health, http};

/// How long open connections may hold up the end of a process.
const PATIENCE: Duration = Duration::from_millis(500);

/// Bound ports: HTTP for `/metrics` and `/health`, gRPC for health alone.
#[derive(Debug, Default)]
pub struct Endpoints {
    http: Option<(TcpListener, SocketAddr)>,
    grpc: Option<(TcpListener, SocketAddr)>,
}

impl Endpoints {
    /// Binds what is asked for; the error names the address.
    pub async fn bind(http: Option<SocketAddr>, grpc: Option<SocketAddr>) -> std::io::Result<Self> {
        Ok(Self { http: bind(http).await?, grpc: bind(grpc).await? })
    }

    /// The start of the line for whoever started the process.
    pub fn started(&self, role: &str) -> Started {
        let address = |bound: &Option<(TcpListener, SocketAddr)>| bound.as_ref().map(|(_, address)| *address);
        Started { grpc: address(&self.grpc), http: address(&self.http), ..Started::new(role) }
    }

    /// Serves until `shutdown`.
    pub fn serve(self, metrics: Metrics, health: Health, shutdown: CancellationToken) -> Serving {
        let mut tasks = JoinSet::new();
        if let Some((listener, _)) = self.http {
            let served = http::serve(listener, http::routes(metrics, health.clone()), shutdown.clone());
            tasks.spawn(async move {
                if let Err(error) = served.await {
                    tracing::error!(%error, "the HTTP server ended");
                }
            });
        }
        if let Some((listener, _)) = self.grpc {
            let served = health::serve_grpc(listener, health, shutdown);
            tasks.spawn(async move {
                if let Err(error) = served.await {
                    tracing::error!(%error, "the gRPC health server ended");
                }
            });
        }
        Serving(tasks)
    }
}

async fn bind(address: Option<SocketAddr>) -> std::io::Result<Option<(TcpListener, SocketAddr)>> {
    let Some(address) = address else { return Ok(None) };
    let named = |error: std::io::Error| std::io::Error::new(error.kind(), format!("{address}: {error}"));
    http::bind(address).await.map(Some).map_err(named)
}

/// Running servers; they end with their token.
#[derive(Debug)]
pub struct Serving(JoinSet<()>);

impl Serving {
    /// Waits for the servers to end; a connection that stays open does not hold up the process for long.
    pub async fn ended(mut self) {
        let _ = tokio::time::timeout(PATIENCE, async { while self.0.join_next().await.is_some() {} }).await;
    }
}
