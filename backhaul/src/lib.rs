//! The backhaul emulator: a TCP relay between nodes and fusion center that can be made bad on purpose.
//!
//! Every link has a direction towards the fusion center (up) and one back (down). In each, bytes pass a line of
//! limited rate, a delay with jitter of a named law, losses that are sent again and so stall what is behind them,
//! and outages; a link can be cut, which breaks its connections and refuses new ones. Bytes keep their order and
//! none is lost: this is what TCP leaves of a bad network. Handshakes are not delayed.
//!
//! All chance comes from one seed. Memory is bounded: a direction that holds `buffer_kib` takes no more until
//! some has left. The relay measures itself before it is used ([`measure`]) and refuses what it cannot do.

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
pub use run::{Listeners, RelaySummary, RunError, main, run};
