//! What all processes of the pipeline share: logs, metrics, health, the stop signal, and the output for the parent
//! process.
//!
//! A process starts in this order: [`process::prepare`] resolves and checks the settings (bad settings end with
//! [`exit::USAGE`] before any port is bound) and calls [`logs::init`]; in [`process::run`], the process
//! binds its ports, calls [`Started::announce`], works until [`shutdown_signal`], drains and exits with 0.

mod access;
mod certificate;
pub mod client;
mod degradation;
mod endpoints;
pub mod exit;
mod failures;
pub mod guard;
pub mod health;
pub mod http;
pub mod listener;
pub mod log_limit;
pub mod logs;
pub mod metrics;
mod output;
pub mod process;
mod shutdown;
mod tls_connector;

pub use access::needing;
pub use certificate::follow_certificate;
pub use degradation::{Degradations, Loss, Part};
pub use endpoints::{Endpoints, Serving};
pub use failures::{Failures, Notice};
pub use guard::HostNames;
pub use health::Health;
pub use listener::Listener;
pub use metrics::{Counter, Gauge, Histogram, Metrics, Sum};
pub use output::{Started, note, output_failure, print_error, print_json, print_text, reserve_stdout};
pub use shutdown::{PARENT_VARIABLE, shutdown_signal};
