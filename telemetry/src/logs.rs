//! Structured logs on standard error.
//!
//! `HYLOC_LOG` filters (`info` by default, as in `HYLOC_LOG=info,hyloc_irs_node=debug`), `HYLOC_LOG_FORMAT` is
//! `text` or `json`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Why logs cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be read.
    #[error("HYLOC_LOG = {value}: {reason}")]
    Filter {
        /// What was asked for.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such format.
    #[error("HYLOC_LOG_FORMAT = {0}: must be text or json")]
    Format(String),
}

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

/// Sets up logs from the environment. A process that has a subscriber already keeps it.
pub fn init() -> Result<(), LogError> {
    let filter = filter(std::env::var("HYLOC_LOG").ok())?;
    // Whoever read standard error may be gone: that is no reason to fail, least of all on the way out.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let _ = match format(std::env::var("HYLOC_LOG_FORMAT").ok())? {
        Format::Text => builder.with_ansi(colours()).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// On a terminal, unless `NO_COLOR` is set.
fn colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn filter(value: Option<String>) -> Result<EnvFilter, LogError> {
    let value = value.filter(|text| !text.is_empty()).unwrap_or_else(|| "info".into());
    EnvFilter::try_new(&value).map_err(|error| LogError::Filter { value, reason: error.to_string() })
}

fn format(value: Option<String>) -> Result<Format, LogError> {
    match value.as_deref() {
        None | Some("" | "text") => Ok(Format::Text),
        Some("json") => Ok(Format::Json),
        Some(other) => Err(LogError::Format(other.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_refused() {
        assert!(filter(None).is_ok());
        assert!(filter(Some("info,hyloc_irs_node=debug".into())).is_ok());
        assert!(filter(Some("irs_node=loud".into())).is_err());
        assert_eq!(format(None).unwrap(), Format::Text);
        assert_eq!(format(Some("json".into())).unwrap(), Format::Json);
        assert!(format(Some("xml".into())).is_err());
    }
}
