//! Subcommands that print for people.

pub mod figures;
pub mod replay;
pub mod scenario;

/// The one place where an error reaches standard error: the whole chain as one sentence.
#[allow(clippy::print_stderr)]
pub fn complain(error: &anyhow::Error) {
    eprintln!("hyloc: {error:#}");
}

/// A word to people while a long command runs.
#[allow(clippy::print_stderr)]
pub fn note(text: &str) {
    eprintln!("{text}");
}

/// The one place where a result reaches standard output. A reader that has gone away is no reason to fail.
pub fn say(text: &str) {
    telemetry::print_text(text);
}
