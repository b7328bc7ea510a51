//! What the two sides say to each other.

use serde::{Deserialize, Serialize};

/// How far a subscriber got with a source before its connection broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Resume {
    /// The run of the source.
    pub source: u64,
    /// Every frame through this one has arrived.
    pub received: u64,
    /// Every frame through this one is done with.
    pub consumed: u64,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Index of the node.
    pub node: u32,
    /// Tells a reconnecting subscriber from another one.
    pub instance: u64,
    /// Hash of the site that the node works with.
    pub site_sha256: [u8; 32],
    /// Frames that may be under way.
    pub window: u32,
    /// Set when this continues a subscription.
    pub resume: Option<Resume>,
}

/// Node to simulator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToSource {
    /// Subscribe.
    Hello(Hello),
    /// Done with every frame through `sequence` of `source`.
    Acknowledge { source: u64, sequence: u64 },
    /// Are you there?
    Ping,
    /// The node leaves, done with every frame through `sequence` of `source`.
    Goodbye { source: u64, sequence: u64 },
}

/// Simulator to node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToNode {
    /// Subscribed; frames follow from `next_sequence` on.
    Welcome { source: u64, next_sequence: u64 },
    /// Not subscribed, and why.
    Refused { reason: String },
    /// The next part of the message is an echo frame.
    Frame { sequence: u64 },
    /// I am here.
    Pong,
    /// Goodbye was heard.
    Farewell,
}
