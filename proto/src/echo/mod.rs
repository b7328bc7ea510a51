//! Echo frames from the simulator to the nodes: the only module that knows ZeroMQ and bincode.
//!
//! A node may read a file instead ([`mod@file`]). There are two transports. Over ZeroMQ, nodes subscribe at the simulator: its ROUTER is the endpoint in `zmtp`, a node's
//! DEALER is that of the crate behind a guard. ZeroMQ has neither authentication nor encryption here and is for loopback
//! and private networks. By gRPC, the simulator or any other program pushes into the nodes ([`grpc`]).
//!
//! Neither transport tells a sender what became of a message, so that the guarantees are made here, the same for both:
//! - a node subscribes with index, site hash and receive window before it gets anything, or is refused with the reason; a
//!   pusher is checked in the same way by the node;
//! - credit: at most one window of frames is in flight to a node; further frames are dropped and counted at the
//!   sender;
//! - frames carry sequence numbers and are acknowledged once the node has processed them. After a broken
//!   connection the node reports what it received, so that every frame is counted exactly once, as delivered or dropped
//!   (`subscriptions`, the books of both);
//! - any start order works, and so does a restart of either side;
//! - nobody waits for a peer: each has a bounded queue, and is disconnected when it does not read or acknowledges nothing.

mod codec;
mod dealer;
pub mod file;
pub mod grpc;
mod hub;
mod messages;
mod publisher;
mod subscriber;
mod subscriptions;
pub mod zmtp;

pub use codec::{CodecError, ECHO_VERSION, EchoFrame};
pub use dealer::{Subscription, Timings};
pub use grpc::pusher::PushTarget;
pub use grpc::service::{EchoLayout, EchoesEndpoint, EchoesService};
pub use publisher::{EchoPublisher, Publication};
pub use subscriber::{Delivery, EchoSubscriber, SubscriptionState};
pub use subscriptions::{EchoLedger, Offer};

/// Default number of frames that may be in flight to a node.
pub const DEFAULT_WINDOW: u32 = 64;

/// Why the echo transport cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EchoError {
    #[error("the echo port cannot be used: {0}")]
    Listener(#[from] std::io::Error),
}
