//! The fusion center as a process of its own; `hyloc fusion` is the same.

use std::process::ExitCode;

use clap::Command;
use settings::Layered;
use telemetry::exit::program;

const ABOUT: &str = "Assembles the reports of all nodes, estimates the target's position and publishes fixes";

fn main() -> ExitCode {
    let command = Command::new("fusion-center").version(env!("CARGO_PKG_VERSION")).about(ABOUT);
    program::<Layered<hyloc_fusion_center::FusionOptions>>(command, |arguments| {
        hyloc_fusion_center::main(&arguments)
    })
}
