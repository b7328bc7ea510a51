//! The fusion center: assembles the blocks of all nodes, solves, locates, publishes fixes.
//!
//! ```text
//! service -> engine -> assembler -> pool (solve) -> engine -> publish -> watchers, journal (log, statistics)
//!               |                                      ^
//!             node_table: registry, ledger               truth (display only)
//! ```

pub mod assembler;
pub mod basis;
pub mod dashboard;
pub mod engine;
pub mod fix;
pub mod journal;
pub mod ledger;
pub mod load;
mod low_priority;
pub mod method;
pub mod node_table;
pub mod options;
pub mod pool;
pub mod progress;
pub mod publish;
pub mod recording;
pub mod registry;
pub mod replay;
pub mod reply;
mod run;
pub mod service;
pub mod solve;
pub mod statistics;
pub mod truth;
mod wire;

pub use options::FusionOptions;
pub use run::{FusionSummary, Listeners, RunError, main, run};
