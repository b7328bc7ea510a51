//! The node at one IRS as a process of its own; `hyloc node` is the same.

use std::process::ExitCode;

use clap::Parser;
use settings::Layered;
use telemetry::exit::parse_arguments;

/// The node at one IRS: takes echo frames from the simulator, estimates the delay and the block of every path
/// and reports them to the fusion center.
#[derive(Debug, Parser)]
#[command(name = "irs-node", version)]
struct NodeCommand {
    #[command(flatten)]
    layered: Layered<hyloc_irs_node::NodeOptions>,
}

fn main() -> ExitCode {
    match parse_arguments::<NodeCommand>() {
        Ok(arguments) => hyloc_irs_node::main(&arguments.layered),
        Err(code) => code,
    }
}
