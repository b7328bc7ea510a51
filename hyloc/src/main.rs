//! `hyloc`: locate a target with several intelligent reflecting surfaces at once.

use std::process::ExitCode;

use hyloc::cli::{HylocArguments, run};
use telemetry::exit::parse_arguments;

fn main() -> ExitCode {
    match parse_arguments::<HylocArguments>() {
        Ok(arguments) => run(arguments),
        Err(code) => code,
    }
}
