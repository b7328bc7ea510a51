//! Standard output is for programs: one JSON object per line. Standard error is for people and logs.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The line that a process prints once its ports are bound, so that a parent can start it on port 0:
/// `{"role":"fusion-center","grpc":"127.0.0.1:1234","http":"127.0.0.1:5678"}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Started {
    /// `simulator`, `irs-node`, `fusion-center` or `backhaul`.
    pub role: String,
    /// Where gRPC is served: the service and its health, or health alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<SocketAddr>,
    /// Where `/metrics` and `/health` are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<SocketAddr>,
    /// Where echo frames are handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<SocketAddr>,
    /// Where the process can be controlled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<SocketAddr>,
    /// Where single links begin, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, SocketAddr>,
}

impl Started {
    /// A process that serves nothing yet.
    pub fn new(role: &str) -> Self {
        Self { role: role.into(), ..Self::default() }
    }

    /// Prints the line.
    pub fn announce(&self) {
        print_json(self);
    }

    /// Reads the line of a child; none if it is something else.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.trim()).ok()
    }
}

/// Prints one JSON line on standard output. A reader that has gone away is no reason to fail.
pub fn print_json<T: Serialize>(value: &T) {
    match serde_json::to_string(value) {
        Ok(line) => {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
        Err(error) => tracing::error!(%error, "a line for standard output cannot be written as JSON"),
    }
}

/// Prints text on standard output, for people who asked for it.
pub fn print_text(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Says on standard error why a process cannot start or go on.
pub fn complain(role: &str, reason: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "{role}: {reason}");
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
