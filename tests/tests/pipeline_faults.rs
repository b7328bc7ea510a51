//! Faults of the pipeline as separate processes: start order, kills, restarts, unknown nodes, hostile clients, overload,
//! shutdown.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;

use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;
use proto::v1;
use proto::v1::fusion_client::FusionClient;
use rustix::process::Signal;
use serde_json::Value;

const ENDLESS: &[&str] = &["--frames", "0", "--rate", "50"];

fn connected(summary: &Value) -> usize {
    summary["ledger"].as_array().unwrap().iter().filter(|node| node["connected"] == true).count()
}

#[test]
fn any_start_order_gives_every_fix() {
    let _alone = alone();
    for order in ["nodes, simulator, fusion", "simulator, fusion, nodes", "fusion, nodes, simulator"] {
        let site = Site::new();
        let (mut fusion, mut simulator, mut nodes) = (None, None, Vec::new());
        for part in order.split(", ") {
            match part {
                // Long deadline, so that a stall of the machine makes no report late.
                "fusion" => fusion = Some(site.fusion(&["--deadline-ms", "30000"])),
                "simulator" => simulator = Some(site.simulator(&["--frames", "40", "--rate", "50"])),
                _ => nodes = site.nodes(3),
            }
        }
        simulator.unwrap().finish();
        let told: Vec<Value> = nodes.into_iter().map(Process::stop).collect();
        let summary = fusion.unwrap().stop();
        assert_eq!(count(&summary, "fixes"), 40, "{order}: {summary}");
        assert_eq!(summary["unaccounted"], 0, "{order}: {summary}");
        for (index, node) in told.iter().enumerate() {
            assert_eq!((count(node, "sent"), count(node, "fused")), (120, 120), "{order}, node {index}");
        }
    }
}

#[test]
fn a_killed_node_costs_at_most_two_frames_and_rejoins() {
    let _alone = alone();
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let fusion = site.fusion(&["--fixes", log.to_str().unwrap()]);
    let mut nodes = site.nodes(3);
    // A rate that a busy machine keeps up with: under overload the nodes would be asked for fewer frames.
    let simulator = site.simulator(&["--frames", "0", "--rate", "20"]);
    site.until_more_fixes(50);
    nodes.pop().unwrap().kill();
    let (killed, _) = site.until("degraded fixes", |summary| count(summary, "degraded") >= 30);
    let before = of_node(&killed, 2, "fused");
    nodes.push(site.node(2, &[]));
    let (_, rejoined_s) = site.until("the node is back", |summary| of_node(summary, 2, "fused") > before);
    println!("rejoined after {rejoined_s:.2} s");
    site.until_more_fixes(50);
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    let summary = fusion.stop();
    assert_eq!(summary["unaccounted"], 0, "{summary}");
    let frames: Vec<u64> = fixes(&log).iter().map(|fix| count(fix, "frame")).collect();
    let widest = frames.windows(2).map(|pair| pair[1] - pair[0] - 1).max().unwrap();
    println!("{} fixes, at most {widest} frames in a row without one", frames.len());
    assert!(frames.is_sorted() && widest <= 2, "{widest} frames without a fix");
}

/// Killed four times, its log has every fix that a node was told of.
#[test]
fn a_killed_fusion_center_gets_its_nodes_back() {
    let _alone = alone();
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let with_log = ["--fixes", log.to_str().unwrap()];
    let mut fusion = site.fusion(&with_log);
    let nodes = site.nodes(3);
    let simulator = site.simulator(ENDLESS);
    for _ in 0..4 {
        site.until_more_fixes(20);
        fusion.kill();
        fusion = site.fusion(&with_log);
        let back = |summary: &Value| connected(summary) == 3 && count(summary, "fixes") > 0;
        let (_, back_s) = site.until("all nodes are back", back);
        println!("all nodes back and a fix after {back_s:.2} s");
    }
    site.until_more_fixes(20);
    simulator.stop();
    let told: Vec<Value> = nodes.into_iter().map(Process::stop).collect();
    assert_eq!(fusion.stop()["unaccounted"], 0);
    let logged = fixes(&log).len() as u64;
    for node in &told {
        let fused = count(node, "fused");
        println!("{fused} paths acknowledged, {logged} fixes in the log");
        assert!(fused <= 3 * logged, "acknowledged fixes are missing in the log: {node}");
    }
}

