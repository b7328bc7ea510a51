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

/// Settings, checked, with logs set up; or the code with which the process ends, because it was only to show
/// them or because they cannot be used.
pub fn prepare<R: Serialize, C, E: Display, F: Display>(
    role: &str,
    only_show: bool,
    loaded: Result<R, E>,
    check: impl FnOnce(R) -> Result<C, F>,
) -> Result<C, ExitCode> {
    let refuse = |reason: &dyn Display| {
        complain(role, reason);
        ExitCode::from(exit::BAD_CONFIGURATION)
    };
    let raw = loaded.map_err(|error| refuse(&error))?;
    if only_show {
        let text = toml::to_string(&raw).map_err(|error| refuse(&error))?;
        print_text(text.trim_end());
        return Err(ExitCode::from(exit::CLEAN));
    }
    let config = check(raw).map_err(|error| refuse(&error))?;
    logs::init().map_err(|error| refuse(&error))?;
    Ok(config)
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
        let good =
            || Ok::<_, String>([("rate", 4)].into_iter().collect::<std::collections::BTreeMap<_, _>>());
        let check = |raw: std::collections::BTreeMap<_, i32>| raw.get("rate").copied().ok_or("no rate");
        assert_eq!(prepare("test", false, good(), check), Ok(4));
        assert_eq!(prepare("test", true, good(), check), Err(ExitCode::from(exit::CLEAN)));
        let refused = Err(ExitCode::from(exit::BAD_CONFIGURATION));
        assert_eq!(prepare("test", false, good().map(|_| Default::default()), check), refused);
        assert_eq!(prepare("test", false, Err("unreadable"), check), refused);
    }

    #[test]
    fn the_code_says_how_it_ended() {
        let ended = |outcome: Result<u8, Ended>| run("test", 1, |_| async { outcome });
        assert_eq!(ended(Ok(0)), ExitCode::from(exit::CLEAN));
        assert_eq!(ended(Err(Ended::refused("taken"))), ExitCode::from(exit::REFUSED));
        assert_eq!(ended(Err(std::io::Error::other("gone").into())), ExitCode::from(exit::FAILED));
    }
}
