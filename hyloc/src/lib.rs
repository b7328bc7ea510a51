//! The `hyloc` command as a library: every subcommand is a function over plain data.

pub mod cli;
mod commands;
pub mod demo;
pub mod export;
pub mod figures;
pub mod kpi;
pub mod latency;
mod scene;
pub mod score;
pub mod solve;
#[cfg(test)]
mod sources;
mod summary;
pub mod sweep;
mod verdict;

pub use commands::scenario::{ScenarioSummary, summarise_scenario};
pub use verdict::DetectionConditions;
