//! `backhaul`: the relay as a separate program; `hyloc backhaul` is the same.

use std::process::ExitCode;

use clap::Parser;
use telemetry::exit::parse_arguments;

/// A TCP relay between nodes and fusion center with configurable impairments.
#[derive(Debug, Parser)]
#[command(name = "backhaul", version)]
struct Program {
    #[command(flatten)]
    arguments: hyloc_backhaul::RelayArguments,
}

fn main() -> ExitCode {
    match parse_arguments::<Program>() {
        Ok(program) => hyloc_backhaul::main(&program.arguments),
        Err(code) => code,
    }
}
