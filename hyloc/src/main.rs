//! `hyloc`: locate a target with several intelligent reflecting surfaces at once.

use std::process::ExitCode;

use hyloc::cli::{Arguments, run};
use telemetry::exit::parse_arguments;

fn main() -> ExitCode {
    match parse_arguments::<Arguments>() {
        Ok(arguments) => run(arguments),
        Err(code) => code,
    }
}
