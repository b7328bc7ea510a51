//! The fusion center: assembles the blocks of all nodes, solves, locates, publishes fixes.
//!
//! ```text
//! service -> engine -> assembler -> pool (solve) -> engine -> publish -> watchers, journal (log, statistics)
//!               |                                      ^
//!             office: registry, ledger               truth (display only)
//! ```

mod apart;
pub mod assembler;
pub mod basis;
pub mod dashboard;
pub mod engine;
pub mod fix;
pub mod journal;
pub mod ledger;
pub mod load;
pub mod method;
pub mod office;
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

pub use options::Options;
pub use run::{Listeners, RunError, Summary, main, run};
