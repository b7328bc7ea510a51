//! `irs-node`: the node at one IRS.

use std::process::ExitCode;

use clap::Parser;
use settings::Layered;
use telemetry::exit::parse_arguments;

/// The node at one IRS: takes echo frames from the simulator, finds the delay and the block of every path
/// and reports them to the fusion center.
#[derive(Debug, Parser)]
#[command(name = "irs-node", version)]
struct Command {
    #[command(flatten)]
    layered: Layered<hyloc_irs_node::NodeOptions>,
}

fn main() -> ExitCode {
    match parse_arguments::<Command>() {
        Ok(arguments) => hyloc_irs_node::main(&arguments.layered),
        Err(code) => code,
    }
}
