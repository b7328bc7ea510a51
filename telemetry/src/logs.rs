//! Structured logs on standard error.
//!
//! `HYLOC_LOG` filters (`info` by default, as in `HYLOC_LOG=info,hyloc_irs_node=debug`), `HYLOC_LOG_FORMAT` is
//! `text` or `json`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Why logs cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("HYLOC_LOG = {value}: {reason}")]
    Filter { value: String, reason: String },
    #[error("HYLOC_LOG_FORMAT = {0}: must be text or json")]
    Format(String),
}

/// Sets up logs from the environment. A subscriber that is already installed stays.
pub fn init() -> Result<(), LogError> {
    let filter = filter(std::env::var("HYLOC_LOG").ok())?;
    // A closed standard error must not make the process fail, least of all during shutdown.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let _ = if is_json(std::env::var("HYLOC_LOG_FORMAT").ok())? {
        builder.json().flatten_event(true).try_init()
    } else {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        builder.with_ansi(std::io::stderr().is_terminal() && !plain).try_init()
    };
    Ok(())
}

fn filter(value: Option<String>) -> Result<EnvFilter, LogError> {
    let value = value.filter(|text| !text.is_empty()).unwrap_or_else(|| "info".into());
    EnvFilter::try_new(&value).map_err(|error| LogError::Filter { value, reason: error.to_string() })
}

fn is_json(format: Option<String>) -> Result<bool, LogError> {
    match format.as_deref() {
        None | Some("" | "text") => Ok(false),
        Some("json") => Ok(true),
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
        assert!(!is_json(None).unwrap() && is_json(Some("json".into())).unwrap());
        assert!(is_json(Some("xml".into())).is_err());
    }
}
