//! SIGTERM and SIGINT as a token that every task can wait for.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by the first SIGTERM or SIGINT. A second one ends the process at once.
///
/// Needs a Tokio runtime.
pub fn shutdown_signal() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = token.clone();
    tokio::spawn(async move {
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if stop.is_cancelled() {
                tracing::warn!(signal = name, "asked to stop again: not waiting any longer");
                std::process::exit(i32::from(crate::exit::FAILED));
            }
            tracing::info!(signal = name, "asked to stop: draining");
            stop.cancel();
        }
    });
    Ok(token)
}
