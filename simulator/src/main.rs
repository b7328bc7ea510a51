//! `simulator`: the echo frames of a scenario.

use std::process::ExitCode;

use clap::Parser;
use settings::Layered;
use telemetry::exit::parse_arguments;

/// Makes the echo frames of a scenario, open loop at a set rate, and hands them to the nodes; tells the truth
/// to the fusion center, for display only.
#[derive(Debug, Parser)]
#[command(name = "simulator", version)]
struct Command {
    #[command(flatten)]
    layered: Layered<hyloc_simulator::SimulatorOptions>,
}

fn main() -> ExitCode {
    match parse_arguments::<Command>() {
        Ok(arguments) => hyloc_simulator::main(&arguments.layered),
        Err(code) => code,
    }
}
