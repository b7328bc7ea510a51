//! The pipeline in containers: image built, K = 3 and 8, a network cut, a fusion center killed, nothing left; the same as a stack on
//! a swarm.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use hyloc_tests::containers::{Project, PublishedCenter, Stack, build_image, docker, engine_answers};
use hyloc_tests::pipeline::{count, of_node};
use hyloc_tests::process::{alone, skipped};
use proto::channel::connect;
use proto::v1;
use proto::v1::fusion_client::FusionClient;
use serde_json::Value;

/// A frame rate that eight nodes and a fusion center sustain on two cores.
const RATE: &[(&str, &str)] = &[("RATE", "5"), ("POWER_DBM", "60"), ("DEADLINE_MS", "500")];

/// Whether a Docker engine answers; otherwise reports the test as skipped.
fn engine(test: &str) -> bool {
    let answers = engine_answers();
    if !answers {
        skipped(&format!("compose::{test}"), "no Docker engine answers");
    }
    answers
}

fn connected(summary: &Value) -> usize {
    summary["ledger"].as_array().unwrap().iter().filter(|node| node["connected"] == true).count()
}

fn identities(summary: &Value) -> Vec<String> {
    let ledger = summary["ledger"].as_array().unwrap();
    ledger.iter().map(|node| node["identity"].as_str().unwrap().to_owned()).collect()
}

fn all_nominal(summary: &Value, nodes: usize, fixes: u64) -> bool {
    connected(summary) == nodes && count(summary, "nominal") >= fixes
}

/// Stops the simulator, waits for blocks in flight, and checks that all are accounted for.
fn balanced(project: &Project) -> Value {
    project.compose(&["stop", "--timeout", "5", "simulator"]);
    let settled =
        |summary: &Value| summary["ledger"].as_array().unwrap().iter().all(|node| node["in_flight"] == 0);
    let (summary, _) = project.center.until("nothing under way", settled);
    assert_eq!(summary["unaccounted"], 0, "{summary}");
    summary
}

/// Watches fixes while `act` runs, and until one satisfies `last`.
fn watch(center: &PublishedCenter, act: impl FnOnce(), last: impl Fn(&v1::Fix) -> bool) -> Vec<v1::Fix> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let channel = connect(&center.grpc(), Some(&center.watcher())).await.unwrap();
        let mut client = FusionClient::new(channel);
        let mut stream = client.watch(v1::WatchRequest {}).await.unwrap().into_inner();
        let mut fixes = vec![stream.message().await.unwrap().unwrap()];
        act();
        let collect = async {
            loop {
                let fix = stream.message().await.unwrap().unwrap();
                let done = last(&fix);
                fixes.push(fix);
                if done {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), collect).await.expect("the fix that was waited for");
        fixes
    })
}

#[test]
fn three_nodes_lose_a_network_and_a_fusion_center() {
    let _alone = alone();
    if !engine("three_nodes_lose_a_network_and_a_fusion_center") {
        return;
    }
    println!("{}", build_image());
    let project = Project::up(3, "demo", RATE);
    let (summary, seconds) = project.center.until("nominal fixes", |summary| all_nominal(summary, 3, 5));
    println!("three nodes: nominal fixes after {seconds:.1} s");
    let before = identities(&summary);
    assert_eq!(project.published(), project.expected_ports(), "the fusion center alone, on loopback");

    // One node loses its connection to the fusion center.
    let container = project.containers("node").remove(0);
    let index = before.iter().position(|identity| container.starts_with(identity.as_str())).unwrap();
    let network = project.network("backhaul");
    let cut = || drop(docker(&["network", "disconnect", &network, &container]));
    let without = |fix: &v1::Fix| !fix.nodes.contains(&(index as u32));
    let fixes = watch(&project.center, cut, without);
    let degraded = fixes.last().unwrap();
    let missed = degraded.frame - fixes[fixes.len() - 2].frame - 1;
    println!("cut: {missed} frames without a fix, then a {} one", degraded.status);
    assert!(missed <= 2, "{missed} frames without a fix");
    assert_ne!(degraded.status, "nominal");

    // It reconnects with its own index.
    docker(&["network", "connect", &network, &container]);
    let rejoined = watch(&project.center, || (), |fix| fix.nodes.len() == 3);
    println!("restored: nominal again {} frames later", rejoined.len());
    let (summary, _) = project.center.until("all connected", |summary| connected(summary) == 3);
    assert_eq!(identities(&summary), before);

    // A node that is restarted keeps its index.
    docker(&["restart", "-t", "5", &container]);
    let (summary, _) = project.center.until("the node is back", |summary| connected(summary) == 3);
    assert_eq!(identities(&summary), before);

    // The fusion center is killed; after its restart all nodes have their previous indices.
    let fusion = project.containers("fusion-center").remove(0);
    docker(&["kill", &fusion]);
    docker(&["start", &fusion]);
    let (summary, seconds) = project.center.until("nominal fixes", |summary| all_nominal(summary, 3, 5));
    println!("killed fusion center: nominal fixes {seconds:.1} s after its start");
    assert_eq!(identities(&summary), before);

    balanced(&project);
    assert!(project.take_down().is_empty(), "nothing is left");
}

