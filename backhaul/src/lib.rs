//! The backhaul emulator: a TCP relay between nodes and fusion center with configurable impairments.
//!
//! Every link has a direction towards the fusion center (up) and one back (down). Each applies a rate limit, a delay with
//! jitter of a given distribution, losses whose retransmissions delay all later bytes, and outages; a link can be cut,
//! which breaks its connections and refuses new ones. Bytes keep their order and none is lost: this is what an
//! application sees of a bad network through TCP. Handshakes are not delayed.
//!
//! All randomness comes from one seed. Memory is bounded: a direction that holds `buffer_kib` reads no more until some
//! has left. The relay measures a plan before applying it ([`measure`]) and refuses one that this machine cannot keep.

pub mod control;
mod end;
pub mod lane;
pub mod measure;
pub mod options;
pub mod plan;
pub mod profile;
pub mod relay;
mod report;
mod run;
mod timer;
mod timeslice;
pub mod wire;

pub use options::{RelayArguments, RelayOptions};
pub use run::{RelayListeners, RelaySummary, main, run};
