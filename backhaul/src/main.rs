//! `backhaul`: the relay as a program of its own; `hyloc backhaul` is the same.

use std::process::ExitCode;

use backhaul::Flags;
use clap::Parser;

/// A TCP relay between nodes and fusion center that can be made bad on purpose.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    backhaul::main(&Arguments::parse().flags)
}
