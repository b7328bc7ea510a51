//! Subcommands that print for people.

pub mod figures;
pub mod scenario;

/// The one place where an error reaches standard error: the whole chain as one sentence.
#[allow(clippy::print_stderr)]
pub fn complain(error: &anyhow::Error) {
    eprintln!("hyloc: {error:#}");
}

/// The one place where a result reaches standard output.
#[allow(clippy::print_stdout)]
pub fn say(text: &str) {
    println!("{text}");
}
