//! The gRPC channel of a client, tuned for streams of blocks and for connections that break silently.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;
use trust::{ClientTls, Protocol};

use crate::HTTP2_WINDOW_BYTES;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to `address` (host:port), with TLS if given. A peer that disappears without closing the connection is noticed
/// within 3 s.
pub async fn connect(address: &str, tls: Option<&ClientTls>) -> Result<Channel, Status> {
    let unavailable = |error: tonic::transport::Error| {
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        let cause = causes.last().map(ToString::to_string);
        Status::unavailable(format!("{address}: {}", cause.unwrap_or_else(|| error.to_string())))
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(unavailable)?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES)
        .http2_keep_alive_interval(Duration::from_secs(1))
        .keep_alive_timeout(Duration::from_secs(2))
        .keep_alive_while_idle(true);
    let connected = match tls.cloned() {
        None => endpoint.connect().await,
        Some(tls) => {
            let to = address.to_owned();
            let encrypted = move |_: Uri| {
                let (tls, to) = (tls.clone(), to.clone());
                async move {
                    let stream = TcpStream::connect(to).await?;
                    stream.set_nodelay(true)?;
                    tls.connect(stream, Protocol::Grpc).await.map(TokioIo::new)
                }
            };
            endpoint.connect_with_connector(service_fn(encrypted)).await
        }
    };
    connected.map_err(unavailable)
}
