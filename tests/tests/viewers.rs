//! Viewers do not delay fusion. Their cost in time is measured by `cargo run -p hyloc-tests --example viewers`.
#![allow(clippy::print_stdout)]

use std::net::TcpStream;

use hyloc_tests::pipeline::*;
use hyloc_tests::process::*;

/// Frames of the run: a viewer that never reads is sent about 100 fixes, far more than its socket buffers.
const FRAMES: u64 = 600;

/// With forty viewers that never read and ten that do, every frame becomes a fix, the readers are served to the end, and
/// the memory for the others is bounded.
#[test]
fn viewers_that_never_read_delay_nobody() {
    let _alone = alone();
    let site = Site::new();
    let log = site.path("fixes.jsonl");
    let patient = ["--queue", "4096", "--deadline-ms", "30000", "--fixes", log.to_str().unwrap()];
    let mut fusion = site.fusion(&patient);
    fusion.started();
    let viewers: Vec<TcpStream> = (0..50).map(|viewer| viewer_of(site.http, viewer < 10)).collect();
    let nodes = site.nodes(3);
    let frames = FRAMES.to_string();
    let simulator = site.simulator(&["--frames", &frames, "--rate", "50"]);
    site.until("a third of the fixes", |summary| count(summary, "fixes") >= FRAMES / 3);
    let before = fusion.memory_bytes();
    simulator.finish();
    // Events still arrive although forty viewers have not read any.
    site.until("all fixes", |summary| count(summary, "fixes") == FRAMES);
    live_event(site.http, "status");
    let growth_mib = (fusion.memory_bytes() as f64 - before as f64) / f64::from(1 << 20);
    println!("memory grew by {growth_mib:.1} MiB");
    assert!(growth_mib < 32.0, "{growth_mib} MiB");
    drop(viewers);
    nodes.into_iter().for_each(|node| drop(node.stop()));
    let summary = fusion.stop();
    assert_eq!((count(&summary, "fixes"), count(&summary, "without_fix")), (FRAMES, 0), "{summary}");
    assert_eq!(summary["unaccounted"], 0, "{summary}");
    let numbers: Vec<u64> = fixes(&log).iter().map(|fix| count(fix, "frame")).collect();
    assert_eq!(numbers, (0..FRAMES).collect::<Vec<_>>(), "each is written once, in order");
}
