//! Simulator, three nodes and fusion center in one process, connected over loopback sockets as in a deployment.
//!
//! `cargo run --example 04_pipeline_in_process`
#![allow(clippy::print_stdout)]

use fusion_center::fix::FixRecord;
use fusion_center::{FusionListeners, FusionOptions};
use irs_node::NodeOptions;
use settings::options::from_flags;
use simulator::{SimulatorListeners, SimulatorOptions};
use telemetry::Endpoints;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (stop_nodes, stop) = (CancellationToken::new(), CancellationToken::new());
    let log = tempfile::NamedTempFile::new()?;

    let flags = ["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--deadline-ms=60000"];
    let mut options: FusionOptions = from_flags(&flags)?;
    options.fixes = Some(log.path().to_owned());
    let (site, listeners) = (options.load()?, FusionListeners::bind(&options).await?);
    let fusion_address = listeners.grpc.local_addr()?.to_string();
    let fusion = tokio::spawn(fusion_center::run(options, site, listeners, stop.clone()));

    let options: SimulatorOptions = from_flags(&["--frames=5", "--echo-listen=127.0.0.1:0"])?;
    let (scenario, listeners) = (options.load()?, SimulatorListeners::bind(&options).await?);
    let echo_address = listeners.echo.as_ref().expect("a ZeroMQ port").local_addr()?.to_string();
    let mut nodes = Vec::new();
    for index in 0..scenario.irs.len() {
        let mut node: NodeOptions = from_flags(&[&format!("--identity=node-{index}")])?;
        (node.fusion, node.simulator) = (fusion_address.clone(), echo_address.clone());
        let endpoints = Endpoints::bind(None, None).await?;
        nodes.push(tokio::spawn(irs_node::run(node, endpoints, stop_nodes.clone())));
    }
    simulator::run(&options, scenario, listeners, stop.clone()).await?;

    stop_nodes.cancel();
    for node in nodes {
        node.await??;
    }
    stop.cancel();
    let summary = fusion.await??;
    for line in std::fs::read_to_string(log.path())?.lines() {
        let fix: FixRecord = serde_json::from_str(line)?;
        let at_m = fix.position_m.as_deref().unwrap_or_default();
        println!("frame {}: {at_m:.2?} m, {}", fix.frame, fix.status);
    }
    println!("{} fixes, {} paths unaccounted for", summary.figures.fixes, summary.unaccounted);
    Ok(())
}

// Output:
// frame 0: [7.17, 3.71] m, nominal
// frame 1: [7.76, 1.18] m, nominal
// frame 2: [3.95, 3.78] m, nominal
// frame 3: [5.48, 7.81] m, nominal
// frame 4: [0.58, 5.71] m, nominal
// 5 fixes, 0 paths unaccounted for
