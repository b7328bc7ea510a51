//! The node at one IRS as a process of its own; `hyloc node` is the same.

use std::process::ExitCode;

use clap::Command;
use settings::Layered;
use telemetry::exit::program;

const ABOUT: &str = "The node at one IRS: takes echo frames from the simulator, estimates the delay and the block of every path and \
    reports them to the fusion center";

fn main() -> ExitCode {
    let command = Command::new("irs-node").version(env!("CARGO_PKG_VERSION")).about(ABOUT);
    program::<Layered<hyloc_irs_node::NodeOptions>>(command, |arguments| hyloc_irs_node::main(&arguments))
}
