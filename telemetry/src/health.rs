//! Readiness of a process, for `/health` and for the gRPC health service.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthRpc, HealthServer};

use crate::Degradations;
use crate::listener::Listener;
use crate::listener::limits::http2_server;

/// Shared readiness of a process; not ready at first.
#[derive(Debug, Clone)]
pub struct Health {
    /// Why the process is not ready; none when it is.
    reason: Arc<watch::Sender<Option<String>>>,
    /// Parts that fail while the process goes on.
    pub degradations: Degradations,
}

impl Default for Health {
    fn default() -> Self {
        let reason = Arc::new(watch::Sender::new(Some("starting".into())));
        Self { reason, degradations: Degradations::default() }
    }
}

impl Health {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn ready(&self) {
        self.set(None);
    }

    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(Some(reason.into()));
    }

    /// Why the process is not ready; none when it is.
    pub fn reason(&self) -> Option<String> {
        self.reason.borrow().clone()
    }

    /// Sets why a part of the process fails while the rest goes on; none if it works.
    pub fn degraded(&self, part: &'static str, reason: Option<String>) {
        self.degradations.set(part, reason);
    }

    /// Parts that fail while the process goes on, each with its reason.
    pub fn failing(&self) -> Vec<String> {
        self.degradations.current()
    }

    fn set(&self, reason: Option<String>) {
        self.reason.send_if_modified(|known| {
            let changed = *known != reason;
            *known = reason;
            changed
        });
    }
}

/// The gRPC health service: reports `health` for the whole server (service name "") and for `services`, and NOT_SERVING
/// after `shutdown`.
pub async fn grpc_service(
    health: Health,
    services: &[&'static str],
    shutdown: CancellationToken,
) -> HealthServer<impl HealthRpc> {
    let (reporter, server) = tonic_health::server::health_reporter();
    let names: Vec<&'static str> = std::iter::once("").chain(services.iter().copied()).collect();
    for name in &names {
        reporter.set_service_status(*name, ServingStatus::NotServing).await;
    }
    tokio::spawn(async move {
        let mut changes = health.reason.subscribe();
        loop {
            let ready = changes.borrow_and_update().is_none() && !shutdown.is_cancelled();
            let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            for name in &names {
                reporter.set_service_status(*name, status).await;
            }
            if shutdown.is_cancelled() {
                return;
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = shutdown.cancelled() => {}
            }
        }
    });
    server
}

/// Serves gRPC health only, for a process without another gRPC service.
pub async fn serve_grpc(
    listener: Listener,
    health: Health,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let service = grpc_service(health, &[], shutdown.clone()).await;
    http2_server()
        .add_service(service)
        .serve_with_incoming_shutdown(listener.incoming(), shutdown.cancelled_owned())
        .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Metrics;
    use crate::listener::limits::HEALTH;
    use tokio::net::TcpListener;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_check_response::ServingStatus as Status;
    use tonic_health::pb::health_client::HealthClient;

    #[tokio::test]
    async fn grpc_health_follows() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listener = Listener::new(listener, HEALTH, &Metrics::new());
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (health, shutdown) = (Health::new(), CancellationToken::new());
        let server = tokio::spawn(serve_grpc(listener, health.clone(), shutdown.clone()));
        let watching = async {
            let channel = tonic::transport::Endpoint::new(address).unwrap().connect().await.unwrap();
            let mut client = HealthClient::new(channel);
            let request = HealthCheckRequest { service: String::new() };
            let mut watch = client.watch(request).await.unwrap().into_inner();
            let mut next = async || watch.message().await.unwrap().unwrap().status();
            assert_eq!(next().await, Status::NotServing);
            health.ready();
            while next().await != Status::Serving {}
            health.not_ready("the simulator is gone");
            while next().await != Status::NotServing {}
        };
        tokio::time::timeout(Duration::from_secs(10), watching).await.unwrap();
        shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
    }
}
