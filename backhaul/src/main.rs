//! The relay as a process of its own; `hyloc backhaul` is the same.

use std::process::ExitCode;

use clap::Command;
use telemetry::exit::program;

fn main() -> ExitCode {
    let about = "A TCP relay between nodes and fusion center with configurable impairments";
    let command = Command::new("backhaul").version(env!("CARGO_PKG_VERSION")).about(about);
    program(command, |arguments| hyloc_backhaul::main(&arguments))
}
