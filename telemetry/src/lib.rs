//! What every process of the pipeline shares: logs, metrics, health, the stop signal, and how a process
//! speaks to the one that started it.
//!
//! A process starts in this order: settings resolved and checked (a bad one ends with
//! [`exit::BAD_CONFIGURATION`] before any port is bound) and [`logs::init`], both by [`process::prepare`]; then, by
//! [`process::run`], ports bound, [`Started::announce`] on standard output, work until [`shutdown_signal`], drain,
//! exit 0.

pub mod client;
mod endpoints;
pub mod exit;
mod failures;
pub mod health;
pub mod http;
pub mod logs;
pub mod metrics;
mod output;
pub mod process;
mod shutdown;

pub use endpoints::{Endpoints, Serving};
pub use failures::{Failures, Notice};
pub use health::Health;
pub use metrics::{Counter, Gauge, Histogram, Metrics};
pub use output::{Started, complain, print_json, print_text};
pub use shutdown::{PARENT_VARIABLE, shutdown_signal};