#[test]
fn a_restarted_simulator_goes_on() {
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&[]);
    let nodes = site.nodes(3);
    let simulator = site.simulator(ENDLESS);
    site.until_more_fixes(20);
    simulator.kill();
    let simulator = site.simulator(&["--frames", "60", "--rate", "50"]);
    site.until_more_fixes(50);
    simulator.finish();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    let summary = fusion.stop();
    assert_eq!(summary["unaccounted"], 0, "{summary}");
}

/// Every process in turn is killed and comes back with its clock an hour behind, then an hour ahead. Fixes come again, and their
/// times show that the clocks were wrong indeed.
#[test]
fn a_clock_that_is_an_hour_off_stops_no_fix() {
    let _alone = alone();
    if !cfg!(debug_assertions) {
        return skipped(
            "a_clock_that_is_an_hour_off_stops_no_fix",
            "the clock of a release build is not altered",
        );
    }
    let mut site = Site::new();
    let log = site.path("fixes.jsonl");
    let with_log = ["--fixes", log.to_str().unwrap()];
    let mut fusion = site.fusion(&with_log);
    let mut nodes = site.nodes(3);
    let mut simulator = site.simulator(ENDLESS);
    site.until_more_fixes(20);
    for offset_s in [-3600, 3600] {
        site.clock_offset_s = offset_s;
        let again = |what: &str| {
            // Fixes of the time before may be counted, but not as many.
            let (_, seconds) = site.until_more_fixes(100);
            println!("clock of the {what} {offset_s} s off: 100 further fixes after {seconds:.2} s");
        };
        nodes.pop().unwrap().kill();
        nodes.push(site.node(2, &[]));
        site.until("the node is back", |summary| connected(summary) == 3);
        again("node");
        fusion.kill();
        fusion = site.fusion(&with_log);
        again("fusion center");
        simulator.kill();
        simulator = site.simulator(ENDLESS);
        again("simulator");
    }
    simulator.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    assert_eq!(fusion.stop()["unaccounted"], 0);
    let (all, now_ns) = (fixes(&log), proto::clock::unix_time_ns() as i64);
    let hours = |ns: i64| (ns as f64 / 3.6e12).round() as i64;
    let published: BTreeSet<i64> =
        all.iter().map(|fix| hours(count(&fix["timing"], "time_ns") as i64 - now_ns)).collect();
    assert_eq!(published, BTreeSet::from([-1, 0, 1]), "the clock of the fusion center");
    // To a node with the right time, echoes of a simulator that is behind seem to have been under way for an hour.
    let longest_ms = all.iter().filter_map(|fix| fix["timing"]["emit_ms"][0].as_f64()).fold(0.0, f64::max);
    assert!(hours((longest_ms * 1e6) as i64) >= 1, "the clock of the simulator: {longest_ms} ms");
}

#[test]
fn strangers_are_refused_with_the_reason() {
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&[]);
    let nodes = site.nodes(3);
    site.until("all nodes", |summary| connected(summary) == 3);
    let second = site.node_as("impostor", 0, &["--claim-timeout-s", "1"]);
    let (code, said) = second.outcome();
    assert!(code == Some(65) && said.contains("index 0 is taken by 'node-0'"), "{code:?}: {said}");

    let other = site.path("other.toml");
    std::fs::write(&other, "seed = 99\n").unwrap();
    let (code, said) = site.node_as("stray", 1, &["--scenario", other.to_str().unwrap()]).outcome();
    assert!(code == Some(65) && said.contains("scenario"), "{code:?}: {said}");
    assert_eq!(connected(&site.summary().unwrap()), 3);
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
}

