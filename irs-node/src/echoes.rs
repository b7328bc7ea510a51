//! The port where echo frames are pushed into the node: the gRPC service `Echoes` with health and reflection.

use std::time::Duration;

use proto::echo::{EchoesEndpoint, EchoesService};
use proto::{DESCRIPTORS, HTTP2_WINDOW_BYTES};
use telemetry::{Health, health};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Calls of one connection at the same time: a push, a description, health.
const CALLS: u32 = 8;

/// Starts the server; it ends with `shutdown`, or when the handle is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    service: EchoesService,
    readiness: Health,
    shutdown: CancellationToken,
) -> anyhow::Result<AbortOnDropHandle<()>> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .build_v1()?;
    let health = health::grpc_service(readiness, &["hyloc.v1.Echoes"], shutdown.clone()).await;
    let server = tonic::transport::Server::builder()
        .max_concurrent_streams(CALLS)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES)
        .http2_keepalive_interval(Some(Duration::from_secs(1)))
        .http2_keepalive_timeout(Some(Duration::from_secs(2)))
        .add_service(EchoesEndpoint(service))
        .add_service(health)
        .add_service(reflection);
    let incoming = TcpListenerStream::new(listener);
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = server.serve_with_incoming_shutdown(incoming, shutdown.cancelled_owned()).await {
            tracing::error!(%error, "the server of pushed echoes failed");
        }
    })))
}
