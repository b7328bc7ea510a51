//! The `hyloc` command as a library: every subcommand is a function over plain data.

pub mod cli;
mod commands;
pub mod demo;
pub mod figures;
pub mod kpi;
pub mod latency;
mod scene;
pub mod solve;
#[cfg(test)]
mod sources;
pub mod sweep;
mod verdict;
