//! `hyloc`: locate a target with several intelligent reflecting surfaces at once.

use std::process::ExitCode;

use clap::Command;
use hyloc::cli::{HylocArguments, run};
use telemetry::exit::program;

fn main() -> ExitCode {
    program::<HylocArguments>(Command::new("hyloc"), run)
}
