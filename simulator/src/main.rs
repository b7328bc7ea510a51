//! The simulator as a process of its own; `hyloc simulate` is the same.

use std::process::ExitCode;

use clap::Parser;
use settings::Layered;
use telemetry::exit::parse_arguments;

/// Generates the echo frames of a scenario, open loop at a set rate, and sends them to the nodes; sends the truth
/// to the fusion center, for display only.
#[derive(Debug, Parser)]
#[command(name = "simulator", version)]
struct SimulatorCommand {
    #[command(flatten)]
    layered: Layered<hyloc_simulator::SimulatorOptions>,
}

fn main() -> ExitCode {
    match parse_arguments::<SimulatorCommand>() {
        Ok(arguments) => hyloc_simulator::main(&arguments.layered),
        Err(code) => code,
    }
}
