//! How a process begins and ends.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{complain, exit, logs, print_json, print_text, shutdown_signal};

/// How long threads that are busy may hold up the end.
const FAREWELL: Duration = Duration::from_millis(500);

/// Why a process ends early. Any error is a failure; [`Ended::refused`] says that it is not worth trying again.
#[derive(Debug)]
pub struct Ended {
    code: u8,
    reason: String,
}

impl Ended {
    /// A peer does not want this process.
    pub fn refused(reason: impl Display) -> Self {
        Self { code: exit::REFUSED, reason: reason.to_string() }
    }
}

impl<E: std::error::Error> From<E> for Ended {
    fn from(error: E) -> Self {
        Self { code: exit::FAILED, reason: error.to_string() }
    }
}

/// What the options name, loaded, with logs set up; or the code with which the process ends, because it was only to
/// print its options or because they cannot be used.
pub fn prepare<T, E: Display>(
    role: &str,
    printed: Option<&str>,
    load: impl FnOnce() -> Result<T, E>,
) -> Result<T, ExitCode> {
    let refuse = |reason: &dyn Display| {
        complain(role, reason);
        ExitCode::from(exit::BAD_CONFIGURATION)
    };
    if let Some(text) = printed {
        print_text(text);
        return Err(ExitCode::from(exit::CLEAN));
    }
    let loaded = load().map_err(|error| refuse(&error))?;
    logs::init().map_err(|error| refuse(&error))?;
    Ok(loaded)
}

/// Runs `work`, which is given the token of the stop signal, on so many threads; prints its summary, or says
/// why there is none.
pub fn run<S: Serialize, F: Future<Output = Result<S, Ended>>>(
    role: &str,
    threads: usize,
    work: impl FnOnce(CancellationToken) -> F,
) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let ended = runtime.map_err(Ended::from).and_then(|runtime| {
        let ended = runtime.block_on(async { work(shutdown_signal()?).await });
        runtime.shutdown_timeout(FAREWELL);
        ended
    });
    match ended {
        Ok(summary) => {
            print_json(&summary);
            ExitCode::from(exit::CLEAN)
        }
        Err(Ended { code, reason }) => {
            complain(role, &reason);
            ExitCode::from(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shown_or_checked() {
        let good = || Ok::<_, String>(4);
        assert_eq!(prepare("test", None, good), Ok(4));
        assert_eq!(prepare("test", Some("rate = 4"), good), Err(ExitCode::from(exit::CLEAN)));
        let refused = Err(ExitCode::from(exit::BAD_CONFIGURATION));
        assert_eq!(prepare("test", None, || Err::<(), _>("unreadable")), refused);
    }

    #[test]
    fn the_code_says_how_it_ended() {
        let ended = |outcome: Result<u8, Ended>| run("test", 1, |_| async { outcome });
        assert_eq!(ended(Ok(0)), ExitCode::from(exit::CLEAN));
        assert_eq!(ended(Err(Ended::refused("taken"))), ExitCode::from(exit::REFUSED));
        assert_eq!(ended(Err(std::io::Error::other("gone").into())), ExitCode::from(exit::FAILED));
    }
}