#[test]
fn eight_nodes_over_an_impaired_backhaul() {
    let _alone = alone();
    if !engine("eight_nodes_over_an_impaired_backhaul") {
        return;
    }
    println!("{}", build_image());
    let mut settings = RATE.to_vec();
    settings.push(("BACKHAUL_PROFILE", "microwave"));
    let project = Project::up(8, "impaired", &settings);
    let (summary, seconds) = project.center.until("nominal fixes", |summary| all_nominal(summary, 8, 5));
    println!(
        "eight nodes: nominal fixes after {seconds:.1} s, wire {}",
        summary["latency_ms"]["wire"]["p50"]
    );
    assert_eq!(project.published(), project.expected_ports(), "the fusion center alone, on loopback");
    // All traffic passes the emulator: no latency is below its delay.
    assert!(summary["latency_ms"]["wire"]["p50"].as_f64().unwrap() >= 2.0, "{summary}");

    // A link is cut in the emulator, by the node's name, and restored.
    let victim = summary["ledger"][3]["identity"].as_str().unwrap().to_owned();
    let control = |action: &str| {
        project.compose(&["exec", "-T", "emulator", "/usr/bin/hyloc", "backhaul", action, &victim])
    };
    let fixes = watch(&project.center, || drop(control("cut")), |fix| !fix.nodes.contains(&3));
    let degraded = fixes.last().unwrap();
    let missed = degraded.frame - fixes[fixes.len() - 2].frame - 1;
    println!("cut: {missed} frames without a fix, then a {} one", degraded.status);
    assert!(missed <= 2, "{missed} frames without a fix");
    assert_ne!(degraded.status, "nominal");
    control("restore");
    watch(&project.center, || (), |fix| fix.nodes.len() == 8);

    let summary = balanced(&project);
    assert!(of_node(&summary, 3, "fused") > 0, "{summary}");
    assert!(project.take_down().is_empty(), "nothing is left");
}

/// A swarm replaces what dies: a node gets its index back, a fusion center all of its nodes.
#[test]
fn a_stack_replaces_tasks_that_are_killed() {
    let _alone = alone();
    if !engine("a_stack_replaces_tasks_that_are_killed") {
        return;
    }
    println!("{}", build_image());
    let Some(stack) = Stack::deploy(3, RATE) else {
        skipped("compose::a_stack_replaces_tasks_that_are_killed", "the Docker engine belongs to a swarm");
        return;
    };
    let (summary, seconds) = stack.center.until("nominal fixes", |summary| all_nominal(summary, 3, 5));
    println!("stack: nominal fixes after {seconds:.1} s");
    let before = identities(&summary);
    stack.kill_and_wait("node");
    let (summary, seconds) = stack.center.until("all nodes", |summary| connected(summary) == 3);
    println!("killed node: connected {seconds:.1} s after its replacement was started");
    assert_eq!(identities(&summary), before);
    stack.kill_and_wait("fusion-center");
    let (summary, seconds) = stack.center.until("nominal fixes", |summary| all_nominal(summary, 3, 5));
    println!("killed fusion center: nominal fixes {seconds:.1} s after its replacement was started");
    assert_eq!(summary["unaccounted"], 0, "{summary}");
    stack.remove();
}
