//! Echo frames from the simulator to the nodes, over ZeroMQ in bincode: the only module that knows either.
//!
//! The simulator binds a ROUTER ([`EchoPublisher`]), each node connects a DEALER ([`EchoSubscriber`]). ZeroMQ
//! guarantees no delivery: it queues without bound, drops with a success code and does not report that a
//! peer has gone. The guarantees are made here:
//! - a node subscribes with index, site hash and receive window before it gets anything, or is refused with
//!   the reason;
//! - credit: at most one window of frames is in flight to a node; further frames are dropped and counted at the
//!   sender;
//! - frames carry sequence numbers and are acknowledged once the node has processed them. After a broken
//!   connection the node reports what it received, so that every frame is counted exactly once, as delivered or dropped;
//! - a node pings the simulator and rebuilds its socket when there is no reply: any start order works, and so does a
//!   restart of either side.
//!
//! There is no encryption and no limit on the length of a ZeroMQ message: use it on a private network only.

mod codec;
mod messages;
mod publisher;
mod subscriber;
mod subscriptions;

pub use codec::{CodecError, ECHO_VERSION, EchoFrame};
pub use publisher::EchoPublisher;
pub use subscriber::{Delivery, EchoSubscriber, Subscription, SubscriptionState, Timings};
pub use subscriptions::{EchoLedger, Offer};

/// Default number of frames that may be in flight to a node.
pub const DEFAULT_WINDOW: u32 = 64;

/// Why the echo transport cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EchoError {
    #[error("the echo socket failed: {0}")]
    Socket(#[from] zeromq::ZmqError),
    #[error("the echo listener has no address: {0}")]
    Listener(#[from] std::io::Error),
}
