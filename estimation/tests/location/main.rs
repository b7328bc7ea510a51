//! The locator against outside truth, the paper's claims and the laws of statistics.
//!
//! Figures are printed: run with `--nocapture` to see them.
#![allow(clippy::print_stdout)]

mod accuracy;
mod integrity;
mod missing;
mod oracle;
mod protection;
mod scene;
