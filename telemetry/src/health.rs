//! Health of a process: whether it serves, for `/health` and the gRPC health service, and whether it can do its work now,
//! for `/ready`.
//!
//! A supervisor that restarts what is unhealthy asks `/health`: a restart does not help a process that waits for its
//! peers. Whoever depends on results asks `/ready`, which lists all reasons why there are none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// Why the process cannot do its work although it serves, by what is concerned.
    conditions: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Default for Health {
    fn default() -> Self {
        let reason = Arc::new(watch::Sender::new(Some("starting".into())));
        Self { reason, degradations: Degradations::default(), conditions: Arc::default() }
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

    /// Sets why the process cannot do its work now as far as `what` is concerned, or clears it.
    pub fn condition(&self, what: &'static str, problem: Option<String>) {
        let mut conditions = self.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(problem) => conditions.insert(what, problem),
            None => conditions.remove(what),
        };
    }

    /// Every reason why the process cannot do its work now, with the parts that fail.
    pub fn problems(&self) -> Vec<String> {
        let conditions = self.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        let conditions = conditions.iter().map(|(what, problem)| format!("{what}: {problem}"));
        self.reason().into_iter().chain(conditions).chain(self.degradations.current()).collect()
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

    #[test]
    fn a_condition_leaves_the_process_serving() {
        let health = Health::new();
        health.condition("nodes", Some("none is connected".into()));
        health.condition("frames", Some("none for 5 s".into()));
        assert_eq!(health.problems(), ["starting", "frames: none for 5 s", "nodes: none is connected"]);
        health.ready();
        health.condition("nodes", None);
        assert_eq!((health.reason(), health.problems()), (None, vec!["frames: none for 5 s".to_owned()]));
        health.condition("frames", None);
        assert!(health.problems().is_empty());
    }

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
