//! The limits of every TCP listener, in one table. `docs/reference/limits.md` lists them, which a test checks.

use std::time::Duration;

use rustix::process::{Resource, getrlimit};

/// When a connection counts as established: until then it has to give way to a newcomer if the listener is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Establish {
    /// With the first byte. For HTTP/2, whose keepalive closes a peer that does not answer.
    FirstByte,
    /// With the first complete request. For HTTP/1.
    Request,
}

/// Limits of a listener.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ListenerLimits {
    /// Name in logs and metrics.
    pub name: &'static str,
    /// Maximum number of simultaneous connections.
    pub connections: usize,
    /// File descriptors of the process that the listener may use, in sixteenths, less the reserve.
    pub descriptor_sixteenths: u64,
    /// File descriptors of one connection.
    pub descriptors_each: u64,
    pub establish: Establish,
}

impl ListenerLimits {
    const fn new(
        name: &'static str,
        connections: usize,
        descriptor_sixteenths: u64,
        establish: Establish,
    ) -> Self {
        Self { name, connections, descriptor_sixteenths, descriptors_each: 1, establish }
    }
}

/// Reports, truth and watchers (gRPC) of the fusion center.
pub const GRPC: ListenerLimits = ListenerLimits::new("grpc", 512, 8, Establish::FirstByte);

/// Page, API, metrics and health over HTTP.
pub const HTTP: ListenerLimits = ListenerLimits::new("http", 256, 4, Establish::Request);

/// The control of simulator and relay.
pub const CONTROL: ListenerLimits = ListenerLimits::new("control", 32, 1, Establish::Request);

/// Health by gRPC of a process without another gRPC service.
pub const HEALTH: ListenerLimits = ListenerLimits::new("health", 32, 1, Establish::FirstByte);

/// Nodes that connect to the relay, on the common port or on that of a link. Each takes a second connection, to the
/// fusion center.
pub const RELAY: ListenerLimits =
    ListenerLimits { descriptors_each: 2, ..ListenerLimits::new("relay", 256, 8, Establish::FirstByte) };

/// File descriptors for everything else: files, timers, connections that the process makes, connections being closed.
pub const RESERVED_DESCRIPTORS: u64 = 128;

/// Connections beyond the maximum that may still be closing; above them, newcomers are refused.
pub const CLOSING: usize = 32;

/// Time until a connection must be established.
pub const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time without a byte in either direction.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// An established connection without a byte in either direction for this long gives way to a newcomer if the listener is
/// full. HTTP/2 connections carry a ping every second, live events are sent twice a second.
pub const QUIET: Duration = Duration::from_secs(3);

/// Time for the head of an HTTP/1 request; also the longest pause between two requests of a connection.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time until the response to an HTTP/1 request begins. A relay that measures itself takes seconds.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Number of header lines, and bytes of the head, of an HTTP/1 request.
pub const MAX_HEADERS: usize = 64;
pub const MAX_HEAD_BYTES: usize = 16 << 10;

/// Largest body of an HTTP/1 request, unless a route has a lower limit.
pub const MAX_BODY_BYTES: usize = 64 << 10;

/// Limits of an HTTP/2 connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Limits {
    pub concurrent_streams: u32,
    pub header_list_bytes: u32,
    pub frame_bytes: u32,
    /// Streams that the peer has reset and the service has not yet seen.
    pub pending_resets: usize,
    /// Streams reset because of an error of the peer.
    pub error_resets: usize,
    pub keepalive_interval: Duration,
    pub keepalive_timeout: Duration,
}

pub const HTTP2: Http2Limits = Http2Limits {
    concurrent_streams: 32,
    header_list_bytes: 16 << 10,
    frame_bytes: 64 << 10,
    pending_resets: 20,
    error_resets: 128,
    keepalive_interval: Duration::from_secs(1),
    keepalive_timeout: Duration::from_secs(2),
};

impl ListenerLimits {
    /// The limits of a process that may have this many descriptors open.
    pub fn within(self, descriptors: u64) -> Self {
        let usable = descriptors - RESERVED_DESCRIPTORS.min(descriptors / 2);
        let share = usable / 16 * self.descriptor_sixteenths / self.descriptors_each;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        Self { connections: self.connections.min(share).max(2), ..self }
    }

    /// The limits of this process.
    pub fn of_this_process(self) -> Self {
        match getrlimit(Resource::Nofile).current {
            Some(descriptors) => self.within(descriptors),
            None => self,
        }
    }

    /// Maximum number of connections of one peer address: a quarter is left to others.
    pub fn per_peer(&self) -> usize {
        self.connections - self.connections / 4
    }
}

/// A gRPC server with the limits of [`HTTP2`]: without them, a connection may open any number of streams.
pub fn http2_server() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .max_concurrent_streams(HTTP2.concurrent_streams)
        .http2_max_header_list_size(HTTP2.header_list_bytes)
        .max_frame_size(HTTP2.frame_bytes)
        .http2_max_pending_accept_reset_streams(Some(HTTP2.pending_resets))
        .http2_max_local_error_reset_streams(Some(HTTP2.error_resets))
        .http2_keepalive_interval(Some(HTTP2.keepalive_interval))
        .http2_keepalive_timeout(Some(HTTP2.keepalive_timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_of_a_process_stay_below_its_descriptors() {
        for descriptors in [64, 256, 1024, 4096, 1 << 20] {
            // The processes with the most listeners: fusion center, simulator or node, relay.
            for process in [&[GRPC, HTTP][..], &[HTTP, CONTROL, HEALTH], &[RELAY, HTTP, CONTROL]] {
                let used = process.iter().map(|limits| {
                    let limits = limits.within(descriptors);
                    limits.connections as u64 * limits.descriptors_each
                });
                let reserve = (descriptors / 2).min(RESERVED_DESCRIPTORS);
                assert!(used.sum::<u64>() <= descriptors - reserve, "{descriptors}");
            }
        }
        let found = [GRPC, HTTP, CONTROL, RELAY].map(|limits| {
            let limits = limits.within(1024);
            (limits.connections, limits.per_peer())
        });
        assert_eq!(found, [(448, 336), (224, 168), (32, 24), (224, 168)]);
        assert_eq!(GRPC.within(u64::MAX).connections, 512);
        assert_eq!(CONTROL.within(0).connections, 2, "it still serves");
    }
}
