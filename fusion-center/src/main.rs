//! The fusion center as a process of its own; `hyloc fusion` is the same.

use std::process::ExitCode;

use clap::Parser;
use settings::Layered;
use telemetry::exit::parse_arguments;

/// Assembles the reports of all nodes, estimates the target's position and publishes fixes.
#[derive(Debug, Parser)]
#[command(name = "fusion-center", version)]
struct FusionCommand {
    #[command(flatten)]
    layered: Layered<hyloc_fusion_center::FusionOptions>,
}

fn main() -> ExitCode {
    match parse_arguments::<FusionCommand>() {
        Ok(arguments) => hyloc_fusion_center::main(&arguments.layered),
        Err(code) => code,
    }
}
