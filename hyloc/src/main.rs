//! `hyloc`: locate a target with several intelligent reflecting surfaces at once.

use std::process::ExitCode;

use clap::Parser;
use hyloc::cli::{Arguments, run};

fn main() -> ExitCode {
    run(Arguments::parse())
}
