//! The fusion center as a process of its own; `hyloc fusion` is the same.

use std::process::ExitCode;

use clap::Parser;
use telemetry::exit::parse_arguments;

/// Assembles the blocks of all nodes, solves the joint angles, locates, publishes fixes.
#[derive(Debug, Parser)]
#[command(name = "fusion-center", version)]
struct Arguments {
    #[command(flatten)]
    flags: fusion_center::config::Flags,
}

fn main() -> ExitCode {
    match parse_arguments::<Arguments>() {
        Ok(arguments) => fusion_center::main(&arguments.flags),
        Err(code) => code,
    }
}
