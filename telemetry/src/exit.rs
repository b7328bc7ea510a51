//! Exit codes, following `sysexits.h` where it defines one, and the one place where an error becomes one.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::process::{ExitCode, ExitStatus};

use clap::{Args, Command};
use settings::SettingsError;

use crate::print_error;

/// The work is complete, or a signal stopped the process and it drained.
pub const CLEAN: u8 = 0;
/// A health check was not successful, or this machine cannot reproduce a profile of the backhaul.
pub const FAILED: u8 = 1;
/// The command line or a setting is invalid; no port was bound (EX_USAGE).
pub const USAGE: u8 = 64;
/// An input file is invalid, or a peer refused permanently: other protocol, other scenario, index taken (EX_DATAERR).
pub const DATA: u8 = 65;
/// A host name cannot be resolved (EX_NOHOST).
pub const NO_HOST: u8 = 68;
/// There is no result, such as a demo without a fix, or a peer cannot be reached (EX_UNAVAILABLE).
pub const UNAVAILABLE: u8 = 69;
/// An internal error, or a process that the work depends on died (EX_SOFTWARE).
pub const SOFTWARE: u8 = 70;
/// A file cannot be read or written, a directory cannot be made, a port cannot be bound (EX_IOERR).
pub const IO: u8 = 74;

/// An error, or the context of one, that determines the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    code: u8,
    reason: String,
}

impl Failure {
    pub fn new(code: u8, reason: impl Display) -> Self {
        Self { code, reason: reason.to_string() }
    }
}

/// The exit code of an error: that of its [`Failure`], else by the kind of the first I/O error among its causes.
pub fn code(error: &anyhow::Error) -> u8 {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.code;
    }
    if let Some(error) = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()) {
        return code_of_io(error.kind());
    }
    if error.is::<SettingsError>() { USAGE } else { SOFTWARE }
}

fn code_of_io(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof => DATA,
        ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::TimedOut => UNAVAILABLE,
        _ => IO,
    }
}

/// The exit code if the work ends because a child did: that of the child if it gave a reason.
pub fn code_of_child(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.filter(|code| (USAGE..=IO).contains(code)).unwrap_or(SOFTWARE)
}

/// An error with its causes as one sentence. A cause that is quoted already is not repeated.
pub fn sentence(error: &anyhow::Error) -> String {
    let join = |said: String, cause: String| match said.contains(&cause) {
        true => said,
        false => format!("{said}: {cause}"),
    };
    error.chain().map(ToString::to_string).reduce(join).unwrap_or_default()
}

/// Prints why `role` ends; returns the exit code.
pub fn fail(role: &str, error: &anyhow::Error) -> ExitCode {
    print_error(role, &sentence(error));
    ExitCode::from(code(error))
}

/// The `main` function of a program: parses the command line and runs. The exit code is [`USAGE`] for an error on the
/// command line, [`IO`] for a settings file that cannot be read, [`CLEAN`] for help and version.
pub fn program<A: Args>(command: Command, run: impl FnOnce(A) -> ExitCode) -> ExitCode {
    let mut command = A::augment_args(command);
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = matches.and_then(|matches| A::from_arg_matches(&matches));
    parsed.map(run).unwrap_or_else(|error| {
        let error = error.format(&mut command);
        // A reader that has left is not an error.
        let failed = error.print().is_err_and(|error| error.kind() != ErrorKind::BrokenPipe);
        ExitCode::from(match error.kind() {
            _ if failed && !error.use_stderr() => IO,
            clap::error::ErrorKind::Io => IO,
            _ if error.use_stderr() => USAGE,
            _ => CLEAN,
        })
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_kind_of_an_error_is_its_code() {
        let missing = || io::Error::from(ErrorKind::NotFound);
        let file = |source| SettingsError::File { path: "plan.toml".into(), source };
        let invalid = io::Error::new(ErrorKind::InvalidData, "no plan");
        let cases = [
            (Failure::new(USAGE, "--trials 0").into(), USAGE),
            (SettingsError::Options("rate".into()).into(), USAGE),
            (file(invalid).into(), DATA),
            (file(missing()).into(), IO),
            (anyhow::Error::from(missing()).context("the report"), IO),
            (anyhow::Error::from(missing()).context(Failure::new(DATA, "case 3")).context("again"), DATA),
            (io::Error::from(ErrorKind::ConnectionRefused).into(), UNAVAILABLE),
            (anyhow::anyhow!("a bug"), SOFTWARE),
        ];
        for (error, expected) in cases {
            assert_eq!(code(&error), expected, "{error:#}");
        }
    }

    #[test]
    fn a_sentence_says_everything_once() {
        let full = || io::Error::other("disk full");
        let quoted = SettingsError::File { path: "a.toml".into(), source: full() };
        assert_eq!(sentence(&quoted.into()), "cannot read a.toml: disk full");
        let error = Err::<(), _>(full()).context("b.csv").context("cannot write").unwrap_err();
        assert_eq!(sentence(&error), "cannot write: b.csv: disk full");
    }
}
