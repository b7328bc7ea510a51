//! The gRPC channel of a client, tuned for streams of blocks and for connections that break silently.

use std::time::Duration;

use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::HTTP2_WINDOW_BYTES;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to `address` (host:port). A peer that disappears without closing the connection is noticed within 3 s.
pub async fn connect(address: &str) -> Result<Channel, Status> {
    let unavailable = |error: tonic::transport::Error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        Status::unavailable(format!("{address}: {}", cause.unwrap_or_else(|| error.to_string())))
    };
    Endpoint::from_shared(format!("http://{address}"))
        .map_err(unavailable)?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES)
        .http2_keep_alive_interval(Duration::from_secs(1))
        .keep_alive_timeout(Duration::from_secs(2))
        .keep_alive_while_idle(true)
        .connect()
        .await
        .map_err(unavailable)
}
