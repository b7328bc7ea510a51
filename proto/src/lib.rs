//! The wire formats and transports between the processes.
//!
//! [`v1`] contains the generated gRPC types, [`convert`] checks them and converts them to domain types, [`samples`]
//! encodes matrices, [`schema`] describes messages to readers of recordings, [`echo`] transports echo frames over ZeroMQ or
//! gRPC, or reads them from files. No generated type is used past `convert`, except in recordings, which consist of messages.

pub mod backoff;
pub mod channel;
pub mod clock;
pub mod convert;
pub mod echo;
pub mod identity;
pub mod samples;
pub mod schema;
pub mod secret;
pub mod site;

/// Generated from `hyloc/v1/*.proto`.
#[allow(missing_docs, clippy::all, unused_qualifications)]
pub mod v1 {
    tonic::include_proto!("hyloc.v1");
}

/// Generated from `foxglove/*.proto`: the schemas that Foxglove draws without a plugin.
#[allow(missing_docs, clippy::all, unused_qualifications)]
pub mod foxglove {
    tonic::include_proto!("foxglove");
}

/// Version of the protocol; a node with another version is refused.
pub const PROTOCOL_VERSION: u32 = 3;

/// Metadata key of the session of a report stream.
pub const SESSION_KEY: &str = "hyloc-session";

/// Descriptors of the services, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// HTTP/2 window of streams and connections: the default of 64 KiB delays blocks of 100 kB.
pub const HTTP2_WINDOW_BYTES: u32 = 8 << 20;
