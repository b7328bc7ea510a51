//! Echo frames from the simulator to the nodes, over ZeroMQ in bincode: the only module that knows either.
//!
//! The simulator binds a ROUTER ([`EchoPublisher`]), each node connects a DEALER ([`EchoSubscriber`]). ZeroMQ
//! carries bytes and no promise: it queues without bound, drops with a success code and does not tell when a
//! peer has gone. So the promise is made here:
//! - a node subscribes before it gets anything: index, site hash and receive window, or is refused with
//!   the reason;
//! - credit: at most a window of frames is under way to a node; what does not fit is dropped at the sender
//!   and counted there;
//! - frames carry sequence numbers and are acknowledged once the node is done with them. On a broken
//!   connection the node says how far it got, so that every frame ends as delivered or dropped, exactly;
//! - a node asks for a sign of life and rebuilds its socket when there is none: any start order works, and a
//!   restart of either side heals.
//!
//! There is no encryption and no limit on the length of a ZeroMQ message: this belongs on a private network.

mod codec;
mod messages;
mod publisher;
mod subscriber;
mod subscriptions;

pub use codec::{CodecError, ECHO_VERSION, EchoFrame};
pub use publisher::EchoPublisher;
pub use subscriber::{Delivery, EchoSubscriber, Link, Subscription, Timings};
pub use subscriptions::{EchoLedger, Offer};

/// Frames that a node takes without an acknowledgement, unless it is told otherwise.
pub const DEFAULT_WINDOW: u32 = 64;

/// Why the echo transport cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EchoError {
    /// The socket failed.
    #[error("the echo socket failed: {0}")]
    Socket(#[from] zeromq::ZmqError),
    /// The listener has no address.
    #[error("the echo listener has no address: {0}")]
    Listener(#[from] std::io::Error),
}