/// The test acts as the third node and sends invalid reports; bytes that are not gRPC are sent as well.
#[test]
fn a_hostile_client_harms_nobody_and_is_counted() {
    let _alone = alone();
    let site = Site::new();
    let mut fusion = site.fusion(&[]);
    fusion.started();
    let mut nodes = vec![site.node(0, &[]), site.node(1, &[])];
    site.until("both nodes", |summary| connected(summary) == 2);
    let mut garbage = TcpStream::connect(site.grpc).unwrap();
    garbage.write_all(&[0xff; 100_000]).ok();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let hostile = runtime.block_on(async {
        let mut client = FusionClient::connect(format!("http://{}", site.grpc)).await.unwrap();
        let application = v1::RegisterRequest {
            protocol_version: proto::PROTOCOL_VERSION,
            identity: "hostile".into(),
            index: Some(2),
            ..Default::default()
        };
        let session = client.register(application).await.unwrap().into_inner().session;
        let (reports, outgoing) = tokio::sync::mpsc::channel(8);
        let outgoing = tokio_stream::wrappers::ReceiverStream::new(outgoing);
        let mut request = tonic::Request::new(outgoing);
        request.metadata_mut().insert(proto::SESSION_KEY, session.parse().unwrap());
        let mut told = client.report(request).await.unwrap().into_inner();
        let block = |l: u32, k: u32| v1::Block {
            l,
            k,
            delay_s: 3e-7,
            delay_variance_s2: 1e-18,
            snr: 100.0,
            precision: v1::Precision::F32 as i32,
            rows: 10,
            columns: 10,
            block: vec![0x55; 800].into(),
            block_derivative: vec![0x55; 800].into(),
            payload: v1::Payload::Block as i32,
            ..Default::default()
        };
        let report = |frame: u64, blocks: Vec<v1::Block>| v1::FrameReport {
            run: 1,
            frame,
            noise_power_w: 1e-13,
            blocks,
            ..Default::default()
        };
        let nan = v1::Block { delay_s: f64::NAN, ..block(2, 0) };
        let foreign = block(0, 0);
        let short = v1::Block { block: vec![1; 3].into(), ..block(2, 1) };
        for hostile in [
            report(5, vec![nan, foreign, short]),
            report(u64::MAX, vec![block(2, 0)]),
            report(3, vec![block(2, 0), block(2, 0)]),
            report(1, vec![block(2, 9)]),
        ] {
            reports.send(hostile).await.unwrap();
        }
        let mut dropped = 0;
        for _ in 0..4 {
            dropped += told.message().await.unwrap().unwrap().dropped;
        }
        // Larger than any report of this scenario.
        let large = v1::Block { block: vec![0; 1 << 20].into(), ..block(2, 0) };
        reports.send(report(9, vec![large])).await.unwrap();
        assert_eq!(told.message().await.unwrap_err().code(), tonic::Code::OutOfRange);
        dropped
    });
    // Three invalid blocks, one of an invalid frame, two of a frame that no other node reports, one without a path.
    assert_eq!(hostile, 7);
    // The index is free again, and an honest node takes it.
    nodes.push(site.node(2, &[]));
    let simulator = site.simulator(&["--frames", "40", "--rate", "50"]);
    simulator.finish();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    let summary = fusion.stop();
    assert_eq!(count(&summary, "fixes"), 40, "{summary}");
    assert_eq!(count(&summary, "refused_reports"), 1, "{summary}");
    assert!((0..2).all(|node| summary["ledger"][node]["unaccounted"] == 0), "{summary}");
}

