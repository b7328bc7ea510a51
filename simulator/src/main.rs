//! The simulator as a process of its own; `hyloc simulate` is the same.

use std::process::ExitCode;

use clap::Command;
use settings::Layered;
use telemetry::exit::program;

const ABOUT: &str = "Generates the echo frames of a scenario, open loop at a set rate, and sends them to the nodes; sends the truth \
    to the fusion center, for display only";

fn main() -> ExitCode {
    let command = Command::new("simulator").version(env!("CARGO_PKG_VERSION")).about(ABOUT);
    program::<Layered<hyloc_simulator::SimulatorOptions>>(command, |arguments| {
        hyloc_simulator::main(&arguments)
    })
}
