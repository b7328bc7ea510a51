//! Standard output is for programs: one JSON object per line. Standard error is for users and logs.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The line that a process prints when its ports are bound, so that a parent can start it on port 0:
/// `{"role":"fusion-center","grpc":"127.0.0.1:1234","http":"127.0.0.1:5678"}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Started {
    /// `simulator`, `irs-node`, `fusion-center` or `backhaul`.
    pub role: String,
    /// Address of the gRPC service with its health, or of gRPC health only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<SocketAddr>,
    /// Address of `/metrics` and `/health`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<SocketAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<SocketAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<SocketAddr>,
    /// Listening addresses of the links of the backhaul emulator, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, SocketAddr>,
}

impl Started {
    pub fn new(role: &str) -> Self {
        Self { role: role.into(), ..Self::default() }
    }

    pub fn announce(&self) {
        print_json(self);
    }

    /// Parses the line of a child; none if it is another line.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.trim()).ok()
    }
}

/// Whether standard output is reserved.
static RESERVED: AtomicBool = AtomicBool::new(false);

/// The first error of writing standard output.
static FAILURE: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Reserves standard output for fixes: what the functions below print goes to standard error from now on.
pub fn reserve_stdout() {
    RESERVED.store(true, Ordering::Relaxed);
}

/// Prints one JSON line on standard output.
pub fn print_json<T: Serialize>(value: &T) {
    match serde_json::to_string(value) {
        Ok(line) => print_text(&line),
        Err(error) => tracing::error!(%error, "a line for standard output cannot be encoded as JSON"),
    }
}

/// Prints text on standard output. A reader that has left is not an error; any other is kept for [`output_failure`].
pub fn print_text(text: &str) {
    if RESERVED.load(Ordering::Relaxed) {
        return note(text);
    }
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        FAILURE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Why standard output could not be written, as on a full disk; the first reason, once.
pub fn output_failure() -> Option<anyhow::Error> {
    let error = FAILURE.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    Some(anyhow::Error::from(error).context("cannot write standard output"))
}

/// Prints text for users on standard error.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints on standard error why a process cannot start or continue.
pub fn print_error(role: &str, reason: &dyn std::fmt::Display) {
    note(&format!("{role}: {reason}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_reads_what_a_child_prints() {
        let started = Started {
            grpc: Some("127.0.0.1:1234".parse().unwrap()),
            http: Some("127.0.0.1:5678".parse().unwrap()),
            ..Started::new("fusion-center")
        };
        let line = serde_json::to_string(&started).unwrap();
        assert_eq!(line, r#"{"role":"fusion-center","grpc":"127.0.0.1:1234","http":"127.0.0.1:5678"}"#);
        assert_eq!(Started::parse(&line), Some(started));
        assert_eq!(Started::parse("{\"sent\":3}"), None);
    }
}