#[test]
fn sigterm_in_the_middle_loses_no_acknowledged_block() {
    let _alone = alone();
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let fusion = site.fusion(&["--fixes", log.to_str().unwrap(), "--solver-delay-ms", "15"]);
    let nodes = site.nodes(3);
    let simulator = site.simulator(ENDLESS);
    site.until_more_fixes(30);
    let summary = fusion.stop();
    simulator.stop();
    let logged = fixes(&log);
    assert_eq!(logged.len() as u64, count(&summary, "fixes") + count(&summary, "without_fix"));
    for (index, node) in nodes.into_iter().enumerate() {
        let told = node.stop();
        let (acknowledged, fused) = (count(&told, "fused"), of_node(&summary, index, "fused"));
        // The last frame is solved with the reports that had come.
        let has_part =
            |fix: &&Value| fix["nodes"].as_array().is_some_and(|nodes| nodes.contains(&index.into()));
        let part = logged.iter().filter(has_part).count() as u64;
        println!("node {index}: {acknowledged} blocks acknowledged as fused, {fused} in {part} fixes");
        assert!(acknowledged <= fused && fused == 3 * part, "{told} {summary}");
        assert!(part + 1 >= logged.len() as u64, "{summary}");
    }
}

#[test]
fn a_slow_fusion_center_holds_its_memory_and_counts_what_it_sheds() {
    let _alone = alone();
    let site = Site::new();
    // Fifty frames per second, of which it can solve five.
    let fusion = site.fusion(&["--solver-delay-ms", "200", "--workers", "1", "--queue", "4"]);
    let nodes = site.nodes(3);
    let simulator = site.simulator(&["--frames", "600", "--rate", "50"]);
    site.until("shed frames", |summary| count(summary, "frames_shed") >= 20);
    let before = fusion.memory_bytes();
    site.until("more fixes", |summary| count(summary, "fixes") >= 40);
    let growth_mib = (fusion.memory_bytes() as f64 - before as f64) / f64::from(1 << 20);
    simulator.finish();
    let told: Vec<Value> = nodes.into_iter().map(Process::stop).collect();
    let summary = fusion.stop();
    // Under overload the nodes are asked for fewer frames, the same ones everywhere.
    let left_out = count(&told[0], "dropped_at_node") / 3;
    let shed = count(&summary, "frames_shed");
    println!("grew by {growth_mib:.1} MiB while {shed} frames were shed and {left_out} left out");
    assert!(growth_mib < 32.0, "{growth_mib} MiB");
    assert!(left_out > 0, "{told:?}");
    assert_eq!(count(&summary, "fixes") + shed + left_out, 600, "{summary} {told:?}");
    assert_eq!(summary["unaccounted"], 0, "{summary}");
}

#[test]
fn a_bad_configuration_ends_before_a_port_is_bound() {
    let site = Site::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let cases: [(&str, Vec<&str>, &str, i32); 5] = [
        ("fusion-center", vec!["--listen", "nowhere"], "'nowhere' for '--listen", 64),
        ("fusion-center", vec!["--listen", &taken, "--scenario", "missing.toml"], "missing.toml", 74),
        ("simulator", vec!["--rate=-1"], "rate", 64),
        ("simulator", vec!["--no-such-flag"], "no-such-flag", 64),
        ("irs-node", vec!["--fusion", "not an address"], "fusion", 64),
    ];
    for (name, arguments, expected, expected_code) in cases {
        let (code, said) = Process::start(name, &arguments).outcome();
        assert_eq!(code, Some(expected_code), "{name} {arguments:?}: {said}");
        assert!(said.contains(expected), "{name} {arguments:?}: {said}");
    }
    drop(site);
}

#[test]
fn signals_end_every_process_cleanly() {
    let _alone = alone();
    let site = Site::new();
    let fusion = site.fusion(&[]);
    let nodes = site.nodes(3);
    let simulator = site.simulator(ENDLESS);
    site.until_more_fixes(5);
    simulator.signal(Signal::INT);
    simulator.finish();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    fusion.stop();
    for address in [site.grpc, site.http, site.echo] {
        assert!(std::net::TcpListener::bind(address).is_ok(), "{address} is still bound");
    }
}
