//! The port where echo frames are pushed into the node: the gRPC service `Echoes` with health and reflection.

use proto::echo::{EchoesEndpoint, EchoesService};
use proto::{DESCRIPTORS, HTTP2_WINDOW_BYTES};
use telemetry::listener::limits::http2_server;
use telemetry::{Health, Listener, health};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Request;
use tonic::service::interceptor::InterceptedService;
use trust::{Needs, Peer};

/// Starts the server; it ends with `shutdown`, or when the handle is dropped.
pub(crate) async fn serve(
    listener: Listener,
    service: EchoesService,
    readiness: Health,
    shutdown: CancellationToken,
) -> anyhow::Result<AbortOnDropHandle<()>> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .build_v1()?;
    let reflection = InterceptedService::new(reflection, |request: Request<()>| {
        Peer::check(request.extensions(), Needs::Simulator)?;
        Ok(request)
    });
    let health = health::grpc_service(readiness, &["hyloc.v1.Echoes"], shutdown.clone()).await;
    let server = http2_server()
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES)
        .add_service(EchoesEndpoint(service))
        .add_service(health)
        .add_service(reflection);
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) =
            server.serve_with_incoming_shutdown(listener.incoming(), shutdown.cancelled_owned()).await
        {
            tracing::error!(%error, "the server of pushed echoes failed");
        }
    })))
}
