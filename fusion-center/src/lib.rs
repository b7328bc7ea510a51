//! The fusion center: assembles the paths that all nodes report, estimates positions from them, publishes fixes.
//!
//! ```text
//! service -> engine -> assembler -> pool (solve) -> engine -> publish -> watchers, journal (log, statistics)
//!               |                                                ^
//!          node_table: registry, ledger                        truth (display only)
//! ```

pub mod assembler;
mod axis_errors;
mod basis;
mod channels;
pub mod container;
mod dashboard;
mod engine;
pub mod fix;
pub mod fix_log;
mod fix_metrics;
mod frame_time;
pub mod history;
pub mod intake;
mod journal;
mod judge;
pub mod ledger;
mod likelihood;
pub mod load;
mod low_priority;
pub mod method;
mod node_table;
mod options;
pub mod place;
mod pool;
pub mod progress;
mod publish;
pub mod queue;
mod readiness;
pub mod recorded;
mod recording;
pub mod registry;
pub mod replay;
mod reply;
mod run;
pub mod runs;
mod scene;
pub mod score;
mod segment;
mod service;
pub mod solve;
pub mod statistics;
pub mod target_statistics;
pub mod targets;
pub mod thinning;
mod told;
mod tracks;
mod truth;
mod viewers;
mod wire;

pub use fix_log::is_stdout;
pub use options::FusionOptions;
pub use run::{FusionListeners, FusionSummary, main, run, run_with};
