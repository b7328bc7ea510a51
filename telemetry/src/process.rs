//! Start and end of a process.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::exit::{self, Failure};
use crate::{log_limit, logs, print_json, print_text, shutdown_signal};

/// Longest time to wait for busy threads at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Prints the settings if `printed`, else loads what they name and sets up logs. An error is the exit code of a process
/// that only printed its settings or cannot use them.
pub fn prepare<T, E: Into<anyhow::Error>>(
    role: &str,
    printed: Option<&str>,
    load: impl FnOnce() -> Result<T, E>,
) -> Result<T, ExitCode> {
    if let Some(text) = printed {
        print_text(text);
        return Err(ExitCode::from(exit::CLEAN));
    }
    let loaded = load().map_err(|error| exit::fail(role, &error.into()))?;
    logs::init().map_err(|error| exit::fail(role, &Failure::new(exit::USAGE, error).into()))?;
    Ok(loaded)
}

/// How many threads a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// For sockets and timers.
    pub sockets: usize,
    /// At most, for what blocks: computations, files, names of hosts. Without a limit their number grows whenever the machine
    /// stalls, and every thread keeps memory of its own.
    pub blocking: usize,
}

/// Runs `work` with the token of the stop signal on these threads; prints its summary, or the reason of its failure.
pub fn run<S: Serialize, F: Future<Output = anyhow::Result<S>>>(
    role: &str,
    threads: Threads,
    work: impl FnOnce(CancellationToken) -> F,
) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.sockets)
        .max_blocking_threads(threads.blocking)
        .enable_all()
        .build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let outcome = runtime.block_on(async {
            let reports = tokio::spawn(log_limit::report_periodically());
            let outcome = work(shutdown_signal()?).await;
            reports.abort();
            outcome
        });
        log_limit::report_suppressed();
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        outcome
    });
    match outcome {
        Ok(summary) => {
            print_json(&summary);
            ExitCode::from(exit::CLEAN)
        }
        Err(error) => exit::fail(role, &error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use settings::SettingsError;

    use super::*;

    const THREADS: Threads = Threads { sockets: 1, blocking: 3 };

    /// Forty computations that are asked for at once are made by three threads, one after the other.
    #[test]
    fn no_more_threads_than_were_allowed() {
        let ended = run("test", THREADS, |_| async {
            let compute = || {
                std::thread::sleep(Duration::from_millis(2));
                std::thread::current().id()
            };
            let asked: Vec<_> = (0..40).map(|_| tokio::task::spawn_blocking(compute)).collect();
            let mut used = HashSet::new();
            for computed in asked {
                used.insert(computed.await?);
            }
            assert!(used.len() <= THREADS.blocking, "{} threads", used.len());
            Ok(used.len())
        });
        assert_eq!(ended, ExitCode::from(exit::CLEAN));
    }

    #[test]
    fn settings_are_shown_or_checked() {
        let good = || Ok::<_, SettingsError>(4);
        assert_eq!(prepare("test", None, good), Ok(4));
        assert_eq!(prepare("test", Some("rate = 4"), good), Err(ExitCode::from(exit::CLEAN)));
        let refused = Err(ExitCode::from(exit::USAGE));
        assert_eq!(prepare("test", None, || Err::<(), _>(SettingsError::Options("rate".into()))), refused);
    }

    #[test]
    fn the_code_says_how_it_ended() {
        let ended = |outcome: anyhow::Result<u8>| run("test", THREADS, |_| async { outcome });
        assert_eq!(ended(Ok(0)), ExitCode::from(exit::CLEAN));
        assert_eq!(ended(Err(Failure::new(exit::DATA, "taken").into())), ExitCode::from(exit::DATA));
        assert_eq!(ended(Err(std::io::Error::other("gone").into())), ExitCode::from(exit::IO));
    }
}
