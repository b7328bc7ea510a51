//! Messages between publisher and subscriber.

use serde::{Deserialize, Serialize};

/// What a subscriber had received before its connection broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Resume {
    /// The run of the source.
    pub source: u64,
    /// Sequence number of the last frame received.
    pub received: u64,
    /// Sequence number of the last frame processed.
    pub consumed: u64,
}

/// A request to subscribe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub node: u32,
    /// Distinguishes a reconnecting subscriber from another one.
    pub instance: u64,
    pub site_sha256: [u8; 32],
    /// Largest number of frames in flight.
    pub window: u32,
    /// Set if this continues a subscription.
    pub resume: Option<Resume>,
}

/// Node to simulator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToSource {
    Hello(Hello),
    /// Every frame up to `sequence` of `source` is processed.
    Acknowledge {
        source: u64,
        sequence: u64,
    },
    /// Answered by [`ToNode::Pong`].
    Ping,
    /// The node unsubscribes; every frame up to `sequence` of `source` is processed.
    Goodbye {
        source: u64,
        sequence: u64,
    },
}

/// Simulator to node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToNode {
    /// Subscribed; frames follow from `next_sequence` on.
    Welcome {
        source: u64,
        next_sequence: u64,
    },
    Refused {
        reason: String,
    },
    /// The next part of the message is an echo frame.
    Frame {
        sequence: u64,
    },
    Pong,
    /// Acknowledges [`ToSource::Goodbye`].
    Farewell,
}
