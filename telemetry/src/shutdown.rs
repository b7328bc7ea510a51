//! SIGTERM and SIGINT as a token that every task can wait for.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Set by a parent that keeps a pipe to the standard input of its children: the pipe closes when the parent ends for
/// any reason, and the child then stops as after a signal.
pub const PARENT_VARIABLE: &str = "HYLOC_STOP_WITH_PARENT";

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
    if std::env::var_os(PARENT_VARIABLE).is_some() {
        let stop = token.clone();
        // A thread, because a blocked read of standard input must not delay the end of the runtime.
        std::thread::Builder::new().name("parent".into()).spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            stop.cancel();
            tracing::warn!("the parent is gone: draining");
        })?;
    }
    Ok(token)
}
